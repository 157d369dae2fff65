import pytest
import torch

from focusmem.model.backbone import Backbone
from focusmem.model.injection import Injection, Place
from focusmem.model.inputs import stack_rows
from focusmem.schemas import Turn
from toys import decision


@pytest.fixture(scope="module")
def backbone():
    return Backbone.toy()


@pytest.fixture(scope="module")
def rows(backbone):
    return backbone.embed([backbone.tokenise(decision(seed, num_events=seed)) for seed in range(3)])


def numbered_blocks(num: int, width: int) -> torch.Tensor:
    """Block n holds the number n + 1 everywhere."""
    return torch.arange(1.0, num + 1)[:, None, None].expand(num, 4, width)


def test_ordered_by_source_then_rank(rows, backbone):
    places = [Place(0, 1, 0), Place(0, 0, 1), Place(0, 0, 0), Place(0, 1, 1)]
    [first, *_] = Injection()(rows, numbered_blocks(4, backbone.width), places, [True] * 4)
    assert first.embeds_SD[:16:4, 0].tolist() == [3, 2, 1, 4]


def test_a_rejected_block_is_absent(rows, backbone):
    places = [Place(1, 0, 0), Place(1, 0, 1), Place(1, 1, 0)]
    injected = Injection()(rows, numbered_blocks(3, backbone.width), places, [True, False, True])
    assert injected[1].length == rows[1].length + 8
    assert injected[1].embeds_SD[:8:4, 0].tolist() == [1, 3]


def test_a_row_that_keeps_nothing_is_the_row_itself(rows, backbone):
    injected = Injection()(rows, numbered_blocks(2, backbone.width), [Place(0, 0, 0), Place(1, 0, 0)], [True, False])
    assert injected[0] is not rows[0]
    assert injected[1] is rows[1]
    assert injected[2] is rows[2]


def test_positions_of_prefix_and_of_what_follows(rows):
    row = Injection.prefixed(rows[0], torch.zeros(3, 4, rows[0].embeds_SD.shape[1]))
    assert torch.equal(row.positions_3S[:, :12], torch.arange(12).expand(3, -1))
    assert torch.equal(row.positions_3S[:, 12:], rows[0].positions_3S + 12)
    assert not row.visual_S[:12].any()
    assert torch.equal(row.visual_S[12:], rows[0].visual_S)
    assert row.deep_LVD is rows[0].deep_LVD
    assert row.next_position == rows[0].next_position + 12


@torch.no_grad()
def test_latents_that_are_the_embeddings_of_a_text_equal_that_text(backbone):
    """The prefix stands where plain text would stand, so the hidden states must be those of the text."""
    text = "sixteen letters."
    whole = backbone.tokenise((Turn("user", (text,)), *decision(5)), is_complete=True)
    [full] = backbone.embed([whole])
    opening = len(full.embeds_SD) - len(backbone.tokenise(decision(5), is_complete=True).ids)
    [rest] = backbone.embed([backbone.tokenise(decision(5), is_complete=True)])
    prefix = full.embeds_SD[:opening]
    built = Injection.prefixed(rest, prefix[None])
    assert torch.equal(built.positions_3S, full.positions_3S)
    assert torch.equal(backbone.run(stack_rows([built])), backbone.run(stack_rows([full])))


def test_gradient_reaches_kept_blocks_only(rows, backbone):
    blocks = torch.randn(2, 4, backbone.width, requires_grad=True)
    injected = Injection()(rows, blocks, [Place(0, 0, 0), Place(0, 0, 1)], [True, False])
    backbone.run(stack_rows(injected))[:, -1].sum().backward()
    assert blocks.grad[0].abs().sum() > 0
    assert (blocks.grad[1] == 0).all()
