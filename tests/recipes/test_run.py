"""Runs of the laboratory with untrained toys: garbage replies, but the same garbage each time."""

import copy
import json
import shutil
import signal
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from factories import make_screenshot
from focusmem.agent.local_policy import LocalPolicy
from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank.forms import Moment
from focusmem.errors import ConfigError, FocusmemError, WorldError
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.watcher import Watcher
from focusmem.evidence import CHUNK_EVENTS
from focusmem.lab.suite import LabSuite
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.model.checkpoint import Checkpoint
from focusmem.recipes import run as run_recipe
from focusmem.recipes.preparation import prepare
from focusmem.recipes.run import browser_choice, make_run, run, settled
from focusmem.recipes.run_parts import Parts, memory_names
from focusmem.recipes.run_settings import RunSettings, lab, recipe, web
from focusmem.recipes.run_suite import make_suite
from focusmem.schemas import RunFolder, load_trajectory
from focusmem.settings import resolved, to_plain


def small(weights, **values) -> RunSettings:
    """Dots in names of settings are written as double underscores."""
    given = {
        "suite.lab.num_tasks": 3,
        "runner.num_parallel": 2,
        "policy.name": str(weights / "policy"),
        "policy.generation.max_new_tokens": 4,
        "memory.embedder": str(weights / "embedder"),
        **{name.replace("__", "."): value for name, value in values.items()},
    }
    if given.get("memory.name") == "full":
        given["memory.checkpoint"] = str(weights / "memory" / "full")
    return resolved(lab(), values=given)


def table(results):
    """The figures that do not depend on how the work was shared."""
    of_speed = ("parallel", "mean_together")
    return {name: value for name, value in results.items() if not name.endswith("_s") and name not in of_speed}


def notes_of(folder):
    [stored] = RunFolder(folder).episodes()
    return stored.episode.notes


@pytest.mark.slow  # 15 steps with a memory
def test_a_run_extends_its_growing_chunks(toy_weights, tmp_path):
    settings = small(toy_weights, suite__lab__num_tasks=1, memory__name="full", memory__bank=str(toy_weights / "bank"))
    parts = Parts(settings, make_suite(settings))
    prepare(parts, has_line=False)
    counts, before = parts.front.cache.counts, replace(parts.front.cache.counts)
    make_run(settings, parts, tmp_path).run(browser_choice(settings))
    [stored] = RunFolder(tmp_path).episodes()
    num_expired = len(stored.episode.notes) - 1 - NUM_RECENT
    num_chunks = -(-num_expired // CHUNK_EVENTS)
    assert num_expired > CHUNK_EVENTS, "otherwise nothing grows"
    assert counts.num_encoded - before.num_encoded == num_chunks, "the first event of each chunk"
    # A chunk that is equal to an earlier one, as garbage can be, is neither encoded nor extended.
    assert num_chunks < counts.num_extended - before.num_extended <= num_expired - num_chunks


@pytest.mark.parametrize("memory", ["none", "notes", "replay", "words", "retrieved", "full"])
def test_an_untrained_policy_writes_garbage_and_the_run_says_so(toy_weights, tmp_path, memory):
    settings = small(toy_weights, memory__name=memory, suite__lab__num_tasks=2, memory__bank=str(toy_weights / "bank"))
    results = run(settings, tmp_path)
    assert (results["memory"], results["num_tasks"], results["num_errors"]) == (memory, 2, 0)
    assert results["success_rate"] == 0.0
    assert results["unreadable_rate"] == results["hit_max_rate"] == 1.0
    assert results["mean_steps"] == 15
    assert (results["mean_memory_tokens"] > 0) is (memory != "none")
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert RunFolder(tmp_path).run().status == "finished"


def test_two_processes_give_the_table_of_one(toy_weights, tmp_path):
    alone = run(small(toy_weights), tmp_path / "alone")
    command = ("focusmem", "a", "test")
    shared = run(small(toy_weights, num_processes=2), tmp_path / "shared", command=command)
    assert table(shared) == table(alone)
    assert shared["num_tasks"] == 3
    record = RunFolder(tmp_path / "shared").run()
    assert (record.status, record.command) == ("finished", command)


def test_a_bank_in_a_folder_finds_what_the_same_sites_in_memory_do(toy_weights, tmp_path):
    offered = []
    for bank in ({"memory__bank": str(toy_weights / "bank")}, {"memory__lab_bank_sites": 2}):
        settings = settled(small(toy_weights, memory__name="full", suite__lab__num_tasks=1, **bank))
        assert settings.suite.lab.sites == ("e-0", "e-1")
        folder = tmp_path / str(len(offered))
        run(settings, folder)
        offered.append([[(one.trajectory_id, one.is_accepted) for one in note.offered] for note in notes_of(folder)])
    assert offered[0] == offered[1]
    assert len(offered[0]) == 15
    assert all(offered[0])


@pytest.mark.slow  # the whole evaluation bank is embedded
def test_two_processes_remember_what_one_does(toy_weights, tmp_path):
    alone = run(small(toy_weights, memory__name="full"), tmp_path / "alone")
    shared = run(small(toy_weights, memory__name="full", num_processes=2), tmp_path / "shared")
    assert table(shared) == table(alone)
    names = [{path.name for path in (tmp_path / name / "recalled").iterdir()} for name in ("alone", "shared")]
    assert names[0] == names[1] != set()


def test_a_process_that_fails_is_named_and_the_work_of_the_others_counts(toy_weights, tmp_path, capfd):
    run(small(toy_weights), tmp_path)
    [first, *_] = sorted((tmp_path / "episodes").iterdir())
    (first / "1" / "episode.json").unlink()
    (first / "1" / "trajectory" / "trajectory.json").unlink()
    (first / "1" / "trajectory" / "mine.txt").write_text("not to be overwritten")
    with pytest.raises(FocusmemError, match=r"1 of 2 processes stopped early"):
        run(small(toy_weights, num_processes=2), tmp_path)
    assert RunFolder(tmp_path).run().status == "failed"
    printed = capfd.readouterr().err
    assert "\nfocusmem: " in printed
    assert "Traceback" not in printed, "what the user can mend is a line"


def test_episodes_of_other_processes_are_counted_as_they_appear_on_disk(toy_weights, tmp_path, monkeypatch, capsys):
    """Also those that appear last."""
    settings = small(toy_weights, suite__lab__num_tasks=2)
    finished = tmp_path / "finished"
    run(settings, finished)
    watched = make_run(settings, Parts(settings, make_suite(settings)), tmp_path / "watched")
    looks = iter(["none", "all"])

    def look(*words, **more):
        if next(looks) == "all":
            (tmp_path / "watched").mkdir()
            (finished / "episodes").rename(tmp_path / "watched" / "episodes")

    monkeypatch.setattr(run_recipe, "wait", look)

    class Process:
        sentinel = None
        left = 2

        def is_alive(self):
            self.left -= 0.5
            return self.left > 0

    run_recipe._watch(watched, [Process()])
    assert capsys.readouterr().err.splitlines()[-1].startswith("run 2/2  none")


def test_stopped_and_resumed_gives_the_same_table(toy_weights, tmp_path, monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    save, num = RunStore.save, [0]

    def counted(*arguments, **settings):
        num[0] += 1
        if num[0] > 2:
            signal.raise_signal(signal.SIGINT)
        else:
            save(*arguments, **settings)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(RunStore, "save", counted)
            with pytest.raises(KeyboardInterrupt):
                run(small(toy_weights), tmp_path / "cut")
    finally:
        signal.signal(signal.SIGINT, before)
    partial = summarise(RunFolder(tmp_path / "cut"))
    assert (partial["num_tasks"], partial["num_judged"] + partial["num_missing"]) == (3, 3)
    assert partial["num_missing"] >= 1
    resumed = run(small(toy_weights, runner__num_parallel=1), tmp_path / "cut")
    assert table(resumed) == table(run(small(toy_weights), tmp_path / "whole"))


def test_a_run_with_other_settings_or_another_policy_is_not_resumed(toy_weights, tmp_path):
    settings = small(toy_weights, suite__lab__num_tasks=1)
    run(settings, tmp_path)
    with pytest.raises(ConfigError, match=r"other settings .*suite.lab.seed is 0 there and 5 here"):
        run(replace(settings, suite=replace(settings.suite, lab=replace(settings.suite.lab, seed=5))), tmp_path)
    parts = Parts(settings, make_suite(settings))
    other = copy.deepcopy(parts.backbone)
    with torch.no_grad():
        other.language_model.norm.weight.mul_(2)
    parts.policy = LocalPolicy(other)
    with pytest.raises(ConfigError, match=r"other settings .*identities.policy"):
        make_run(settings, parts, tmp_path).run(browser_choice(settings))


def test_run_json_alone_repeats_a_run(toy_weights, tmp_path):
    settings = settled(small(toy_weights, suite__lab__num_tasks=1, suite__num_attempts=2))
    results = run(settings, tmp_path / "first")
    stored = RunFolder(tmp_path / "first").run().config["settings"]
    again = resolved(RunSettings(), values=stored)
    assert again == settings
    assert to_plain(again) == stored
    assert table(run(again, tmp_path / "second")) == table(results)
    assert (results["num_tasks"], results["num_attempts"], results["num_judged"]) == (1, 2, 2)


def test_a_browser_that_fails_once_costs_nothing_but_the_time(toy_weights, tmp_path, monkeypatch):
    plain, calls, broken = RasterBrowser.observe, [], []

    async def failing(self):
        calls.append(self)
        if self is calls[0] and calls.count(self) == 3:
            raise WorldError("The page has died.")
        return await plain(self)

    class Told(Watcher):
        def broke(self, episode):
            broken.append(episode.error)

    monkeypatch.setattr(RasterBrowser, "observe", failing)
    results = run(small(toy_weights), tmp_path, watch=lambda attempts, num_done: Told())
    assert (results["num_judged"], results["num_errors"], broken) == (3, 0, ["The page has died."])


@pytest.mark.parametrize("is_gated", [False, True])
def test_latent_memory_offers_blocks_at_every_step(toy_weights, tmp_path, is_gated):
    use = {"is_gated": is_gated, "is_dynamic": is_gated}
    bank = {"memory__bank": str(toy_weights / "bank")}
    results = run(small(toy_weights, memory__name="full", memory__use=use, suite__lab__num_tasks=1, **bank), tmp_path)
    assert results["accepted_rate"] == 1.0, "a fresh gate is open"
    # Three found at each of fifteen steps, and a chunk for every four expired: none for four steps, then 1, 2, 3.
    num_blocks = 15 * 3 + 4 * 1 + 4 * 2 + 3 * 3
    assert results["mean_memory_tokens"] * 15 == pytest.approx(4 * num_blocks)


def test_a_run_keeps_what_memory_offered_at_every_step(toy_weights, tmp_path):
    settings = small(toy_weights, memory__name="full", memory__bank=str(toy_weights / "bank"), suite__lab__num_tasks=1)
    run(settings, tmp_path)
    [stored] = RunFolder(tmp_path).episodes()
    steps = stored.trajectory().trajectory.steps
    assert len(stored.episode.notes) == len(steps) == 15
    for note in stored.episode.notes:
        found = [item for item in note.offered if item.role == "episodic"]
        assert [item.rank for item in found] == [0, 1, 2]
        assert all(item.trust_logit > item.threshold_logit and -1 <= item.score <= 1 for item in found)
        for item in found:
            assert load_trajectory(tmp_path / "recalled" / item.trajectory_id).trajectory.trajectory_id
        assert note.num_memory_tokens == 4 * sum(item.is_accepted for item in note.offered)
        assert set(note.seconds) == {"observe", "wait", "retrieve", "remember", "reply", "act"}
        assert any("Actions left" in turn for turn in note.prompt)
    assert any(note.is_repeat for note in stored.episode.notes) == any(
        one.reply == other.reply and one.screenshot == other.screenshot for one, other in pairwise(steps)
    )


# What is refused before anything is loaded


def parts(settings):
    return Parts(settings, make_suite(settings))


def test_a_memory_is_known_by_its_name(toy_weights):
    with pytest.raises(ConfigError, match=r"no memory 'fulll'; .*none, words, retrieved, .*latent, .*full"):
        parts(small(toy_weights, memory__name="fulll"))
    assert {"none", "words", "retrieved", "latent", "full", "action-only"} <= set(memory_names())


def test_a_checkpoint_that_nothing_would_read_is_refused(toy_weights):
    settings = small(toy_weights, memory__name="replay", memory__checkpoint=str(toy_weights / "memory" / "full"))
    with pytest.raises(ConfigError, match="memory 'replay' is not a trained one"):
        parts(settings)


def test_a_trained_memory_needs_its_checkpoint(toy_weights):
    with pytest.raises(ConfigError, match="needs a checkpoint"):
        parts(small(toy_weights, memory__name="readout"))


def without_errors(toy_weights, tmp_path):
    """The full memory's settings, with a card that says that its prompts showed no errors."""
    shutil.copytree(toy_weights / "memory" / "full", tmp_path / "memory")
    Checkpoint.open(tmp_path / "memory").with_notes({"shows_errors": False})
    settings = small(toy_weights, memory__name="full")
    return resolved(settings, values={"memory.checkpoint": str(tmp_path / "memory")})


def test_a_run_shows_errors_as_its_memory_was_trained(toy_weights, tmp_path):
    trained = parts(without_errors(toy_weights, tmp_path))
    assert not trained.wording.prompt.shows_errors
    assert not trained.wording.serialise.shows_errors
    assert parts(small(toy_weights, memory__name="full")).wording.prompt.shows_errors
    assert not parts(small(toy_weights, policy__shows_errors=False)).wording.prompt.shows_errors


def test_runs_that_share_a_policy_each_have_their_own_prompts(toy_weights, tmp_path):
    trained = parts(without_errors(toy_weights, tmp_path))
    assert trained.share(small(toy_weights)).wording.prompt.shows_errors
    assert not trained.wording.prompt.shows_errors


def test_a_memory_is_not_shown_other_prompts_than_it_was_trained_with(toy_weights, tmp_path):
    asked = resolved(without_errors(toy_weights, tmp_path), values={"policy.shows_errors": True})
    with pytest.raises(ConfigError, match="was trained with prompts without error messages"):
        _ = parts(asked).wording


def test_a_bank_needs_its_embedder(toy_weights):
    with pytest.raises(ConfigError, match="--embedder"):
        _ = parts(small(toy_weights, memory__name="retrieved", memory__embedder=None)).retriever


def test_a_run_looks_at_a_screenshot_once_for_policy_and_embedder(toy_weights):
    """The embedder comes from a folder of its own, whose vision tower equals the policy's."""
    settings = small(toy_weights, memory__name="retrieved", memory__embedder=str(toy_weights / "policy"))
    run_parts, looks = parts(settings), []
    policy, embedder = run_parts.backbone, run_parts.embedder
    for tower in {policy.model.model.visual, embedder.backbone.model.model.visual}:
        tower.register_forward_hook(
            lambda module, inputs, kwargs, out: looks.append(len(kwargs["grid_thw"])), with_kwargs=True
        )
    shots = [make_screenshot(number) for number in range(3)]
    policy.see(shots[:2])
    embedder.embed_queries([Moment(instruction="x", screenshot=shot) for shot in shots])
    policy.see(shots)
    assert sum(looks) == 3


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"suite.name": "tasks.txt"}, "no suite 'tasks.txt'"),
        ({"suite.name": "example.org", "suite.instruction": "Do it."}, "write https://example.org"),
        ({"suite.name": "lab-entry"}, "Did you mean 'lab-entries'"),
        ({"suite.name": "https://example.org/"}, "--instruction"),
        ({"suite.name": "lab", "suite.instruction": "Do it."}, "is only for the address of a page"),
        ({"suite.name": "tasks.jsonl", "browser.kind": "raster"}, "only pages of the laboratory"),
        ({"suite.name": "lab", "suite.max_steps": 3}, "--max-steps"),
        ({"suite.name": "lab", "browser.limits": {"width": 800}}, "browser.limits"),
    ],
)
def test_a_suite_that_cannot_be_is_refused(values, problem):
    with pytest.raises(ConfigError, match=problem):
        make_suite(resolved(web(), values=values))


def test_a_memory_that_is_misspelt_is_answered_with_the_nearest_name():
    settings = resolved(lab(), values={"memory.name": "fulll"})
    with pytest.raises(ConfigError, match="Did you mean 'full'"):
        Parts(settings, make_suite(settings))


def test_the_laboratorys_own_fronts_stay_in_the_laboratory(tmp_path):
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps({"task_id": "a", "instruction": "b", "start_url": "http://127.0.0.1/", "site": "c"})
    )
    settings = resolved(web(), values={"suite.name": str(tmp_path / "tasks.jsonl"), "memory.name": "replay"})
    with pytest.raises(ConfigError, match="laboratory's own answers"):
        parts(settings)


@pytest.mark.parametrize(
    "values",
    [
        {"num_processes": 0},
        {"runner.num_parallel": 0},
        {"memory.num_found": -1},
        {"policy.generation.max_new_tokens": 0},
        {"browser.kind": "lynx"},
        {"memory.outcomes": ["sucess"]},
        {"policy.colour": 1},
    ],
)
def test_settings_name_the_field(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        resolved(lab(), values=values)


def test_recipes_are_named():
    assert recipe("lab") == lab()
    with pytest.raises(ConfigError, match="no recipe 'labb'; choose one of lab, web"):
        recipe("labb")


def test_parts_are_shared_by_runs_of_one_policy(toy_weights):
    first = parts(small(toy_weights, memory__name="full", memory__bank=str(toy_weights / "bank")))
    other = first.share(small(toy_weights))
    assert other.policy is first.policy
    assert isinstance(other.suite, LabSuite)
    with pytest.raises(ConfigError, match="same policy"):
        first.share(small(toy_weights, policy__seed=1))
