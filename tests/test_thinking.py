"""Thoughts are set aside before a reply is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focusmem.thinking import Thinking, set_thinking_aside

ACT = '{"name": "wait", "arguments": {}}'
OTHER = '{"name": "stop", "arguments": {"answer": ""}}'


@pytest.mark.parametrize(
    ("reply", "thoughts", "answer"),
    [
        (ACT, "", ACT),
        (f"I wait.\n{ACT}", "", f"I wait.\n{ACT}"),
        (f"<think>Perhaps {OTHER}?</think>{ACT}", f"Perhaps {OTHER}?", ACT),
        (f"\n<think>\nA\n</think>\n\n{ACT}", "A", f"\n\n{ACT}"),
        (f"<Thought>A</thought>{ACT}", "A", ACT),
        (f"<thinking>A</thinking><think>B</think>{ACT}", "A\n\nB", ACT),
        (f"<think></think>{ACT}", "", ACT),
        # Qwen3-Thinking and DeepSeek-R1: the opening tag stands in the prompt.
        (f"Perhaps {OTHER}? No.\n</think>\n{ACT}", f"Perhaps {OTHER}? No.", f"\n{ACT}"),
        # GLM-4.1V-Thinking.
        (f"<think>A</think><answer>{ACT}</answer>", "A", ACT),
        (f"<think>A</think>\n<answer>I do <|begin_of_box|>{ACT}<|end_of_box|>.</answer>", "A", ACT),
        (f"<think>A <|begin_of_box|>{OTHER}<|end_of_box|></think><|begin_of_box|>{ACT}<|end_of_box|>", 
         f"A <|begin_of_box|>{OTHER}<|end_of_box|>", ACT),
        (f"<answer>{ACT}</answer>", "", ACT),
        (f"<answer>{ACT}", "", ACT),
        # Cut off while it was thinking.
        ("<think>A, and then", "A, and then", ""),
        # Two answers are both left, for the reader to refuse.
        (f"<|begin_of_box|>{ACT}<|end_of_box|><|begin_of_box|>{OTHER}<|end_of_box|>", "", f"{ACT}\n{OTHER}"),
        # Tags in what is typed are text.
        ('{"name": "type", "arguments": {"text": "</think><answer>x</answer>"}}', "",
         '{"name": "type", "arguments": {"text": "</think><answer>x</answer>"}}'),
        ('{"text": "<|begin_of_box|>x<|end_of_box|>"}', "", '{"text": "<|begin_of_box|>x<|end_of_box|>"}'),
        ("<b>bold</b>", "", "<b>bold</b>"),
    ],
)  # fmt: skip
def test_thoughts_and_answer(reply, thoughts, answer):
    assert set_thinking_aside(reply) == Thinking(thoughts, answer)


@given(st.text(alphabet="abc<>/{}\n\"'", max_size=60))
def test_without_tags_a_reply_is_its_answer(reply):
    assert set_thinking_aside(reply) == Thinking("", reply)


@given(st.text(alphabet="a {\n</tihnk>", max_size=40), st.text(alphabet="ab {}\n", max_size=20))
def test_whatever_is_thought_is_no_answer(thoughts, answer):
    if "</think>" not in thoughts.lower():
        assert set_thinking_aside(f"<think>{thoughts}</think>{answer}") == Thinking(thoughts.strip(), answer)
