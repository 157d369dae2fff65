"""Each loss against a slow one that is obviously right, in float64, gradients included."""

import math

import pytest
import torch

from focusmem.training.losses import (
    drop_loss,
    order_loss,
    over_positions,
    parting_loss,
    semantic_loss,
    token_loss,
    token_nats,
)

NUM, VOCABULARY = 7, 13


def scores(seed: int) -> torch.Tensor:
    return 3 * torch.randn(NUM, VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def softmax_of(row: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def test_token_loss_is_minus_the_log_of_each_target():
    logits, targets = scores(0).requires_grad_(), torch.arange(NUM) * 5 % VOCABULARY
    loss = token_loss(logits, targets)
    loss.backward()
    expected, slopes = 0.0, []
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        chances = softmax_of(row)
        expected -= math.log(chances[target])
        slopes.append([chance - (place == target) for place, chance in enumerate(chances)])
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(logits.grad, torch.tensor(slopes, dtype=torch.float64))


def test_semantic_loss_is_the_divergence_over_the_whole_vocabulary():
    student, teacher = scores(1).requires_grad_(), scores(2).requires_grad_()
    loss = semantic_loss(student, teacher)
    loss.backward()
    expected, slopes = 0.0, []
    for own, taught in zip(student.tolist(), teacher.tolist(), strict=True):
        q, p = softmax_of(own), softmax_of(taught)
        expected += sum(taught * math.log(taught / own) for taught, own in zip(p, q, strict=True))
        slopes.append([own - taught for taught, own in zip(p, q, strict=True)])
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(student.grad, torch.tensor(slopes, dtype=torch.float64))
    assert teacher.grad is None, "the teacher is given, not trained"


def test_semantic_loss_is_zero_only_for_the_teacher_itself():
    assert semantic_loss(scores(1), scores(1)).item() == pytest.approx(0, abs=1e-12)
    assert semantic_loss(scores(1) + 5, scores(1)).item() == pytest.approx(0, abs=1e-12)
    assert semantic_loss(scores(1), scores(2)) > 0.1


def test_drop_loss_is_minus_the_log_of_being_kept_out():
    logits = torch.tensor([-4.0, 0.0, 2.5], dtype=torch.float64, requires_grad=True)
    loss = drop_loss(logits)
    loss.backward()
    chances = [1 / (1 + math.exp(-value)) for value in logits.tolist()]
    assert loss.item() == pytest.approx(-sum(math.log(1 - chance) for chance in chances), rel=1e-12)
    torch.testing.assert_close(logits.grad, torch.tensor(chances, dtype=torch.float64))


def test_order_loss_is_minus_the_log_of_the_right_one_coming_first():
    """Pair by pair; a wrong block counts once, however many right ones it is compared with."""
    wrong = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True)
    right = torch.tensor([1.5, -0.4, 0.1], dtype=torch.float64, requires_grad=True)
    loss = order_loss(wrong, right, [(0, 0), (0, 2), (1, 1)])
    first = [-math.log(1 / (1 + math.exp(one - other))) for one, other in ((0.3, 1.5), (0.3, 0.1))]
    assert loss.item() == pytest.approx(sum(first) / 2 - math.log(1 / (1 + math.exp(-1.2 + 0.4))))
    loss.backward()
    assert (wrong.grad > 0).all()
    assert (right.grad < 0).all()
    assert (wrong.grad.sum() + right.grad.sum()).item() == pytest.approx(0)


def test_parting_loss_is_minus_the_log_of_every_right_one_coming_first():
    """All pairs one by one; a wrong block counts once, however many right ones there are."""
    wrong = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64, requires_grad=True)
    right = torch.tensor([1.5, -0.4], dtype=torch.float64, requires_grad=True)
    loss = parting_loss(wrong, right)
    loss.backward()
    expected, of_wrong, of_right = 0.0, [0.0] * 3, [0.0] * 2
    for at, one in enumerate(wrong.tolist()):
        for place, own in enumerate(right.tolist()):
            chance = 1 / (1 + math.exp(one - own))
            expected -= math.log(chance) / 2
            of_wrong[at] += (1 - chance) / 2
            of_right[place] -= (1 - chance) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(wrong.grad, torch.tensor(of_wrong, dtype=torch.float64))
    torch.testing.assert_close(right.grad, torch.tensor(of_right, dtype=torch.float64))


def test_parting_loss_is_small_only_where_all_are_parted():
    low, high = torch.linspace(-12, -10, 5), torch.linspace(10, 12, 3)
    assert parting_loss(low, high).item() == pytest.approx(0, abs=1e-6)
    assert parting_loss(low, torch.cat([high, low[:1]])) > 1
    assert parting_loss(high, low) > 20 * 3
    assert parting_loss(torch.full((5,), 0.7), torch.full((3,), 0.7)).item() == pytest.approx(5 * math.log(2))


def test_drop_loss_stays_finite_where_the_plain_formula_does_not():
    assert drop_loss(torch.tensor([200.0])).item() == pytest.approx(200.0)


def test_half_precision_is_summed_in_float32():
    logits = scores(3).to(torch.bfloat16)
    targets = torch.zeros(NUM, dtype=torch.long)
    assert token_loss(logits, targets).dtype == torch.float32
    torch.testing.assert_close(
        token_loss(logits, targets), token_loss(logits.double(), targets).float(), rtol=1e-5, atol=1e-5
    )


def test_nothing_to_sum_is_zero():
    empty = torch.zeros(0, VOCABULARY, requires_grad=True)
    assert token_loss(empty, torch.zeros(0, dtype=torch.long)) == 0
    assert semantic_loss(empty, empty) == 0


@pytest.mark.parametrize("max_logits", [1, 3 * VOCABULARY, 10**6])
def test_pieces_equal_the_whole(max_logits):
    head = scores(4)[:6].T.contiguous()  # (V, D)
    results = []
    for size in (10**9, max_logits):
        hidden = scores(5)[:, :6].clone().requires_grad_()
        taught = scores(6)[:, :6]
        loss = over_positions(
            lambda one, other: semantic_loss(one @ head.T, other @ head.T),
            hidden,
            taught,
            vocabulary=VOCABULARY,
            max_logits=size,
        )
        loss.backward()
        results.append((loss.detach(), hidden.grad))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("max_logits", [1, 3 * VOCABULARY, 10**6])
def test_nats_of_single_tokens_add_up_to_their_loss(max_logits, monkeypatch):
    monkeypatch.setattr("focusmem.training.losses._MAX_LOGITS", max_logits)
    logits, targets = scores(7), torch.arange(NUM) * 5 % VOCABULARY
    nats = token_nats(lambda rows: rows, logits, targets, vocabulary=VOCABULARY)
    alone = [token_loss(logits[at : at + 1], targets[at : at + 1]) for at in range(NUM)]
    torch.testing.assert_close(nats, torch.stack(alone))
