"""Every benchmark from its file to its report: loaded, attempted in Chromium on local pages, judged, summed up."""

import json

import pytest

from browser.sites import Site
from clocks import PATIENT_S
from evaluation.minds import ScriptedMind, say
from focusmem.browser.base import BrowserLimits
from focusmem.browser.opening import BrowserChoice
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.runner import RunnerConfig
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.evaluation.table import tabulate
from focusmem.reports import write_page
from focusmem.schemas import Verdict
from focusmem.suites.benchmark import Source
from focusmem.suites.catalogue import BENCHMARKS, BenchmarkSuite
from suites.benchmark_files import (
    DEEPSHOP,
    ONLINE_MIND2WEB,
    WEBVOYAGER,
    mmina_row,
    shopping_row,
    write_deepshop,
    write_mmina,
    write_online_mind2web,
    write_webvoyager,
)

LIMITS = BrowserLimits(
    width=448, height=288, settle_s=0.0, wait_s=0.0, load_s=PATIENT_S, action_s=2 * PATIENT_S, step_s=4 * PATIENT_S
)
SEARCH = """<title>Shop</title><form action="/found"><input name="q" aria-label="Search"></form>"""
FOUND = """<title>Found</title><p>The price is 12 euros.</p>"""
LANDING = "/wikipedia_en_all/A/User%3AThe_other_Kiwix_guy/Landing"


class WordJudge:
    """The answer has to hold a word of the benchmark's own."""

    name, profile, needs_answer = "word", None, True

    def __init__(self) -> None:
        self.seen = []

    async def judge(self, attempt):
        self.seen.append(attempt)
        is_won = "12" in attempt.answer
        return Verdict(
            task_id=attempt.task.task_id,
            outcome="success" if is_won else "failure",
            score=float(is_won),
            reason="It names the price." if is_won else "It does not name the price.",
            judge=self.name,
        )


class Shop(Site):
    """A page with a search field at every address, as sites of benchmarks begin with a path and a query."""

    def answer(self, request):
        is_found = request.path.startswith("/found?")
        self.pages[request.path.partition("?")[0]] = FOUND if is_found else SEARCH
        super().answer(request)


def source(name, folder, host):
    """The data of a benchmark, with its hosts on this machine."""
    at = f"http://{host}"
    match name:
        case "webvoyager":
            rows = [{**row, "web": row["web"].replace("https", "http")} for row in WEBVOYAGER]
            hosts = {"www.allrecipes.com": at, "www.google.com": at, "www.amazon.com": at}
            return Source(write_webvoyager(folder, rows), hosts=hosts)
        case "deepshop":
            return Source(write_deepshop(folder, DEEPSHOP), hosts={"www.amazon.com": at})
        case "online-mind2web":
            hosts = {"www.example.com": at, "sample.org": at}
            return Source(write_online_mind2web(folder, ONLINE_MIND2WEB), hosts=hosts)
        case "mmina-wikipedia":
            rows = [mmina_row(1, "What is the price?"), mmina_row(2, "Is it blue?")]
            return Source(write_mmina(folder, wikipedia=rows), wikipedia=f"{at}/wikipedia_en_all/A")
        case "mmina-shopping":
            rows = [shopping_row(1), shopping_row(2, "How much is the lamp at http://localhost:7770/lamp.html?")]
            return Source(write_mmina(folder, shopping=rows), hosts={"localhost:7770": at})


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "deepshop" else pytest.mark.slow) for name in BENCHMARKS]
)
def test_from_the_file_to_the_report(tmp_path, name):
    with Shop() as site:
        judge = WordJudge()
        suite = BenchmarkSuite(name, source(name, tmp_path, site.host), judge=judge, limits=LIMITS)
        search = say("type", text="mug", description="search")
        answers = [say("stop", answer="12 euros"), say("stop", answer="unknown")]
        lines = {task.task_id: [search, answers[number % 2]] for number, task in enumerate(suite.tasks)}
        run = SuiteRun(
            suite,
            ScriptedMind(lines),
            tmp_path / "run",
            RunAbout(method="script"),
            runner=RunnerConfig(num_parallel=2, patience_s=0.0, num_retries=0),
        )
        run.run(BrowserChoice())
    episodes = run.folder.episodes()
    assert [one.episode.error for one in episodes] == [None] * len(suite.tasks)
    for one in episodes:
        record = one.trajectory().trajectory
        assert record.presses_enter is True
        assert [step.url for step in record.steps] == [one.episode.task.start_url, f"{site.url}/found?q=mug"]
        assert record.steps[0].url.startswith(f"http://{site.host}/")
    if name == "mmina-wikipedia":
        assert {one.episode.task.start_url for one in episodes} == {f"{site.url}{LANDING}"}
    assert {attempt.task.task_id for attempt in judge.seen} == set(lines), "judges see the task with its references"
    assert {attempt.task.references is not None for attempt in judge.seen} <= {True, name != "webvoyager"}

    results = summarise(run.folder)
    assert results["num_won"] == (len(suite.tasks) + 1) // 2
    subset = run.manifest().subset
    assert results["subset"]["sha256"] == subset.sha256
    assert results["subset"]["revision"] == suite.revision
    assert json.loads((tmp_path / "run" / "results.json").read_text())["subset"] == results["subset"]
    page = write_page([run.folder], tmp_path / "page.html").path.read_text()
    assert subset.sha256 in page
    rows = tabulate([tmp_path / "run", tmp_path / "run"])["rows"]
    assert [row["subset"]["sha256"] for row in rows] == [subset.sha256] * 2
