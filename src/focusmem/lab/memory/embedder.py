"""The laboratory's embedder: the policy's own weights with a small low-rank update, taught to find trajectories.

A moment of an episode should lie close to trajectories of the same site that show what its task needs, and far from
those of other sites. A batch has, for each right trajectory, one of the same site that shows something else.

Shapes: P moments of a step, J trajectories of a step, D width.
"""

import copy
import io
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor, nn
from torch.nn import functional as F

from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank.embedder import EmbedderConfig, QwenEmbedder
from focusmem.bank.forms import LABORATORY, Event, Moment
from focusmem.errors import CheckpointError, StorageError, TrainingError
from focusmem.files import sha256_hex, whole_folder, write_whole
from focusmem.lab.policy.drawing import all_pixels_of, drawn_ahead, placeholder
from focusmem.lab.policy.fast_vision import see_named
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.misleading import on_site
from focusmem.lab.world.rollout import Rollout, RolloutStep, roll_out
from focusmem.lab.world.site import OFFICE
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import KINDS, KINDS_LEFT, USES, LabTask, Use, make_task
from focusmem.lab.world.ways import needed_way, shown_ways
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.chat import ChatTokenizer
from focusmem.model.inputs import PackedRows, alike_in_length, stack_rows
from focusmem.model.lora import LoraConfig
from focusmem.progress import Progress
from focusmem.schemas import Prompt, Screenshot, action_to_json
from focusmem.seeds import derive_seed
from focusmem.settings import Share, checked_dataclass, to_plain

READING = EmbedderConfig(form=LABORATORY.name, max_length=8_192)
"""The form in which the laboratory's embedder reads records, in training and when acting. Changing it to the paper's
form requires training the embedder that ships again.
"""
READS_LESS: Final = (
    f"the embedder reads the form {LABORATORY.name}: the last two screenshots of a moment and no actions, and two "
    "screenshots of a trajectory (paper: the whole context and the whole trajectory)"
)
"""The sentence on a memory's card for this departure from the paper."""

_MAX_TOKENS = 65_536
_WEIGHTS, _CARD = "embedder.safetensors", "card.json"


@checked_dataclass(frozen=True, kw_only=True)
class EmbedderTrainingConfig:
    num_steps: PositiveInt = 300
    num_pairs: PositiveInt = 64
    """Moments per step. A step has twice as many trajectories."""
    rank: PositiveInt = 8
    learning_rate: PositiveFloat = 1e-3
    temperature: PositiveFloat = 0.05
    num_workers: NonNegativeInt = 13
    seed: int = 0
    world_seed: int = 0
    num_sites: PositiveInt = 4000
    """Pretraining sites that pairs are drawn from."""
    office_share: Share = 0.0
    """Share of moments at offices. The wrong trajectory beside the right one is then another branch's."""


@dataclass(frozen=True)
class DrawnRows:
    """Rows of tokens, and the pixels of the pictures they show, each once."""

    rows: PackedRows
    digests: tuple[str, ...]
    pixels_NHWC: Tensor

    @classmethod
    def of(
        cls,
        chat: ChatTokenizer,
        prompts: Sequence[Prompt],
        views: Mapping[str, RolloutStep],
        world: World,
    ) -> "DrawnRows":
        rows = chat.pack([chat.tokenise(prompt) for prompt in prompts])
        digests = tuple(dict.fromkeys(picture.digest for own in rows.pictures for picture in own))
        pixels = all_pixels_of(world, [views[digest] for digest in digests])
        return cls(rows, digests, torch.from_numpy(pixels))

    def pin_memory(self) -> "DrawnRows":
        return DrawnRows(self.rows.pin_memory(), self.digests, self.pixels_NHWC.pin_memory())


@dataclass(frozen=True)
class PairBatch:
    drawn: DrawnRows
    """The rows of the moments, then of the right trajectory of each moment, then of another trajectory of each moment's
    site."""
    is_other: tuple[bool, ...]
    """For each trajectory of the last kind: whether it shows nothing that the moment needs, and so counts as wrong."""

    def pin_memory(self) -> "PairBatch":
        return PairBatch(self.drawn.pin_memory(), self.is_other)


class Pairs(torch.utils.data.Dataset[PairBatch]):
    """Batches by number; prompts carry placeholders, and pixels are drawn last."""

    def __init__(self, world: World, embedder: QwenEmbedder, config: EmbedderTrainingConfig) -> None:
        self.world, self.config = world, config
        self.chat = embedder.backbone.chat
        self.key_prompt, self.query_prompt = embedder.key_prompt, embedder.query_prompt

    def __len__(self) -> int:
        return self.config.num_steps

    def __getitem__(self, number: int) -> PairBatch:
        rng = random.Random(derive_seed(self.config.seed, "pairs", number))
        sites = rng.sample(range(self.config.num_sites), min(self.config.num_pairs, self.config.num_sites))
        moments, right, more, is_other = [], [], [], []
        views: dict[str, RolloutStep] = {}
        for site in sites:
            if self.config.office_share and rng.random() < self.config.office_share:
                rollout, positive, other = self._at_office(rng, f"p{OFFICE}-{site}")
            else:
                rollout = self._episode(rng, f"p-{site}")
                positive, other = self._some_that_show(rng, rollout.task, needed_way(self.world, rollout.task))
            way = needed_way(self.world, rollout.task)
            moments.append(self.query_prompt(moment_of(rollout, rng.randrange(len(rollout.steps)))))
            right.append(self.key_prompt(as_trajectory(positive, placeholder)))
            more.append(self.key_prompt(as_trajectory(other, placeholder)))
            is_other.append(
                other.task.site_id != rollout.task.site_id or way not in shown_ways(self.world, other.steps)
            )
            for step in (*rollout.steps, *positive.steps, *other.steps):
                views[placeholder(step).digest] = step
        drawn = DrawnRows.of(self.chat, [*moments, *right, *more], views, self.world)
        return PairBatch(drawn, tuple(is_other))

    def _at_office(self, rng: random.Random, site_id: str) -> tuple[Rollout, Rollout, Rollout]:
        """A visit, an episode of the staff of the same office, and one of another branch."""
        uses: tuple[Use, Use] = (rng.choice([use for use in USES if use != "bank"]), "bank")
        visit, left = (
            make_task(self.world, site_id, rng.choice(KINDS_LEFT["office"]), use, rng.randrange(10**6)) for use in uses
        )
        found = [roll_out(self.world, task, Solver.expert(self.world, task)) for task in (visit, left)]
        return found[0], found[1], on_site(self.world, site_id, "near", rng.randrange(10**4)).rollout

    def _some_that_show(self, rng: random.Random, task: LabTask, way: str) -> tuple[Rollout, Rollout]:
        """A trajectory of the site that shows a convention, and another one, if possible one that does not show it."""
        candidates = [self._episode(rng, task.site_id) for _ in range(4)]
        candidates.append(self._episode(rng, task.site_id, kinds=(task.kind,)))
        showing = [one for one in candidates if way in shown_ways(self.world, one.steps)]
        others = [one for one in candidates if one not in showing]
        right = rng.choice(showing or candidates)
        return right, rng.choice(others or [one for one in candidates if one is not right])

    def _episode(self, rng: random.Random, site_id: str, kinds: Sequence[str] | None = None) -> Rollout:
        kind = rng.choice(tuple(kinds or KINDS[self.world.family(site_id)]))
        task = make_task(self.world, site_id, kind, rng.choice(USES), rng.randrange(10**6))
        return roll_out(self.world, task, Solver.expert(self.world, task))


def moment_of(rollout: Rollout, at: int, picture: Callable[[RolloutStep], Screenshot] = placeholder) -> Moment:
    """The moment of a step: what the agent could search with."""
    recent = rollout.steps[max(0, at - NUM_RECENT) : at]
    return Moment(
        instruction=rollout.task.task.instruction,
        recent=tuple(Event(picture(step), action_to_json(step.action)) for step in recent),
        screenshot=picture(rollout.steps[at]),
    )


def train_embedder(
    policy: Backbone,
    config: EmbedderTrainingConfig,
    folder: Path,
    *,
    save: Path | None = None,
    is_late: Callable[[], bool] | None = None,
) -> Path | None:
    """Trains an update of a frozen policy and writes it with its card. Once `is_late` says so, it writes the file
    `save` instead and returns None; the next call goes on from there.
    """
    world = World(config.world_seed)
    attached = policy.add_lora(LoraConfig(rank=config.rank, alpha=2.0 * config.rank, dropout=0.0))
    updates = attached.updates.to(policy.device)
    optimizer = torch.optim.AdamW(updates.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    losses: list[Tensor] = []
    begin, spent_s = 0, 0.0
    if save is not None and save.exists():
        begin, spent_s, losses = _resume(save, updates, optimizer)
    started = time.monotonic() - spent_s
    try:
        with (
            Progress("embedder", total=config.num_steps, start=begin) as line,
            attached.switch.turned(True),
        ):
            pairs = Pairs(world, QwenEmbedder(policy, READING), config)
            left = torch.utils.data.Subset(pairs, range(begin, config.num_steps))
            for number, batch in enumerate(drawn_ahead(left, config.num_workers), begin):
                rate = config.learning_rate * min(1.0, (number + 1) / 20) * (1 - number / config.num_steps)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                loss = pair_loss(policy, batch, config.temperature)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                norm = torch.nn.utils.clip_grad_norm_(updates.parameters(), 1.0)
                _check_finite(number + 1, loss.item(), norm.item())
                optimizer.step()
                losses.append(loss.detach())
                line.step(note=f"loss {loss.item():.3f}" if number % 10 == 0 else None)
                if save is not None and is_late is not None and is_late() and number + 1 < config.num_steps:
                    _save(save, updates, optimizer, losses, time.monotonic() - started)
                    return None
        card = {
            "what": "a low-rank update that makes the laboratory's policy an embedder",
            "config": to_plain(config),
            "policy": asdict(policy.identity()),
            "trained_s": round(time.monotonic() - started, 1),
            "last_loss": round(torch.stack(losses[-20:]).mean().item(), 4),
        }
        state = {name: tensor.detach().to("cpu", torch.bfloat16) for name, tensor in updates.state_dict().items()}
        data = write_tensors(state)
        card["weights_sha256"] = sha256_hex(data)
        with whole_folder(folder, replace=folder.exists()) as partial:
            write_whole(partial / _WEIGHTS, data)
            write_whole(partial / _CARD, json.dumps(card, indent=2).encode())
    finally:
        policy.remove_lora(attached)
    return folder


def _save(
    path: Path, updates: nn.Module, optimizer: torch.optim.Optimizer, losses: Sequence[Tensor], spent_s: float
) -> None:
    """Everything that a later call needs to go on as if there had been no stop."""
    stored = {"updates": updates.state_dict(), "optimizer": optimizer.state_dict(), "spent_s": spent_s}
    buffer = io.BytesIO()
    torch.save(stored | {"losses": torch.stack(list(losses))}, buffer)
    write_whole(path, buffer.getvalue())


def _resume(path: Path, updates: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float, list[Tensor]]:
    """The number of steps, the seconds and the losses so far."""
    stored = torch.load(path, map_location=next(updates.parameters()).device, weights_only=True)
    updates.load_state_dict(stored["updates"])
    optimizer.load_state_dict(stored["optimizer"])
    losses = list(stored["losses"])
    return len(losses), stored["spent_s"], losses


def _check_finite(step: int, loss: float, gradient_norm: float) -> None:
    if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
        raise TrainingError(
            f"At step {step} the embedder's loss is {loss} and its gradient norm {gradient_norm}. Nothing is written; "
            "begin again with a lower learning rate or a higher temperature."
        )


def pair_loss(policy: Backbone, batch: PairBatch, temperature: float) -> Tensor:
    """Each moment must find its own trajectory among all those of the step."""
    num = len(batch.is_other)
    moments_PD, trajectories_JD = torch.split(_last_states(policy, batch.drawn), [num, 2 * num])
    scores_PJ = moments_PD @ trajectories_JD.T / temperature
    # The other trajectory of the same site is wrong only if it shows nothing that is needed.
    own = torch.arange(num, device=scores_PJ.device)
    hidden = torch.tensor([not one for one in batch.is_other], device=scores_PJ.device)
    mask_PJ = torch.zeros_like(scores_PJ, dtype=torch.bool)
    mask_PJ[own, own + num] = hidden
    return F.cross_entropy(scores_PJ.masked_fill(mask_PJ, -torch.inf), own)


def is_update(folder: Path) -> bool:
    """Whether a folder holds such an update rather than a whole model."""
    return (folder / _WEIGHTS).is_file()


def load_embedder(policy: Backbone, folder: Path) -> QwenEmbedder:
    """The embedder as it acts: a copy of the policy with the update added to its weights."""
    try:
        card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        data = (folder / _WEIGHTS).read_bytes()
        state = read_tensors(data)
    except (OSError, ValueError, SafetensorError) as error:
        raise StorageError(f"Could not read the embedder in {folder}: {error}") from error
    if _policy_weights(card, folder) != policy.identity().weights:
        raise CheckpointError(f"The embedder in {folder} belongs to another policy. Train it again for this one.")
    if card.get("weights_sha256") != sha256_hex(data):
        raise CheckpointError(
            f"{folder / _WEIGHTS} is damaged: its checksum is not the one on the card. Copy it again, or train another."
        )
    # The update changes only text blocks, so policy and embedder share the vision tower and its picture features.
    tower = policy.model.model.visual
    merged = copy.deepcopy(policy, {id(tower): tower, id(policy.pictures): policy.pictures})
    try:
        _add_update(merged.language_model.layers, state)  # type: ignore[arg-type]
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"The update in {folder / _WEIGHTS} does not fit the policy: {error}") from error
    return QwenEmbedder(merged, READING, weights_name=f"{policy.identity().weights} {sha256_hex(data)}")


def _policy_weights(card: Any, folder: Path) -> str:
    policy = card.get("policy") if isinstance(card, dict) else None
    weights = policy.get("weights") if isinstance(policy, dict) else None
    if not isinstance(weights, str):
        raise CheckpointError(f"The embedder in {folder} has a card that does not say to which policy it belongs.")
    return weights


@torch.no_grad()
def _add_update(layers: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Adds each pair of factors to its weight; an error if the tensors are not such pairs."""
    scale = 2.0  # alpha is twice the rank
    names = {key.rsplit(".", 1)[0] for key in state}
    if set(state) != {f"{name}.{factor}" for name in names for factor in ("up_OR", "down_RI")}:
        raise ValueError("its tensors are not pairs of factors.")
    for name in names:
        _, index, *path = name.split("/")
        weight = layers.get_submodule(".".join((index, *path))).get_parameter("weight")
        update = state[f"{name}.up_OR"].float() @ state[f"{name}.down_RI"].float() * scale
        if update.shape != weight.shape or not update.isfinite().all():
            raise ValueError(f"{name} has another shape, or non-finite numbers.")
        weight.add_(update.to(weight.device, weight.dtype))


def _last_states(backbone: Backbone, drawn: DrawnRows) -> Tensor:
    """The last hidden state of each row, at length one; rows of similar length run together."""
    pixels_NHWC = drawn.pixels_NHWC.to(backbone.device, non_blocking=True)
    with torch.no_grad():
        seen = see_named(backbone, drawn.digests, pixels_NHWC)
    rows = backbone.embed(drawn.rows, seen=seen)
    states: list[Tensor | None] = [None] * len(rows)
    for places in alike_in_length([row.length for row in rows], max_tokens=_MAX_TOKENS):
        hidden_BSD = backbone.run(stack_rows([rows[place] for place in places]))
        for place, hidden_SD in zip(places, hidden_BSD, strict=True):
            states[place] = hidden_SD[rows[place].length - 1]
    return F.normalize(torch.stack([state for state in states if state is not None]).float(), dim=-1)
