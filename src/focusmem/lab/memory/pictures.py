"""How training sees the laboratory's pictures: a batch's all at once, or every one there is beforehand."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch.utils.data import Dataset

from focusmem.lab.policy.drawing import all_pixels_of, drawn_ahead
from focusmem.lab.policy.fast_vision import see_named
from focusmem.lab.world.rollout import RolloutStep
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone, VisionFeatures
from focusmem.progress import Progress
from focusmem.training.batch import Pixels

_VIEWS_AT_ONCE = 128


def lab_look(backbone: Backbone) -> Callable[[Pixels], Mapping[str, VisionFeatures]]:
    """Sees all pictures of a batch at once."""

    def look(pixels: Pixels) -> Mapping[str, VisionFeatures]:
        return see_named(backbone, pixels.digests, pixels.pixels_NHWC)

    return look


class _Drawn(Dataset[Pixels]):
    """Some views at a time."""

    def __init__(self, world: World, views: Mapping[str, RolloutStep]) -> None:
        self.world, self.views = world, list(views.items())

    def __len__(self) -> int:
        return -(-len(self.views) // _VIEWS_AT_ONCE)

    def __getitem__(self, number: int) -> Pixels:
        some = self.views[number * _VIEWS_AT_ONCE : (number + 1) * _VIEWS_AT_ONCE]
        pixels = all_pixels_of(self.world, [view for _, view in some])
        return Pixels(tuple(digest for digest, _ in some), torch.from_numpy(pixels))


@torch.no_grad()
def see_beforehand(
    backbone: Backbone, world: World, views: Mapping[str, RolloutStep], *, num_workers: int = 0
) -> dict[str, VisionFeatures]:
    """What the frozen tower makes of each view, kept where the backbone is.

    Training shows every picture many times, and drawing one takes longer than all that a GPU does with it.
    """
    look, seen = lab_look(backbone), dict[str, VisionFeatures]()
    with Progress("pictures", total=len(views)) as line:
        for drawn in drawn_ahead(_Drawn(world, views), num_workers):
            pixels_NHWC = drawn.pixels_NHWC.to(backbone.device, non_blocking=True)
            seen |= look(replace(drawn, pixels_NHWC=pixels_NHWC))
            line.step(len(drawn.digests))
    return seen
