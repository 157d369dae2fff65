"""Prepares a run before its first episode: encodes its bank and uses every part once.

Steps then do not wait for encoding, imports, lazily loaded parts and first kernel calls.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from PIL import Image

from focusmem.agent.decision import Decision
from focusmem.agent.fronts.latent import LatentFront
from focusmem.agent.local_policy import LocalPolicy
from focusmem.agent.policy_mind import PolicyMind
from focusmem.bank.trust import sources_to_search
from focusmem.browser.base import BrowserLimits
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.progress import Progress
from focusmem.recipes.encode_bank import Encoded, encode_bank
from focusmem.recipes.run_parts import Parts
from focusmem.schemas import Observation, Preparation, Screenshot, Step, Task, make_action
from focusmem.suites.task_file import TaskSuite

_NUM_STEPS = 6
"""Steps before the decision of the warm-up: more than a prompt shows, so that working memory is used too."""


def prepare(parts: Parts, *, has_line: bool = True) -> Preparation:
    """`has_line` shows the progress of encoding. It is off in one of several processes."""
    started = time.monotonic()
    encoded = _encode(parts, has_line=has_line)
    encoded_at = time.monotonic()
    warm_up(parts.mind(), parts.suite.tasks[0], _view(parts))
    return Preparation(
        num_items=encoded.num_items,
        num_encoded=encoded.num_encoded,
        num_cached=encoded.num_cached,
        num_left_out=encoded.num_left_out,
        num_failed=len(encoded.failures),
        encode_s=encoded_at - started,
        warm_up_s=time.monotonic() - encoded_at,
    )


def warm_up(mind: PolicyMind, task: Task, view: tuple[int, int]) -> None:
    """Answers one decision on an empty page, as if the task had begun some steps ago.

    A policy behind an endpoint is not asked, because it needs no warm-up here.
    """
    if not isinstance(mind.policy, LocalPolicy):
        return
    page = Screenshot.from_image(Image.new("RGB", view, "white"))
    task = task.model_copy(update={"max_steps": task.max_steps + _NUM_STEPS})
    step = Step(screenshot=page.ref(), action=make_action("wait"))
    shots: Mapping[str, Screenshot] = {page.digest: page}
    decision = Decision(task, "warm-up", Observation(page, "", "", ()), [step] * _NUM_STEPS, shots, is_guarded=True)
    try:
        prepared = mind.prepare([decision])
        mind.policy.reply(prepared.fronted, seeds=[0], generation=replace(mind.policy.generation, max_new_tokens=2))
    finally:
        mind.forget("warm-up")


def _view(parts: Parts) -> tuple[int, int]:
    """Width and height of the run's screenshots."""
    if parts.is_lab_suite:
        return VIEW_WIDTH, VIEW_HEIGHT
    limits = parts.suite.limits if isinstance(parts.suite, TaskSuite) else BrowserLimits()
    return limits.screenshot_size


def _encode(parts: Parts, *, has_line: bool) -> Encoded:
    """Encodes only trajectories that may be found: with the outcomes and from the sources that the settings search."""
    memory, front = parts.settings.memory, parts.front
    if not (memory.encodes_bank and isinstance(front, LatentFront) and front.num_found):
        return Encoded()
    sources = sources_to_search(parts.bank, only_trusted=memory.only_trusted)
    ids = [
        entry.trajectory_id
        for entry in parts.bank.entries()
        if _is_searched(entry.outcome, memory.outcomes) and _is_searched(entry.source, sources)
    ]
    if not has_line:
        return encode_bank(parts.bank, front, ids)
    with Progress("encode", total=len(ids)) as line:
        return encode_bank(parts.bank, front, ids, line=line)


def _is_searched(value: str, wanted: Collection[str] | None) -> bool:
    return wanted is None or value in wanted
