"""Replaces the particulars of an instruction by slots, so that two requests of the same kind become equal.

Capital letters mark names: a capitalised word within a sentence is a name; at the start of a sentence it is one unless
the word is known to begin sentences. This works best on ordinarily written English. Where this is not enough, a
catalogue of names helps. Its names are found in upper and lower case. When in doubt, a word becomes a slot: merging two
kinds of tasks only loses a trajectory, but splitting one kind into two would let an answer through.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cached_property

from focusmem.files import sha256_hex

SLOT = "<slot>"
RULES_VERSION = 3
"""Increased when a change of the rules gives another template for the same instruction."""

_MARK = "\ue000"  # a slot while the text is processed; private-use, so that no other text contains it
_MAX_LENGTH = 4_000  # characters that are read; longer instructions are compared by their beginning

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
# Addresses, and forums and people as sites write them: r/books, #lamps, @anna.
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?<![\w/])/?[fru]/\w+|[#@]\w+")
# Digits with attached Latin letters (16GB, 3rd, WH-1000XM4) and with further digits after a separator (1,299.99, 9:30).
# "May" before a number is included, because it is the only month that is also another word.
_NUMBER = re.compile(r"(?:\bMay\s+)?[A-Za-z]*\d[A-Za-z\d]*(?:[-.,:/]\d[A-Za-z\d]*)*")
_CLOCK = re.compile(rf"{_MARK}\s*(?:[ap]\.?m|o['\u2019]clock)\b", re.IGNORECASE)
_TOKEN = re.compile(rf"{_MARK}|[^\W_]+(?:['\u2019.&/+-][^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?:;)\n\u2026]|\s[-\u2013\u2014]\s")
_HOST = re.compile(r"(?:[\w-]+\.)+[a-z]{2,}", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{\{[^{}]*\}\}|\{[^{}]*\}|<[^<>]*>|\[[^\[\]]*\]")
# "Bank of America" and "Beauty and the Beast" are one name each, not two. An article in front belongs to the name.
_SLOT_RUN = re.compile(
    rf"(?:\b(?:the|an?) )?{_MARK}"
    rf"(?: (?:(?:of the|of|and the|and|de la|de|del|der|di|da|du|la|von|van der|van) )?{_MARK})*"
)

_NUMBER_WORDS = "|".join(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen "
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth twentieth noon midnight".split()
)
_WRITTEN_NUMBER = re.compile(
    rf"(?<![\w.&/+'\u2019-])(?:{_NUMBER_WORDS})(?:[-/](?:{_NUMBER_WORDS}))*(?![\w&/+'\u2019]|\.\w)", re.IGNORECASE
)
_ODD_PLURALS = {"people": "person", "children": "child"}

# Words that begin a sentence without being names: their capital letter there does not make them names.
_OPENING_WORDS = frozenset(
    """
    a abandon abort about above accept access according account across activate adapt add address adjust advance after
    again against ago agree ahead aim aint alert all allocate allow along already also alter although altogether always
    am among amount an analyse analyze and annotate announce another answer any anyone anything anyway anywhere apart
    append apply appoint appraise approve archive are arent around arrange arrive article as ascertain aside ask
    assemble assess assign assume assuming at attach attend authenticate author authorise authorize available average
    away back backup ban based be beat because become been before begin behind being below beneath besides best better
    between beyond bid bigger biggest bill bind blacklist block blur book bookmark boost borrow both bring broadcast
    browse build bulk bundle but buy by calculate call can cancel cant cast categorise categorize category celebrate
    certify challenge change charge chart chat cheap cheaper cheapest check checkout choose claim classify clean clear
    clearest click clone close closest coldest collapse collect comment commit common communicate compare compile
    complain complete compose compress compute concatenate concerning conclude conduct configure confirm connect
    consider considering consult contact containing continue contribute control convert coordinate copy correct could
    couldnt count couple crawl create credit crop cross current currently customer customers customise customize cut
    date days deactivate dearest debit debug decide decline decrease dedicate deduct deduplicate define delay delete
    deliver demonstrate demote deny depending deploy deposit derive describe deselect design despite detail details
    detect determine develop diagnose dial did didnt directions directly disable disagree disallow disapprove discard
    disconnect discontinue discount discover discuss dislike dismiss dispatch display distribute divide do document does
    doesnt donate dont double downgrade download downvote draft drag draw drop duplicate during each earliest earn
    easiest easy edit either elaborate else email emulate enable ending enlarge enlist enrol enroll ensure enter entry
    enumerate erase escalate especially establish estimate evaluate even ever every everybody everyday everyone
    everything everywhere exact exactly examine example except exchange exclude excluding execute existing expand expect
    expensive experiment explain explore export express extend extra extract fair far fast faster fastest favorite
    favourite feature feed fetch few fewer fewest figure file files fill filter final finalise finalize finally find
    finish fire fix flag flights flip focus follow following for force forecast fork format former forward free freeze
    fresh from fulfil fulfill full furthermore furthest gather gauge general generate get give given go goal good google
    grab grant great greatest group guess guide had hadnt half handle hardest has hasnt have havent he head heavier
    heaviest hed hell hello help hence her here heres herself hes hey hi hide high higher highest highlight him himself
    hire his hold host hot hotels hottest hours hover how however hows hunt i id identify if ill illustrate im image
    images import important improve in include included including increase indicate inform information initialise
    initialize initiate input inquire insert inside inspect install instead instruct instruction instructions integrate
    interact interpret into introduce invalidate invest investigate invite invoice is isnt issue it itd item items
    iterate itll its itself ive job jobs join jump just keep key kick label large larger largest last lastly later
    latest launch lead learn least leave lend lengthen less let lets level leverage license lift lighter lightest like
    likewise limit link links list listen little live load local locate location lock log login logout long longer
    longest look looking loop lots low lower lowest mail main maintain make manage many map mark mask match maximise
    maximize maximum may maybe me meanwhile measure memorise memorize mend mention merge message messages might migrate
    mine minimise minimize minimum minus mirror modify monitor month more moreover most mount move much multiply must
    mustnt mute my myself name names narrow navigate near nearby nearest need negotiate neither never new newer newest
    next nicest no nobody nominate nor normally not note nothing notify now number object objective observe obtain of
    off offer often oh ok okay old older oldest omit on onboard once one only onto open opposite opt optimise optimize
    or order orders organise organize original other others otherwise our ours ourselves out outline outside over
    overall overwrite own pack page pages paint park parse participate pass past paste patch pause pay people per
    perhaps permit persist person personalise personalize phone photo photograph photos pick picture pictures pin ping
    place plan play please plot plus point poll popular possible post postpone pour practice practise predict prefer
    prepare present preserve press prevent preview previous previously price prices print prior prioritise prioritize
    process procure produce product products program project promote prompt propose protect prove provide provided
    publish pull purchase push put quantify query question queue quick quickest quickly quit quite quote raise rank
    rarest rate rather rating reach react reactivate read rearrange reassign reblog rebook reboot rebuild recall receive
    recent recently recharge recipe recipes recommend reconcile reconnect record recover redeem redirect redo redraft
    reduce refer refill refine reformat refresh refund refuse regarding regardless register reinstall reject related
    release reload relocate remember remind remote remove rename render renew rent reopen reorder reorganise reorganize
    repair repay repeat rephrase replace reply report repost represent reproduce request reschedule research resend
    reserve reset resize resolve respectively respond restart restock restore restrict resubmit result results resume
    retitle retrieve retry return retweet reuse reveal reverse revert review reviews revise revoke reward rewrite right
    ring rooms rotate route run same sample save say scan schedule scrape screen screenshot scroll search secure see
    segment select sell send separate serve set settle several shall share shared she shed shes shift ship shoes shop
    short shorten shorter shortest should shouldnt show shrink shuffle shut sign signup similar similarly simple
    simplest simplify simulate since sing single site size skip slide slowest small smaller smallest so solve some
    somehow someone something sometimes somewhere soon soonest sort special specifically specify spell spend split
    sponsor stack stage star start starting stash state stay step steps still stop store stream strip strongest study
    submit subscribe subtract such suggest sum summarise summarize supply support suppose sure suspend swap swipe switch
    sync synchronise synchronize tag take talk tallest tap target task tasks teach team tell terminate test text than
    thank that thats the their them themselves then there therefore theres these they theyd theyll theyre theyve things
    this those though thread through throughout thus tick tickets time tip title to today together toggle tomorrow
    tonight too top topic total touch toward towards trace track trade train transcribe transfer transform translate
    transpose trigger trim triple try tune turn tweet twice type ultimately unarchive unassign unban unblock uncheck
    undelete under undo unfavorite unfavourite unflag unfollow unfork unfreeze unhide uninstall unless unlike unlink
    unlist unlock unmark unmute unpin unpublish unregister unsave unselect unshare unstar unsubscribe until unwatch up
    upcoming update upgrade upload upon upvote use user users using usually utilise utilize validate value various
    verify versus very via video videos view visit voice vote wait wake walk want warn was wash wasnt watch we weakest
    website wed week well went were werent weve what whats when where wheres whether which while whitelist who whom whos
    whose why whys widen widest will win wipe with withdraw within without wont words work worst would wouldnt wrap
    write year years yes yesterday yet yield you youd youll youngest your youre yours yourself youve zoom
    """.split()
)
# The words among these that also begin names: New York, Under Armour, Will Smith, Mark Twain.
_NAME_BEGINNINGS = frozenset("best grant mark may new top under will".split())
# Words that always have a capital letter without being names.
_SPEAKER = frozenset("i id ill im ive".split())


class Catalogue:
    """Names that always become slots, in any case and punctuation: products, people, places of a site."""

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
        """The indices of the folded words that belong to a name. If two names begin at the same word, the longer name
        counts.
        """
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
    folded = [_folded(word) for word in _TOKEN.findall(text)]
    names = _names(text, folded) | catalogue.places(folded)
    words = [_MARK if place in names else word for place, word in enumerate(folded)]
    # After a slot, singular and plural become equal: one ticket, two tickets.
    counted = [_singular(word) if before == _MARK else word for before, word in zip(["", *words], words, strict=False)]
    return _joined(counted) or _bare(text)


def plain_template(template: str) -> str:
    """An annotated template in folded words; its placeholders, however they are written, become slots."""
    text = _PLACEHOLDER.sub(f" {_MARK} ", _normalised(template))
    return _joined([_folded(word) for word in _TOKEN.findall(text)]) or _bare(text)


def fold(text: str) -> str:
    """The words of a text in folded form, without case, accents, punctuation and spaces."""
    text = _normalised(text)
    return " ".join(_folded(word) for word in _TOKEN.findall(text)) or _bare(text)


def _names(text: str, folded: list[str]) -> set[int]:
    """The indices of words that are names by their capital letters, or host names."""
    found: set[int] = set()
    has_case = text != text.upper()  # in text written all in capitals, they mark no names
    is_name_next, begins_next = False, True
    tokens = list(_TOKEN.finditer(text))
    for place in range(len(tokens) - 1, -1, -1):
        written, word = tokens[place].group(), folded[place]
        before = text[tokens[place - 1].end() : tokens[place].start()] if place else ""
        begins = not place or _SENTENCE_END.search(before) is not None
        if not has_case or written == written.lower():
            is_name = False
        elif begins:
            is_name = word not in _OPENING_WORDS or (word in _NAME_BEGINNINGS and is_name_next and not begins_next)
        else:
            is_name = word not in _SPEAKER
        if is_name or _HOST.fullmatch(written):
            found.add(place)
        is_name_next, begins_next = is_name, begins
    return found


def _singular(word: str) -> str:
    """An approximate singular. It only has to be the same for the singular and the plural of a word."""
    if len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    stem = _ODD_PLURALS.get(word, word).removesuffix("s")
    return f"{stem[:-2]}y" if stem.endswith("ie") else stem


def _words(text: str) -> list[str]:
    return _TOKEN.findall(_prepared(text))


def _prepared(text: str) -> str:
    text = _normalised(text)
    for pattern in (_QUOTED, _ADDRESS, _NUMBER, _WRITTEN_NUMBER, _CLOCK):
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
    while (shorter := _SLOT_RUN.sub(_MARK, text)) != text:  # merged slots may join into a longer name
        text = shorter
    return text.replace(_MARK, SLOT)


def _bare(text: str) -> str:
    """A key for text without any word, such as a row of symbols."""
    return " ".join(text.casefold().split())
