import pytest

from banks import WordEmbedder, make_many
from damage import change_record, change_row, change_screenshot
from focusmem.bank import Bank
from focusmem.bank.checking import check_bank
from focusmem.bank.exchange import export_bank
from focusmem.bank.opening import open_bank
from focusmem.progress import Progress


@pytest.fixture
def bank(tmp_path):
    embedder = WordEmbedder()
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add(make_many(6), embedder)
    return bank


def test_a_sound_bank_and_its_export(bank, tmp_path):
    export_bank(bank, tmp_path / "export")
    for path in (bank.folder.path, tmp_path / "export"):
        report = check_bank(open_bank(path))
        assert (report.num_trajectories, report.failures) == (6, ())


def test_everything_damaged_is_listed_with_what_to_do(bank):
    change_record(bank.folder.trajectory("trajectory-1"))
    change_screenshot(bank.folder.trajectory("trajectory-2"))
    change_row(bank, "trajectory-3", "vector")
    bank.vectors.remove(["trajectory-4"])
    with Progress("check", total=0) as line:
        report = check_bank(Bank.open(bank.folder.path), line=line)
    reasons = {failure.name: failure.reason for failure in report.failures}
    assert sorted(reasons) == [f"trajectory-{number}" for number in (1, 2, 3, 4)]
    assert all("focusmem bank add" in reasons[f"trajectory-{number}"] for number in (1, 2))
    assert all("focusmem bank reembed" in reasons[f"trajectory-{number}"] for number in (3, 4))
    assert (line.total, report.num_trajectories) == (6, 6)


@pytest.mark.parametrize("damage", [change_record, change_screenshot])
def test_an_export_is_checked_as_a_bank_is(bank, tmp_path, damage):
    export_bank(bank, tmp_path / "export")
    damage(tmp_path / "export" / "trajectories" / "trajectory-5")
    assert [failure.name for failure in check_bank(open_bank(tmp_path / "export")).failures] == ["trajectory-5"]
