"""Small runs on disk, of which only the outcomes matter."""

import json

from focusmem.files import write_whole
from reports.runs import make_episode, make_notes, write_run


def store_run(folder, outcomes, *, steps=None, kinds=None, method="full"):
    """Task 0, task 1 and so on with these outcomes; None for a task that was not attempted yet."""
    episodes = []
    for number, outcome in enumerate(outcomes):
        if outcome is not None:
            changes = {"notes": (make_notes(),) * (steps or [3] * len(outcomes))[number], "method": method}
            is_blocked = outcome == "blocked"
            told = "error" if is_blocked else outcome
            episodes.append(make_episode(number, told, is_blocked=is_blocked, **changes))
    write_run(folder, episodes)
    names = kinds or [None] * len(outcomes)
    tasks = [{"task_id": f"task-{number}", "kind": kind} for number, kind in enumerate(names)]
    write_whole(folder / "tasks.json", json.dumps(tasks).encode())
    return folder
