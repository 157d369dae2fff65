import itertools
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from focusmem.errors import RecordError
from focusmem.schemas import Environment, Run, dump_record, parse_record
from focusmem.schemas.record import MAX_JSON_DEPTH

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def make_run(**fields) -> Run:
    values = {
        "run_id": "run-1",
        "key": "0123abcd",
        "command": ("focusmem", "run"),
        "status": "running",
        "config": {},
        "started_at": NOON,
    }
    return Run(**{**values, **fields})


def nested(depth: int) -> dict:
    inner: dict = {}
    for _ in range(depth - 1):
        inner = {"a": inner}
    return inner


def test_equal_runs_are_written_alike_whatever_the_order_of_their_keys():
    config = {"a": 1, "b": {"c": [None, 0.1], "d": True}}
    backwards = {"b": {"d": True, "c": [None, 0.1]}, "a": 1}
    assert dump_record(make_run(config=config)) == dump_record(make_run(config=backwards))
    for order in itertools.permutations({"torch": "2.11", "numpy": "2.4", "pillow": "13.0"}.items()):
        environment = Environment(packages=dict(order))
        assert list(environment.packages) == ["numpy", "pillow", "torch"]


def test_a_run_keeps_its_own_copy_of_the_config():
    config = {"lab": {"seeds": [1, 2]}}
    run = make_run(config=config)
    config["lab"]["seeds"].append(3)
    assert run.config == {"lab": {"seeds": [1, 2]}}


def test_times_are_stored_in_utc():
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    run = make_run(started_at=there)
    assert run == make_run()
    assert b'"started_at": "2025-06-01T12:00:00Z"' in dump_record(run)


def test_the_deepest_allowed_config_is_read_back():
    run = make_run(config=nested(MAX_JSON_DEPTH))
    assert parse_record(Run, dump_record(run), "run.json") == run


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"config": {"rate": float("nan")}}, "finite"),
        ({"config": {"rate": [float("inf")]}}, "finite"),
        ({"config": {"size": 2**64}}, "64 bits"),
        ({"config": {"name": "\ud800"}}, "surrogate"),
        ({"config": {"\udfff": 1}}, "surrogate"),
        ({"config": {"name": "a\0"}}, "NUL"),
        ({"config": {"when": NOON}}, "JSON"),
        ({"config": {"pair": (1, 2)}}, "JSON"),
        ({"config": {1: 2}}, "string"),
        ({"config": nested(MAX_JSON_DEPTH + 1)}, "levels deep"),
        ({"started_at": datetime(2025, 6, 1)}, "timezone"),
        ({"started_at": "2025-06-01T12:00:00Z"}, "datetime"),
        ({"started_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))}, "can be converted to UTC"),
        ({"run_id": "../run"}, "file name"),
        ({"command": ["focusmem"]}, "tuple"),
        ({"status": "finished"}, "has no finished_at"),
        ({"finished_at": NOON}, "still running"),
        ({"num_tasks": -1}, "greater than or equal to 0"),
        ({"key": "a/b"}, "file name"),
    ],
)
def test_a_run_that_could_not_be_read_back_is_not_made(fields, message):
    with pytest.raises(ValidationError, match=message):
        make_run(**fields)


def test_two_runs_of_the_same_name_have_different_keys():
    keys = {Run(**make_run().model_dump(exclude={"key"})).key for _ in range(3)}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"commit": "HEAD"}, "match pattern"), ({"seeds": {"lab": -1}}, "greater than or equal to 0")],
)
def test_an_environment_that_could_not_be_read_back_is_not_made(fields, message):
    with pytest.raises(ValidationError, match=message):
        Environment(**fields)


def test_a_stored_run_that_contradicts_itself_is_refused():
    text = dump_record(make_run()).replace(b'"running"', b'"finished"')
    with pytest.raises(RecordError, match=r"run\.json: the document says that the run is finished, yet has no"):
        parse_record(Run, text, "run.json")
