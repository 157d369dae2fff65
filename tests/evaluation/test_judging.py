import asyncio

from evaluation.minds import ScriptedMind, say
from evaluation.test_runner import RIGHT, WAIT, WRONG, run
from focusmem.evaluation.judging import stored_attempt
from focusmem.evaluation.rejudging import Rejudging
from focusmem.evaluation.run_store import RunStore
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.schemas import RunFolder, Verdict, load_trajectory


class Lenient(ExactAnswer):
    """Every answer is right."""

    name = "lenient"

    async def judge(self, attempt):
        return Verdict(task_id=attempt.task.task_id, outcome="success", score=1.0, reason="An answer.", judge=self.name)


class Recording(ExactAnswer):
    def __init__(self):
        self.attempts = []

    async def judge(self, attempt):
        self.attempts.append(attempt)
        return await super().judge(attempt)


def test_a_stored_run_is_judged_again_without_acting(tmp_path):
    lines = {"won": [RIGHT], "lost": [WAIT, WRONG], "silent": [WAIT]}
    run(tmp_path, lines)
    changes = []
    watch = lambda found: changes.append((found.stored.outcome, found.verdict.outcome))  # noqa: E731
    assert Rejudging(RunStore(tmp_path), [Lenient()], watch=watch).judge() == 1
    assert sorted(changes) == [("failure", "failure"), ("failure", "success"), ("success", "success")]
    found = {one.episode.task.task_id: one for one in RunFolder(tmp_path).episodes()}
    assert {name: one.verdict.judge for name, one in found.items()} == {
        "won": "lenient",
        "lost": "lenient",
        "silent": "rules",
    }
    stored = load_trajectory(found["lost"].folder / "trajectory").trajectory
    assert stored.outcome == "success", "the trajectory says what the verdict says"
    assert Rejudging(RunStore(tmp_path), [ExactAnswer()]).judge() == 1, "and back again"


def test_a_judge_sees_the_same_of_a_stored_episode_as_when_it_ended(tmp_path):
    judge = Recording()
    run(tmp_path, {"one": [WAIT, say("scroll", direction="down"), RIGHT]}, judge=judge)
    [live] = judge.attempts
    [stored] = RunFolder(tmp_path).episodes()
    again = stored_attempt(stored)
    assert (again.task, again.trajectory, again.answer, again.error) == (
        live.task,
        live.trajectory,
        live.answer,
        live.error,
    )
    assert {name: shot.png for name, shot in again.screenshots.items()} == {
        name: shot.png for name, shot in live.screenshots.items()
    }
    assert live.trajectory.closing.screenshot.sha256 in live.screenshots


def test_a_slow_judge_does_not_hold_up_a_browser(tmp_path):
    """The judge of the first episode waits until the second episode has ended."""
    ended = []

    class Waiting(ExactAnswer):
        async def judge(self, attempt):
            if attempt.task.task_id == "first":
                while "second" not in ended:
                    await asyncio.sleep(0.01)
            ended.append(attempt.task.task_id)
            return await super().judge(attempt)

    lines = {"first": [RIGHT], "second": [WAIT, WAIT, RIGHT]}
    run(tmp_path, lines, judge=Waiting(), num_parallel=2, mind=ScriptedMind(lines))
    assert ended == ["second", "first"]
