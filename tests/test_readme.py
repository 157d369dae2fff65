"""What README and guide tell people to paste must run."""

import asyncio
import re
from pathlib import Path

from banks import make_many
from factories import make_screenshot
from focusmem.bank import Bank
from focusmem.bank.embedder import QwenEmbedder
from focusmem.judges.exact_answer import is_same_answer
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.lab.world.rollout import iter_tasks
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.schemas import parse_action
from toys import make_policy

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "guide.md").read_text()


def example(first_line):
    found = re.findall(r"```python\n(.*?)```", README + GUIDE, re.DOTALL)
    [code] = [code for code in found if code.startswith(first_line)]
    return compile(code, "an example", "exec")


def test_the_example_of_the_parts_runs_as_written(capsys):
    exec(example("import torch"), {})
    assert capsys.readouterr().out.startswith("[")


class Agent:
    """Somebody's own: it looks at three pages and takes whatever it is told to do for done."""

    def __init__(self):
        self.done = []

    @property
    def is_done(self):
        return len(self.done) == 3

    def look(self):
        return make_screenshot(len(self.done)).image()

    def act(self, text):
        self.done.append(text)
        return None if self.is_done else "The page did not change."


def test_the_example_for_other_agents_runs_as_written(tmp_path, monkeypatch, capsys):
    """In a folder that holds what it names."""
    monkeypatch.chdir(tmp_path)
    policy = make_policy()
    policy.backbone.save(Path("my-policy"))
    Checkpoint.save(policy, Path("my-memory"))
    Backbone.toy(seed=3).save(Path("my-embedder"))
    embedder = QwenEmbedder.load("my-embedder")
    Bank.create("my-bank", embedder).add(make_many(2), embedder)
    agent = Agent()
    exec(example("from focusmem import Memory"), {"agent": agent})
    assert len(agent.done) == 3
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 3 * 2, "two trajectories at each of three steps"
    assert told[0].startswith("episodic trajectory-")


def test_every_file_and_room_it_names_exists():
    for path in re.findall(r"\]\(((?:docs/|RESULTS)[^)#]*)", README):
        assert (ROOT / path).exists(), path
    named = set(re.findall(r"^      (\w+)/ ", README, re.MULTILINE))
    rooms = {path.name for path in (ROOT / "src" / "focusmem").iterdir() if (path / "__init__.py").exists()}
    assert named == rooms


def test_it_is_short():
    assert len(README.splitlines()) <= 200


async def play(memory, world, task):
    """What it answers, as the README's loop goes, with a browser in place of the agent."""
    browser, episode = RasterBrowser(world), memory.begin(task)
    await browser.open(task.start_url)
    for _ in range(task.max_steps):
        screenshot = (await browser.observe()).screenshot
        text = episode.prefix(screenshot).reply()
        action = parse_action(text)
        if action.name == "stop":
            return action.arguments.answer
        episode.observe(screenshot, text, error=(await browser.perform(action)).error)
    return None


def test_the_parts_that_ship_win_as_written():
    names = {}
    exec(example("from focusmem.lab"), names)
    world, memory = World(0), names["memory"]
    tasks = iter_tasks(world, "e", "evaluation", 6, sites=memory.bank.sites())
    task = [next(tasks) for _ in range(2)][1].task
    answer = asyncio.run(play(memory, world, task))
    assert is_same_answer(answer, task.answer), "the second task of the demonstration with seed 6"
