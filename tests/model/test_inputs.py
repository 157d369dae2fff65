import pytest
import torch

from factories import make_screenshot
from focusmem.model.backbone import Backbone
from focusmem.model.inputs import alike_in_length, stack_rows, text_and_image_positions
from toys import decision, evidence

PICTURE = 9


def slow_positions(ids, grids):
    """Token by token, as the model's authors describe it."""
    remaining, positions, place, now = list(grids), [], 0, 0
    while place < len(ids):
        if ids[place] != PICTURE:
            positions.append((now, now, now))
            place, now = place + 1, now + 1
            continue
        rows, columns = remaining.pop(0)
        positions += [(now, now + row, now + column) for row in range(rows) for column in range(columns)]
        place, now = place + rows * columns, now + max(rows, columns)
    return torch.tensor(positions).T, now


@pytest.mark.parametrize(
    ("ids", "grids"),
    [
        ([1, 2, 3], []),
        ([1, *[PICTURE] * 6, 2], [(2, 3)]),
        ([*[PICTURE] * 6, 2, 3, *[PICTURE] * 4], [(3, 2), (1, 4)]),
        ([*[PICTURE] * 2, *[PICTURE] * 3], [(2, 1), (1, 3)]),
    ],
)
def test_positions_equal_a_walk_over_the_tokens(ids, grids):
    positions, next_position = text_and_image_positions(ids, PICTURE, grids)
    expected, expected_next = slow_positions(ids, grids)
    assert torch.equal(positions, expected)
    assert next_position == expected_next


def test_pictures_must_fill_their_places():
    with pytest.raises(ValueError, match="2 image tokens, but its pictures need 6"):
        text_and_image_positions([PICTURE, PICTURE], PICTURE, [(2, 3)])


def test_rows_packed_together_equal_rows_embedded_alone():
    backbone = Backbone.toy()
    tokens = [
        backbone.tokenise(decision(0), reply="yes"),
        backbone.tokenise(evidence(1), is_complete=True),
        backbone.tokenise(decision(2, num_events=2), reply="a longer reply"),
    ]
    together = backbone.embed(backbone.chat.pack(tokens))
    for row, token_row in zip(together, tokens, strict=True):
        [alone] = backbone.embed([token_row])
        for name in ("embeds_SD", "positions_3S", "visual_S", "deep_LVD"):
            assert torch.equal(getattr(row, name), getattr(alone, name)), name
        assert (row.next_position, row.target_ids) == (alone.next_position, alone.target_ids)
    assert backbone.embed(backbone.chat.pack([])) == []


def test_features_that_are_there_already_are_not_computed():
    backbone, other = Backbone.toy(), Backbone.toy()
    picture = make_screenshot(3)
    [features] = other.see([picture])
    assert backbone.see([picture], seen={picture.digest: features})[0] is features
    assert len(backbone.pictures) == 0


def test_stacking_passes_gradients_to_each_row():
    backbone = Backbone.toy()
    rows = backbone.embed([backbone.tokenise(decision(seed, num_events=seed)) for seed in range(3)])
    for row in rows:
        row.embeds_SD.requires_grad_()
    batch = stack_rows(rows, pad_to=400)
    weights = torch.randn_like(batch.embeds_BSD)
    (batch.embeds_BSD * weights).sum().backward()
    for number, row in enumerate(rows):
        assert torch.equal(row.embeds_SD.grad, weights[number, : row.length])


def test_rows_are_put_together_by_length():
    lengths = [5, 90, 10, 100, 9, 95]
    groups = alike_in_length(lengths, max_tokens=200)
    assert groups == [[3, 5], [1, 2], [4, 0]]
    assert all(len(group) * max(lengths[number] for number in group) <= 200 for group in groups)
    assert alike_in_length([300, 1], max_tokens=200) == [[0], [1]]
    assert alike_in_length([], max_tokens=200) == []


def test_groups_end_where_padding_would_cost_more_than_a_group():
    lengths = [775] * 4 + [155] * 9 + [700]
    assert alike_in_length(lengths, max_tokens=10**6, max_padding=600) == [[0, 1, 2, 3, 13], [*range(4, 13)]]
    assert len(alike_in_length(lengths, max_tokens=10**6, max_padding=10**6)) == 1
    assert alike_in_length([100, 60, 60, 60], max_tokens=10**6, max_padding=80) == [[0, 1, 2], [3]]
