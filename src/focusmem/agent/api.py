"""Memory for somebody else's agent: load it, tell it what happens, ask it what to put in front of the next prompt.

The work is done by the parts that our own agent uses (`AgentMemory`, the bank, the embedder), put together here.
P memory tokens, D policy width.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from PIL import Image
from pydantic import ValidationError
from torch import Tensor

from focusmem.agent.memory import AgentMemory, MemoryUse, Situation
from focusmem.agent.prompt import NUM_RECENT, PromptBuilder, RecentEvent
from focusmem.bank import Bank, Hits, Query, Removal
from focusmem.bank.embedder import Embedder, Moment, QwenEmbedder, Vectors
from focusmem.errors import CheckpointError, ConfigError, PolicyError
from focusmem.evidence import Serialiser
from focusmem.files import sha256_hex
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.devices import fast_dtype, usable_device
from focusmem.model.generation import GenerationConfig
from focusmem.model.inputs import Row
from focusmem.schemas import (
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

_NUM_VECTORS_KEPT: Final = 256


class Memory:
    """A trained memory with its frozen policy and, where there is one, a bank of trajectories to remember.

    Get one with `Memory.load`; or put one together from an `AgentMemory`, where its texts or its cache should be other
    ones than ours. Not for several threads at once.
    """

    def __init__(
        self,
        memory: AgentMemory,
        *,
        bank: Bank | None = None,
        embedder: Embedder | None = None,
        prompt: PromptBuilder | None = None,
    ) -> None:
        _check_pair(bank, embedder)
        self.memory, self.bank, self.embedder = memory, bank, embedder
        self.prompt = prompt or PromptBuilder()
        self._vectors: OrderedDict[tuple[Moment, tuple[str, ...]], Vectors] = OrderedDict()

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
    ) -> Self:
        """`policy` and `embedder` are folders, hub ids, or what was loaded already. So is `encoder`, for a memory whose
        evidence is read by another model than the policy.

        Unless `use` says otherwise, those parts of the memory act that were trained, as its card tells. `prompts` is a
        folder with the words it was trained with, where they are not ours: `agent` and `evidence`, as under
        `focusmem/agent/prompts` and `focusmem/evidence/prompts`.
        """
        stored = Checkpoint.open(Path(checkpoint))  # first what is quick to find wrong
        opened = None if bank is None else Bank.open(bank)
        if isinstance(embedder, str | Path):
            embedder = QwenEmbedder.load(embedder, device=device)
        _check_pair(opened, embedder)
        reader = None if encoder is None else _backbone(encoder, device)
        built = stored.build(_backbone(policy, device), encoder_backbone=reader)
        agent, evidence = (None, None) if prompts is None else (Path(prompts) / "agent", Path(prompts) / "evidence")
        memory = AgentMemory(built, Serialiser(evidence), use or _trained_use(stored))
        return cls(memory, bank=opened, embedder=embedder, prompt=PromptBuilder(agent))

    def begin(self, task: str | Task, *, task_id: str | None = None, is_guarded: bool = True) -> "EpisodeMemory":
        """A task is about to be done: its instruction, or a record that says more.

        With `is_guarded`, trajectories of the same task, instance or template are not remembered, as fair comparisons
        need it. An agent at work may well want them.
        """
        if isinstance(task, str):
            name = task_id or f"unnamed-{sha256_hex(task.encode(errors='replace'))[:16]}"
            try:
                task = Task(task_id=name, instruction=task, start_url="", site="")
            except ValidationError as invalid:
                raise _unusable("This task", invalid) from invalid
        elif task_id is not None:
            raise ConfigError("The task has an id of its own; leave task_id out.")
        return EpisodeMemory(self, task, Query.of(task) if is_guarded else None)

    def reply(
        self,
        prefixes: Sequence["Prefix"],
        generation: GenerationConfig | None = None,
        *,
        seeds: Sequence[int] | None = None,
    ) -> list[str]:
        """What the policy says to each prompt with its memory in front; several episodes are faster together."""
        rows = [prefix.row for prefix in prefixes]
        return self.memory.policy.reply(rows, generation, seeds=seeds) if rows else []

    def search(self, moment: Moment, query: Query | None) -> Hits | None:
        """The trajectories most useful now, as far as the leakage guard lets them through; None without a bank."""
        if self.bank is None or not self.memory.use.num_episodic:
            return None
        return self.bank.search(self._vector(moment), query, self.memory.use.num_episodic)

    def _vector(self, moment: Moment) -> Vectors:
        """The embedder is asked once for equal moments."""
        key = replace(moment, screenshots=()), tuple(shot.digest for shot in moment.screenshots)
        if key not in self._vectors:
            assert self.embedder is not None, "a bank comes with its embedder"
            self._vectors[key] = self.embedder.embed_queries([moment])[0]
            if len(self._vectors) > _NUM_VECTORS_KEPT:
                self._vectors.popitem(last=False)
        self._vectors.move_to_end(key)
        return self._vectors[key]


@dataclass(frozen=True)
class Prefix:
    """What memory puts in front of one decision's prompt, and how that came about.

    For those who serve the policy themselves: the vectors stand before the very first token of the prompt, in place of
    token embeddings, at the text positions 0 to P - 1 on all three axes; everything behind is moved along by P. They
    carry no DeepStack features. With P = 0 the prompt is left as it is.
    """

    memory: Memory = field(repr=False)
    prompt: Prompt = field(repr=False)
    """The decision for which memory was read and gated; the policy should be asked with the same."""
    row: Row = field(repr=False)
    """The prompt with memory in front, as the language model takes it."""
    embeddings_PD: Tensor = field(repr=False)
    """Accepted blocks one after the other: found trajectories, the best first, then the episode's expired events, the
    earliest first."""
    items: tuple[OfferedItem, ...]
    """Everything that was offered, in the same order: where it comes from, how alike it is, how far the gate trusts it,
    and whether it was let in."""
    removed: Removal | None
    """What the leakage guard left out; None where no bank was searched."""

    def reply(self, generation: GenerationConfig | None = None, *, seed: int | None = None) -> str:
        """What the policy says to the prompt with this memory in front."""
        return self.memory.reply([self], generation, seeds=None if seed is None else [seed])[0]


class EpisodeMemory:
    """One task under way: `prefix` before each decision, `observe` after it."""

    def __init__(self, memory: Memory, task: Task, query: Query | None) -> None:
        self.memory, self.task = memory, task
        self.steps: list[Step] = []
        self.screenshots: dict[str, Screenshot] = {}
        self._query = query
        self._recent: list[RecentEvent] = []
        self._loaded: dict[str, StoredTrajectory] = {}

    def prefix(self, screenshot: Picture, *, prompt: Prompt | None = None) -> Prefix:
        """Memory for the decision that is due on this screen.

        What is shown, and what is trusted, depends on the prompt: give your own where the policy is asked in other
        words than ours. It should show as many of the latest events as `MemoryUse.num_recent` says, since only older
        ones are left to memory.
        """
        now = as_screenshot(screenshot)
        hits = self.memory.search(Moment.of(self.task, self.steps, self.screenshots, now), self._query)
        found = [(self._load(hit.trajectory_id), hit.score) for hit in hits.hits] if hits else []
        asked = self._prompt(now) if prompt is None else prompt
        remembering = self.memory.memory
        situation = Situation(self.task.instruction, self.steps, self.screenshots, found)
        remembered = remembering.remember([asked], [situation])
        [row], [items], [num_tokens] = remembered.rows, remembered.items, remembered.num_memory_tokens
        num_each = remembering.policy.config.compressor.num_tokens
        offered = tuple(one.offered(num_each) for one in items)
        removed = None if hits is None else hits.removed
        return Prefix(self.memory, asked, row, row.embeds_SD[:num_tokens], offered, removed)

    def observe(
        self, screenshot: Picture, action: AnyAction | Mapping[str, Any] | str, *, error: str | None = None
    ) -> Step:
        """Keep what was on the screen and what was then done; `error` is a sentence about what did not work.

        An action is one of our records, the same as a dictionary, or text: a policy's reply with the JSON in it, or
        plain words, for agents whose actions are others than ours. The memory was trained on ours.
        """
        now = as_screenshot(screenshot)
        step = _step(now, action, error)
        told = action_to_json(step.action) if step.action else step.reply or ""
        self.screenshots[now.digest] = now
        self.steps.append(step)
        is_unreadable = step.action is None and not _is_words(told)
        self._recent.append(RecentEvent(len(self.steps), now, told, step.error if is_unreadable else error))
        return step

    def trajectory(
        self, trajectory_id: str, *, outcome: Outcome = "not_judged", source: str = "agent"
    ) -> StoredTrajectory:
        """All that was observed, as a bank takes it: `bank.add([episode.trajectory("run-17")], embedder)`."""
        if not self.steps:
            raise ConfigError("Nothing has been observed in this episode, so there is no trajectory to keep.")
        try:
            record = self.task.trajectory(trajectory_id, self.steps, outcome=outcome, source=source)
        except ValidationError as invalid:
            raise _unusable("This trajectory", invalid) from invalid
        return StoredTrajectory(record, dict(self.screenshots))

    def _load(self, trajectory_id: str) -> StoredTrajectory:
        """With all its screenshots, once for the episode: the same ones are found again and again."""
        if trajectory_id not in self._loaded:
            assert self.memory.bank is not None, "only a bank gives hits"
            stored = self.memory.bank.load(trajectory_id)
            self._loaded[trajectory_id] = StoredTrajectory(stored.trajectory, dict(stored.screenshots))
        return self._loaded[trajectory_id]

    def _prompt(self, now: Screenshot) -> Prompt:
        num_recent = self.memory.memory.use.num_recent
        if num_recent > NUM_RECENT:
            raise ConfigError(
                f"MemoryUse.num_recent is {num_recent}, but our own prompt shows at most {NUM_RECENT} events; some "
                "would be neither shown nor remembered; give a prompt of your own, or a smaller number."
            )
        recent = self._recent[max(0, len(self._recent) - num_recent) :]
        actions_left = max(1, self.task.max_steps - len(self.steps))
        return self.memory.prompt(
            instruction=self.task.instruction, recent=recent, screenshot=now, actions_left=actions_left
        )


def as_screenshot(picture: Picture) -> Screenshot:
    if isinstance(picture, Screenshot):
        return picture
    return Screenshot.from_png(picture) if isinstance(picture, bytes) else Screenshot.from_image(picture)


def _check_pair(bank: Bank | None, embedder: Embedder | None) -> None:
    if bank is not None and embedder is None:
        raise ConfigError(f"The bank {bank.folder.path} is searched with vectors of its embedder; give that, too.")
    if bank is None and embedder is not None:
        raise ConfigError("There is an embedder but no bank to search with it; give both, or neither.")
    if bank is not None and embedder is not None:
        bank.check_embedder(embedder.identity)


def _trained_use(stored: Checkpoint) -> MemoryUse:
    """A readout or a gate that no stage has trained would act all the same, and is left out; a card that does not tell
    of training leaves none out.
    """
    damaged, where = f"The card of the checkpoint {stored.folder} is damaged", "notes"
    stage: Mapping[str, Any] = stored.notes
    for name in ("config", "stage"):
        stage, where = stage.get(name, {}), f"{where}.{name}"
        if not isinstance(stage, Mapping):
            raise CheckpointError(f"{damaged}: {where} should be a dictionary, not {stage!r:.60}.")
    acts = {name: stage.get(name, True) for name in ("is_dynamic", "is_gated")}
    for name, value in acts.items():
        if not isinstance(value, bool):
            raise CheckpointError(f"{damaged}: {where}.{name} should be true or false, not {value!r:.60}.")
    if stage.get("name") == "stage_a":
        acts = dict.fromkeys(acts, False)
    return MemoryUse(**acts)


def _backbone(source: str | Path | Backbone, device: str) -> Backbone:
    if isinstance(source, Backbone):
        return source
    found = usable_device(device)
    return Backbone.load(source, dtype=fast_dtype(found), device=found)


def _step(now: Screenshot, action: AnyAction | Mapping[str, Any] | str, error: str | None) -> Step:
    try:
        if not isinstance(action, str):
            return Step(screenshot=now.ref(), action=_record(action), error=error)
        action = action.replace("\0", "\ufffd")  # a policy may write it, a record cannot hold it
        try:
            return Step(screenshot=now.ref(), action=parse_action(action), reply=action, error=error)
        except PolicyError as unreadable:
            return Step(screenshot=now.ref(), reply=action, error=_without_action(action, str(unreadable), error))
    except ValidationError as invalid:
        raise _unusable("This step", invalid) from invalid


def _without_action(text: str, advice: str, error: str | None) -> str:
    """All that the encoder will read of a step without an action, so plain words have to stand there as well."""
    if not _is_words(text) or error == advice:  # what our own agent keeps of a reply that it cannot read
        return error or advice
    return f"In words: {text}" if error is None else f"In words: {text} This did not work: {error}"


def _record(action: AnyAction | Mapping[str, Any]) -> AnyAction:
    if isinstance(action, Record):
        return action
    try:
        return parse_action(json.dumps(dict(action)))
    except (PolicyError, TypeError, ValueError) as error:
        raise ConfigError(f"{action!r:.200} is no action. {error}") from error


def _is_words(text: str) -> bool:
    """Whether a text does not even try to be JSON."""
    return "{" not in text


def _unusable(what: str, invalid: ValidationError) -> ConfigError:
    problem = invalid.errors(include_url=False)[0]
    return ConfigError(f"{what} cannot be kept: {problem['loc'][0]} {describe_problem(problem)}.")
