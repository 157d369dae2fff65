"""A random byte of a random file of a bank or an export is changed. Then no reader may return wrong data, every error
is one friendly line, and the commands in the messages mend the bank.
"""

import random
import shutil

import pytest

from banks import WordEmbedder, make_many
from focusmem.bank import Bank, Query, RetrievalConfig, open_bank
from focusmem.bank.checking import check_bank
from focusmem.bank.exchange import export_bank, import_bank
from focusmem.bank.reembedding import reembed
from focusmem.errors import UserError

EMBEDDER = WordEmbedder(width=24)
ITEMS = make_many(4, num_steps=1)
TRUTH = {item.trajectory.trajectory_id: item for item in ITEMS}
QUERY = Query(task_id="shop/2")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    bank = Bank.create(folder / "bank", EMBEDDER)
    for items in (ITEMS[:2], ITEMS[2:], make_many(1, start=9)):
        bank.add(items, EMBEDDER)
    bank.delete(["trajectory-9"])
    bank.add(ITEMS, EMBEDDER)
    export_bank(bank, folder / "export")
    return folder


def check_hits(bank):
    hits = bank.search(EMBEDDER.vector("Buy"), QUERY, 9).hits
    assert {hit.trajectory_id for hit in hits} == TRUTH.keys() - {"trajectory-2"}
    for hit in hits:
        vector = EMBEDDER.vector(TRUTH[hit.trajectory_id].trajectory.instruction)
        assert hit.score == pytest.approx(float(vector @ EMBEDDER.vector("Buy")), abs=1e-5)


def check_what_is_there(bank):
    for name in (entry.trajectory_id for entry in bank.entries()):
        stored = bank.load(name)
        assert stored.trajectory == TRUTH[name].trajectory
        assert dict(stored.screenshots) == dict(TRUTH[name].screenshots)


def check_is_told_or_true(attempt):
    message = "true"
    try:
        attempt()
    except UserError as error:
        message = str(error)
    assert message
    assert "\n" not in message


def exported(path):
    report = export_bank(open_bank(path), path / "../again")
    bank = open_bank(path / "../again")
    check_what_is_there(bank)
    assert {entry.trajectory_id for entry in bank.entries()} | {one.name for one in report.failures} >= TRUTH.keys()


def imported(path):
    import_bank(path / "../copy", path)
    check_what_is_there(Bank.open(path / "../copy"))


def check_damaged(path, rng):
    """Changes a file and calls every function that reads. A bank is mended afterwards, an export is not."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)
    by_kind = sorted({file.suffix for file in files})
    kind = rng.choice(by_kind)
    place = rng.choice([file for file in files if file.suffix == kind])
    data = bytearray(place.read_bytes())
    start = rng.randrange(len(data))
    if rng.random() < 0.3:
        del data[start:]
    else:
        data[start] ^= 1 << rng.randrange(8)
    place.write_bytes(bytes(data))
    check_is_told_or_true(lambda: check_hits(open_bank(path)))
    check_is_told_or_true(lambda: check_what_is_there(open_bank(path)))
    check_is_told_or_true(lambda: check_bank(open_bank(path)))
    check_is_told_or_true(lambda: exported(path))
    return place.name


def check_bank_is_mended(path, changed):
    config = RetrievalConfig(max_exact_bytes=0)
    check_is_told_or_true(lambda: check_hits(Bank.open(path, config=config)))
    check_is_told_or_true(lambda: Bank.open(path).add(ITEMS, EMBEDDER))
    if changed == "bank.json":
        check_is_told_or_true(lambda: reembed(path, EMBEDDER))
        return
    reembed(path, EMBEDDER)
    bank = Bank.open(path)
    bank.add(ITEMS, EMBEDDER)
    assert check_bank(bank).failures == ()
    check_hits(bank)
    check_what_is_there(bank)
    assert bank.delete(["trajectory-1"]).deleted == ("trajectory-1",)


def attempt_many(made, tmp_path, seeds):
    for seed in seeds:
        rng = random.Random(seed)
        shutil.copytree(made / "bank", tmp_path / str(seed) / "bank")
        check_bank_is_mended(tmp_path / str(seed) / "bank", check_damaged(tmp_path / str(seed) / "bank", rng))
        shutil.copytree(made / "export", tmp_path / str(seed) / "export")
        shutil.rmtree(tmp_path / str(seed) / "again", ignore_errors=True)
        check_damaged(tmp_path / str(seed) / "export", rng)
        check_is_told_or_true(lambda path=tmp_path / str(seed) / "export": imported(path))


def test_random_damage(made, tmp_path):
    attempt_many(made, tmp_path, range(5))


@pytest.mark.slow
def test_much_random_damage(made, tmp_path):
    attempt_many(made, tmp_path, range(100, 200))
