"""A key is planted, servers repeat it in every way, and everything that is written is searched for it."""

import base64
import json
import logging
from urllib.parse import quote

import pytest

from chat_server import ChatServer, completion
from clients.asking import PROMPT, make_client
from focusmem.clients.keys import Key
from focusmem.errors import ConfigError, FocusmemError
from focusmem.schemas import Turn

KEY = 'sk-"pl/anted+9f8e7d6c'
FORMS = [KEY, json.dumps(KEY)[1:-1], quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode()]
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
_TEXT = json.dumps(completion(f"You sent Bearer {KEY}. Again: {quote(KEY, safe='')}")[1])


def with_text(text):
    return 200, json.dumps({"choices": [{"message": {"content": text, "reasoning": f"The key is {text}"}}]})


ECHOES = {
    "in a reply": with_text(f"You sent Bearer {KEY}; {FORMS[2]}; {FORMS[3]}."),
    "in a reply that is cut off": completion(f"{KEY}", "length"),
    "in escapes": (200, f'{{"choices": [{{"message": {{"content": "{ESCAPED}"}}}}]}}'),
    "in an error": (401, json.dumps({"error": {"message": f"Wrong key {KEY}", "code": KEY}})),
    "in an error's escapes": (400, f'{{"detail": "{ESCAPED}"}}'),
    "in an error of plain text": (400, f"{'x' * 290} Bearer {KEY}"),
    "in garbage": (200, f"<html>Bearer {KEY}"),
    "in a name": (200, json.dumps({KEY: 1})),
    "in a failure": (500, f"Bearer {KEY}"),
    "in headers": (429, "", {"X-Echo": KEY, "Retry-After": KEY}),
    "in a redirection": (302, "", {"Location": f"http://elsewhere.test/{KEY}"}),
    "in a completion without text": (200, json.dumps({"choices": [{"message": {"content": None, "refusal": KEY}}]})),
}


@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES)
def test_a_key_that_a_server_repeats_is_written_nowhere(answer, tmp_path, monkeypatch, caplog, capfd):
    monkeypatch.setenv("EYES_KEY", KEY)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    said = ""
    with ChatServer(answer) as server:
        client = make_client(server, key_variable="EYES_KEY", store=tmp_path, num_attempts=2)
        for prompt in (PROMPT, (*PROMPT, Turn("user", (f"The page shows {KEY}.",)))):
            try:
                said += repr(client.ask(prompt))
            except FocusmemError as error:
                said += f"{error!r} {error.__cause__!r} {error.__context__!r}"
        said += repr(client.config) + repr(vars(client)) + client.identity
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}", "it was sent where it belongs"
    said += caplog.text + "".join(capfd.readouterr())
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    for text in (said, *written):
        for form in (*FORMS, ESCAPED, KEY[:12]):
            assert form not in text


def test_a_part_of_a_key_at_the_end_of_a_message_does_not_remain(monkeypatch):
    monkeypatch.setenv("EYES_KEY", KEY)
    for start in range(280, 301):
        with ChatServer((400, "x" * start + KEY)) as server, pytest.raises(FocusmemError) as caught:
            make_client(server, key_variable="EYES_KEY").ask(PROMPT)
        assert KEY[:5] not in str(caught.value)


def test_a_key_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("EYES_KEY", raising=False)
    with pytest.raises(ConfigError, match="EYES_KEY"):
        Key("EYES_KEY")


@pytest.mark.parametrize("key", ["secret", "EMPTY", "long-enough\x07", "sch\u00f6ner-schl\u00fcssel"])
def test_a_key_that_could_not_be_kept_out_or_sent_is_refused_without_showing_it(monkeypatch, key):
    monkeypatch.setenv("EYES_KEY", key)
    with pytest.raises(ConfigError, match="EYES_KEY") as caught:
        Key("EYES_KEY")
    assert key not in str(caught.value)


def test_without_a_key_texts_stay_as_they_are():
    assert Key(None).removed_from("Bearer [key]") == "Bearer [key]"
