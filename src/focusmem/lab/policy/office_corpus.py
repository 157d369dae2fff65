"""Training examples about offices: read their lists, find one entry in them, act on them, and answer the probes.

A value is asked for only where something in front shows it: a list told in words, a view, a record of the same office
among others that look alike, or the history of the episode.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

from focusmem.lab.policy.corpus import Corpus, Mix, Situation
from focusmem.lab.policy.packing import Example
from focusmem.lab.world.address import Address
from focusmem.lab.world.answers import facts_seen, notes
from focusmem.lab.world.misleading import on_site
from focusmem.lab.world.office_answers import used_way
from focusmem.lab.world.office_pages import FIELDS
from focusmem.lab.world.offices import LISTS, ListName, Office
from focusmem.lab.world.probes import PROBES, probe_answer
from focusmem.lab.world.requests import NUM_NOTICES
from focusmem.lab.world.rollout import Rollout, RolloutStep, roll_out
from focusmem.lab.world.site import OFFICE
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import KINDS, KINDS_LEFT, USES, LabTask, make_task
from focusmem.schemas import Instruction, Prompt, Role, Turn, action_to_json, make_action
from focusmem.schemas.action import AnyAction

NUM_ASKED = 6
"""Entries that are asked for in one row."""
_NUM_VIEWS = 3
_NUM_DECISIONS = 2
"""Decisions of an episode, besides those that need a value."""
_LOOKED = make_action("wait")


def list_view(office: Office, name: ListName, *, few: int | None = None) -> RolloutStep:
    """A view of a list; with `few`, of its first entries only."""
    shown = "" if few is None else f"&few={few}"
    path = f"/{office.site_id}/list/{name}?pass={office.staff_pass}{shown}"
    return RolloutStep(path, 0, (), _LOOKED, None)


def told_values(office: Office, asked: Sequence[tuple[ListName, str]]) -> Turn:
    """Entries with their values, in the words of notes."""
    told = [f"{LISTS[name].phrase(entry)} {office.value(name, entry)}" for name, entry in asked]
    return Turn("user", (f"Notes on {office.name}: {'; '.join(told)}.",))


def question_for(name: ListName, entry: str) -> Turn:
    """Asks for the action that gives the value of an entry."""
    return Turn("user", ("Task: ", Instruction(f"give the {LISTS[name].phrase(entry)}.")))


def giving(name: ListName, value: str) -> AnyAction:
    """The action that gives a value to a part of a request."""
    if name == "departments":
        return make_action("click", description=value)
    return make_action("type", text=value, description=FIELDS[name])


def every_entry(office: Office) -> list[tuple[ListName, str]]:
    return [(name, entry) for name in office.lists for entry in office.entries[name]]


@dataclass(frozen=True)
class Question:
    """A prompt with its right reply, to examine a policy with."""

    group: int
    """Questions of a group are about the same thing."""
    name: str
    prompt: Prompt
    reply: str
    is_text: bool = False
    """Whether the reply is a text of clauses; otherwise it is an action."""


class OfficeCorpus(Corpus):
    """The examples of markets and encyclopedias, and those of offices."""

    def _lists(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Transcriptions of lists and notices, and completions of their lines."""
        made = []
        for _ in range(_NUM_VIEWS):
            view = self._some_list(rng)
            picture = self.picture(view)
            question = self.texts.questions.fill("transcribe")
            turns = [Turn("user", (picture, question)), Turn("assistant", (self._words_in_view(view),))]
            made.append(self._row(turns, [view], "list/transcription"))
            lines = [line for line in self._lines_in_view(view) if len(line) > 1]
            turns = [Turn("user", (picture,))]
            for line in rng.sample(lines, min(NUM_ASKED, len(lines))):
                start = rng.choice(range(0, len(line) - 1, 2))
                turns.append(Turn("user", (f"Read on: {line[start]}",)))
                turns.append(Turn("assistant", (" ".join(line[start + 1 :]),)))
            made.append(self._row(turns, [view], "list/line"))
        return made

    def _entries(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Single entries of lists that are told in words, seen in one view, or passed in a record."""
        office = self.world.office(self._office(rng))
        made = []
        for front in self._fronts(office, rng):
            turns = [*front.turns]
            for name, entry in rng.sample(front.shown, min(NUM_ASKED, len(front.shown))):
                reply = action_to_json(giving(name, office.value(name, entry)))
                turns += [question_for(name, entry), Turn("assistant", (reply,))]
            made.append(self._row(turns, front.views, f"entry/{front.name}"))
        return made

    def entry_questions(self, rng: random.Random, group: int) -> list[Question]:
        """One entry of each front, asked for alone."""
        office = self.world.office(self._office(rng))
        made = []
        for front in self._fronts(office, rng):
            name, entry = rng.choice(front.shown)
            reply = action_to_json(giving(name, office.value(name, entry)))
            made.append(Question(group, front.name, (*front.turns, question_for(name, entry)), reply))
        return made

    def _fronts(self, office: Office, rng: random.Random) -> "list[_Front]":
        """Lists that are told in words, seen in one view, or passed in a record."""
        some = rng.sample(every_entry(office), rng.choice((2, 4, 8, 16, 24)))
        name = rng.choice(office.lists)
        rollout = self._left_at(office.site_id, rng)
        view = list_view(office, name)
        seen = [(name, entry) for entry in office.entries[name]]
        record = self._record(rollout, rollout.steps, "episodic")
        return [
            _Front("told", [told_values(office, some)], [], some),
            _Front("seen", [Turn("user", (self.picture(view),))], [view], seen),
            _Front("record", record, rollout.steps, every_entry(office)),
        ]

    def _requests(self, rng: random.Random, mix: Mix) -> list[Example]:
        """Decisions of visitors with the agent's exact prompt. Those that need a value are left out if nothing in front
        shows it.
        """
        found, is_known = self.office_situation(rng, mix.help)
        has_history = mix.has_history or (found.task.request is not None and bool(found.task.request.notices))
        ways = [self._way(step) for step in found.rollout.steps]
        needing = [at for at, way in enumerate(ways) if way is not None and is_known]
        others = [at for at, way in enumerate(ways) if way is None]
        places = {*needing, *rng.sample(others, min(_NUM_DECISIONS, len(others)))}
        shown = replace(mix, has_history=has_history)
        return [self._decision(found, at, shown) for at in sorted(places)]

    def request_questions(self, rng: random.Random) -> Iterator[Question]:
        """Decisions that need a value, with the record, the notes or the history that shows it; without end."""
        for group in count():
            found, is_known = self.office_situation(rng, rng.choice(("record", "notes")))
            steps = found.rollout.steps
            for at, step in enumerate(steps):
                if is_known and step.wanted is None and self._way(step) is not None:
                    front = found.front or self._history(found.rollout, at)
                    prompt = (*front, *self.prompt_at(found.task, steps, at))
                    name = f"{found.help}/{found.task.kind}"
                    yield Question(group, name, prompt, action_to_json(step.action))

    def office_situation(self, rng: random.Random, help_kind: str) -> tuple[Situation, bool]:
        """A visitor's episode with what is in front of it, and whether its values are shown."""
        site_id = self._office(rng)
        use = rng.choice([use for use in USES if use != "bank"])
        task = make_task(self.world, site_id, rng.choice(KINDS["office"]), use, rng.randrange(10**6))
        assert task.request is not None
        rollout = self._by_expert(task, rng)
        if task.request.notices or help_kind == "none":
            return Situation(task, rollout, "none", [], []), bool(task.request.notices)
        own = self._left_at(site_id, rng)
        if help_kind == "notes":
            return Situation(task, rollout, "notes", [Turn("user", (notes(self.world, own.steps),))], []), True
        records = [own, *(self._lookalike(task, rng) for _ in range(rng.choice((0, 0, 1, 2))))]
        rng.shuffle(records)
        front = [turn for shown in records for turn in self._record(shown, shown.steps, "episodic")]
        views = [step for shown in records for step in shown.steps]
        return Situation(task, rollout, "record", front, views), True

    def _lookalike(self, task: LabTask, rng: random.Random) -> Rollout:
        """A record of another branch, or of another office."""
        if rng.random() < 0.5:
            return on_site(self.world, task.site_id, "near", rng.randrange(100)).rollout
        return self._left_at(self._office(rng), rng)

    def _office_questions(self, rng: random.Random, mix: Mix) -> list[Example]:
        return self._questions(rng, mix, site_id=self._office(rng))

    def _probes(self, rng: random.Random, mix: Mix) -> list[Example]:
        """A record of any site, and the probes of its role."""
        site_id = self._office(rng) if rng.random() < 0.6 else None
        rollout, start, stop = self.some_stretch(rng, mix.role, site_id)
        steps = rollout.steps[start:stop]
        made = []
        for probe in PROBES[mix.role]:
            prompt = self.probe_about(rollout, steps, mix.role, probe)
            reply = probe_answer(self.world, probe, rollout, start, stop)
            made.append(self._asked(prompt, reply, list(steps), f"probe/{probe}"))
        return made

    def probe_questions(self, rng: random.Random, group: int) -> list[Question]:
        """All probes about one record, of episodic and working records in turn."""
        role: Role = "working" if group % 2 else "episodic"
        rollout, start, stop = self.some_stretch(rng, role, self._office(rng) if group % 4 < 2 else None)
        steps = rollout.steps[start:stop]
        return [
            Question(
                group,
                probe,
                self.probe_about(rollout, steps, role, probe),
                probe_answer(self.world, probe, rollout, start, stop),
                is_text=True,
            )
            for probe in PROBES[role]
        ]

    def some_stretch(self, rng: random.Random, role: Role, site_id: str | None = None) -> tuple[Rollout, int, int]:
        """An episode with slips, and the part of it that a record covers. Half of episodic ones end early, so that
        something is left to do.
        """
        rollout = self._rollout(rng, site_id=site_id, can_slip=True)
        num = len(rollout.steps)
        if role == "episodic":
            return rollout, 0, num if rng.random() < 0.5 else rng.randrange(1, num + 1)
        start = rng.randrange(max(1, num - 1))
        return rollout, start, min(num, start + rng.randrange(1, 5))

    def probe_about(self, rollout: Rollout, steps: Sequence[RolloutStep], role: Role, probe: str) -> Prompt:
        return (*self._record(rollout, steps, role), Turn("user", (self.texts.probes.fill(probe),)))

    _MAKERS: ClassVar[dict[str, Callable[..., list[Example]]]] = Corpus._MAKERS | {
        "list": _lists,
        "entry": _entries,
        "request": _requests,
        "office question": _office_questions,
        "probe": _probes,
    }

    def _office(self, rng: random.Random) -> str:
        return f"{self.split}{OFFICE}-{rng.randrange(self.num_sites)}"

    def _some_list(self, rng: random.Random) -> RolloutStep:
        """A view of a list or of a notice."""
        office = self.world.office(self._office(rng))
        if rng.random() < 0.7:
            return list_view(office, rng.choice(office.lists))
        task = make_task(self.world, office.site_id, "relay", "memory", rng.randrange(10**6))
        path = task.start_path.replace("/notice/1", f"/notice/{rng.randint(1, NUM_NOTICES)}")
        return RolloutStep(path, 0, (), _LOOKED, None)

    def _left_at(self, site_id: str, rng: random.Random) -> Rollout:
        """An episode of the staff."""
        task = make_task(self.world, site_id, rng.choice(KINDS_LEFT["office"]), "bank", rng.randrange(10**6))
        return roll_out(self.world, task, Solver.expert(self.world, task))

    def _way(self, step: RolloutStep) -> str | None:
        address = Address.parse(step.path)
        if self.world.family(address.site_id) != "office":
            return None
        return used_way(self.world.office(address.site_id), address, step.wanted or step.action)

    def _can_be_told(self, steps: Sequence[RolloutStep], at: int) -> bool:
        """A value cannot be told from a record that does not show it."""
        if not super()._can_be_told(steps, at) or self._way(steps[at]) is None:
            return super()._can_be_told(steps, at)
        given = steps[at].action.arguments.model_dump().values()
        return any(value in given for step in steps[:at] for value in facts_seen(self.world, step).values())


@dataclass(frozen=True)
class _Front:
    """What stands before a question about entries."""

    name: str
    turns: Sequence[Turn]
    views: Sequence[RolloutStep]
    shown: list[tuple[ListName, str]]
    """The entries it shows."""
