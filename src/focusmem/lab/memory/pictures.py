"""Computes vision features for training: all pictures of a batch at once, or all existing pictures beforehand."""

from collections.abc import Callable, Mapping

from focusmem.lab.policy.fast_vision import see_named
from focusmem.model.backbone import Backbone, VisionFeatures
from focusmem.training.batch import Pixels

_VIEWS_AT_ONCE = 128


def lab_look(backbone: Backbone) -> Callable[[Pixels], Mapping[str, VisionFeatures]]:
    """A function that computes the features of all pictures of a batch at once."""

    def look(pixels: Pixels) -> Mapping[str, VisionFeatures]:
        return see_named(backbone, pixels.digests, pixels.pixels_NHWC)

    return look
