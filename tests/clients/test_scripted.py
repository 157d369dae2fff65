"""A scripted chat model."""

import pytest

from focusmem.clients.scripted import ScriptedChat
from focusmem.errors import WorldError
from focusmem.schemas import Turn

QUESTION = (Turn("user", ("Is it red?",)),)


def test_replies_come_in_order_and_end():
    chat = ScriptedChat(["Yes", "No"])
    assert [chat.ask(QUESTION).text, chat.ask(QUESTION).text] == ["Yes", "No"]
    with pytest.raises(WorldError, match="only 2 replies"):
        chat.ask(QUESTION)
    assert chat.asked == [QUESTION] * 3


def test_a_function_sees_the_prompt():
    assert ScriptedChat(lambda prompt: prompt[0].parts[0]).ask(QUESTION).text == "Is it red?"
