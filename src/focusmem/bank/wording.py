"""An instruction with its particulars replaced by slots, so that two askings of the same kind become equal.

Case tells names from other words, so it works best on ordinarily written English; a catalogue of names, which is
matched in any case, helps where that is not enough. When in doubt a word becomes a slot: taking two kinds of tasks
for one costs a trajectory, taking one kind for two would let an answer through.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cached_property

from focusmem.files import sha256_hex

SLOT = "<slot>"
RULES_VERSION = 2
"""Raised when the same instruction would give another template."""

_MARK = "\ue000"  # a slot while the text is worked on: a private character, so that no text brings its own
_MAX_LENGTH = 4_000  # of what is looked at; longer instructions are told apart by their beginning

_QUOTED = re.compile(
    "|".join(
        [
            r'"[^"\n]+"',
            "`[^`\n]+`",
            "\u201c[^\u201d\n]+\u201d",
            "\u201e[^\u201c\u201d\n]+[\u201c\u201d]",
            "\u00ab[^\u00bb\n]+\u00bb",
            "\u300c[^\u300d\n]+\u300d",
            # Single quotes are also apostrophes: they open after a break, close before one, and may hold others.
            r"(?<![^\W_])'(?=\S)[^'\n]*(?:'(?=[^\W_])[^'\n]*)*(?<=\S)'(?![^\W_])",
            "(?<![^\\W_])\u2018(?=\\S)[^\u2019\n]*(?:\u2019(?=[^\\W_])[^\u2019\n]*)*(?<=\\S)\u2019(?![^\\W_])",
        ]
    )
)
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
# Digits with the Latin letters that stick to them (16GB, 3rd, WH-1000XM4), and what follows as 1,299.99 or 9:30 does.
_NUMBER = re.compile(r"[A-Za-z]*\d[A-Za-z\d]*(?:[-.,:/]\d[A-Za-z\d]*)*")
_TOKEN = re.compile(rf"{_MARK}|[^\W_]+(?:['\u2019.&/+-][^\W_]+)*")
_HOST = re.compile(r"(?:[\w-]+\.)+[a-z]{2,}", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{\{[^{}]*\}\}|\{[^{}]*\}|<[^<>]*>|\[[^\[\]]*\]")
# Bank of America, The Lord of the Rings: one name, not two, and whether it has an article depends on the name.
_SLOT_RUN = re.compile(
    rf"(?:\b(?:the|an?) )?{_MARK}(?: (?:(?:of the|of|de la|de|del|der|di|da|du|la|von|van der|van) )?{_MARK})*"
)

_NUMBER_WORDS = frozenset(
    "zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen "
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth twentieth".split()
)

# Words that are no names even when they are written with a capital letter, as at the beginning of a sentence.
_PLAIN_WORDS = frozenset(
    "a about above access according across add after again against all along also although always am among an and "
    "another any anyone anything apply are around arrange as ascertain ask assume at average be because been before "
    "begin being below between book both bring browse but buy by calculate can cancel change check choose click close "
    "collect compare complete compute confirm consider considering convert copy could count create customer decide "
    "delete describe despite detail determine did discover display do does download during each edit either enter "
    "establish estimate evaluate every everything examine except exclude explain explore extract fetch figure fill "
    "filter find fix follow for from gather generate get give given go had has have he help her here highlight him "
    "his hover how however hows i id identify if im in include indicate input inspect into introduce investigate is "
    "it its ive just keep last latest learn leave let lets like limit list locate log look looking make many may me "
    "mention might monitor more most move much must my name narrow navigate near need never new next no not note now "
    "obtain of off offer on once one only open or order other our out over pay pick place plan play please point post "
    "press print provide pull purchase put query rank rate reach read recommend record regarding register remove "
    "repeat report request research reserve retrieve return review save say scroll search see select send set shall "
    "she should show sign since so some someone something sort specify start starting state still stop submit "
    "subscribe such suggest summarise summarize suppose switch take tell test than that the their them then there "
    "these they this those through to today track translate try turn type under unless until up update upload us use "
    "user using verify view visit want was watch we were what whats when where whether which while who whom whose why "
    "will with within without work would write yes you your zoom".split()
)


class Catalogue:
    """Names that always become slots, whatever their case and punctuation: products, people, places of a site."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        found = {tuple(_folded(word) for word in _words(name)) for name in names}
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        for name in sorted(found, key=len, reverse=True):
            if set(name) - {_MARK}:
                self._by_first.setdefault(name[0], []).append(name)

    @cached_property
    def digest(self) -> str:
        return sha256_hex(repr(sorted(name for names in self._by_first.values() for name in names)).encode())

    def places(self, words: list[str]) -> set[int]:
        """Which of these folded words belong to a name; of two that begin at one word, the longer counts."""
        found: set[int] = set()
        place = 0
        while place < len(words):
            names = self._by_first.get(words[place], ())
            length = next((len(name) for name in names if tuple(words[place : place + len(name)]) == name), 0)
            found.update(range(place, place + length))
            place += max(1, length)
        return found


NO_NAMES = Catalogue()


def slot_template(instruction: str, catalogue: Catalogue = NO_NAMES) -> str:
    """The instruction in folded words, with numbers, quoted strings, addresses and names as slots."""
    text = _prepared(instruction)
    written = _TOKEN.findall(text)
    folded = [_folded(word) for word in written]
    # Text in capitals alone does not tell names from other words.
    has_case = text != text.upper()
    in_catalogue = catalogue.places(folded)
    words = [
        _MARK if place in in_catalogue or _is_particular(written[place], word, has_case=has_case) else word
        for place, word in enumerate(folded)
    ]
    return _joined(words) or _bare(text)


def plain_template(template: str) -> str:
    """An annotated template in folded words; its placeholders, however they are written, become slots."""
    text = _PLACEHOLDER.sub(f" {_MARK} ", _normalised(template))
    return _joined([_folded(word) for word in _TOKEN.findall(text)]) or _bare(text)


def fold(text: str) -> str:
    """Folded words alone: case, accents, punctuation and spaces do not count."""
    text = _normalised(text)
    return " ".join(_folded(word) for word in _TOKEN.findall(text)) or _bare(text)


def _is_particular(written: str, folded: str, *, has_case: bool) -> bool:
    is_number = all(part in _NUMBER_WORDS for part in written.casefold().split("-"))
    is_name = has_case and written != written.lower() and folded not in _PLAIN_WORDS
    return is_number or is_name or _HOST.fullmatch(written) is not None


def _words(text: str) -> list[str]:
    return _TOKEN.findall(_prepared(text))


def _prepared(text: str) -> str:
    text = _normalised(text)
    for pattern in (_QUOTED, _ADDRESS, _NUMBER):
        text = pattern.sub(f" {_MARK} ", text)
    return text


def _normalised(text: str) -> str:
    return unicodedata.normalize("NFKC", text[:_MAX_LENGTH]).replace(_MARK, " ")


def _folded(word: str) -> str:
    if word == _MARK:
        return word
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in plain if char.isalnum())


def _joined(words: list[str]) -> str:
    text = " ".join(words)
    while (shorter := _SLOT_RUN.sub(_MARK, text)) != text:  # what is left may make a longer name
        text = shorter
    return text.replace(_MARK, SLOT)


def _bare(text: str) -> str:
    """What is left to compare where there is no word at all, as in a row of signs."""
    return " ".join(text.casefold().split())
