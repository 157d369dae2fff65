"""Reads a server's chat completion, or its error message."""

import json
from dataclasses import dataclass
from typing import Any, Final

from focusmem.clients.keys import Key
from focusmem.clients.spending import Usage

_SHOWN_CHARACTERS: Final = 300


class BrokenReplyError(Exception):
    """The server's answer is no chat completion."""


@dataclass(frozen=True)
class ReceivedReply:
    text: str | None
    """None if the completion has no text."""
    is_cut_off: bool
    reasoning: str
    """Thoughts that the server sends in a separate field; otherwise empty."""
    usage: Usage
    shown: str
    """The beginning of the answer, for messages."""


def read_completion(body: bytes, key: Key) -> ReceivedReply:
    try:
        document = key.removed_from_all(json.loads(body))
        choice = document["choices"][0]
        message, is_cut_off = choice["message"], choice.get("finish_reason") == "length"
        text = message["content"]
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        usage = Usage.of(document.get("usage"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BrokenReplyError(beginning(body, key)) from None
    if isinstance(text, list):  # some servers send text in parts
        text = "".join(part.get("text") or "" for part in text if isinstance(part, dict))
    if text is None and is_cut_off:  # a reasoning model that was cut off before its answer
        text = ""
    return ReceivedReply(
        text if isinstance(text, str) else None,
        is_cut_off,
        reasoning if isinstance(reasoning, str) else "",
        usage,
        beginning(body, key),
    )


def error_message(body: bytes, key: Key) -> str:
    """A server's error message if it has the usual form, otherwise the whole answer."""
    try:
        document = json.loads(body)
        error = document.get("error", document)
        message = error if isinstance(error, str) else error["message"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return beginning(body, key)
    return _quoted(key.removed_from(str(message)))


def error_fields(body: bytes) -> tuple[str, str]:
    """The code and the parameter of an error in the form of OpenAI's servers; each is empty if it is missing."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("code") or ""), str(error.get("param") or "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", ""


def beginning(body: bytes, key: Key) -> str:
    """The start of an answer, in quotes. The key is removed before the text is cut, because a cut key could not be
    recognised.
    """
    text = body.decode(errors="replace")
    try:
        plain: Any = json.loads(text)
        if isinstance(plain, dict | list):  # written anew, so that the key cannot hide behind escapes
            text = json.dumps(key.removed_from_all(plain), ensure_ascii=False)
    except (ValueError, RecursionError):
        pass
    return _quoted(key.removed_from(text))


def _quoted(text: str) -> str:
    return repr(text[:_SHOWN_CHARACTERS]) + ("..." if len(text) > _SHOWN_CHARACTERS else ".")
