"""Every benchmark from its file to its report: loaded, attempted in Chromium on local pages, judged, summed up."""

import json

import pytest

from browser.sites import Site
from chat_server import ChatServer, completion
from clocks import PATIENT_S
from evaluation.minds import ScriptedMind, say
from focusmem.browser.base import BrowserLimits
from focusmem.browser.opening import BrowserChoice
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.runner import RunnerConfig
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.evaluation.table import tabulate
from focusmem.recipes.run_judge import JudgeSettings, make_judge
from focusmem.recipes.run_suite import JUDGE_OF
from focusmem.reports import write_page
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


def reply(asked):
    """What a judge model says to any of the judges' questions: yes, unless the answer is that nothing is known."""
    is_won = "unknown" not in json.dumps(asked)
    words = ("Yes", "success", "SUCCESS") if is_won else ("No", "failure", "NOT SUCCESS")
    stages = "**Reasoning**: It shows the page.\n**Score**: 5\n**Key Points**:\n1. The price"
    return completion(f"{stages}\nStatus: {words[1]}\n<result>{words[2]}</result>\n" + ("Yes" if is_won else "No"))


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
    with Shop() as site, ChatServer(reply) as server:
        judge = make_judge(JUDGE_OF[name], JudgeSettings(url=server.url, model="a-judge"))
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
    assert server.asked
    verdicts = {one.episode.task.task_id: one.verdict for one in episodes}
    assert {verdict.judge for verdict in verdicts.values()} == {JUDGE_OF[name]}
    assert {verdict.consultation.model for verdict in verdicts.values()} == {"a-judge"}

    results = summarise(run.folder)
    # WebJudge is never shown the answer, so its scripted model finds every attempt a success.
    num_won = len(suite.tasks) if name == "online-mind2web" else (len(suite.tasks) + 1) // 2
    assert (results["num_won"], results["num_not_judged"]) == (num_won, 0)
    subset = run.manifest().subset
    assert results["subset"]["sha256"] == subset.sha256
    assert results["subset"]["revision"] == suite.revision
    assert json.loads((tmp_path / "run" / "results.json").read_text())["subset"] == results["subset"]
    page = write_page([run.folder], tmp_path / "page.html").path.read_text()
    assert subset.sha256 in page
    rows = tabulate([tmp_path / "run", tmp_path / "run"])["rows"]
    assert [row["subset"]["sha256"] for row in rows] == [subset.sha256] * 2
