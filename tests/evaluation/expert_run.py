"""The laboratory's expert through the runner, as a process that can be killed:

python expert_run.py FOLDER NUM_TASKS raster|chromium NUM_PARALLEL [--stuck]
"""

import json
import signal
import sys
import threading
from pathlib import Path

from evaluation.minds import SolverMind
from focusmem.browser.opening import BrowserChoice
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.runner import RunnerConfig
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.lab.suite import LabSuite, LabSuiteConfig


class FallibleMind(SolverMind):
    """Answers some tasks wrongly, and can block on one task, so that the run can be killed in the middle."""

    stuck_on = None
    goes_on = threading.Event()

    def ask(self, decisions):
        if self.stuck_on in [decision.task.task_id for decision in decisions]:
            self.goes_on.wait()
        return super().ask(decisions)

    def _next(self, decision):
        text = super()._next(decision)
        is_wrong = sum(decision.task.task_id.encode()) % 3 == 0
        return text.replace('"answer": "', '"answer": "not ') if is_wrong else text


def expert_run(folder, num_tasks, browser, num_parallel, *, is_stuck=False):
    """With `is_stuck`, it ends the other tasks and never the last one."""
    suite = LabSuite(LabSuiteConfig(num_tasks=num_tasks))
    mind = FallibleMind(suite.world)
    mind.stuck_on = suite.tasks[-1].task_id if is_stuck else None
    about = RunAbout(method="expert", source="a test")
    run = SuiteRun(suite, mind, folder, about, runner=RunnerConfig(num_parallel=num_parallel))
    run.run(BrowserChoice(kind=browser))
    return summarise(run.folder)


if __name__ == "__main__":
    # Ignored where tests run in the background. With this handler, asyncio cancels the run when the signal comes; a
    # handler that raises by itself may do so where Python drops exceptions.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, lambda *_: FallibleMind.goes_on.set())
    place, num, kind, parallel, *options = sys.argv[1:]
    print(json.dumps(expert_run(Path(place), int(num), kind, int(parallel), is_stuck=bool(options))))
