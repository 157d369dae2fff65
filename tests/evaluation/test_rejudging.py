import os
import threading

import pytest

from focusmem.clients.base import ChatReply
from focusmem.errors import ConfigError, WorldError
from focusmem.evaluation.rejudging import Rejudging
from focusmem.evaluation.run_store import RunStore
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.judges.judge_model import JudgeModel
from focusmem.judges.mmina import MminaJudge
from focusmem.judges.webvoyager import WebVoyagerJudge
from focusmem.schemas import RunFolder
from judges.attempts import text_of
from stored_runs import make_finished, write_run

WON, LOST = "<result>SUCCESS</result>", "<result>NOT SUCCESS</result>"


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """No test here needs its files after a crash."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Model:
    """Says `text` for one cent, and notes which tasks it was asked about; `breaks_after` replies it is gone."""

    identity = "scripted"

    def __init__(self, text=WON, *, breaks_after=None, error=None):
        self.text, self.asked, self.breaks_after = text, [], breaks_after
        self.error = error or WorldError("The server is gone.")
        self._lock = threading.Lock()

    def ask(self, prompt, *, seed=None, as_json=False):
        with self._lock:
            if self.breaks_after is not None and len(self.asked) >= self.breaks_after:
                raise self.error
            self.asked.append(text_of(prompt))
        return ChatReply(self.text, num_prompt_tokens=10, num_reply_tokens=1, cost_usd=0.01)


def judge(model, *, name="m", kind=WebVoyagerJudge, **values):
    return kind(JudgeModel(model, name=name, max_together=2), **values)


def make_run(folder, num=3, **changes):
    return RunFolder(write_run(folder, [make_finished(number, "failure", **changes) for number in range(num)]))


def outcomes(run):
    return [one.outcome for one in run.episodes()]


def test_verdicts_are_replaced_and_kept_beside_and_not_paid_twice(tmp_path):
    run, model = make_run(tmp_path), Model()
    assert Rejudging(RunStore(tmp_path), [judge(model)]).judge() == 3
    assert outcomes(run) == ["success"] * 3
    assert len(model.asked) == 3
    for one in run.episodes():
        assert one.verdicts() == {judge(model).key: one.verdict}
        assert one.trajectory().trajectory.outcome == "success"

    reused = []
    again = Rejudging(RunStore(tmp_path), [judge(model)], watch=lambda found: reused.append(found.is_reused))
    assert again.judge() == 0
    assert (reused, len(model.asked)) == ([True] * 3, 3)
    assert Rejudging(RunStore(tmp_path), [judge(model)], again=True).judge() == 0
    assert len(model.asked) == 6


@pytest.mark.parametrize(
    "other", [{"name": "another"}, {"profile": "official"}, {"kind": MminaJudge}], ids=["model", "profile", "judge"]
)
def test_another_judge_judges_anew_and_the_earlier_verdicts_stay_beside(other, tmp_path):
    run, first, second = make_run(tmp_path), Model(WON), Model("no")
    Rejudging(RunStore(tmp_path), [judge(first)]).judge()
    Rejudging(RunStore(tmp_path), [judge(second, **other)]).judge()
    assert len(second.asked) == 3
    for one in run.episodes():
        assert one.verdicts()[judge(first).key].outcome == "success"
        assert one.verdict.key == judge(second, **other).key
        assert one.outcome != "success"


def test_other_wording_judges_anew(tmp_path):
    run, model = make_run(tmp_path / "run", 1), Model()
    Rejudging(RunStore(run.path), [judge(model)]).judge()
    folder = tmp_path / "prompts" / "webvoyager" / "paper"
    folder.mkdir(parents=True)
    (folder / "system.txt").write_text("Judge.")
    (folder / "question.txt").write_text("{{task}} {{answer}}")
    Rejudging(RunStore(run.path), [judge(model, prompts=tmp_path / "prompts")]).judge()
    assert [text.startswith("Judge.") for text in model.asked] == [False, True]


def test_an_attempt_that_is_not_the_same_any_more_is_judged_anew(tmp_path):
    run, model = make_run(tmp_path, 2), Model()
    Rejudging(RunStore(tmp_path), [judge(model)]).judge()
    tasks = {one.episode.task.task_id: one.episode.task for one in run.episodes()}
    tasks["shop/task-0"] = tasks["shop/task-0"].model_copy(update={"instruction": "How much is the hat?"})
    Rejudging(RunStore(tmp_path), [judge(model)], tasks=tasks).judge()
    assert ["How much is the hat?" in text for text in model.asked] == [False, False, True]


def test_a_judging_that_broke_goes_on_and_adds_up_its_cost(tmp_path):
    run, gone, back = make_run(tmp_path), Model(breaks_after=2), Model()
    Rejudging(RunStore(tmp_path), [judge(gone)]).judge()
    assert sorted(outcomes(run)) == ["not_judged", "success", "success"]
    Rejudging(RunStore(tmp_path), [judge(back)]).judge()
    assert outcomes(run) == ["success"] * 3
    assert (len(gone.asked), len(back.asked)) == (2, 1)
    assert sum(one.verdict.cost.usd for one in run.episodes()) == pytest.approx(0.03)


def test_what_an_unfinished_judgement_cost_is_not_forgotten(tmp_path):
    run = make_run(tmp_path, 1)
    references = {"fuzzy_match": ["a", "b"]}
    task = run.episodes()[0].episode.task.model_copy(update={"references": references})
    for model in (Model("yes", breaks_after=1), Model("yes")):
        rejudging = Rejudging(RunStore(tmp_path), [judge(model, kind=MminaJudge)], tasks={task.task_id: task})
        rejudging.judge()
    [one] = run.episodes()
    assert (one.outcome, one.verdict.cost.num_calls, one.verdict.cost.usd) == ("success", 3, pytest.approx(0.03))


def test_a_wrong_key_stops_the_judging_and_keeps_what_was_judged(tmp_path):
    run = make_run(tmp_path)
    with pytest.raises(ConfigError, match="wrong key"):
        Rejudging(RunStore(tmp_path), [judge(Model(breaks_after=1, error=ConfigError("wrong key")))]).judge()
    assert outcomes(run).count("success") == 1
    assert outcomes(run).count("failure") == 2


def test_several_judges_stand_side_by_side_and_the_first_counts(tmp_path):
    run, first, second = make_run(tmp_path, 2), judge(Model(WON)), judge(Model("NOT SUCCESS"), profile="official")
    assert Rejudging(RunStore(tmp_path), [first, second, ExactAnswer()]).judge() == 2
    for one in run.episodes():
        told = {key: verdict.outcome for key, verdict in one.verdicts().items()}
        assert told == {first.key: "success", second.key: "failure", "exact-answer": "success"}
        assert one.verdict.key == first.key


def test_verdicts_beside_leave_those_that_count(tmp_path):
    run = make_run(tmp_path, 2)
    before = [(one.folder / "verdict.json").read_bytes() for one in run.episodes()]
    assert Rejudging(RunStore(tmp_path), [judge(Model())], first_counts=False).judge() == 0
    assert [(one.folder / "verdict.json").read_bytes() for one in run.episodes()] == before
    assert all(len(one.verdicts()) == 2 for one in run.episodes())


def test_the_rules_come_first_and_are_kept_for_the_judge(tmp_path):
    model, finished = Model(), [make_finished(1, answer=None), make_finished(2, "error", error="The site is down.")]
    run = RunFolder(write_run(tmp_path, finished))
    Rejudging(RunStore(tmp_path), [judge(model)]).judge()
    assert (outcomes(run), model.asked) == (["failure", "error"], [])
    assert [one.verdicts()[judge(model).key].judge for one in run.episodes()] == ["rules", "rules"]


# Replay and estimate


def test_stored_replies_are_parsed_again_by_any_model_setting_without_a_call(tmp_path):
    run = make_run(tmp_path)
    Rejudging(RunStore(tmp_path), [judge(Model())]).judge()
    files = [one.folder / "verdict.json" for one in run.episodes()]
    before = [file.read_bytes() for file in files]
    offline = WebVoyagerJudge(JudgeModel(None, name="another"))
    assert Rejudging(RunStore(tmp_path), [offline]).parse_again() == 0
    assert [file.read_bytes() for file in files] == before


def test_a_parser_that_changed_changes_the_outcome(tmp_path, monkeypatch):
    run = make_run(tmp_path)
    Rejudging(RunStore(tmp_path), [judge(Model())]).judge()
    monkeypatch.setattr(WebVoyagerJudge, "read", lambda self, reply: "failure")
    assert Rejudging(RunStore(tmp_path), [WebVoyagerJudge(JudgeModel(None, name="m"))]).parse_again() == 3
    assert outcomes(run) == ["failure"] * 3


def test_episodes_without_replies_keep_their_verdicts_in_a_replay(tmp_path):
    run = make_run(tmp_path)
    before = outcomes(run)
    assert Rejudging(RunStore(tmp_path), [judge(Model())]).parse_again() == 0
    assert outcomes(run) == before


def test_a_replay_among_several_models_wants_to_know_which(tmp_path):
    make_run(tmp_path, 1)
    for name in ("one", "two"):
        Rejudging(RunStore(tmp_path), [judge(Model(), name=name)]).judge()
    with pytest.raises(ConfigError, match=r"several judgements of 'webvoyager'.*one, two"):
        Rejudging(RunStore(tmp_path), [WebVoyagerJudge(JudgeModel(None, name="three"))]).parse_again()
    assert Rejudging(RunStore(tmp_path), [WebVoyagerJudge(JudgeModel(None, name="two"))]).parse_again() == 0


def test_an_estimate_counts_what_is_left(tmp_path):
    finished = [make_finished(1), make_finished(2), make_finished(3, answer=None)]
    write_run(tmp_path, finished)
    model = Model()
    both = [judge(model), ExactAnswer()]
    estimate = Rejudging(RunStore(tmp_path), both).estimate()
    assert (estimate.num_calls, estimate.num_images, model.asked) == (2, 6, [])
    Rejudging(RunStore(tmp_path), both).judge()
    assert Rejudging(RunStore(tmp_path), both).estimate().num_calls == 0
    assert Rejudging(RunStore(tmp_path), both, again=True).estimate().num_calls == 2
