"""Memory for any agent. The agent reports its steps, and memory returns what to put in front of the next prompt.

It is made of the parts that our own agent uses (`PolicyMind`, `LatentFront`, `BankRetriever`).
P memory tokens, D policy width.
"""

import json
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeAlias

from PIL import Image
from pydantic import ValidationError
from torch import Tensor

from focusmem.agent.bank_retriever import BankRetriever
from focusmem.agent.decision import Decision
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.fronts.latent import LatentFront, MemoryUse
from focusmem.agent.local_policy import LocalPolicy
from focusmem.agent.policy_mind import PolicyMind
from focusmem.agent.prompt import PromptBuilder, RecentEvent
from focusmem.bank.base import SearchableBank
from focusmem.bank.embedder import Embedder, QwenEmbedder
from focusmem.bank.leakage import Removal
from focusmem.bank.opening import open_bank
from focusmem.errors import ConfigError, PolicyError
from focusmem.evidence import Serialiser
from focusmem.files import sha256_hex
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.devices import fast_dtype, usable_device
from focusmem.model.generation import GenerationConfig
from focusmem.model.inputs import Row
from focusmem.schemas import (
    Closing,
    LeftOut,
    Observation,
    OfferedItem,
    Outcome,
    Prompt,
    Screenshot,
    Step,
    StoredTrajectory,
    Task,
    action_to_json,
    parse_action,
)
from focusmem.schemas.action import AnyAction
from focusmem.schemas.record import Record, describe_problem

Picture: TypeAlias = Screenshot | Image.Image | bytes
"""A screenshot as an agent has it; bytes are those of a PNG file."""


class Memory:
    """A trained memory with its frozen policy and, if there is one, a bank of trajectories.

    Get one with `Memory.load`, or build one from a `LatentFront` to choose its prompts or its cache. A memory must not
    be used by several threads at once.
    """

    def __init__(
        self,
        front: LatentFront,
        *,
        bank: SearchableBank | None = None,
        embedder: Embedder | None = None,
        prompt: PromptBuilder | None = None,
        outcomes: Collection[Outcome] | None = None,
        only_trusted: bool = False,
    ) -> None:
        self.front = front
        self.bank = bank
        self.policy = LocalPolicy(front.policy.backbone)
        retriever = _retriever(bank, embedder, outcomes, only_trusted=only_trusted)
        self.mind = PolicyMind(self.policy, front, retriever=retriever, prompt=prompt)
        self.episode_numbers = count(1)

    @classmethod
    def load(
        cls,
        policy: str | Path | Backbone,
        checkpoint: str | Path,
        *,
        bank: str | Path | None = None,
        embedder: str | Path | Embedder | None = None,
        encoder: str | Path | Backbone | None = None,
        device: str = "cpu",
        use: MemoryUse | None = None,
        prompts: str | Path | None = None,
        outcomes: Collection[Outcome] | None = None,
        only_trusted: bool = False,
    ) -> Self:
        """Loads a memory with its policy and, if they are given, its bank and embedder. `policy` and `embedder` are
        folders, hub ids, or loaded objects. `encoder` is needed only if another model than the policy encodes the
        evidence.

        By default, only the parts that the memory's card names act. Prompts say which actions failed if the prompts in
        the memory's training said so. `prompts` is a folder with the wording that the memory was trained with, if it is
        not focusmem's own: it holds `agent` and `evidence`, like `focusmem/agent/prompts` and
        `focusmem/evidence/prompts`. `outcomes` restricts the search to trajectories with these outcomes; the paper
        searches `("success",)` only. `only_trusted` restricts the search to the sources that the bank trusts
        (`focusmem bank trust`).
        """
        stored = Checkpoint.open(Path(checkpoint))  # quick checks come first
        opened = None if bank is None else open_bank(bank)
        if isinstance(embedder, str | Path):
            embedder = QwenEmbedder.load(embedder, device=device)
        # Called here too, so that a bank and an embedder that do not fit are refused before the policy is loaded.
        _retriever(opened, embedder, only_trusted=only_trusted)
        reader = None if encoder is None else _backbone(encoder, device)
        built = stored.build(_backbone(policy, device), encoder_backbone=reader)
        for other in (reader, embedder.backbone if isinstance(embedder, QwenEmbedder) else None):
            if other is not None:
                other.share_vision(built.backbone)
        agent, evidence = (None, None) if prompts is None else (Path(prompts) / "agent", Path(prompts) / "evidence")
        shows_errors = stored.trained_with_errors()
        return cls(
            LatentFront(built, Serialiser(evidence, shows_errors=shows_errors), use or trained_use(stored)),
            bank=opened,
            embedder=embedder,
            prompt=PromptBuilder(agent, shows_errors=shows_errors),
            outcomes=outcomes,
            only_trusted=only_trusted,
        )

    def begin(self, task: str | Task, *, task_id: str | None = None, is_guarded: bool = True) -> "EpisodeMemory":
        """Starts an episode of a task: its instruction, or a record that says more.

        With `is_guarded`, memory leaves out trajectories of the same task, instance or template. Fair comparisons need
        this; an agent in daily use may want these trajectories.
        """
        if isinstance(task, str):
            name = task_id or f"unnamed-{sha256_hex(task.encode(errors='replace'))[:16]}"
            try:
                task = Task(task_id=name, instruction=task, start_url="", site="")
            except ValidationError as invalid:
                raise _unusable("This task", invalid) from invalid
        elif task_id is not None:
            raise ConfigError("The task record already has an id; leave task_id out.")
        return EpisodeMemory(self, task, is_guarded=is_guarded)

    def reply(
        self,
        prefixes: Sequence["Prefix"],
        generation: GenerationConfig | None = None,
        *,
        seeds: Sequence[int] | None = None,
    ) -> list[str]:
        """The policy's reply to each prompt with its memory in front. One call for several episodes is faster than one
        call for each.
        """
        asked = [prefix.fronted for prefix in prefixes]
        return [completion.text for completion in self.policy.reply(asked, seeds=seeds, generation=generation)]


@dataclass(frozen=True)
class Prefix:
    """What memory puts in front of one decision's prompt, and why.

    If you serve the policy yourself: put `embeddings_PD` before the very first token of the prompt, in place of token
    embeddings, at the text positions 0 to P - 1 on all three axes, and shift the positions of everything after them by
    P. Memory tokens carry no DeepStack features. With P = 0 the prompt stays as it is.
    """

    memory: Memory = field(repr=False)
    fronted: Fronted = field(repr=False)
    """The prompt with memory in front, as our own policy receives it."""
    removed: Removal | None
    """What the leakage guard left out; None if no bank was searched."""
    left_out: LeftOut | None
    """The part of the decision that did not fit into the query of the search; None if everything fitted."""

    @property
    def prompt(self) -> Prompt:
        """The prompt for which memory was read and gated. Give the policy this same prompt."""
        return self.fronted.prompt

    @property
    def row(self) -> Row:
        """The prompt with memory in front, as the language model takes it."""
        assert self.fronted.row is not None, "latent memory makes rows"
        return self.fronted.row

    @property
    def embeddings_PD(self) -> Tensor:
        """The accepted blocks one after the other: found trajectories, the best first, then the episode's expired
        events, the earliest first.
        """
        return self.row.embeds_SD[: self.fronted.num_memory_tokens or 0]

    @property
    def items(self) -> tuple[OfferedItem, ...]:
        """The offered items, in the same order, each with its source, its score, the gate's logit, and whether it was
        accepted.
        """
        return self.fronted.offered

    def reply(self, generation: GenerationConfig | None = None, *, seed: int | None = None) -> str:
        """The policy's reply to the prompt with this memory in front."""
        return self.memory.reply([self], generation, seeds=None if seed is None else [seed])[0]


class EpisodeMemory:
    """Memory during one episode. Call `prefix` before each decision and `observe` after it."""

    def __init__(self, memory: Memory, task: Task, *, is_guarded: bool) -> None:
        self.memory, self.task = memory, task
        self.steps: list[Step] = []
        self.screenshots: dict[str, Screenshot] = {}
        self._name = f"{task.task_id} {next(memory.episode_numbers)}"
        self._is_guarded = is_guarded
        self._events: list[RecentEvent] = []
        # The user's agent does not report the end of an episode, so its data is freed together with this object.
        weakref.finalize(self, memory.mind.forget, self._name).atexit = False

    def prefix(self, screenshot: Picture, *, prompt: Prompt | None = None) -> Prefix:
        """Memory for the decision that is due on this screen.

        Readout and gate depend on the prompt: pass `prompt` if the policy gets another prompt than ours. It should show
        as many of the latest events as `MemoryUse.num_recent` says, because memory holds only the older ones. It marks
        the instruction (`focusmem.schemas.Instruction`), or a memory that pools the instruction apart refuses it.
        """
        seen = Observation(as_screenshot(screenshot), "", "", ())
        decision = Decision(self.task, self._name, seen, self.steps, self.screenshots, self._is_guarded)
        asked = self.memory.mind.prompt_of(decision, self._events) if prompt is None else prompt
        prepared = self.memory.mind.prepare([decision], [asked])
        search = prepared.searches[0]
        return Prefix(self.memory, prepared.fronted[0], search.removed, search.left_out)

    def observe(
        self, screenshot: Picture, action: AnyAction | Mapping[str, Any] | str, *, error: str | None = None
    ) -> Step:
        """Records a screen and the action that followed; `error` is a sentence that says what went wrong.

        An action is one of our records, the same as a dictionary, or text: a policy's reply with the JSON in it, or
        plain words, for agents with other actions than ours. The memory was trained on ours.
        """
        now = as_screenshot(screenshot)
        step = _step(now, action, error)
        shown = action_to_json(step.action) if step.action else step.reply or ""
        self.screenshots[now.digest] = now
        self.steps.append(step)
        is_unreadable = step.action is None and not _is_words(shown)
        self._events.append(RecentEvent(len(self.steps), now, shown, step.error if is_unreadable else error))
        return step

    def trajectory(
        self,
        trajectory_id: str,
        *,
        outcome: Outcome = "not_judged",
        source: str = "agent",
        closing: Picture | None = None,
    ) -> StoredTrajectory:
        """The episode so far, in the form that a bank takes: `bank.add([episode.trajectory("run-17")], embedder)`.
        `closing` is the screen after the last action; judges look at it.
        """
        if not self.steps:
            raise ConfigError("Nothing has been observed in this episode, so there is no trajectory to keep.")
        last = None if closing is None else as_screenshot(closing)
        try:
            record = self.task.trajectory(
                trajectory_id,
                self.steps,
                outcome=outcome,
                source=source,
                closing=None if last is None else Closing(screenshot=last.ref()),
            )
        except ValidationError as invalid:
            raise _unusable("This trajectory", invalid) from invalid
        return StoredTrajectory(record, self.screenshots | ({} if last is None else {last.digest: last}))


def as_screenshot(picture: Picture) -> Screenshot:
    if isinstance(picture, Screenshot):
        return picture
    return Screenshot.from_png(picture) if isinstance(picture, bytes) else Screenshot.from_image(picture)


def trained_use(stored: Checkpoint) -> MemoryUse:
    """The settings with which the trained parts of a memory act and the untrained parts are off."""
    parts = stored.acting_parts()
    return MemoryUse(is_dynamic=parts.is_dynamic, is_gated=parts.is_gated)


def _retriever(
    bank: SearchableBank | None,
    embedder: Embedder | None,
    outcomes: Collection[str] | None = None,
    *,
    only_trusted: bool = False,
) -> BankRetriever | None:
    if bank is None and embedder is None:
        return None
    if bank is None:
        raise ConfigError("An embedder was given without a bank; give both, or neither.")
    if embedder is None:
        raise ConfigError("A bank was given without its embedder; searches need both, so give the embedder as well.")
    return BankRetriever(bank, embedder, outcomes=outcomes, only_trusted=only_trusted)


def _backbone(source: str | Path | Backbone, device: str) -> Backbone:
    if isinstance(source, Backbone):
        return source
    found = usable_device(device)
    return Backbone.load(source, dtype=fast_dtype(found), device=found)


def _step(now: Screenshot, action: AnyAction | Mapping[str, Any] | str, error: str | None) -> Step:
    try:
        if not isinstance(action, str):
            return Step(screenshot=now.ref(), action=_record(action), error=error)
        action = action.replace("\0", "\ufffd")  # records cannot hold NUL
        try:
            return Step(screenshot=now.ref(), action=parse_action(action), reply=action, error=error)
        except PolicyError as unreadable:
            return Step(screenshot=now.ref(), reply=action, error=_without_action(action, str(unreadable), error))
    except ValidationError as invalid:
        raise _unusable("This step", invalid) from invalid


def _without_action(text: str, advice: str, error: str | None) -> str:
    """The encoder reads only the error of a step without an action, so plain words are repeated there."""
    if not _is_words(text) or error == advice:  # an unreadable reply, kept as our own agent keeps it
        return error or advice
    return f"In words: {text}" if error is None else f"In words: {text} This did not work: {error}"


def _record(action: AnyAction | Mapping[str, Any]) -> AnyAction:
    if isinstance(action, Record):
        return action
    try:
        return parse_action(json.dumps(dict(action)))
    except (PolicyError, TypeError, ValueError) as error:
        raise ConfigError(f"{action!r:.200} is not an action. {error}") from error


def _is_words(text: str) -> bool:
    """Whether a text contains no JSON object at all."""
    return "{" not in text


def _unusable(what: str, invalid: ValidationError) -> ConfigError:
    problem = invalid.errors(include_url=False)[0]
    return ConfigError(f"{what} cannot be kept: {problem['loc'][0]} {describe_problem(problem)}.")
