"""Tests single skills of the policy: reading a value on the screen, describing a record, answering about it.

All questions are about sites it was not trained on; the world knows the right answers.
"""

import json
import random
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from pydantic import NonNegativeInt, PositiveInt

from focusmem.errors import PolicyError
from focusmem.intervals import grouped_interval
from focusmem.judges.exact_answer import is_same_answer
from focusmem.lab.policy.corpus import Corpus
from focusmem.lab.policy.office_corpus import OfficeCorpus, Question
from focusmem.lab.world.answers import QUESTIONS, answer_to
from focusmem.lab.world.rollout import iter_tasks, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import COMPARISONS, NUM_SITES
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.generation import GenerationConfig, generate
from focusmem.progress import Progress
from focusmem.schemas import Prompt, Role, parse_action
from focusmem.settings import checked_dataclass

_JUDGED = ("yesno", "check", *COMPARISONS)
"""Kinds of tasks whose answer is more than a value on the screen."""
_LONGEST_TEXT, _LONGEST_ACTION = 640, 64
"""Most tokens of a reply about offices: a text may name every entry of three lists."""


@checked_dataclass(frozen=True, kw_only=True)
class ExaminationConfig:
    num_values: PositiveInt = 200
    """Values to read off the screen."""
    num_records: PositiveInt = 100
    """Records that the policy is asked every question about."""
    num_entries: NonNegativeInt = 0
    """Offices whose lists are told, seen or recorded, each asked about some entries."""
    num_requests: NonNegativeInt = 0
    """Decisions that need a value at an office, with what shows it raw in front."""
    num_probed: NonNegativeInt = 0
    """Records that the policy is probed about."""
    seed: int = 0
    world_seed: int = 0
    batch_size: PositiveInt = 16
    """Questions asked at once."""


def examine(policy: Backbone, config: ExaminationConfig) -> dict[str, Any]:
    """The shares of values and of fields that are right, with intervals."""
    world = World(config.world_seed)
    corpus = Corpus(
        world, policy.chat, split="e", num_sites=NUM_SITES["e"], picture=lambda step: screenshot_of(world, step)
    )
    values = _value_questions(corpus, config)
    records = _record_questions(corpus, config)
    asked = [prompt for prompt, *_ in values] + [prompt for prompt, *_ in records]
    replies = _replies(policy, asked, config.batch_size)
    read = [
        _Judged(number, kind, [_answered(reply, gold)])
        for number, ((_, kind, gold), reply) in enumerate(zip(values, replies, strict=False))
    ]
    told = [
        _Judged(record, question, fields_right(question, truth, reply))
        for (_, record, question, truth), reply in zip(records, replies[len(values) :], strict=True)
    ]
    return {
        "values_read": _summary(read),
        "fields_right": _summary(told),
        "num_records": config.num_records,
    } | _at_offices(policy, world, config)


def _at_offices(policy: Backbone, world: World, config: ExaminationConfig) -> dict[str, Any]:
    """The same for offices: entries, decisions and probes. Parts that are not asked for are left out."""
    corpus = OfficeCorpus(
        world, policy.chat, split="e", num_sites=NUM_SITES["eo"], picture=lambda step: screenshot_of(world, step)
    )
    rng = random.Random(config.seed)
    asked = {
        "entries_right": [one for number in range(config.num_entries) for one in corpus.entry_questions(rng, number)],
        "requests_right": list(islice(corpus.request_questions(rng), config.num_requests)),
        "probes_right": [one for number in range(config.num_probed) for one in corpus.probe_questions(rng, number)],
    }
    results: dict[str, Any] = {}
    for name, questions in asked.items():
        if questions:
            longest = _LONGEST_TEXT if questions[0].is_text else _LONGEST_ACTION
            replies = _replies(policy, [one.prompt for one in questions], config.batch_size, longest=longest)
            told = zip(questions, replies, strict=True)
            results[name] = _summary([_Judged(one.group, one.name, _right_parts(one, reply)) for one, reply in told])
    return results


def _right_parts(question: Question, reply: str) -> list[bool]:
    """A probe is scored clause by clause, an action as a whole."""
    if question.is_text:
        return fields_right("describe", question.reply, reply)
    return [reply.strip() == question.reply]


class _Judged(NamedTuple):
    """The parts of one reply that are right."""

    group: int
    """The group of the reply. Replies of one group are about the same thing, so they tend to be right or wrong
    together."""
    name: str
    right: list[bool]


def fields_right(question: str, truth: str, reply: str) -> list[bool]:
    """For each field of the right answer, whether the reply has it. Additional fields of the reply count as wrong."""
    if question == "describe":
        wanted, given = _clauses(truth), _clauses(reply)
        right = [clause in given for clause in wanted]
        return right + [False] * max(0, len(given) - len(wanted))
    wanted_fields = json.loads(truth)
    try:
        given_fields = json.loads(reply)
    except ValueError:
        given_fields = None
    if not isinstance(given_fields, dict):
        return [False] * len(wanted_fields)
    extra = set(given_fields) - set(wanted_fields)
    return [given_fields.get(name) == value for name, value in wanted_fields.items()] + [False] * len(extra)


def _clauses(text: str) -> list[str]:
    return [clause for sentence in text.removesuffix(".").split(". ") for clause in sentence.split("; ")]


def _value_questions(corpus: Corpus, config: ExaminationConfig) -> list[tuple[Prompt, str, str]]:
    """The last decision of expert episodes with the agent's prompt. The answer stands on the page."""
    found: list[tuple[Prompt, str, str]] = []
    for task in iter_tasks(corpus.world, corpus.split, "evaluation", config.seed):
        if len(found) == config.num_values:
            break
        if task.kind not in _JUDGED:
            steps = roll_out(corpus.world, task, Solver.expert(corpus.world, task)).steps
            found.append((corpus.prompt_at(task, steps, len(steps) - 1), task.kind, task.task.answer or ""))
    return found


def _record_questions(corpus: Corpus, config: ExaminationConfig) -> list[tuple[Prompt, int, str, str]]:
    rng = random.Random(config.seed)
    found = []
    for number in range(config.num_records):
        role: Role = "working" if number % 2 else "episodic"
        rollout, steps = corpus.some_record(rng, role)
        for question in QUESTIONS[role]:
            prompt = corpus.question_about(rollout, steps, role, question)
            found.append((prompt, number, question, answer_to(corpus.world, question, rollout, steps)))
    return found


def _replies(policy: Backbone, prompts: Sequence[Prompt], batch_size: int, *, longest: int = 256) -> list[str]:
    """The policy's replies, each of at most `longest` tokens."""
    replies: list[str] = []
    with Progress("examine", total=len(prompts)) as line:
        for start in range(0, len(prompts), batch_size):
            rows = policy.embed([policy.tokenise(prompt) for prompt in prompts[start : start + batch_size]])
            replies += [policy.text_of(ids) for ids in generate(policy, rows, GenerationConfig(max_new_tokens=longest))]
            line.step(len(rows))
    return replies


def _answered(reply: str, gold: str) -> bool:
    try:
        action = parse_action(reply)
    except PolicyError:
        return False
    return action.name == "stop" and is_same_answer(action.arguments.answer, gold)


def _summary(judged: Sequence[_Judged]) -> dict[str, Any]:
    groups: dict[int, list[bool]] = {}
    by_name: dict[str, list[bool]] = {}
    for one in judged:
        groups.setdefault(one.group, []).extend(one.right)
        by_name.setdefault(one.name, []).extend(one.right)
    everything = [right for group in groups.values() for right in group]
    return {
        "right_rate": sum(everything) / len(everything),
        "interval": list(grouped_interval(list(groups.values()))),
        "num": len(everything),
        "by_name": {
            name: {"right_rate": sum(own) / len(own), "num": len(own)} for name, own in sorted(by_name.items())
        },
    }
