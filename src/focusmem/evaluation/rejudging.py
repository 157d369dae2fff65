"""Judges the finished episodes of a stored run again, by one judge or by several. No episode is repeated."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from focusmem.errors import ConfigError
from focusmem.evaluation.judging import JudgeRoom, stored_attempt
from focusmem.evaluation.run_store import RunStore
from focusmem.judges.base import Attempt, Judge, judged, needs_judge
from focusmem.judges.chat_judge import ChatJudge
from focusmem.judges.inquiry import Estimate
from focusmem.schemas import StoredEpisode, Task, Verdict, read_episode
from focusmem.schemas.verdict import judge_key


@dataclass(frozen=True)
class Judged:
    """An attempt that one judge has judged."""

    stored: StoredEpisode
    verdict: Verdict
    counts: bool
    """Whether this verdict now counts for the attempt."""
    is_reused: bool = False
    """Whether the verdict existed already, so that no model was asked."""

    @property
    def is_changed(self) -> bool:
        return self.counts and self.verdict.outcome != self.stored.outcome


class Rejudging:
    """Every verdict is written as soon as it exists, so a stopped judging can be resumed. An attempt is not judged
    again by the same judge with the same model, wording and temperature.
    """

    def __init__(
        self,
        store: RunStore,
        judges: Sequence[Judge | None],
        *,
        tasks: Mapping[str, Task] = MappingProxyType({}),
        first_counts: bool = True,
        again: bool = False,
        watch: Callable[[Judged], None] = lambda judged: None,
    ) -> None:
        """`tasks` holds, by id, the tasks whose records have changed since the run, such as corrected right answers.
        The verdicts of the first judge count, unless `first_counts` is False. `again` repeats existing judgements.
        `watch` is called in another thread.
        """
        self.store, self.judges, self._tasks = store, judges, tasks
        self._first_counts, self._again, self._watch = first_counts, again, watch

    def judge(self) -> int:
        """Judges every finished episode, and counts the episodes whose outcome changed."""
        return self._run(self._judged)

    def parse_again(self) -> int:
        """Parses stored replies again, without any call, and counts the episodes whose outcome changed. An episode
        keeps its verdict if a judge has no stored replies for it.
        """
        return self._run(self._parsed)

    def estimate(self) -> Estimate:
        """Estimates the questions that `judge` would ask. Nothing is sent."""
        total = Estimate()

        async def count(stored: StoredEpisode, attempt: Attempt) -> None:
            nonlocal total
            for judge in self.judges:
                is_new = isinstance(judge, ChatJudge) and self._made_before(stored, judge, attempt) is None
                if isinstance(judge, ChatJudge) and is_new and needs_judge(judge, attempt):
                    total += await judge.estimate(attempt)

        self._for_each(count)
        return total

    def _run(self, verdict_of: Callable[[StoredEpisode, Judge | None, Attempt], Awaitable[Judged | None]]) -> int:
        num_changed = 0

        async def work(stored: StoredEpisode, attempt: Attempt) -> None:
            nonlocal num_changed
            for place, judge in enumerate(self.judges):
                found = await verdict_of(stored, judge, attempt)
                if found is not None:
                    found = Judged(stored, found.verdict, place == 0 and self._first_counts, found.is_reused)
                    self._keep(found, judge)
                    num_changed += found.is_changed
                    self._watch(found)

        with self.store.locked():
            self._for_each(work)
        return num_changed

    def _for_each(self, work: Callable[[StoredEpisode, Attempt], Awaitable[None]]) -> None:
        """Works on as many episodes at the same time as a judge may have open questions."""
        places = iter(self.store.folder.places(self.store.folder.manifest()))

        async def take() -> None:
            for place in places:
                stored, attempt = await asyncio.to_thread(self._read, place)
                await work(stored, attempt)

        async def all_of_them() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(max((_num_together(judge) for judge in self.judges), default=1)):
                        group.create_task(take())
            except BaseExceptionGroup as problems:
                raise problems.exceptions[0] from None  # the first is what stopped the others

        with JudgeRoom(None) as room:
            room.wait_for(all_of_them())

    def _read(self, place: Path) -> tuple[StoredEpisode, Attempt]:
        stored = read_episode(place)
        return stored, stored_attempt(stored, self._tasks.get(stored.episode.task.task_id))

    async def _judged(self, stored: StoredEpisode, judge: Judge | None, attempt: Attempt) -> Judged:
        if isinstance(judge, ChatJudge):
            earlier = stored.verdicts().get(judge.key)
            made = self._made_before(stored, judge, attempt)
            if made is not None:
                return Judged(stored, made, counts=False, is_reused=True)
            verdict = await judged(judge, attempt)
            if earlier is not None and not earlier.is_final:  # what a judgement cost that did not come to an end
                verdict = verdict.model_copy(update={"cost": verdict.cost + earlier.cost})
            return Judged(stored, verdict, counts=False)
        return Judged(stored, await judged(judge, attempt), counts=False)

    async def _parsed(self, stored: StoredEpisode, judge: Judge | None, attempt: Attempt) -> Judged | None:
        if not isinstance(judge, ChatJudge):
            return None
        earlier = _with_replies(stored, judge)
        if earlier is None:
            return None
        return Judged(stored, await judge.judge_stored(attempt, earlier), counts=False, is_reused=True)

    def _made_before(self, stored: StoredEpisode, judge: ChatJudge, attempt: Attempt) -> Verdict | None:
        """The judge's stored verdict on this attempt, if asking again would only repeat it."""
        found = None if self._again else stored.verdicts().get(judge.key)
        is_same = found is not None and found.consultation is not None and found.subject == attempt.digest
        return found if found is not None and is_same and found.is_final else None

    def _keep(self, found: Judged, judge: Judge | None) -> None:
        if isinstance(judge, ChatJudge) or len(self.judges) > 1:
            self.store.keep_verdict(found.stored, _key_of(judge, found.verdict), found.verdict)
        if found.counts:
            self.store.replace_verdict(found.stored, found.verdict)


def _with_replies(stored: StoredEpisode, judge: ChatJudge) -> Verdict | None:
    """The verdict of this judge with stored replies: the verdict with the judge's own model and wording, or otherwise
    the only one.
    """
    verdicts = stored.verdicts()
    own = verdicts.get(judge.key)
    if own is not None:
        return own if own.consultation is not None else None
    others = [
        verdict
        for verdict in verdicts.values()
        if verdict.consultation is not None and (verdict.judge, verdict.judge_profile) == (judge.name, judge.profile)
    ]
    if len(others) > 1:
        models = ", ".join(
            sorted({verdict.consultation.model for verdict in others if verdict.consultation is not None})
        )
        raise ConfigError(
            f"{stored.folder} holds several judgements of '{judge.name}' ({judge.profile}), by {models}. Say which "
            "with --model, and with --prompts if the wording differs."
        )
    return others[0] if others else None


def _key_of(judge: Judge | None, verdict: Verdict) -> str:
    if isinstance(judge, ChatJudge):
        return verdict.key if verdict.consultation is not None else judge.key
    return "none" if judge is None else judge_key(judge.name, judge.profile)


def _num_together(judge: Judge | None) -> int:
    return judge.model.max_together if isinstance(judge, ChatJudge) else 1
