import copy
import json
import random
import signal
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch

from factories import make_screenshot
from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.memory import AgentMemory, MemoryUse
from focusmem.bank import Query
from focusmem.bank.embedder import QwenEmbedder
from focusmem.errors import ConfigError, WorldError
from focusmem.evaluation.run_store import run_name
from focusmem.files import is_safe_name
from focusmem.lab.evaluate import EvaluateConfig, Evaluation, evaluate, summarise
from focusmem.lab.memory.embedder import READING
from focusmem.lab.memory.recall import LabBank, LabRecall
from focusmem.lab.minds import Asking, find
from focusmem.lab.policy.corpus import Corpus
from focusmem.lab.policy.policy import load_policy, new_policy, train_tokenizer
from focusmem.lab.policy.texts import Texts
from focusmem.lab.world.answers import experience
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.lab.world.rollout import iter_tasks, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import make_task, site_names, task_of
from focusmem.lab.world.world import World
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Episode, Observation, Screenshot, Step, action_to_json, make_action, parse_record
from focusmem.schemas.trajectory_folder import check_trajectory, load_trajectory


def load_episode(folder, task_id):
    return load_trajectory(folder / "episodes" / task_id / "trajectory").trajectory


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    text = {"num_hidden_layers": 1, "intermediate_size": 64}
    vision = {"depth": 3, "intermediate_size": 32, "deepstack_visual_indexes": [0, 1]}
    return new_policy(train_tokenizer(World(0), num_episodes=30), text_config=text, vision_config=vision)


def small(**changes) -> EvaluateConfig:
    return EvaluateConfig(**{"num_tasks": 3, "batch_size": 2, "max_new_tokens": 4} | changes)


@pytest.mark.parametrize("memory", ["none", "notes", "replay"])
def test_an_untrained_policy_writes_garbage_and_the_run_tells(policy, tmp_path, memory):
    results = evaluate(policy, small(memory=memory, num_tasks=2), tmp_path)
    assert results["success_rate"] == 0.0
    assert results["unreadable_rate"] == 1.0
    assert results["hit_max_rate"] == 1.0
    assert results["mean_steps"] == 15
    assert results["num_errors"] == 0


class Scripted:
    """Stands for the policy's replies: the expert's actions as JSON."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.plans: dict[str, list[str]] = {}

    def __call__(self, prompts, fronts):
        world = self.evaluation.world
        replies = []
        for prompt in prompts:
            text = "".join(part for turn in prompt for part in turn.parts if isinstance(part, str))
            task = next(task for task in self.tasks if task.task.instruction in text)
            rollout = roll_out(world, task, Solver.expert(world, task))
            number = 15 - int(text.split("Actions left: ")[1].split("One")[0].split("Page")[0])
            replies.append(action_to_json(rollout.steps[number].action))
        return replies


def run_scripted(policy, config, folder, *, stop_after=None):
    from focusmem.lab.world.rollout import iter_tasks

    evaluation = Evaluation(policy, config, folder)
    scripted = Scripted(evaluation)
    drawn = iter_tasks(evaluation.world, "e", "evaluation", config.seed)
    scripted.tasks = [next(drawn) for _ in range(config.num_tasks)]
    evaluation.mind.answer = scripted
    if stop_after is not None:
        save, num = evaluation.store.save, [0]

        def counted(*arguments, **settings):
            num[0] += 1
            if num[0] > stop_after:
                signal.raise_signal(signal.SIGINT)
            else:
                save(*arguments, **settings)

        evaluation.store.save = counted
    evaluation.run()
    return summarise(folder)


def test_a_policy_that_acts_like_the_expert_wins_and_leaves_whole_trajectories(policy, tmp_path):
    results = run_scripted(policy, small(num_tasks=4), tmp_path)
    assert results["success_rate"] == 1.0
    assert results["num_tasks"] == 4
    assert json.loads((tmp_path / "results.json").read_text()) == results
    for folder in (tmp_path / "episodes").iterdir():
        assert check_trajectory(folder / "trajectory") == []
        assert load_episode(tmp_path, folder.name).outcome == "success"


def test_stopped_and_gone_on_with_gives_the_same_table(policy, tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            run_scripted(policy, small(num_tasks=4), tmp_path / "cut", stop_after=3)
    finally:
        signal.signal(signal.SIGINT, before)
    partial = summarise(tmp_path / "cut")
    assert (partial["num_tasks"], partial["num_missing"]) == (3, 1)
    resumed = run_scripted(policy, small(num_tasks=4), tmp_path / "cut")
    whole = run_scripted(policy, small(num_tasks=4), tmp_path / "whole")
    for results in (resumed, whole):
        del results["mean_step_s"], results["mean_task_s"]
    assert resumed == whole


def test_a_folder_of_another_run_is_not_mixed_up(policy, tmp_path):
    run_scripted(policy, small(num_tasks=1), tmp_path)
    with pytest.raises(ConfigError, match="other settings"):
        run_scripted(policy, small(num_tasks=1, seed=5), tmp_path)


def test_a_run_of_earlier_times_lacks_settings_and_can_be_gone_on_with(policy, tmp_path):
    run_scripted(policy, small(num_tasks=1), tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["episode_s"]
    path.write_text(json.dumps(values))
    assert run_scripted(policy, small(num_tasks=1), tmp_path)["num_tasks"] == 1
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"


def test_the_demonstration_is_of_the_same_site_and_tells_what_is_needed(policy, tmp_path):
    from focusmem.lab.world.rollout import iter_tasks

    evaluation = Evaluation(policy, small(memory="replay"), tmp_path)
    drawn = iter_tasks(evaluation.world, "e", "evaluation", 1)
    shares = []
    for _ in range(12):
        task = next(drawn)
        shown = evaluation.mind.demonstration(task)
        assert shown.task.site_id == task.site_id
        assert shown.task.task.annotations.template != task.task.annotations.template
        expert = roll_out(evaluation.world, task, Solver.expert(evaluation.world, task))
        needed = set(experience(evaluation.world, expert.steps))
        shares.append(len(needed & set(experience(evaluation.world, shown.steps))) / len(needed))
    assert sum(shares) / len(shares) > 0.6


def test_history_comes_back_raw_in_front(policy, tmp_path):
    config = small(num_tasks=1, shows_history=True)
    evaluation = Evaluation(policy, config, tmp_path)
    lengths = []
    plain = evaluation.mind.asking.prompt

    def counted(episode, screenshot):
        prompt = plain(episode, screenshot)
        pictures = sum(isinstance(part, Screenshot) for turn in prompt for part in turn.parts)
        lengths.append((len(episode.steps), pictures))
        return prompt

    evaluation.mind.asking.prompt = counted
    evaluation.mind.answer = lambda prompts, fronts: ['{"name": "wait", "arguments": {}}'] * len(prompts)
    evaluation.run()
    assert all(pictures == steps + 1 for steps, pictures in lengths), "every event is in view, expired or not"


@pytest.mark.parametrize(
    "values",
    [
        {"memory": "dreams"},
        {"browser": "lynx"},
        {"num_tasks": 0},
        {"num_found": -1},
        {"seed": -1},
        {"episode_s": 0.0},
        {"episode_s": float("nan")},
        {"sites": ()},
        {"sites": ("e-0", "p-3")},
        {"sites": ("e-60",)},
        {"sites": ("amazon",)},
    ],
)
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        EvaluateConfig(**values)


@pytest.mark.parametrize(
    ("device", "told"),
    [("tpu", "use cpu or cuda"), ("", "use cpu or cuda"), ("mps", "use cpu or cuda"), ("cuda:99", "GPU here")],
)
def test_a_device_that_cannot_be_is_told_in_a_line(tmp_path, device, told):
    with pytest.raises(ConfigError, match=f"device is '{device}'.*{told}"):
        load_policy(tmp_path, device)


def test_no_site_is_not_every_site():
    with pytest.raises(ConfigError, match="no site"):
        next(iter_tasks(World(0), "e", "evaluation", 0, sites=()))


def test_a_run_is_called_as_its_folder_or_nearly(policy, tmp_path, monkeypatch):
    assert run_name(Path("runs/full-0")) == "full-0"
    folder = tmp_path / "my [first] run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    run_scripted(policy, small(num_tasks=1), Path())
    told = json.loads((folder / "run.json").read_text())
    assert told["run_id"] == run_name(folder) == run_name(Path())
    assert told["run_id"].startswith("my-first-run-")
    assert told["command"] == [], "it was no command"
    assert is_safe_name(run_name(Path("/")))


def test_a_browser_that_fails_is_an_error_of_its_episode_alone(policy, tmp_path, monkeypatch):
    """The episode counts as an error, neither won nor lost, and the others are not touched."""
    plain, calls = RasterBrowser.observe, []

    async def failing(self):
        calls.append(self)
        if self is calls[0] and calls.count(self) == 3:
            raise WorldError("The page has died.")
        return await plain(self)

    monkeypatch.setattr(RasterBrowser, "observe", failing)
    results = run_scripted(policy, small(num_tasks=3), tmp_path)
    assert (results["num_tasks"], results["num_errors"]) == (2, 1)
    assert results["success_rate"] == 1.0
    errors = [json.loads(path.read_text()).get("error") for path in tmp_path.rglob("episode.json")]
    assert sorted(map(str, errors)) == ["None", "None", "The page has died."]


@pytest.mark.browser
def test_the_same_episodes_in_chromium(policy, tmp_path):
    config = small(num_tasks=3, browser="chromium")
    assert run_scripted(policy, config, tmp_path / "chromium")["success_rate"] == 1.0
    run_scripted(policy, small(num_tasks=3), tmp_path / "raster")
    for folder in (tmp_path / "raster" / "episodes").iterdir():
        ours, theirs = (load_episode(tmp_path / kind, folder.name) for kind in ("raster", "chromium"))
        assert [(step.action, step.click_point, step.error, step.url) for step in ours.steps] == [
            (step.action, step.click_point, step.error, step.url) for step in theirs.steps
        ]


@pytest.fixture(scope="module")
def recall(policy):
    """An untrained embedder over a small bank: what it finds is alike in nothing, but it is found."""
    return LabRecall.build(LabBank(World(0), "e", num_sites=4), QwenEmbedder(policy, READING))


def test_what_is_retrieved_stands_raw_in_front(policy, recall, tmp_path):
    config = small(memory="retrieved", num_tasks=1, num_found=2)
    evaluation = Evaluation(policy, config, tmp_path, recall=recall)
    fronts = []

    def asked(prompts, own):
        fronts.append(own)
        return ['{"name": "wait", "arguments": {}}'] * len(prompts)

    evaluation.mind.answer = asked
    evaluation.run()
    results = summarise(tmp_path)
    assert all(len(own) == 1 for own in fronts)
    assert results["mean_memory_tokens"] == pytest.approx(sum(own[0].length for own in fronts) / len(fronts))
    assert results["mean_memory_tokens"] > 1000, "two whole trajectories"
    for note in notes_of(tmp_path):
        assert [item.rank for item in note.offered] == [0, 1]
        assert sum(item.num_tokens for item in note.offered) == note.num_memory_tokens
        assert note.offered[0].score >= note.offered[1].score


@pytest.mark.parametrize("memory", ["notes", "replay"])
def test_which_demonstration_was_shown_is_on_record(policy, tmp_path, memory):
    evaluation = Evaluation(policy, small(memory=memory, num_tasks=1), tmp_path)
    evaluation.mind.answer = lambda prompts, fronts: [action_to_json(make_action("wait"))] * len(prompts)
    evaluation.run()
    shown = evaluation.mind.demonstration(evaluation.tasks()[0])
    for note in notes_of(tmp_path):
        [item] = note.offered
        assert (item.trajectory_id, item.num_steps) == (shown.task.task.task_id, len(shown.steps))
        assert item.is_accepted
        assert item.score is None, "nobody searched for it"
        assert item.num_tokens == note.num_memory_tokens > 0


def notes_of(folder):
    [path] = folder.rglob("episode.json")
    return parse_record(Episode, path.read_bytes(), str(path)).notes


@pytest.mark.parametrize("is_gated", [False, True])
def test_latent_memory_offers_blocks_at_every_step(policy, recall, tmp_path, is_gated):
    config = MemoryConfig(
        lora=LoraConfig(rank=2), compressor=CompressorConfig(num_tokens=4, num_heads=2, num_refinements=1)
    )
    memory = AgentMemory(
        MemoryPolicy(policy, config).eval(), Texts.load().serialise, MemoryUse(is_gated=is_gated, is_dynamic=is_gated)
    )
    results = evaluate(policy, small(memory="latent", name="toy", num_tasks=1), tmp_path, memory=memory, recall=recall)
    assert results["memory"] == "toy"
    assert results["accepted_rate"] == 1.0, "a fresh gate is open"
    # Three found at each of fifteen steps, and a chunk for every four expired: none for four steps, then 1, 2, 3.
    num_blocks = 15 * 3 + 4 * 1 + 4 * 2 + 3 * 3
    assert results["mean_memory_tokens"] * 15 == pytest.approx(4 * num_blocks)


def test_memory_that_is_missing_is_named(policy, tmp_path):
    with pytest.raises(ConfigError, match="embedder"):
        evaluate(policy, small(memory="retrieved"), tmp_path)
    with pytest.raises(ConfigError, match="checkpoint"):
        evaluate(policy, small(memory="latent"), tmp_path, recall=object())


def test_a_run_keeps_what_memory_offered_at_every_step(policy, recall, tmp_path):
    config = MemoryConfig(
        lora=LoraConfig(rank=2), compressor=CompressorConfig(num_tokens=4, num_heads=2, num_refinements=1)
    )
    memory = AgentMemory(MemoryPolicy(policy, config).eval(), Texts.load().serialise)
    evaluate(policy, small(memory="latent", num_tasks=1), tmp_path, memory=memory, recall=recall)
    [path] = tmp_path.rglob("episode.json")
    episode = parse_record(Episode, path.read_bytes(), str(path))
    steps = load_trajectory(path.parent / "trajectory").trajectory.steps
    assert len(episode.notes) == len(steps) == 15
    for note in episode.notes:
        found = [item for item in note.offered if item.role == "episodic"]
        assert [item.rank for item in found] == [0, 1, 2]
        assert all(0 < item.trust < 1 and -1 <= item.score <= 1 for item in found)
        for item in found:
            assert load_trajectory(tmp_path / "recalled" / item.trajectory_id).trajectory.trajectory_id
        assert note.num_memory_tokens == 4 * sum(item.is_accepted for item in note.offered)
        assert set(note.seconds) == {"observe", "retrieve", "remember", "reply", "act"}
        assert any("Actions left" in turn for turn in note.prompt)
    assert any(note.is_repeat for note in episode.notes) == any(
        one.reply == other.reply and one.screenshot == other.screenshot for one, other in pairwise(steps)
    )


def test_what_the_leakage_guard_leaves_out_is_told_by_key(recall):
    known = recall.bank.rollouts[0].task.task
    now = Observation(make_screenshot(1), known.start_url, "", ())
    [search] = find(recall, [(LiveEpisode(known), now)], 3)
    matches = recall.columns.matches(recall.guard.keys(Query.of(known)))
    assert search.num_removed == {key: int(flags.sum()) for key, flags in matches.items() if flags.any()}
    assert search.num_removed["task"] == 1, "it is in the bank itself"


def test_another_policys_run_is_not_taken_for_ones_own(policy, tmp_path):
    evaluate(policy, small(num_tasks=1), tmp_path)
    other = copy.deepcopy(policy)
    with torch.no_grad():
        other.language_model.norm.weight.mul_(2)
    with pytest.raises(ConfigError, match="other settings"):
        evaluate(other, small(num_tasks=1), tmp_path)


def test_what_a_demonstration_shows_was_not_asked(policy, tmp_path):
    evaluation = Evaluation(policy, small(memory="replay"), tmp_path)
    for task in islice(iter_tasks(evaluation.world, "e", "evaluation", 0), 60):
        shown = evaluation.mind.demonstration(task).task
        assert shown.fact != task.fact or not shown.entries or not set(shown.entries) & set(task.entries)
        assert shown.task.annotations.instance != task.task.annotations.instance


def test_what_a_list_shows_first_was_not_asked_either(policy, tmp_path):
    """Of all evaluation tasks whose answer is an entry of a list: neither the same question nor the same answer."""
    evaluation = Evaluation(policy, small(memory="replay"), tmp_path)
    world = evaluation.world
    known = task_of(world, "e-2.extreme.evaluation.398395")
    markets = [name for name in site_names("e") if world.site(name).family == "market"]
    others = [make_task(world, name, "extreme", "evaluation", number) for name in markets[:10] for number in range(4)]
    for task in [known, *others]:
        shown = evaluation.mind.demonstration(task).task
        assert shown.task.annotations.instance != task.task.annotations.instance
        assert shown.kind != "extreme" or shown.task.answer != task.task.answer


@pytest.mark.parametrize("slips", [None, random.Random(1)])
def test_what_is_asked_when_acting_is_what_was_learnt(policy, slips):
    """Token for token and picture for picture, also after something went wrong."""
    world = World(0)
    corpus = Corpus(world, policy.chat, picture=lambda step: screenshot_of(world, step))
    for task in islice(iter_tasks(world, "v", "memory", 2), 4):
        rollout = roll_out(world, task, Solver.expert(world, task), slips=slips)
        episode = LiveEpisode(task.task)
        for at, step in enumerate(rollout.steps):
            screenshot = screenshot_of(world, step)
            assert Asking().prompt(episode, screenshot) == corpus.prompt_at(task, rollout.steps, at)
            episode.screenshots[screenshot.digest] = screenshot
            episode.steps.append(Step(screenshot=screenshot.ref(), action=step.action, error=step.error))
