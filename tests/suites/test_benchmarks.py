"""Loaders of the benchmarks whose data users have, on files of exactly the official shapes."""

import json
from datetime import date

import pytest

from focusmem.errors import ConfigError, RecordError, StorageError
from focusmem.suites.base import manifest_of
from focusmem.suites.benchmark import Source, moved
from focusmem.suites.catalogue import BENCHMARKS, BenchmarkSuite, check
from suites.benchmark_files import (
    DEEPSHOP,
    HEX,
    KIWIX,
    ONLINE_MIND2WEB,
    WEBVOYAGER,
    mmina_row,
    several_hops,
    shopping_row,
    write_deepshop,
    write_mmina,
    write_online_mind2web,
    write_webvoyager,
)


def suite(name, data, **source):
    return BenchmarkSuite(name, Source(data, **source))


def by_id(made):
    return {task.task_id: task for task in made.tasks}


# What is read


def test_webvoyager(tmp_path):
    made = suite("webvoyager", write_webvoyager(tmp_path))
    tasks = by_id(made)
    assert list(tasks) == ["webvoyager/Allrecipes--0", "webvoyager/Google Flights--8", "webvoyager/Amazon--31"]
    first = tasks["webvoyager/Allrecipes--0"]
    assert (first.instruction, first.start_url, first.site) == (
        "Find a soup with 5 stars.",
        "https://www.allrecipes.com/",
        "allrecipes.com",
    )
    assert (first.presses_enter, first.allowed_sites, first.max_steps) == (True, ("*",), 15)
    assert first.references == {"type": "golden", "ans": "Leek soup"}
    assert tasks["webvoyager/Amazon--31"].references is None
    assert [made.kind_of(task) for task in made.tasks] == ["Allrecipes", "Google Flights", "Amazon"]
    assert suite("webvoyager", tmp_path).tasks == made.tasks, "a folder holds the file"


def test_deepshop(tmp_path):
    made = suite("deepshop", write_deepshop(tmp_path))
    first, second = made.tasks
    assert first.task_id == "deepshop/Amazon--31"
    assert first.references == {"attribute": "Blue mug", "filter": "Rated 4 stars", "sort": "None"}
    assert second.references["attribute"] == "** Red lamp"
    assert first.start_url == "https://www.amazon.com/?language=en_US&currency=USD"
    assert [made.kind_of(task) for task in made.tasks] == ["easy", "hard"]


def test_the_600_tasks_of_deepshop_have_no_difficulty(tmp_path):
    rows = [{key: value for key, value in row.items() if key != "difficulty"} for row in DEEPSHOP]
    made = suite("deepshop", write_deepshop(tmp_path, rows))
    assert [made.kind_of(task) for task in made.tasks] == [None, None]


def test_equal_ids_of_two_benchmarks_are_different_tasks(tmp_path):
    made = [suite("webvoyager", write_webvoyager(tmp_path)), suite("deepshop", write_deepshop(tmp_path))]
    ids = [set(by_id(one)) for one in made]
    assert {"webvoyager/Amazon--31"} <= ids[0]
    assert {"deepshop/Amazon--31"} <= ids[1]
    assert not ids[0] & ids[1]


def test_online_mind2web(tmp_path):
    made = suite("online-mind2web", write_online_mind2web(tmp_path), revision="2026-07-08")
    first, second = made.tasks
    assert (first.task_id, first.instruction) == (f"online-mind2web/{HEX}", "Find a library on Example.")
    assert second.task_id.endswith("_110325")
    assert first.references == {"reference_length": 6, "level": "medium"}
    assert made.revision == "2026-07-08"
    assert [made.kind_of(task) for task in made.tasks] == ["medium", "easy"]


def test_online_mind2web_of_an_older_revision(tmp_path):
    rows = [{**ONLINE_MIND2WEB[0], "task_description": "Find a library."}]
    del rows[0]["confirmed_task"]
    [task] = suite("online-mind2web", write_online_mind2web(tmp_path, rows)).tasks
    assert task.instruction == "Find a library."
    del rows[0]["task_description"]
    with pytest.raises(RecordError, match="row 1: confirmed_task is missing"):
        suite("online-mind2web", write_online_mind2web(tmp_path, rows))


def test_mmina(tmp_path):
    data = write_mmina(
        tmp_path,
        wikipedia=[mmina_row(1, "Is the bridge red?"), mmina_row(2, "Is the tower high?")],
        shopping=[shopping_row(1)],
    )
    wiki, shop = suite("mmina-wikipedia", data), suite("mmina-shopping", data)
    assert list(by_id(wiki)) == ["mmina-wikipedia/1", "mmina-wikipedia/2"]
    assert list(by_id(shop)) == ["mmina-shopping/1"], "the folder decides, not `sites`"
    [task] = shop.tasks
    assert (task.start_url, task.site, task.allowed_sites) == ("http://localhost:7770/", "localhost", ())
    assert wiki.tasks[0].references == {"fuzzy_match": ["Yes"]}
    assert wiki.tasks[0].start_url == KIWIX
    assert suite("mmina-shopping", data / "shopping").tasks == shop.tasks
    assert suite("mmina-shopping", tmp_path).tasks == shop.tasks


def test_files_of_mmina_are_read_in_the_order_of_their_numbers(tmp_path):
    data = write_mmina(tmp_path, shopping=[shopping_row(number) for number in range(1, 12)])
    assert [task.task_id for task in suite("mmina-shopping", data).tasks] == [
        f"mmina-shopping/{number}" for number in range(1, 12)
    ]


# What is done to tasks


def test_dates_of_sites_that_sell_are_moved_and_the_task_says_so(tmp_path):
    data = write_webvoyager(tmp_path)
    tasks = by_id(suite("webvoyager", data, dates_from=date(2026, 12, 1)))
    flight = tasks["webvoyager/Google Flights--8"]
    assert flight.instruction == "Find a flight from Oslo to Rome on Dec. 23rd."
    assert flight.date_shift.original == WEBVOYAGER[1]["ques"]
    assert flight.date_shift.num_days % 7 == 0
    chair = tasks["webvoyager/Amazon--31"]
    assert (chair.instruction, chair.date_shift) == (WEBVOYAGER[2]["ques"], None), "its date is about the past"


def test_a_task_whose_dates_cannot_be_moved_is_left_out_and_named(tmp_path):
    rows = [
        *WEBVOYAGER,
        {**WEBVOYAGER[1], "id": "Booking--10", "web_name": "Booking", "ques": "Valentine's Day, Feb 14."},
    ]
    made = suite("webvoyager", write_webvoyager(tmp_path, rows), dates_from=date(2026, 12, 1))
    assert len(made.tasks) == 3
    [(task_id, reason)] = made.left_out.items()
    assert task_id == "webvoyager/Booking--10"
    assert "Valentine" in reason
    assert manifest_of(made).subset.left_out == made.left_out
    assert len(suite("webvoyager", write_webvoyager(tmp_path, rows)).tasks) == 4


def test_dates_that_somebody_has_edited_are_not_moved(tmp_path):
    rows = [{**WEBVOYAGER[1], "ques": "A flight on April 20, 2026."}]
    with pytest.raises(RecordError, match="line 1: the date 2026-04-20 is not one of the original tasks"):
        suite("webvoyager", write_webvoyager(tmp_path, rows), dates_from=date(2026, 12, 1))


def test_only_webvoyager_has_dates(tmp_path):
    with pytest.raises(ConfigError, match="no dates to move"):
        suite("deepshop", write_deepshop(tmp_path), dates_from=date(2026, 12, 1))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("http://localhost:7770/", "http://shop.example:8080/"),
        (
            "see localhost:7770/a and http://localhost:7770",
            "see http://shop.example:8080/a and http://shop.example:8080",
        ),
        ("http://localhost:77701/ localhost:7770x mylocalhost:7770", None),
        ("http://localhost/ and x.localhost:7770", None),
    ],
)
def test_a_host_is_moved_wherever_it_stands_and_no_other(text, after):
    assert moved(text, {"localhost:7770": "http://shop.example:8080/"}) == (after or text)


def test_a_host_without_a_scheme_keeps_the_one_that_stands_there():
    assert moved("https://www.example.com/x", {"www.example.com": "127.0.0.1:9"}) == "https://127.0.0.1:9/x"
    assert moved("www.example.com.evil/", {"www.example.com": "x"}) == "www.example.com.evil/"


def test_hosts_are_moved_in_start_pages_and_instructions(tmp_path):
    data = write_mmina(tmp_path, shopping=[shopping_row(1, "Is the mug at localhost:7770/mug.html blue?")])
    [task] = suite("mmina-shopping", data, hosts={"localhost:7770": "http://127.0.0.1:8000"}).tasks
    assert (task.start_url, task.site) == ("http://127.0.0.1:8000/", "127.0.0.1")
    assert task.instruction == "Is the mug at http://127.0.0.1:8000/mug.html blue?"


@pytest.mark.parametrize("hosts", [{"http://localhost:7770": "x"}, {"localhost:7770": ""}])
def test_what_is_no_host_is_refused(tmp_path, hosts):
    with pytest.raises(ConfigError, match=r"suite\.hosts maps"):
        suite("deepshop", write_deepshop(tmp_path), hosts=hosts)


@pytest.mark.parametrize(
    "landing",
    [
        KIWIX,
        KIWIX.replace("/viewer#", "/iewer#"),
        "http://localhost:8888/wikipedia_en_all_maxi_2022-05/A/User%3AThe_other_Kiwix_guy/Landing",
        "https://library.kiwix.org/content/wikipedia_en_all_maxi_2024-01/User%3AThe_other_Kiwix_guy/Landing",
    ],
)
@pytest.mark.parametrize("address", ["http://127.0.0.1:9/book/A", "http://127.0.0.1:9/content/book/"])
def test_the_encyclopedia_is_moved_in_every_scheme(tmp_path, landing, address):
    data = write_mmina(tmp_path, wikipedia=[mmina_row(1, f"Begin at {landing}.", start_url=landing)])
    [task] = suite("mmina-wikipedia", data, wikipedia=address).tasks
    there = f"{address.removesuffix('/')}/User%3AThe_other_Kiwix_guy/Landing"
    assert (task.start_url, task.instruction) == (there, f"Begin at {there}.")


def test_the_encyclopedia_is_only_for_its_suite(tmp_path):
    with pytest.raises(ConfigError, match="is for mmina-wikipedia"):
        suite("deepshop", write_deepshop(tmp_path), wikipedia="http://127.0.0.1:9/book/A")


def test_the_user_replaces_rules_of_every_task(tmp_path):
    data = write_deepshop(tmp_path)
    made = suite("deepshop", data, max_steps=4, presses_enter=False, allowed_hosts=("cdn.example",))
    assert {(task.max_steps, task.presses_enter, task.allowed_sites) for task in made.tasks} == {
        (4, False, ("cdn.example",))
    }


# Subsets


def test_a_list_of_ids_chooses_tasks(tmp_path):
    data, ids = write_webvoyager(tmp_path), tmp_path / "ids.txt"
    ids.write_text("# two of them\nAmazon--31\n\nwebvoyager/Google Flights--8  # with a space\n")
    assert list(by_id(suite("webvoyager", data, ids=ids))) == ["webvoyager/Google Flights--8", "webvoyager/Amazon--31"]
    ids.write_text("Amazon--31\nAmazon--99")
    with pytest.raises(ConfigError, match=r"ids\.txt, line 2: the data has no task 'Amazon--99'"):
        suite("webvoyager", data, ids=ids)
    ids.write_text("# none\n")
    with pytest.raises(ConfigError, match="names no task"):
        suite("webvoyager", data, ids=ids)


@pytest.mark.parametrize("name", [f"f{HEX[1:]}", f"f{HEX[1:]}_110325", f"f{HEX[1:]}_010226"])
def test_ids_of_online_mind2web_are_known_without_the_date_of_their_update(tmp_path, name):
    data, ids = write_online_mind2web(tmp_path), tmp_path / "ids.txt"
    ids.write_text(name)
    assert list(by_id(suite("online-mind2web", data, ids=ids))) == [f"online-mind2web/f{HEX[1:]}_110325"]


def test_the_subset_has_a_digest_of_ids_texts_dates_and_revision(tmp_path):
    data, ids = write_webvoyager(tmp_path), tmp_path / "ids.txt"
    ids.write_text("Amazon--31\nGoogle Flights--8\nAllrecipes--0")

    def digest(**source):
        return manifest_of(suite("webvoyager", data, **source)).subset.sha256

    plain = digest()
    same = [
        digest(ids=ids),
        digest(max_steps=3),
        digest(presses_enter=False),
        digest(hosts={"www.amazon.com": "x.org"}),
    ]
    assert same == [plain] * 4
    later = [digest(revision="a"), digest(revision="b"), digest(dates_from=date(2027, 1, 1))]
    ids.write_text("Amazon--31")
    assert len({plain, *later, digest(ids=ids)}) == 5
    subset = manifest_of(suite("webvoyager", data, dates_from=date(2027, 1, 1))).subset
    assert (subset.num_days, subset.revision[:6]) == (1113, "files ")
    (tmp_path / "reference_answer.json").unlink()
    assert digest() != plain, "other files are another revision"


# What is refused


BAD_LINES = [
    (
        '{"web_name": "A", "id": "A--1", "ques": "5\\% more", "web": "https://a.org/"}',
        "line 2: not valid JSON at column",
    ),
    ("[1]", "line 2: a task should be a JSON object, but this is a list"),
    ('{"web_name": "A", "id": "A--1", "web": "https://a.org/"}', "line 2: ques is missing"),
    ('{"web_name": "A", "id": 7, "ques": "x", "web": "https://a.org/"}', "line 2: id should be a valid string"),
    (
        '{"web_name": "A", "id": "A--1", "ques": " ", "web": "https://a.org/"}',
        "line 2: ques should not be empty or blank",
    ),
    (
        '{"web_name": "A", "id": "A--1", "ques": "x", "web": "a.org"}',
        "line 2: the start page 'a.org' is not an address",
    ),
    (
        '{"web_name": "A", "id": "A--1", "ques": "x", "web": "file:///etc/passwd"}',
        "line 2: the start page 'file:///etc/passwd' is not an address",
    ),
    (json.dumps(WEBVOYAGER[0]), "line 2: the task id 'webvoyager/Allrecipes--0' is used twice"),
]


@pytest.mark.parametrize(("line", "words"), BAD_LINES)
def test_a_bad_row_is_named_with_file_and_line(tmp_path, line, words):
    path = tmp_path / "WebVoyager_data.jsonl"
    path.write_text(f"{json.dumps(WEBVOYAGER[0])}\n{line}\n")
    with pytest.raises(RecordError) as caught:
        suite("webvoyager", path)
    assert f"{path}, " in str(caught.value)
    assert words in str(caught.value)
    [checked] = check(path)
    assert (len(checked.loaded.tasks), len(checked.loaded.refused)) == (1, 1)


def test_a_bad_escape_says_what_to_do(tmp_path):
    path = tmp_path / "Online_Mind2Web.json"
    path.write_text('[\n{"task_id": "x",\n "confirmed_task": "C:\\dir"}]')
    with pytest.raises(
        RecordError, match=r"Online_Mind2Web\.json, line 3: not valid JSON .* A backslash in JSON is written"
    ):
        suite("online-mind2web", path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "should hold a list of tasks, but it holds an object"),
        ("[7]", "row 1: a task should be a JSON object, but this is a number"),
        ("[" * 100_000, "is nested too deeply"),
        ('[{"task_id": "abc"}]', "row 1: task_id"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, words):
    path = tmp_path / "Online_Mind2Web.json"
    path.write_text(text)
    with pytest.raises(RecordError) as caught:
        suite("online-mind2web", path)
    assert words in str(caught.value)


def test_text_that_is_not_utf8_is_named_by_its_line(tmp_path):
    path = tmp_path / "deepshop_test.jsonl"
    path.write_bytes(json.dumps(DEEPSHOP[0]).encode() + b"\n\xff\n")
    with pytest.raises(RecordError, match="line 2: the text is not valid UTF-8"):
        suite("deepshop", path)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (several_hops(2), "several hops"),
        (mmina_row(2, "x", hop_cnt=2), "2 hops"),
        (mmina_row(2, "x", start_url=f"{KIWIX} |AND| {KIWIX}"), "several pages"),
        (mmina_row(2, "x", eval={"eval_types": ["url_match"], "reference_answers": {}}), "judged by url_match"),
        (mmina_row(2, "x", eval=None), "eval should be"),
        (mmina_row(1, "x"), "'mmina-wikipedia/1' is used twice"),
    ],
)
def test_tasks_of_mmina_that_cannot_be_attempted_are_refused(tmp_path, row, words):
    data = write_mmina(tmp_path, wikipedia=[mmina_row(1, "Is it red?"), row])
    with pytest.raises(RecordError) as caught:
        suite("mmina-wikipedia", data)
    assert "2.json" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_missing_files_say_where_to_get_them(tmp_path, name):
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(StorageError) as caught:
            suite(name, place)
        assert BENCHMARKS[name].help_text in str(caught.value)


def test_damaged_reference_answers_are_refused(tmp_path):
    data = write_webvoyager(tmp_path)
    (tmp_path / "reference_answer.json").write_text('{"Allrecipes": {"answers": [{"id": 0}]}}')
    with pytest.raises(RecordError, match="an answer of Allrecipes has no id or no text"):
        suite("webvoyager", data)


# Check


def test_check_finds_out_what_every_file_is(tmp_path):
    write_webvoyager(tmp_path), write_deepshop(tmp_path), write_online_mind2web(tmp_path)
    write_mmina(tmp_path, wikipedia=[mmina_row(1, "x"), several_hops(2)])
    (tmp_path / "mine.jsonl").write_text('{"a": 1, "b": 2}')
    (tmp_path / "empty.json").write_text("[]")
    (tmp_path / "deepshop_evol_600.jsonl").write_text(json.dumps(DEEPSHOP[0]))
    found = {one.path.name: (one.suite, len(one.loaded.tasks), len(one.loaded.refused)) for one in check(tmp_path)}
    assert found == {
        "WebVoyager_data.jsonl": ("webvoyager", 3, 0),
        "deepshop_test.jsonl": ("deepshop", 2, 0),
        "deepshop_evol_600.jsonl": ("deepshop", 1, 0),
        "Online_Mind2Web.json": ("online-mind2web", 2, 0),
        "wikipedia": ("mmina-wikipedia", 1, 1),
        "mine.jsonl": (None, 0, 1),
        "empty.json": (None, 0, 1),
    }
    with pytest.raises(ConfigError, match="There is no"):
        check(tmp_path / "nothing")


def test_a_single_file_of_mmina_is_not_a_suite(tmp_path):
    data = write_mmina(tmp_path, wikipedia=[mmina_row(1, "x")])
    [found] = check(data / "wikipedia" / "1.json")
    assert (found.suite, found.loaded.refused) == (
        None,
        [f"{data}/wikipedia/1.json is one task of MMInA; name its folder, which is called wikipedia or shopping."],
    )
