import json
import re

import pytest

from focusmem.errors import ConfigError, StorageError
from focusmem.reports import write_page
from focusmem.reports.page import as_script_text
from focusmem.schemas import RunFolder
from stored_runs import make_consultation, make_finished, make_task, write_run

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- <script>",
    "]]> & \u2028 \u2029 \" ' \\",
    "{{program}}",
]


def test_hostile_text_is_read_back_as_it_was_and_cannot_end_its_element():
    text = as_script_text(HOSTILE)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == HOSTILE


@pytest.mark.parametrize("text", HOSTILE)
def test_the_page_has_only_our_elements_whatever_a_run_says(tmp_path, text):
    calm, hostile = (_page(tmp_path / name, _saying(words)) for name, words in (("calm", "calm"), ("hostile", text)))
    assert re.findall(r"</?[a-z!][^>\n]*>", calm) == re.findall(r"</?[a-z!][^>\n]*>", hostile)


def _saying(words):
    task, asked = make_task(1, instruction=words), make_consultation(words, model=words, departures=(words,))
    return make_finished(
        1, task=task, answer=words, method=words, verdict={"reason": words, "judge": words, "consultation": asked}
    )


def _page(folder, *finished):
    write_run(folder / "run", finished)
    return write_page([RunFolder.open(folder / "run")], folder / "page.html").path.read_text()


def test_the_policy_forbids_all_but_our_own(tmp_path):
    page = _page(tmp_path, make_finished(1))
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:", policy)


def test_a_large_page_keeps_its_pictures_beside_it(tmp_path):
    run = write_run(tmp_path / "run", [make_finished(1)])
    whole = write_page([RunFolder.open(run)], tmp_path / "whole.html")
    assert whole.picture_folder is None
    assert not (tmp_path / "whole_pictures").exists()

    split = write_page([RunFolder.open(run)], tmp_path / "split.html", max_bytes=1000)
    assert split.picture_folder == tmp_path / "split_pictures"
    files = list(split.picture_folder.iterdir())
    assert len(files) == 3
    assert split.num_bytes == split.path.stat().st_size + sum(file.stat().st_size for file in files)
    assert "UklGR" in whole.path.read_text()  # how WebP begins in base64
    assert "UklGR" not in split.path.read_text()


def test_a_page_made_again_takes_its_old_pictures_away(tmp_path):
    run = write_run(tmp_path / "run", [make_finished(1)])
    page = tmp_path / "page.html"
    write_page([RunFolder.open(run)], page, max_bytes=1000)
    write_page([RunFolder.open(run)], page, max_bytes=1000)
    assert (tmp_path / "page_pictures").exists()
    write_page([RunFolder.open(run)], page)
    assert not (tmp_path / "page_pictures").exists()


@pytest.mark.parametrize("max_bytes", [1000, 10**8])
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, max_bytes):
    run = write_run(tmp_path / "run", [make_finished(1)])
    (tmp_path / "page_pictures").mkdir()
    (tmp_path / "page_pictures" / "holiday.jpg").touch()
    with pytest.raises(StorageError, match=r"holiday\.jpg"):
        write_page([RunFolder.open(run)], tmp_path / "page.html", max_bytes=max_bytes)


def test_a_file_in_the_place_of_the_pictures_is_left_alone(tmp_path):
    run = write_run(tmp_path / "run", [make_finished(1)])
    (tmp_path / "page_pictures").touch()
    with pytest.raises(StorageError, match="but it is a file"):
        write_page([RunFolder.open(run)], tmp_path / "page.html")


def test_a_run_may_be_reported_twice(tmp_path):
    folder = write_run(tmp_path / "run", [make_finished(1), make_finished(2)])
    (folder / "episodes" / "task-1" / "1" / "episode.json").write_text("{")
    run = RunFolder.open(folder)
    first, second = (write_page([run], tmp_path / "page.html") for _ in range(2))
    assert first == second
    assert second.num_skipped == len(second.problems) == 1


def test_three_runs_are_too_many(tmp_path):
    run = RunFolder.open(write_run(tmp_path / "run", [make_finished(1)]))
    with pytest.raises(ConfigError, match="not 3"):
        write_page([run] * 3, tmp_path / "page.html")
