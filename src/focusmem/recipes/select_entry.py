"""Measures whether a readout learns to choose: an item lists several entries in words, and a decision needs one.

The policy is frozen, the memory is fresh, and only actions are learnt. The memory's state pools the instruction apart.
A second memory, which differs in nothing else, has the paper's state: the mean over the whole context. Random words
follow each instruction, like the text of a page.
"""

import random
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from focusmem.lab.policy.policy import load_policy
from focusmem.lab.shipped import Weights
from focusmem.model.backbone import Backbone
from focusmem.model.compressor import Budget, CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.inputs import PARTS, Row
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.model.readout import ReadoutConfig
from focusmem.model.state import StateSource
from focusmem.schemas import Instruction, Turn, action_to_json, make_action
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass, to_plain
from focusmem.training.batch import Decision, ItemUse, TrainingBatch, TrainingItem
from focusmem.training.config import READOUT_TIMES, LoopConfig
from focusmem.training.deadline import Deadline
from focusmem.training.loop import train
from focusmem.training.metrics import read_metrics
from focusmem.training.pathway import EmbeddedShare, EncodedShare, embed, target_hidden
from focusmem.training.prepared import Needs, Prepared, Preparer
from focusmem.training.stage_b import StageB, StageBConfig
from focusmem.training.vital_signs import VITAL_SIGNS_NOTE, neighbours

TOY: Final = "toy"
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_HELD_OUT_NAMES: Final = 8
"""One in this many names is used in tests only."""
_MAX_TOKENS: Final = 65_536


@checked_dataclass(frozen=True, kw_only=True)
class SelectConfig:
    num_entries: PositiveInt = 4
    """Number of entries in an item of the test. In training, an item lists 1, 2, 4 and so on up to this many."""
    num_digits: PositiveInt = 2
    """Number of digits of a code."""
    num_words: NonNegativeInt = 40
    """Number of random words after the instruction. Only the state reads them. The policy does not need them, and they
    would make each of its steps several times slower.
    """
    num_tokens: Budget = 2
    """Memory tokens per item."""
    state_source: StateSource = "joined"
    """The state of the first memory; the second has the mean of all embeddings."""
    has_mean_state: bool = True
    """Whether the second memory is trained too."""
    num_items: PositiveInt = 8
    """Per step."""
    num_asked: PositiveInt = 4
    """Number of decisions about an item, at most its number of entries."""
    num_steps: PositiveInt = 800
    """Number of training steps of each memory."""
    learning_rate: PositiveFloat = 3e-4
    readout_rate_times: PositiveFloat = READOUT_TIMES
    query_std: PositiveFloat = 1.0
    """Standard deviation of the initial base queries."""
    num_tested: PositiveInt = 24
    """Number of items of the test. Each is asked for its entries, at most for `num_asked` of them."""
    num_threads: PositiveInt = 2
    """CPU threads of torch."""
    policy: str = "lab"
    """The frozen policy: lab (ships), or toy (random weights, which learn nothing useful)."""
    seed: int = 0
    max_minutes: PositiveFloat | None = None
    """Save and stop after this time; the same call resumes."""


@dataclass(frozen=True)
class Entries:
    """Items that list names with codes, and decisions that ask for the code of one name."""

    config: SelectConfig
    num_batches: int = 10**6

    def batch(self, number: int) -> TrainingBatch:
        rng = random.Random(derive_seed(self.config.seed, "entries", number))
        halvings = [self.config.num_entries >> by for by in range(self.config.num_entries.bit_length())]
        nums = [rng.choice([self.config.num_entries, *halvings]) for _ in range(self.config.num_items)]
        return self._drawn(rng, nums, is_test=False)

    @property
    def held_out(self) -> TrainingBatch:
        """A batch with names that occur in no numbered batch. The vital signs are measured on it."""
        return self.test("vital signs", self.config.num_items)

    def test(self, use: str, num_items: int) -> TrainingBatch:
        """Items with the full number of entries, and with names that are not used in training."""
        rng = random.Random(derive_seed(self.config.seed, "held-out entries", use))
        return self._drawn(rng, [self.config.num_entries] * num_items, is_test=True)

    def _drawn(self, rng: random.Random, nums: Sequence[int], *, is_test: bool) -> TrainingBatch:
        items, decisions = list[TrainingItem](), list[Decision]()
        for place, num in enumerate(nums):
            names = _names(rng, num, is_test=is_test)
            codes = ["".join(rng.choice("0123456789") for _ in range(self.config.num_digits)) for _ in names]
            listed = ", ".join(f"{name} {code}" for name, code in zip(names, codes, strict=True))
            told = (Turn("user", (f"Codes: {listed}",)),)
            items.append(TrainingItem(item_id=f"list-{place}", role="episodic", prompt=told))
            for entry in rng.sample(range(num), min(self.config.num_asked, num)):
                instruction = Instruction(f"type the code of {names[entry]}.")
                words = "".join(f" {_word(rng)}" for _ in range(self.config.num_words))
                asked = Turn("user", ("Task: ", instruction, words))
                reply = action_to_json(make_action("stop", answer=codes[entry]))
                decisions.append(Decision(prompt=(asked,), reply=reply, uses=(ItemUse(place, 0),)))
        return TrainingBatch(items=tuple(items), decisions=tuple(decisions))


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.choice((2, 3)))).capitalize()


def _names(rng: random.Random, num: int, *, is_test: bool) -> list[str]:
    names = dict[str, None]()
    while len(names) < num:
        word = _word(rng)
        if (zlib.crc32(word.encode()) % _HELD_OUT_NAMES == 0) == is_test:
            names[word] = None
    return list(names)


class WordlessPolicy(MemoryPolicy):
    """A memory whose state includes the words after the instruction, while the policy's prompt does not."""

    def inject(self, rows: Sequence[Row], memory: Memory | None) -> list[Row]:
        return super().inject([self._without_words(row) for row in rows], memory)

    def _without_words(self, row: Row) -> Row:
        if row.parts_S is None:
            return row
        instruction = (row.parts_S == PARTS.index("instruction")).nonzero()
        chat = self.backbone.chat
        end = [chat.special["<|im_end|>"], *chat.encode("\n"), *chat.opening_ids("assistant")]
        kept = [*range(int(instruction.max()) + 1), *range(row.num_context - len(end), row.length)]
        return replace(
            row,
            embeds_SD=row.embeds_SD[kept],
            positions_3S=row.positions_3S[:, : len(kept)],  # text alone counts on
            visual_S=row.visual_S[kept],
            next_position=len(kept),
            parts_S=None,
            part_counts=(),
        )


def measure_selection(config: SelectConfig, folder: Path) -> dict[str, Any]:
    """Trains both memories in the folder, or resumes them, and tests how often they answer correctly."""
    torch.set_num_threads(config.num_threads)
    backbone = Backbone.toy() if config.policy == TOY else load_policy(Weights().policy, "cpu")
    deadline, data = Deadline(config.max_minutes), Entries(config)
    figures: dict[str, Any] = {"config": to_plain(config), "guess": 1 / config.num_entries}
    sources: list[tuple[str, StateSource]] = [("state", config.state_source)]
    sources += [("mean", "embeddings")] if config.has_mean_state else []
    for name, source in sources:
        policy, num_steps = _trained(config, backbone, source, data, folder / name, deadline)
        right = _tested(policy, data.test("test", config.num_tested))
        figures[name] = {"num_steps": num_steps, **asdict(right), VITAL_SIGNS_NOTE: _last_signs(folder / name)}
    own = figures["state"]
    mean = figures["mean"]["own"] if config.has_mean_state else None
    is_finished = all(figures[name]["num_steps"] == config.num_steps for name, _ in sources)
    answers = {name: own[name] for name in ("own", "shuffled", "fixed")} | {"mean_state": mean}
    return {**answers, "num_decisions": own["num_decisions"], "is_finished": is_finished, **figures}


def _trained(
    config: SelectConfig, backbone: Backbone, source: StateSource, data: Entries, folder: Path, deadline: Deadline
) -> tuple[MemoryPolicy, int]:
    """The memory, and its number of steps so far."""
    torch.manual_seed(derive_seed(config.seed, "fresh memory"))
    num_heads = 6 if backbone.width % 6 == 0 else 4
    memory = MemoryConfig(
        state_source=source,
        lora=LoraConfig(rank=16, alpha=16, dropout=0.0),
        compressor=CompressorConfig(num_tokens=config.num_tokens, num_heads=num_heads, query_std=config.query_std),
        readout=ReadoutConfig(hidden_width=256),
    )
    policy = WordlessPolicy(backbone, memory)
    loop = LoopConfig(
        learning_rate=config.learning_rate,
        readout_rate_times=config.readout_rate_times,
        num_steps=config.num_steps,
        betas=(0.9, 0.98),
        log_every_steps=50,
        save_every_steps=100,
        seed=config.seed,
    )
    result = train(policy, data, StageB(StageBConfig(is_gated=False)), deadline.limit(loop), folder)
    return policy, result.num_steps


@dataclass(frozen=True)
class Right:
    """Share of decisions in which every token of the right reply is the likeliest token."""

    own: float
    """The rate with blocks that are read for the decision's own state."""
    shuffled: float
    """The rate with blocks that are read for the state of a decision that asks the same item for another entry."""
    fixed: float
    """The rate with blocks that are read with the base queries alone."""
    num_decisions: int


@torch.no_grad()
def _tested(policy: MemoryPolicy, batch: TrainingBatch) -> Right:
    [share] = Preparer(policy, Needs()).shares(batch, [0], 1)
    rows = embed(policy, share)
    state_BU = policy.state(rows.decisions)
    others_BU = state_BU[neighbours(share, len(rows.decisions))]
    own, shuffled, fixed = (_share_right(policy, share, rows, read) for read in (state_BU, others_BU, None))
    return Right(own, shuffled, fixed, len(rows.decisions))


def _share_right(policy: MemoryPolicy, share: Prepared, rows: EmbeddedShare, state_BU: Tensor | None) -> float:
    groups, order = EncodedShare.of(policy, rows.items, max_tokens=_MAX_TOKENS).for_uses(share.item_of_use)
    places = tuple(share.places[use] for use in order)
    memory = Memory(policy.read(groups, places, state_BU), places, (True,) * len(places))
    injected = policy.inject(rows.decisions, memory)
    hidden = target_hidden(policy.backbone, injected, max_tokens=_MAX_TOKENS)
    right = [
        policy.backbone.logits(one).argmax(dim=-1).tolist() == list(row.target_ids)
        for row, one in zip(injected, hidden, strict=True)
    ]
    return sum(right) / len(right)


def _last_signs(folder: Path) -> dict[str, Any] | None:
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if VITAL_SIGNS_NOTE in line]
    return lines[-1][VITAL_SIGNS_NOTE] if lines else None
