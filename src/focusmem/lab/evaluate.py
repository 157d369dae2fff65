"""The laboratory's policy at work: whole episodes on sites it has never seen, many side by side.

none       the prompt alone
notes      a few words about the site in front of it
replay     a demonstration on the same site in front of it, raw: the most telling one, as a perfect retriever finds it
retrieved  what the bank's retriever finds in front of it, raw
latent     the same as latent blocks, together with the expired history; a run says which memory it was
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from focusmem.agent.memory import AgentMemory, Situation
from focusmem.agent.prompt import NUM_RECENT, RecentEvent
from focusmem.bank.embedder import Moment
from focusmem.browser.base import Browser
from focusmem.errors import ConfigError, PolicyError, WorldError
from focusmem.evidence import episodic_items, working_items
from focusmem.files import write_whole
from focusmem.intervals import wilson_interval
from focusmem.lab.answers import experience, notes
from focusmem.lab.corpus import Texts
from focusmem.lab.raster_browser import RasterBrowser
from focusmem.lab.recall import LabRecall
from focusmem.lab.rollout import Rollout, iter_tasks, roll_out, screenshot_of
from focusmem.lab.session import ORIGIN
from focusmem.lab.solvers import Solver
from focusmem.lab.tasks import KINDS, MAX_STEPS, LabTask, is_right, make_task
from focusmem.lab.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.front import ReadFront
from focusmem.model.generation import GenerationConfig, generate
from focusmem.progress import Progress
from focusmem.schemas import (
    EvidenceItem,
    Outcome,
    Prompt,
    Role,
    Run,
    Screenshot,
    Step,
    StoredTrajectory,
    Trajectory,
    Turn,
    action_to_json,
    dump_record,
    parse_action,
    save_trajectory,
)
from focusmem.schemas.environment import collect_environment

MemoryKind = Literal["none", "notes", "replay", "retrieved", "latent"]
BrowserKind = Literal["raster", "chromium"]


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    memory: MemoryKind = "none"
    name: str | None = None
    """What the memory is called in reports; the same as `memory` unless told."""
    num_found: int = 3
    """Trajectories that retrieval may show."""
    num_tasks: int = 400
    seed: int = 0
    world_seed: int = 0
    browser: BrowserKind = "raster"
    shows_history: bool = False
    """Give events that left the window back, raw, in front of the prompt."""
    batch_size: int = 16
    """Episodes that go on side by side."""
    max_new_tokens: int = 96

    def __post_init__(self) -> None:
        for name, kind in (("memory", MemoryKind), ("browser", BrowserKind)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(f"{name} is '{getattr(self, name)}'; choose one of {', '.join(get_args(kind))}.")
        if self.num_tasks < 1:
            raise ConfigError(f"num_tasks is {self.num_tasks}; it must be at least 1.")


@dataclass
class _Episode:
    """One task under way."""

    task: LabTask
    browser: Browser
    front: ReadFront | None
    """What memory shows in front of every prompt, read once."""
    shown: tuple[str, ...] = ()
    """Which trajectories the front shows, where they were retrieved."""
    num_prompt_tokens: int = 0
    num_memory_tokens: int = 0
    num_offered: int = 0
    num_accepted: int = 0
    steps: list[Step] = field(default_factory=list)
    screenshots: dict[str, Screenshot] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None

    @property
    def is_over(self) -> bool:
        last = self.steps[-1].action if self.steps else None
        return self.error is not None or len(self.steps) >= MAX_STEPS or (last is not None and last.name == "stop")

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """What the world does wrong ends this episode as an error; the others go on."""
        try:
            yield
        except WorldError as error:
            self.error = str(error)


def evaluate(
    policy: Backbone,
    config: EvaluateConfig,
    folder: Path,
    *,
    memory: AgentMemory | None = None,
    recall: LabRecall | None = None,
) -> dict[str, Any]:
    """Run what is not yet in `folder`, and sum up all of it.

    `recall` finds trajectories where the config says that they are retrieved, `memory` turns them into blocks.
    """
    _Evaluation(policy, config, folder, memory=memory, recall=recall).run()
    return summarise(folder)


class _Evaluation:
    def __init__(
        self,
        policy: Backbone,
        config: EvaluateConfig,
        folder: Path,
        *,
        memory: AgentMemory | None = None,
        recall: LabRecall | None = None,
    ) -> None:
        self.policy, self.config, self.folder = policy, config, folder
        self.memory, self.recall = memory, recall
        self.world, self.texts = World(config.world_seed), Texts.load()
        if config.memory in ("retrieved", "latent") and recall is None:
            raise ConfigError(f"Memory '{config.memory}' finds trajectories in a bank; give it an embedder.")
        if config.memory == "latent" and memory is None:
            raise ConfigError("Latent memory needs a trained memory; give it a checkpoint.")

    def run(self) -> None:
        self._begin()
        drawn = iter_tasks(self.world, "e", "evaluation", self.config.seed)
        tasks = [next(drawn) for _ in range(self.config.num_tasks)]
        write_whole(
            self.folder / "tasks.json",
            json.dumps([{"task_id": one.task.task_id, "kind": one.kind} for one in tasks], indent=1).encode(),
        )
        left = [task for task in tasks if not (self._place(task) / "episode.json").exists()]
        with Progress("evaluate", total=len(tasks)) as line:
            line.step(len(tasks) - len(left))
            asyncio.run(self._run_all(left, line))

    async def _run_all(self, tasks: Sequence[LabTask], line: Progress) -> None:
        async with AsyncExitStack() as stack:
            make_browser = await self._browsers(stack)
            for start in range(0, len(tasks), self.config.batch_size):
                together = tasks[start : start + self.config.batch_size]
                episodes = [_Episode(task, await make_browser(), self._read_front(task)) for task in together]
                await self._run_together(episodes)
                for episode in episodes:
                    self._store(episode)
                    line.step(failed=episode.error is not None, note=self.config.memory)

    async def _browsers(self, stack: AsyncExitStack) -> Any:
        if self.config.browser == "raster":

            async def raster() -> Browser:
                return RasterBrowser(self.world)

            self._origin = ORIGIN
            return raster
        from focusmem.browser.chromium import ChromiumBrowser
        from focusmem.browser.chromium_process import ChromiumPool
        from focusmem.lab.server import LAB_LIMITS, LabServer

        server = stack.enter_context(LabServer(self.world))
        pool = await stack.enter_async_context(ChromiumPool())
        self._origin = server.url.rstrip("/")

        async def chromium() -> Browser:
            return await ChromiumBrowser.launch(LAB_LIMITS, [server.host], pool=pool)

        return chromium

    async def _run_together(self, episodes: Sequence[_Episode]) -> None:
        """All episodes in step: look, ask the policy once for all of them, act."""
        try:
            for episode in episodes:
                with episode.keeping_errors():
                    await episode.browser.open(f"{self._origin}/{episode.task.site_id}/")
            while any(not episode.is_over for episode in episodes):
                started = time.perf_counter()
                seen: list[tuple[_Episode, Screenshot]] = []
                for episode in episodes:
                    if not episode.is_over:
                        with episode.keeping_errors():
                            seen.append((episode, (await episode.browser.observe()).screenshot))
                replies = self._replies(seen) if seen else []
                for (episode, screenshot), reply in zip(seen, replies, strict=True):
                    with episode.keeping_errors():
                        await self._act(episode, screenshot, reply)
                for episode, _ in seen:
                    episode.seconds += (time.perf_counter() - started) / len(seen)
        finally:
            for episode in episodes:
                await episode.browser.close()

    def _replies(self, seen: Sequence[tuple[_Episode, Screenshot]]) -> list[str]:
        """One reply for each, with whatever memory there is in front of its prompt."""
        prompts = [self._prompt(episode, screenshot) for episode, screenshot in seen]
        found = self._found(seen) if self.recall is not None else [()] * len(seen)
        if self.memory is not None:
            return self._ask_with_blocks(self.memory, prompts, [episode for episode, _ in seen], found)
        if self.config.memory == "retrieved":
            for (episode, _), own in zip(seen, found, strict=True):
                self._show(episode, own)
        fronts = [episode.front for episode, _ in seen if episode.front is not None]
        for episode, _ in seen:
            episode.num_memory_tokens += 0 if episode.front is None else episode.front.length
        for (episode, _), prompt in zip(seen, prompts, strict=True):
            episode.num_prompt_tokens += len(self.policy.tokenise(prompt).ids)
        return self._ask(prompts, fronts)

    def _found(self, seen: Sequence[tuple[_Episode, Screenshot]]) -> list[Sequence[tuple[StoredTrajectory, float]]]:
        """What the retriever finds for the present moment of each episode."""
        assert self.recall is not None
        moments = [_moment(episode, screenshot) for episode, screenshot in seen]
        hits = self.recall.find(moments, [episode.task for episode, _ in seen], top=self.config.num_found)
        bank = self.recall.bank
        return [[(bank.trajectories[bank.place_of[hit.trajectory_id]], hit.score) for hit in own.hits] for own in hits]

    def _show(self, episode: _Episode, found: Sequence[tuple[StoredTrajectory, float]]) -> None:
        """Put trajectories in front of the prompt, raw; read again only when others are found."""
        names = tuple(stored.trajectory.trajectory_id for stored, _ in found)
        if names and names != episode.shown:
            items = episodic_items((stored.trajectory, score) for stored, score in found)
            front = [self.texts.serialise(item, found[item.rank][0].screenshots) for item in items]
            episode.front = self._read(tuple(turn for one in front for turn in one))
            episode.shown = names

    def _ask_with_blocks(
        self,
        memory: AgentMemory,
        prompts: Sequence[Prompt],
        episodes: Sequence[_Episode],
        found: Sequence[Sequence[tuple[StoredTrajectory, float]]],
    ) -> list[str]:
        situations = [
            Situation(episode.task.task.instruction, episode.steps, episode.screenshots, own)
            for episode, own in zip(episodes, found, strict=True)
        ]
        remembered = memory.remember(prompts, situations)
        told = zip(episodes, remembered.rows, remembered.items, remembered.num_memory_tokens, strict=True)
        for episode, row, items, num in told:
            episode.num_memory_tokens += num
            episode.num_prompt_tokens += row.length - num
            episode.num_offered += len(items)
            episode.num_accepted += sum(one.is_accepted for one in items)
        return memory.policy.reply(remembered.rows, GenerationConfig(max_new_tokens=self.config.max_new_tokens))

    def _ask(self, prompts: Sequence[Prompt], fronts: Sequence[ReadFront]) -> list[str]:
        rows = self.policy.embed([self.policy.tokenise(prompt) for prompt in prompts])
        config = GenerationConfig(max_new_tokens=self.config.max_new_tokens)
        return [self.policy.text_of(ids) for ids in generate(self.policy, rows, config, fronts=fronts or None)]

    def _read_front(self, task: LabTask) -> ReadFront | None:
        front = self.front_of(task)
        return self._read(front) if front else None

    def _read(self, front: Prompt) -> ReadFront:
        [row] = self.policy.embed([self.policy.tokenise(front, is_complete=True)])
        return ReadFront.read(self.policy, row)

    async def _act(self, episode: _Episode, screenshot: Screenshot, reply: str) -> None:
        episode.screenshots[screenshot.digest] = screenshot
        try:
            action = parse_action(reply)
        except PolicyError as error:
            episode.steps.append(Step(screenshot=screenshot.ref(), reply=reply, error=str(error)))
            return
        performed = await episode.browser.perform(action)
        episode.steps.append(
            Step(
                screenshot=screenshot.ref(),
                action=action,
                reply=reply,
                click_point=performed.click_point,
                error=performed.error,
            )
        )

    # Prompts

    def _prompt(self, episode: _Episode, screenshot: Screenshot) -> Prompt:
        front: list[Turn] = []
        if self.config.shows_history:
            instruction = episode.task.task.instruction
            for item in working_items(episode.steps, instruction=instruction, num_recent=NUM_RECENT):
                front += self.texts.serialise(item, episode.screenshots)
        recent = [
            RecentEvent(
                number + 1,
                episode.screenshots[step.screenshot.sha256],
                action_to_json(step.action) if step.action else step.reply or "",
                step.error,
            )
            for number, step in enumerate(episode.steps)
        ]
        asked = self.texts.prompt(
            instruction=episode.task.task.instruction,
            recent=recent,
            screenshot=screenshot,
            actions_left=MAX_STEPS - len(episode.steps),
        )
        return (*front, *asked)

    def front_of(self, task: LabTask) -> Prompt:
        """What memory puts in front of every prompt of an episode."""
        if self.config.memory not in ("notes", "replay"):
            return ()
        shown = self.demonstration(task)
        if self.config.memory == "notes":
            return (Turn("user", (notes(self.world, shown.steps),)),)
        steps, screenshots = [], {}
        for step in shown.steps:
            screenshot = screenshot_of(self.world, step)
            screenshots[screenshot.digest] = screenshot
            steps.append(Step(screenshot=screenshot.ref(), action=step.action))
        return self._record(shown.task, steps, screenshots, "episodic")

    def demonstration(self, task: LabTask, *, num_candidates: int = 16) -> Rollout:
        """The most telling of some bank trajectories on the task's site, as a perfect retriever would find it."""
        expert = roll_out(self.world, task, Solver.expert(self.world, task))
        needed = set(experience(self.world, expert.steps))
        kinds = KINDS[self.world.site(task.site_id).family]
        candidates = (
            make_task(self.world, task.site_id, kinds[number % len(kinds)], "bank", number)
            for number in range(num_candidates)
        )
        rollouts = [roll_out(self.world, one, Solver.expert(self.world, one)) for one in candidates]
        return max(
            (one for one in rollouts if one.is_success),
            key=lambda one: len(needed & set(experience(self.world, one.steps))),
        )

    def _record(self, task: LabTask, steps: Sequence[Step], screenshots: dict[str, Screenshot], role: Role) -> Prompt:
        item = EvidenceItem(item_id=role, role=role, instruction=task.task.instruction, steps=tuple(steps), rank=0)
        return self.texts.serialise(item, screenshots)

    # Files

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "config.json"
        values = json.loads(json.dumps(asdict(self.config)))
        if config.exists() and json.loads(config.read_text()) != values:
            raise ConfigError(f"{self.folder} holds a run with another config; choose another --out, or delete it.")
        write_whole(config, json.dumps(values, indent=2).encode())
        name = torch.cuda.get_device_name() if self.policy.device.type == "cuda" else "cpu"
        run = Run(
            run_id=self.folder.name,
            command=("focusmem", "lab", "evaluate"),
            status="running",
            config=values,
            environment=collect_environment(
                {"tasks": self.config.seed, "world": self.config.world_seed}, {"accelerator": name}
            ),
            started_at=datetime.now(UTC),
            num_tasks=self.config.num_tasks,
        )
        write_whole(self.folder / "run.json", dump_record(run))

    def _place(self, task: LabTask) -> Path:
        return self.folder / "episodes" / task.task.task_id

    def _store(self, episode: _Episode) -> None:
        """The trajectory first, then the line that says the episode is finished."""
        place, task = self._place(episode.task), episode.task.task
        last = episode.steps[-1].action if episode.steps else None
        answer = last.arguments.answer if last is not None and last.name == "stop" else None
        is_success = answer is not None and is_right(answer, task.answer or "")
        outcome: Outcome = "error" if episode.error else "success" if is_success else "failure"
        if episode.steps:
            trajectory = Trajectory(
                trajectory_id=task.task_id,
                task_id=task.task_id,
                instruction=task.instruction,
                start_url=task.start_url,
                site=task.site,
                steps=tuple(episode.steps),
                outcome=outcome,
                source=f"laboratory policy, {self.config.name or self.config.memory}",
                annotations=task.annotations,
            )
            save_trajectory(place / "trajectory", trajectory, episode.screenshots, replace=True)
        line = {
            "task_id": task.task_id,
            "kind": episode.task.kind,
            "outcome": outcome,
            "answer": answer,
            "gold": task.answer,
            "num_steps": len(episode.steps),
            "num_unreadable": sum(step.action is None for step in episode.steps),
            "num_prompt_tokens": episode.num_prompt_tokens,
            "num_memory_tokens": episode.num_memory_tokens,
            "num_offered": episode.num_offered,
            "num_accepted": episode.num_accepted,
            "seconds": round(episode.seconds, 4),
            "error": episode.error,
        }
        write_whole(place / "episode.json", json.dumps(line, indent=1).encode())


def _moment(episode: _Episode, screenshot: Screenshot) -> Moment:
    """What the retriever is asked with: the task, the present view and the one before it."""
    before = [episode.screenshots[step.screenshot.sha256] for step in episode.steps[-1:]]
    actions = tuple(step.action for step in episode.steps if step.action is not None)
    return Moment(instruction=episode.task.task.instruction, screenshots=(*before, screenshot), actions=actions)


def summarise(folder: Path) -> dict[str, Any]:
    """The figures of a run, from its files; also of one that is not finished."""
    config = json.loads((folder / "config.json").read_text())
    wanted = [one["task_id"] for one in json.loads((folder / "tasks.json").read_text())]
    paths = [folder / "episodes" / task_id / "episode.json" for task_id in wanted]
    rows = [json.loads(path.read_text()) for path in paths if path.exists()]
    judged = [row for row in rows if row["outcome"] != "error"]
    num_steps = sum(row["num_steps"] for row in judged)
    wins = sum(row["outcome"] == "success" for row in judged)
    kinds = sorted({row["kind"] for row in judged})
    results = {
        "memory": config["name"] or config["memory"],
        "num_tasks": len(judged),
        "num_errors": len(rows) - len(judged),
        "num_missing": len(wanted) - len(rows),
        "success_rate": wins / max(1, len(judged)),
        "success_interval": list(wilson_interval(wins, len(judged))),
        "hit_max_rate": sum(row["answer"] is None for row in judged) / max(1, len(judged)),
        "unreadable_rate": sum(row["num_unreadable"] for row in judged) / max(1, num_steps),
        "mean_steps": num_steps / max(1, len(judged)),
        "mean_step_s": sum(row["seconds"] for row in judged) / max(1, num_steps),
        "mean_prompt_tokens": sum(row["num_prompt_tokens"] for row in judged) / max(1, num_steps),
        "mean_memory_tokens": sum(row["num_memory_tokens"] for row in judged) / max(1, num_steps),
        "accepted_rate": sum(row["num_accepted"] for row in judged) / max(1, sum(row["num_offered"] for row in judged)),
        "by_kind": {
            kind: {
                "num_tasks": sum(row["kind"] == kind for row in judged),
                "success_rate": sum(row["kind"] == kind and row["outcome"] == "success" for row in judged)
                / sum(row["kind"] == kind for row in judged),
            }
            for kind in kinds
        },
    }
    write_whole(folder / "results.json", json.dumps(results, indent=2).encode())
    return results
