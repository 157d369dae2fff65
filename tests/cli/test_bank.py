import json
import shutil

import pytest
from typer.testing import CliRunner

from banks import make_many, make_run, make_stored
from damage import change_record
from factories import make_screenshot
from focusmem.bank import Bank
from focusmem.cli.main import app
from focusmem.errors import UserError
from focusmem.evidence import Serialiser
from focusmem.lab.policy.texts import PROMPTS
from focusmem.lab.shipped import Weights
from focusmem.model.evidence_cache import CacheConfig, EvidenceCache
from focusmem.schemas import EvidenceItem, save_trajectory
from toys import make_policy


def focusmem(*words, exit_code=0):
    result = CliRunner().invoke(app, ["bank", *map(str, words)])
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


def answer(*words, exit_code=0):
    return json.loads(focusmem(*words, "--json", exit_code=exit_code).stdout)


def refused(*words) -> str:
    result = CliRunner().invoke(app, ["bank", *map(str, words)])
    assert isinstance(result.exception, UserError)
    return str(result.exception)


@pytest.fixture
def trajectories(tmp_path):
    for stored in make_many(5):
        save_trajectory(tmp_path / "t" / stored.trajectory.trajectory_id, stored.trajectory, stored.screenshots)
    return tmp_path / "t"


@pytest.fixture
def bank(trajectories, tmp_path):
    focusmem("add", tmp_path / "bank", trajectories, "--embedder", "toy")
    return tmp_path / "bank"


def test_adding_says_what_happened(trajectories, tmp_path):
    (trajectories / "trajectory-2" / "trajectory.json").write_text("{")
    words = ("add", tmp_path / "bank", trajectories, "--embedder", "toy", "--set", "max_key_frames=1")
    first = answer(*words, exit_code=1)
    assert (first["num_added"], first["num_known"], first["num_failed"]) == (4, 0, 1)
    assert (first["num_shortened"], first["num_frames_left_out"], first["num_characters_left_out"]) == (4, 4, 0)
    assert first["failures"][0]["name"] == str(trajectories / "trajectory-2")
    assert answer(*words, exit_code=1)["num_known"] == 4
    text = focusmem(*words, exit_code=1).output
    assert "left out" in text
    assert "failed 1" in text


def test_of_runs_the_won_episodes_are_added(tmp_path):
    outcomes = {(0, 1): "success", (0, 2): "failure", (1, 1): "error"}
    for name in ("one", "two"):
        make_run(tmp_path / "runs" / name, outcomes, key=name)
    words = ("add", tmp_path / "bank", tmp_path / "runs" / "one", tmp_path / "runs" / "two", "--embedder", "toy")
    done = answer(*words)
    assert (done["num_added"], done["num_known"], done["num_skipped"], done["num_failed"]) == (2, 0, 4, 0)
    assert "4 skipped: they did not end in success" in focusmem(*words).output
    assert answer(*words, "--any-outcome")["num_added"] == 2
    asked = ("search", tmp_path / "bank", "Buy thing", "--embedder", "toy", "--no-guard", "--top", "9")
    assert len(answer(*asked)["hits"]) == 4
    won = answer(*asked, "--outcome", "success")
    assert [hit["trajectory_id"] for hit in won["hits"]] == ["0.1.one", "0.1.two"]
    assert won["removed"]["num_candidates"] == 2
    assert "outcomes names 'won'" in refused(*asked, "--outcome", "won")


def test_check_lists_what_is_damaged(bank):
    assert answer("check", bank) == {"num_trajectories": 5, "path": str(bank), "num_failed": 0, "failures": []}
    change_record(bank / "trajectories" / "trajectory-1")
    text = focusmem("check", bank, exit_code=1).output
    assert "damaged trajectory-1: " in text
    assert f"focusmem bank delete {bank} trajectory-1" in text


def test_the_bank_that_ships_is_sound():
    assert answer("check", "lab")["num_failed"] == 0


def test_list_and_stats(bank):
    listed = answer("list", bank, "--limit", "2")
    assert (listed["num_trajectories"], len(listed["trajectories"])) == (5, 2)
    assert "2 of 5 trajectories." in focusmem("list", bank, "--limit", "2").output
    assert answer("stats", bank)["num_trajectories"] == 5
    assert "num_trajectories" in focusmem("stats", bank).output


def test_show_tells_what_the_embedder_left_out(trajectories, tmp_path):
    bank = tmp_path / "bank"
    adding = focusmem("add", bank, trajectories, "--embedder", "toy", "--set", "max_key_frames=1").output
    assert "5 were not read whole by the embedder" in adding
    [shown] = answer("show", bank, "trajectory-3")["trajectories"]
    assert (shown["source"], shown["num_frames_left_out"], shown["num_characters_left_out"]) == ("factory", 1, 0)
    assert "factory" in focusmem("show", bank, "trajectory-3", "trajectory-1").output
    assert "focusmem bank list" in refused("show", bank, "trajectory-9")
    assert answer("reembed", bank, "--embedder", "toy")["num_shortened"] == 0
    [shown] = answer("show", bank, "trajectory-3")["trajectories"]
    assert shown["num_frames_left_out"] == 0


def test_trusted_sources_are_named_and_searched_alone(trajectories, tmp_path):
    bank = tmp_path / "bank"
    upload = make_stored(9)
    save_trajectory(tmp_path / "upload" / "t", upload.trajectory, upload.screenshots)
    focusmem("add", bank, trajectories, "--embedder", "toy")
    focusmem("add", bank, tmp_path / "upload", "--embedder", "toy", "--source", "an upload")
    asked = ("search", bank, "x", "--embedder", "toy", "--top", "9", "--no-guard")
    assert "focusmem bank trust" in refused(*asked, "--trusted-sources")
    assert "no trajectory from 'uploads'" in refused("trust", bank, "uploads")
    assert "trusts: no source" in focusmem("trust", bank).output
    assert "not both" in refused("trust", bank, "an upload", "--none")
    assert answer("trust", bank, "an upload")["trusted_sources"] == ["an upload"]
    assert [hit["trajectory_id"] for hit in answer(*asked, "--trusted-sources")["hits"]] == ["trajectory-9"]
    assert len(answer(*asked)["hits"]) == 6
    assert answer("stats", bank)["trusted_sources"] == answer("trust", bank)["trusted_sources"] == ["an upload"]
    shown = answer("show", bank, "trajectory-9", "trajectory-1")["trajectories"]
    assert [one["is_trusted"] for one in shown] == [True, False]
    assert "trusts: no source" in focusmem("trust", bank, "--none").output
    assert "--source is empty" in refused("add", bank, tmp_path / "upload", "--embedder", "toy", "--source", " ")


def test_who_adds_vouches_for_a_trusted_source(bank, tmp_path):
    focusmem("trust", bank, "factory")
    upload = make_stored(9)
    save_trajectory(tmp_path / "upload" / "t", upload.trajectory, upload.screenshots)
    words = ("add", bank, tmp_path / "upload", "--embedder", "toy")
    said = focusmem(*words, exit_code=1).output
    assert "left out trajectory-9: It names the source 'factory'" in said
    assert "one of the two" in refused(*words, "--source", "x", "--keep-sources")
    assert answer(*words, "--keep-sources")["num_added"] == 1


def test_an_import_tells_what_is_trusted_and_takes_a_source(bank, tmp_path):
    focusmem("trust", bank, "factory")
    export, new = tmp_path / "out", tmp_path / "new"
    focusmem("export", bank, export)
    assert "trusts what the export trusts: factory." in focusmem("import", new, export).output
    focusmem("delete", new, "trajectory-1")
    assert "'factory', which the bank" in refused("import", new, export)
    assert "one of the two" in refused("import", new, export, "--source", "x", "--keep-sources")
    assert "--source is empty" in refused("import", new, export, "--source", "")
    assert answer("import", new, export, "--keep-sources")["num_added"] == 1
    renamed = tmp_path / "renamed"
    assert answer("import", renamed, export, "--source", "an upload")["newly_trusted"] == []
    assert answer("stats", renamed)["num_by_source"] == {"an upload": 5}


def test_search_as_an_agent_would(bank, tmp_path):
    asked = ("search", bank, "How much is the thingaa?", "--embedder", "toy", "--top", "2")
    open_to_all = answer(*asked, "--no-guard")
    assert len(open_to_all["hits"]) == 2
    assert open_to_all["removed"]["num_removed"] == 0
    guarded = answer(*asked, "--task-id", "shop/3", "--instance", "thingba")
    assert guarded["removed"]["num_by_key"] == {"task": 1, "instance": 1, "template": 1}
    assert guarded["removed"]["ids_by_key"]["task"] == ["trajectory-3"]
    assert guarded["removed"]["ids_by_key"]["template"] == ["trajectory-0"]
    assert not {"trajectory-0", "trajectory-1", "trajectory-3"} & {hit["trajectory_id"] for hit in guarded["hits"]}
    (tmp_path / "page.png").write_bytes(make_screenshot(3).png)
    assert "Leakage guard: " in focusmem(*asked, "--screenshot", tmp_path / "page.png").output


def test_another_embedder_is_refused_until_the_bank_is_reembedded(bank):
    words = ("search", bank, "x", "--embedder", "toy", "--set", "max_key_frames=1")
    assert "focusmem bank reembed" in refused(*words)
    done = answer("reembed", bank, "--embedder", "toy", "--set", "max_key_frames=1")
    assert (done["num_trajectories"], done["num_embedded"], done["num_failed"]) == (5, 5, 0)
    assert len(answer(*words)["hits"]) == 3


def test_out_and_in(bank, tmp_path):
    assert answer("export", bank, tmp_path / "out")["num_exported"] == 5
    assert answer("import", tmp_path / "copy", tmp_path / "out")["num_added"] == 5
    assert answer("list", tmp_path / "copy") == answer("list", bank)


def test_an_export_is_read_like_a_bank_and_not_changed(bank, trajectories, tmp_path):
    export = tmp_path / "out"
    focusmem("export", bank, export)
    asked = ("search", "How much is the thingaa?", "--embedder", "toy", "--task-id", "shop/3")
    assert answer(asked[0], export, *asked[1:]) == answer(asked[0], bank, *asked[1:])
    assert answer("list", export) == answer("list", bank)
    ours, theirs = answer("stats", export), answer("stats", bank)
    assert {**ours, "path": None} == {**theirs, "path": None}
    assert answer("export", export, tmp_path / "again")["num_exported"] == 5
    before = sorted(export.rglob("*"))
    for words in (
        ("add", export, trajectories, "--embedder", "toy"),
        ("delete", export, "trajectory-1"),
        ("reembed", export, "--embedder", "toy"),
        ("import", export, trajectories, "--embedder", "toy"),
    ):
        assert f"focusmem bank import NEW {export}" in refused(*words)
    assert sorted(export.rglob("*")) == before


def test_the_bank_that_ships_has_a_name():
    assert answer("list", "lab") == answer("list", Weights().bank)


def test_deleting_reaches_cached_evidence(bank, tmp_path):
    policy = make_policy()
    cache = EvidenceCache(policy, CacheConfig(folder=tmp_path / "cache"))
    prompts = [episodic_prompt(number) for number in (1, 2)]
    cache.fetch(prompts)
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 2
    words = ("delete", bank, "trajectory-1", "nobody", "--cache", tmp_path / "cache")
    assert answer(*words, exit_code=1) == {"deleted": ["trajectory-1"], "missing": ["nobody"]}
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 1
    fresh = EvidenceCache(policy, CacheConfig(folder=tmp_path / "cache"))
    fresh.fetch(prompts)
    assert (fresh.counts.num_disk_hits, fresh.counts.num_encoded) == (1, 1)
    assert answer("list", bank)["num_trajectories"] == 4
    assert "1 deleted." in focusmem("delete", bank, "trajectory-2").output


def test_deleting_reaches_evidence_in_other_words(bank, tmp_path):
    shutil.copytree(PROMPTS / "evidence", tmp_path / "words")
    (tmp_path / "words" / "closing.txt").write_text((PROMPTS / "evidence" / "closing.txt").read_text() + "That is all.")
    cache = EvidenceCache(make_policy(), CacheConfig(folder=tmp_path / "cache"))
    cache.fetch([episodic_prompt(1, Serialiser(folder)) for folder in (PROMPTS / "evidence", tmp_path / "words")])
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 2
    focusmem("delete", bank, "trajectory-1", "--cache", tmp_path / "cache", "--prompts", tmp_path / "words")
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_the_bank_that_ships_is_searched_with_the_embedder_that_ships():
    asked = ("search", Weights().bank, "Of every lamp made from velvet, which is the dearest?", "--embedder")
    found = answer(*asked, "lab")
    assert found["hits"]
    assert found == answer(*asked, Weights().embedder)
    assert "leave out --set" in refused(*asked, "lab", "--set", "max_key_frames=1")


def episodic_prompt(number, serialise=None):
    stored = make_stored(number)
    one = stored.trajectory
    item = EvidenceItem(item_id="any", role="episodic", instruction=one.instruction, steps=one.steps, rank=2, score=0.4)
    return (serialise or Serialiser())(item, stored.screenshots)


def test_a_catalogue_is_kept(trajectories, tmp_path):
    (tmp_path / "names.txt").write_text("Blue Mug\n\n  red lamp \n")
    words = ("add", tmp_path / "bank", trajectories, "--embedder", "toy", "--catalogue", tmp_path / "names.txt")
    focusmem(*words)
    assert answer("stats", tmp_path / "bank")["num_catalogue_names"] == 2


@pytest.mark.parametrize("verb", ["list", "stats"])
def test_no_bank_says_how_to_make_one(tmp_path, verb):
    assert "focusmem bank add" in refused(verb, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("frames=3", "There is no setting 'frames'"),
        ("max_length", "is not an assignment"),
        ("max_length=5", "max_length is 5; it must be at least 128"),
        ("max_pixels=abc", "max_pixels is 'abc'"),
        ("max_key_frames=1.5", "max_key_frames is 1.5"),
        ("max_key_frames=true", "max_key_frames is True"),
        ("key_instruction=5", "key_instruction is 5"),
        ("form=complete", "form is 'complete'; choose one of 'complete-1' or 'laboratory-1'"),
    ],
)
def test_bad_settings_are_named(trajectories, tmp_path, setting, message):
    words = ("add", tmp_path / "bank", trajectories, "--embedder", "toy", "--set", setting)
    assert message in refused(*words)


def test_settings_of_every_kind_are_taken(trajectories, tmp_path):
    given = ["max_key_frames=null", "max_length=4096", "key_instruction=Read this", "form=laboratory-1"]
    settings = [word for setting in given for word in ("--set", setting)]
    assert answer("add", tmp_path / "bank", trajectories, "--embedder", "toy", *settings)["num_added"] == 5


@pytest.mark.parametrize("device", ["banana", "meta", "cuda:99", "cuda:x", ""])
@pytest.mark.parametrize("embedder", ["toy", "lab"])
def test_a_device_that_is_not_there_is_named(trajectories, tmp_path, device, embedder):
    words = ("add", tmp_path / "bank", trajectories, "--embedder", embedder, "--device", device)
    assert f"device is '{device}'" in refused(*words)


def test_words_that_are_no_text_are_refused(bank):
    assert "not valid UTF-8" in refused("search", bank, "caf\udcff", "--embedder", "toy")


def test_trajectories_without_a_vector_fail_an_export(bank, tmp_path):
    Bank.open(bank).vectors.remove(["trajectory-1"])
    done = answer("export", bank, tmp_path / "out", exit_code=1)
    assert (done["num_exported"], done["num_failed"]) == (4, 1)


def test_other_mistakes_are_sentences(bank, tmp_path):
    assert "does not exist" in refused("add", bank, tmp_path / "nowhere", "--embedder", "toy")
    assert "is not a folder" in refused("delete", bank, "trajectory-1", "--cache", tmp_path / "nowhere")
    assert "cannot be the id" in refused("delete", bank, "../x")
    assert "Unknown backbone" in refused("reembed", bank, "--embedder", "no-such-thing")
    assert "--embedder" in refused("import", tmp_path / "new", tmp_path / "t")
