"""How much a vector is there for attention: at one nothing changes, at zero it is not seen, and in between the gradient
is that of the way from one to the other.
"""

from dataclasses import replace

import pytest
import torch

from focusmem.model.backbone import Backbone
from focusmem.model.injection import Injection, Place
from focusmem.model.inputs import stack_rows
from toys import decision

NUM_BLOCKS, NUM_TOKENS = 3, 4


@pytest.fixture(params=[False, True], ids=["padded", "packed"])
def backbone(request):
    made = Backbone.toy(num_layers=3)
    made.packs_rows = request.param
    return made


def with_memory(backbone, presence):
    """Two decisions: one with two blocks in front, one with a single block; and a third without any."""
    rows = backbone.embed([backbone.tokenise(decision(seed, num_events=seed)) for seed in range(3)])
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randn(NUM_BLOCKS, NUM_TOKENS, backbone.width, generator=generator) * backbone.embedding_std()
    places = [Place(0, 0, 0), Place(0, 0, 1), Place(1, 0, 0)]
    return Injection()(rows, blocks, places, [True] * NUM_BLOCKS, presence)


def states(backbone, rows):
    """After the blocks: what is seen of a block is all that counts."""
    hidden = backbone.run(stack_rows(rows))
    return [hidden[number, first : row.length] for number, (row, first) in enumerate(zip(rows, (8, 4, 0), strict=True))]


def loss(backbone, presence):
    weights = torch.linspace(-1, 1, backbone.width)
    return sum((own.double() * weights).sum() for own in states(backbone, with_memory(backbone, presence)))


@torch.no_grad()
def test_at_one_nothing_changes(backbone):
    with_it = states(backbone, with_memory(backbone, torch.ones(NUM_BLOCKS)))
    without = states(backbone, with_memory(backbone, None))
    for found, expected in zip(with_it, without, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_at_zero_it_is_not_seen(backbone):
    """The same as masking the block by the library's own mask."""
    found = states(backbone, with_memory(backbone, torch.tensor([1.0, 1e-30, 1.0])))
    backbone.packs_rows = False
    batch = stack_rows(with_memory(backbone, None))
    mask = batch.mask_BS.clone()
    mask[0, NUM_TOKENS : 2 * NUM_TOKENS] = False
    expected = backbone.run(replace(batch, mask_BS=mask))
    torch.testing.assert_close(found[0], expected[0, 8 : batch.lengths[0]], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1], expected[1, 4 : batch.lengths[1]], rtol=1e-4, atol=1e-5)


def test_its_gradient_is_that_of_fading_out(backbone):
    presence = torch.ones(NUM_BLOCKS, requires_grad=True)
    loss(backbone, presence).backward()
    for number in range(NUM_BLOCKS):
        step = torch.eye(NUM_BLOCKS)[number] * 1e-2
        with torch.no_grad():
            slope = (loss(backbone, 1 + step) - loss(backbone, 1 - step)) / 2e-2
        assert slope.abs() > 1e-4
        torch.testing.assert_close(presence.grad[number].double(), slope, rtol=2e-2, atol=1e-4)
