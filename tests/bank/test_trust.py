"""A bank names the sources that it trusts, and a search may be restricted to these."""

import json
import re

import pytest

from banks import WordEmbedder, make_run, make_stored
from damage import change_record
from focusmem.bank import Bank, NumpyBank, RetrievalConfig, open_bank
from focusmem.bank.exchange import add_folders, export_bank, import_bank
from focusmem.bank.reembedding import reembed
from focusmem.bank.sources import find_sources
from focusmem.bank.trust import sources_to_search
from focusmem.errors import ConfigError
from focusmem.files import sha256_hex
from focusmem.schemas import save_trajectory

OURS, THEIRS = "our shop", "somebody's upload"


@pytest.fixture
def bank(tmp_path):
    """Six trajectories of another source are nearer to the question than the three of ours."""
    bank = Bank.create(tmp_path / "bank", WordEmbedder())
    theirs = [make_stored(number, source=THEIRS, instruction="How much is the mug?") for number in range(6)]
    ours = [make_stored(number, source=OURS, instruction="Where is the lamp?") for number in range(6, 9)]
    bank.add([*theirs, *ours], WordEmbedder())
    return bank


def found(bank, sources=None, top=3):
    hits = bank.search(WordEmbedder().vector("How much is the mug?"), None, top, sources=sources).hits
    return {bank.load(hit.trajectory_id).trajectory.source for hit in hits}, len(hits)


def test_a_search_ranks_among_the_sources_it_is_given(bank, tmp_path):
    export_bank(bank, tmp_path / "export")
    sketched = Bank.open(tmp_path / "bank", config=RetrievalConfig(max_exact_bytes=0))
    for each in (bank, sketched, open_bank(tmp_path / "export")):
        assert found(each) == ({THEIRS}, 3)
        assert found(each, [OURS]) == ({OURS}, 3)
        assert found(each, [OURS, THEIRS], top=9) == ({OURS, THEIRS}, 9)
        assert found(each, ["nobody"]) == (set(), 0)


def test_trust_is_kept_with_the_bank_and_followed(bank, tmp_path):
    assert bank.trusted_sources == ()
    other = Bank.open(tmp_path / "bank")
    bank.trust([OURS])
    assert bank.trusted_sources == other.trusted_sources == Bank.open(tmp_path / "bank").trusted_sources == (OURS,)
    assert bank.stats().trusted_sources == (OURS,)
    reembed(tmp_path / "bank", WordEmbedder("words-2"))
    bank = Bank.open(tmp_path / "bank")
    assert bank.trusted_sources == (OURS,)
    bank.trust(())
    assert bank.trusted_sources == ()


def test_a_source_that_does_not_occur_is_refused_with_those_that_do(bank):
    with pytest.raises(ConfigError, match=r"no trajectory from 'our shops'\..*'our shop', \"somebody's upload\""):
        bank.trust([OURS, "our shops"])
    assert bank.trusted_sources == ()


def test_a_restricted_search_needs_a_trusted_source(bank):
    assert sources_to_search(bank, only_trusted=False) is None
    with pytest.raises(ConfigError, match=r"focusmem bank trust BANK SOURCE\..*'our shop'"):
        sources_to_search(bank, only_trusted=True)
    bank.trust([OURS])
    assert sources_to_search(bank, only_trusted=True) == (OURS,)


def test_trust_travels_with_an_export_but_not_into_a_bank_that_exists(bank, tmp_path):
    bank.trust([OURS])
    export_bank(bank, tmp_path / "export")
    exported = open_bank(tmp_path / "export")
    assert isinstance(exported, NumpyBank)
    assert exported.trusted_sources == exported.stats().trusted_sources == (OURS,)
    import_bank(tmp_path / "new", tmp_path / "export")
    assert Bank.open(tmp_path / "new").trusted_sources == (OURS,)
    Bank.create(tmp_path / "old", WordEmbedder()).add([make_stored(20)], WordEmbedder())
    import_bank(tmp_path / "old", tmp_path / "export")
    old = Bank.open(tmp_path / "old")
    assert (old.trusted_sources, len(old.entries())) == ((), 10)


def test_what_an_embedder_left_out_travels_with_an_export(bank, tmp_path):
    export_bank(bank, tmp_path / "export")
    import_bank(tmp_path / "new", tmp_path / "export")
    entries = bank.entries()
    assert {entry.num_frames_left_out for entry in entries} == {1}
    assert open_bank(tmp_path / "export").entries() == Bank.open(tmp_path / "new").entries() == entries


def test_a_source_is_recorded_by_the_one_who_adds(bank, tmp_path):
    liar = make_stored(30, source=OURS)
    save_trajectory(tmp_path / "liar", liar.trajectory, liar.screenshots)
    add_folders(bank, [tmp_path / "liar"], WordEmbedder(), source=THEIRS)
    assert bank.load("trajectory-30").trajectory.source == THEIRS
    [entry] = [entry for entry in bank.entries() if entry.trajectory_id == "trajectory-30"]
    assert entry.source == THEIRS


def save_all(folder, *items):
    for item in items:
        save_trajectory(folder / item.trajectory.trajectory_id, item.trajectory, item.screenshots)
    return folder


def test_what_is_added_cannot_claim_a_source_that_the_bank_trusts(bank, tmp_path):
    bank.trust([OURS])
    folder = save_all(tmp_path / "given", make_stored(30, source=OURS), make_stored(31, source=THEIRS))
    report = add_folders(bank, find_sources(folder), WordEmbedder())
    assert report.added == ("trajectory-31",)
    [failure] = report.failures
    assert failure.name == "trajectory-30"
    assert re.search(r"names the source 'our shop'.*--source NAME.*--keep-sources", failure.reason)
    assert found(bank, [OURS], top=20) == ({OURS}, 3)
    assert add_folders(bank, find_sources(folder), WordEmbedder(), keeps_sources=True).added == ("trajectory-30",)
    assert found(bank, [OURS], top=20) == ({OURS}, 4)


def test_what_is_added_again_claims_nothing(bank, tmp_path):
    """Also to replace a damaged copy."""
    bank.trust([OURS])
    sound = make_stored(6, source=OURS, instruction="Where is the lamp?")
    folder = save_all(tmp_path / "given", sound, make_stored(7, source=OURS, instruction="Pay for the lamp"))
    assert add_folders(bank, [folder / "trajectory-6"], WordEmbedder()).known == ("trajectory-6",)
    change_record(bank.folder.trajectory("trajectory-6"))
    report = add_folders(bank, find_sources(folder), WordEmbedder())
    assert (report.added, [failure.name for failure in report.failures]) == (("trajectory-6",), ["trajectory-7"])
    assert bank.load("trajectory-6").trajectory == sound.trajectory


def test_a_run_is_added_under_its_own_source_but_cannot_claim_another(bank, tmp_path):
    """Anybody can write the folder of a run, so `bank add` does not believe its source either."""
    own = make_stored().trajectory.source

    def add(run, **options):
        return add_folders(bank, find_sources(run), WordEmbedder(), **options)

    first, second = (make_run(tmp_path / key, {(0, 1): "success"}, key=key, start=40) for key in ("1a", "2b"))
    bank.trust([OURS])
    assert add(first).added == ("0.1.1a",)
    bank.trust([OURS, own])
    assert add(first).known == ("0.1.1a",)
    assert [failure.name for failure in add(second).failures] == ["0.1.2b"]
    assert add(second, keeps_sources=True).added == ("0.1.2b",)


def everything_named(ours, tmp_path):
    """Trajectories that name a trusted source without right: as an export, and as plain folders."""
    foreign = Bank.create(tmp_path / "foreign", WordEmbedder())
    foreign.add([make_stored(number, source=source) for number, source in ((30, THEIRS), (31, ours))], WordEmbedder())
    export_bank(foreign, tmp_path / "forged")
    return [tmp_path / "forged", tmp_path / "foreign" / "trajectories"]


@pytest.mark.parametrize("kind", [0, 1], ids=["export", "folders"])
def test_an_import_cannot_claim_a_source_that_the_bank_trusts(bank, tmp_path, kind):
    forged = everything_named(OURS, tmp_path)[kind]
    bank.trust([OURS])
    before = bank.entries()
    with pytest.raises(ConfigError, match=r"names the source 'our shop'.*--source NAME.*--keep-sources"):
        import_bank(tmp_path / "bank", forged, WordEmbedder())
    assert bank.entries() == before
    import_bank(tmp_path / "bank", forged, WordEmbedder(), source=THEIRS)
    assert found(bank, [OURS], top=20) == ({OURS}, 3)
    assert len(bank.entries()) == len(before) + 2


@pytest.mark.parametrize("kind", [0, 1], ids=["export", "folders"])
def test_an_import_keeps_sources_when_told(bank, tmp_path, kind):
    forged = everything_named(OURS, tmp_path)[kind]
    bank.trust([OURS])
    assert len(import_bank(tmp_path / "bank", forged, WordEmbedder(), keeps_sources=True).added) == 2
    assert found(bank, [OURS], top=20) == ({OURS}, 4)


def test_a_line_of_an_export_cannot_hide_the_source_of_its_trajectory(bank, tmp_path):
    forged, _ = everything_named(OURS, tmp_path)
    bank.trust([OURS])
    hide_source(forged, OURS, THEIRS)
    report = import_bank(tmp_path / "bank", forged)
    assert report.added == ("trajectory-30",)
    [failure] = report.failures
    assert "names the source 'our shop'" in failure.reason


def test_a_new_bank_tells_which_sources_it_took_over(bank, tmp_path):
    bank.trust([OURS])
    export_bank(bank, tmp_path / "export")
    assert import_bank(tmp_path / "new", tmp_path / "export").newly_trusted == (OURS,)
    assert import_bank(tmp_path / "other", tmp_path / "export", source=THEIRS).newly_trusted == ()
    assert Bank.open(tmp_path / "other").trusted_sources == ()


def hide_source(export, named, shown):
    """Change the lines of an export, with a digest that fits."""
    lines = (export / "entries.jsonl").read_text().replace(named, shown)
    (export / "entries.jsonl").write_text(lines)
    manifest = json.loads((export / "export.json").read_text())
    manifest["entries_sha256"] = sha256_hex(lines.encode())
    (export / "export.json").write_text(json.dumps(manifest))
