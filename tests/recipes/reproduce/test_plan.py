"""The engine: order, status, limits, failures, several processes, and a process that is killed."""

import json
import multiprocessing
import os
from functools import partial
from pathlib import Path

import pytest

from focusmem.errors import ConfigError, FocusmemError, StorageError
from focusmem.recipes.reproduce import packing
from focusmem.recipes.reproduce.packing import MOST_PARTS, light_files, pack, unpack
from focusmem.recipes.reproduce.plan import Limit, Plan, Unit, failures, work_through
from focusmem.recipes.reproduce.side_by_side import carry_out
from recipes.reproduce.fake_plan import count, make_plan


def statuses(plan):
    return {unit.name: plan.status(unit) for unit in plan.units}


def numbers(plan):
    return {unit.name: (plan.place(unit.name) / "numbers.txt").read_text() for unit in plan.units}


def test_units_come_after_what_they_need(tmp_path):
    plan = make_plan(tmp_path)
    assert [unit.name for unit in plan.units] == ["first", "right", "left", "last"]
    assert statuses(plan) == {"first": "ready", "right": "waiting", "left": "waiting", "last": "waiting"}


@pytest.mark.parametrize("needs", [("b",), ("stranger",)])
def test_a_circle_or_a_stranger_is_refused(tmp_path, needs):
    units = [Unit(name="a", needs=needs, run=partial(count, 1, None)), Unit(name="b", needs=("a",), run=count)]
    with pytest.raises(ConfigError, match="circle" if needs == ("b",) else "stranger"):
        Plan("wrong", units, tmp_path)


def test_a_call_without_a_limit_does_everything_and_a_second_one_nothing(tmp_path):
    plan = carry_out(partial(make_plan, tmp_path))
    assert set(statuses(plan).values()) == {"finished"}
    before = numbers(plan)
    carry_out(partial(make_plan, tmp_path))
    assert numbers(plan) == before


def test_nothing_begins_after_the_limit(tmp_path):
    plan = make_plan(tmp_path)
    work_through(plan, Limit(ends_at=0.0))
    assert statuses(plan)["first"] == "ready"


def test_only_one_unit(tmp_path):
    with pytest.raises(ConfigError, match="needs first"):
        carry_out(partial(make_plan, tmp_path), only="left")
    carry_out(partial(make_plan, tmp_path), only="first")
    plan = carry_out(partial(make_plan, tmp_path), only="left")
    assert statuses(plan) == {"first": "finished", "left": "finished", "right": "ready", "last": "waiting"}


def test_other_settings_are_refused(tmp_path):
    carry_out(partial(make_plan, tmp_path), only="first")
    with pytest.raises(ConfigError, match="begun with num = 5, but this plan has 6"):
        carry_out(partial(make_plan, tmp_path, num=6))


def fails_once(folder, limit):
    if not (folder / "tried").exists():
        (folder / "tried").touch()
        raise StorageError("The disk is full.")
    return True


def test_a_failure_stops_only_what_needs_it_and_is_tried_again(tmp_path):
    units = [
        Unit(name="weak", run=fails_once),
        Unit(name="after", needs=("weak",), run=partial(count, 1, None)),
        Unit(name="beside", run=partial(count, 1, None)),
    ]
    made = lambda: Plan("weak", units, tmp_path)  # noqa: E731
    with pytest.raises(FocusmemError, match=r"weak: The disk is full\."):
        carry_out(made)
    assert statuses(made()) == {"weak": "failed", "after": "waiting", "beside": "finished"}
    assert set(failures(made())) == {"weak"}
    assert set(statuses(carry_out(made)).values()) == {"finished"}


def test_what_a_killed_process_had_begun_is_resumed(tmp_path):
    make = partial(make_plan, tmp_path / "killed", kill_at=3)
    process = multiprocessing.get_context("spawn").Process(target=carry_out, args=(make,))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert statuses(make()) == {"first": "finished", "right": "begun", "left": "ready", "last": "waiting"}
    assert (make().place("right") / "numbers.txt").read_text().split() == ["0", "1", "2"]
    plan = carry_out(make)
    assert numbers(plan) == numbers(carry_out(partial(make_plan, tmp_path / "whole")))


def test_processes_side_by_side_take_over_from_one_that_is_killed(tmp_path):
    plan = carry_out(partial(make_plan, tmp_path / "run", kill_at=3), num_parallel=2)
    assert set(statuses(plan).values()) == {"finished"}
    assert (plan.place("right") / "killed").exists()
    assert sorted(path.name for path in plan.folder.glob("lane-*.log")) == ["lane-1.log", "lane-2.log"]


def test_packing_and_unpacking_then_going_on_equals_not_having_packed(tmp_path, monkeypatch):
    for name in ("here", "there", "whole"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    make = partial(make_plan, Path("run"))
    carry_out(make, only="first")
    plan = make()
    plan.note(plan.by_name["left"], status="begun")
    (plan.place("left") / "numbers.txt").write_text("0\n1")
    sizes = pack(plan, tmp_path / "pack")
    assert set(sizes) == {"first", "left"}
    monkeypatch.chdir(tmp_path / "there")
    assert unpack(make(), tmp_path / "pack") == ["first", "left"]
    assert statuses(make()) == {"first": "finished", "left": "begun", "right": "ready", "last": "waiting"}
    moved = numbers(carry_out(make))
    monkeypatch.chdir(tmp_path / "whole")
    assert moved == numbers(carry_out(make))


def begun(tmp_path, **files):
    plan = make_plan(tmp_path / "run")
    plan.note(plan.by_name["first"], status="begun")
    for name, data in files.items():
        (plan.place("first") / name).write_bytes(data)
    return plan


@pytest.fixture
def part_bytes(monkeypatch):
    monkeypatch.setattr(packing, "PART_BYTES", 4096)
    return 4096


def test_a_pack_has_few_files_of_a_known_size(tmp_path, part_bytes):
    noise = os.urandom(part_bytes + 1)
    plan = begun(tmp_path, state=noise)
    pack(plan, tmp_path / "pack")
    parts = sorted((tmp_path / "pack" / "first").iterdir())
    assert [part.name for part in parts] == ["part-1", "part-2"]
    assert parts[0].stat().st_size == part_bytes


def test_a_unit_that_does_not_fit_is_named(tmp_path, part_bytes):
    plan = begun(tmp_path, state=os.urandom(MOST_PARTS * part_bytes))
    with pytest.raises(StorageError, match="unit first takes"):
        pack(plan, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_a_damaged_pack_and_a_taken_place_are_refused(tmp_path):
    plan = begun(tmp_path, state=b"one")
    pack(plan, tmp_path / "pack")
    with pytest.raises(ConfigError, match="already has first"):
        unpack(plan, tmp_path / "pack")
    with pytest.raises(ConfigError, match="unpack it with --out"):
        unpack(make_plan(tmp_path / "other"), tmp_path / "pack")
    (tmp_path / "run").rename(tmp_path / "moved")
    part = tmp_path / "pack" / "first" / "part-1"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(StorageError, match="damaged"):
        unpack(plan, tmp_path / "pack")
    assert not plan.place("first").exists()


def test_light_files_hold_the_newest_save_and_no_pictures(tmp_path):
    for name in (
        "run/states/step-00000001/state.pt", "run/states/step-00000002/state.pt", "run/unfinished/memory",
        "run/plot.png", "run/metrics.jsonl", "episodes/a/1/episode.json", "episodes/a/1/trajectory/trajectory.json",
        ".lock",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    kept = ["episodes/a/1/episode.json", "run/metrics.jsonl"]
    assert sorted(light_files(tmp_path, True)) == kept
    assert sorted(light_files(tmp_path, False)) == [*kept, "run/states/step-00000002/state.pt"]


def test_the_record_of_a_unit_is_plain(tmp_path):
    plan = carry_out(partial(make_plan, tmp_path), only="first")
    record = json.loads((plan.place("first") / "unit.json").read_text())
    assert record["status"] == "finished"
    assert record["settings"] == {"num": 5}
