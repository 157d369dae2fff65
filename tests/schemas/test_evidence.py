import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from factories import make_item, make_steps
from focusmem.errors import RecordError
from focusmem.schemas import EvidenceItem, dump_record, make_action, parse_record
from schemas.strategies import FAST, items, numbers, words


@FAST
@given(items, words, st.integers(0, 50), numbers)
def test_the_digest_depends_on_the_content_alone(item, item_id, rank, score):
    renamed = item.model_copy(update={"item_id": item_id, "rank": rank, "score": score})
    assert renamed.content_digest() == item.content_digest()


def test_the_digest_changes_with_the_content():
    item, _ = make_item("episodic", 3)
    step = item.steps[0]
    other_action = step.model_copy(update={"action": make_action("wait")})
    other_picture = step.model_copy(update={"screenshot": item.steps[1].screenshot})
    variants = [
        item,
        item.model_copy(update={"role": "working"}),
        item.model_copy(update={"instruction": None}),
        item.model_copy(update={"instruction": ""}),
        item.model_copy(update={"steps": item.steps[:2]}),
        item.model_copy(update={"steps": item.steps[::-1]}),
        item.model_copy(update={"steps": (other_action, *item.steps[1:])}),
        item.model_copy(update={"steps": (other_picture, *item.steps[1:])}),
    ]
    assert len({variant.content_digest() for variant in variants}) == len(variants)


def test_the_digest_is_the_same_on_every_machine():
    # Cached memory is filed under this digest: if it changes, all of it has to be made again.
    step = make_steps(1)[0][0]
    step = step.model_copy(update={"screenshot": step.screenshot.model_copy(update={"sha256": "0" * 64})})
    item = EvidenceItem(item_id="x", role="working", steps=(step,), rank=0)
    assert item.content_digest() == "e6d64aa63c091c19f929059e0776c110635006fda39d7be7ac4300324f69e2da"


def test_an_item_without_steps_is_refused():
    with pytest.raises(ValidationError, match="an evidence item needs at least one step"):
        EvidenceItem(item_id="x", role="working", steps=(), rank=0)


def test_a_stored_item_without_steps_is_refused():
    item, _ = make_item("episodic", 1)
    text = dump_record(item.model_copy(update={"steps": ()}))
    with pytest.raises(RecordError, match=r"item\.json: steps is empty, but an evidence item needs at least one step"):
        parse_record(EvidenceItem, text, "item.json")


@pytest.mark.parametrize("fields", [{"rank": -1}, {"role": "semantic"}, {"score": float("nan")}, {"item_id": " "}])
def test_nonsense_is_refused(fields):
    values = {"item_id": "x", "role": "working", "steps": make_steps(1)[0], "rank": 0}
    with pytest.raises(ValidationError):
        EvidenceItem(**{**values, **fields})
