"""Lays examples end to end as one batch: tokens, targets, and each different picture once.

Shapes: T tokens of all examples, R examples, M tokens to learn, V visual tokens, N pictures, P pictures with letters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch

from focusmem.lab.policy.characters import NUM_SLOTS, letters_in_view
from focusmem.lab.policy.drawing import all_pixels_of
from focusmem.lab.world.rollout import RolloutStep
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.world import World
from focusmem.model.chat import ChatTokenizer
from focusmem.model.inputs import text_and_image_positions
from focusmem.schemas import make_action

NUM_LETTERED = 96
"""Number of pictures per batch whose letters the vision tower must predict."""

_NO_ACTION = make_action("wait")


@dataclass(frozen=True)
class Example:
    ids: tuple[int, ...]
    learnt: tuple[int, ...]
    """For each token, the index of its kind in `LEARNT`, counted from one; zero if it is not a target."""
    views: tuple[RolloutStep, ...]
    """The view of each screenshot, in order."""
    tag: str = ""
    """The group in which the example is scored: its kind, the help in front, the action."""


@dataclass(frozen=True)
class CorpusBatch:
    """Examples end to end, filled up to a fixed number of tokens; each different picture once."""

    ids_T: torch.Tensor
    positions_3T: torch.Tensor
    starts_R: torch.Tensor
    """The start of each example and the end of the last one, (R + 1,)."""
    before_M: torch.Tensor
    """The position before each token to learn."""
    learnt_M: torch.Tensor
    """The kind of each target, as an index in `LEARNT`."""
    row_M: torch.Tensor
    """The example of each target."""
    visual_V: torch.Tensor
    """Positions of visual tokens."""
    pixels_NHWC: torch.Tensor
    letters_PVS: torch.Tensor
    """The letters in each visual token of the first pictures, slot by slot."""
    picture_of_place: torch.Tensor
    """For each screenshot in the batch, in order, the index of its picture."""
    longest: int
    """Tokens of the longest example."""
    tags: tuple[str, ...]
    """The tag of each example."""

    def pin_memory(self) -> "CorpusBatch":
        """Called by the loader, so that copies to a GPU are asynchronous."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device) -> "CorpusBatch":
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "CorpusBatch":
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items()})  # type: ignore[arg-type]


def pack_examples(world: World, chat: ChatTokenizer, examples: Sequence[Example], num_tokens: int) -> CorpusBatch:
    """Packs examples into one batch of exactly `num_tokens` tokens."""
    starts = np.cumsum([0, *(len(one.ids) for one in examples)])
    ids = np.full(num_tokens, chat.special["<|endoftext|>"], dtype=np.int64)
    ids[: starts[-1]] = np.concatenate([one.ids for one in examples])
    learnt = np.concatenate([one.learnt for one in examples])
    image_token = chat.special["<|image_pad|>"]
    positions = torch.zeros(3, num_tokens, dtype=torch.int64)
    grid = chat.token_grid(VIEW_WIDTH, VIEW_HEIGHT)
    pictures: dict[RolloutStep, int] = {}
    places: list[int] = []
    for start, one in zip(starts, examples, strict=False):
        own, _ = text_and_image_positions(one.ids, image_token, [grid] * len(one.views))
        positions[:, start : start + len(one.ids)] = own
        places += [pictures.setdefault(_seen(view), len(pictures)) for view in one.views]
    [targets] = np.nonzero(learnt)
    # The remaining padding is a separate example without targets.
    ends = starts if starts[-1] == num_tokens else [*starts, num_tokens]
    return CorpusBatch(
        ids_T=torch.from_numpy(ids),
        positions_3T=positions,
        starts_R=torch.tensor(np.asarray(ends), dtype=torch.int32),
        before_M=torch.from_numpy(targets - 1),
        learnt_M=torch.from_numpy(learnt[targets] - 1),
        row_M=torch.from_numpy(np.searchsorted(starts, targets, side="right") - 1),
        visual_V=torch.from_numpy(np.nonzero(ids == image_token)[0]),
        pixels_NHWC=torch.from_numpy(all_pixels_of(world, pictures)),
        letters_PVS=_stacked(
            [_letters(world, view) for view in islice(pictures, NUM_LETTERED)], (grid[0] * grid[1], NUM_SLOTS)
        ),
        picture_of_place=torch.tensor(places, dtype=torch.long),
        longest=int(np.diff(ends).max()),
        tags=tuple(one.tag for one in examples),
    )


def _stacked(arrays: Sequence[npt.NDArray[np.uint8]], shape: tuple[int, ...]) -> torch.Tensor:
    """The arrays stacked. There are none if the batch shows no pictures."""
    return torch.from_numpy(np.stack(arrays)) if arrays else torch.zeros(0, *shape, dtype=torch.uint8)


def _letters(world: World, view: RolloutStep) -> npt.NDArray[np.uint8]:
    return letters_in_view(world.scene(view.path), view.scroll, dict(view.typed))


def _seen(step: RolloutStep) -> RolloutStep:
    """The step without its action, so that steps with the same picture are equal."""
    return RolloutStep(step.path, step.scroll, step.typed, _NO_ACTION, None)
