"""The laboratory's expert through the runner, as a process that can be killed:

python expert_run.py FOLDER NUM_TASKS raster|chromium NUM_PARALLEL THINKING_S
"""

import json
import signal
import sys
import time
from pathlib import Path

from evaluation.minds import SolverMind
from focusmem.browser.opening import BrowserChoice
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.runner import RunnerConfig
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.lab.suite import LabSuite, LabSuiteConfig


class ThinkingMind(SolverMind):
    """Takes its time, so that there is a middle to be killed in, and is wrong about some tasks."""

    thinking_s = 0.0

    def ask(self, decisions):
        time.sleep(self.thinking_s)
        return super().ask(decisions)

    def _next(self, decision):
        text = super()._next(decision)
        is_wrong = sum(decision.task.task_id.encode()) % 3 == 0
        return text.replace('"answer": "', '"answer": "not ') if is_wrong else text


def expert_run(folder, num_tasks, browser, num_parallel, thinking_s=0.0):
    suite = LabSuite(LabSuiteConfig(num_tasks=num_tasks))
    mind = ThinkingMind(suite.world)
    mind.thinking_s = thinking_s
    about = RunAbout(method="expert", source="a test")
    run = SuiteRun(suite, mind, folder, about, runner=RunnerConfig(num_parallel=num_parallel))
    run.run(BrowserChoice(kind=browser))
    return summarise(run.folder)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    place, num, kind, parallel, seconds = sys.argv[1:]
    print(json.dumps(expert_run(Path(place), int(num), kind, int(parallel), float(seconds))))
