"""Writes Online-Mind2Web's result folders, as `src/run.py` reads them.

The action history is worded as our own judges see it, so that both judges read the same lines.
"""

import json
from pathlib import Path
from typing import Any

from focusmem.data.exporters.base import native_id, reasoning_of, write_pages
from focusmem.data.importers.online_mind2web import PICTURE_FOLDER, RESULT_FILE
from focusmem.files import write_whole
from focusmem.judges.action_history import action_history
from focusmem.judges.base import Attempt


class OnlineMind2WebExporter:
    cannot_hold = (
        "addresses of pages, places of clicks, replies, what an error said, whether typing pressed Enter, and the page "
        "after the answer",
        "steps whose reply could not be read: their screenshot is there, but no action, so such a folder is not "
        "imported again",
    )

    def folder(self, task_id: str) -> str:
        return native_id(task_id)

    def write(self, attempt: Attempt, folder: Path) -> tuple[str, ...]:
        result: dict[str, Any] = {
            "task_id": native_id(attempt.task.task_id),
            "task": attempt.task.instruction,
            "action_history": action_history(attempt.steps),
            "thoughts": [reasoning_of(step.action) for step in attempt.steps],
        }
        if attempt.answer is not None:
            result["final_result_response"] = attempt.answer
        write_whole(folder / RESULT_FILE, json.dumps(result, indent=4).encode())
        write_pages(attempt, folder / PICTURE_FOLDER, "{}_full_screenshot.png", first=0)
        unread = sum(step.action is None for step in attempt.steps)
        return (f"{unread} unreadable replies have no line among the actions",) if unread else ()
