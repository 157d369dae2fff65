"""The examples of docs/extending.md run as they are written."""

import asyncio
import re
import sqlite3
import sys
from pathlib import Path

import pytest
import torch

from banks import make_many
from evaluation.browsers import FakeBrowser
from evaluation.minds import ScriptedMind, say
from factories import make_screenshot
from focusmem.agent.decision import Decision
from focusmem.agent.fronts.empty import EmptyFront
from focusmem.agent.policy_mind import PolicyMind
from focusmem.bank import Bank, Query
from focusmem.bank.embedder import QwenEmbedder
from focusmem.clients.scripted import ScriptedChat
from focusmem.errors import ConfigError, UnreadableActionError, WorldError
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.judges.base import judged
from focusmem.judges.judge_model import JudgeModel
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.config import MemoryConfig
from focusmem.model.gate import GATES, GateConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Observation, Step, Task, Turn
from judges.attempts import make_attempt

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
MAX_LINES = 30


def example(title):
    """The names that the example under a heading defines."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(code.splitlines()) <= MAX_LINES
    names = {}
    exec(compile(code, "extending.md", "exec"), names)
    return names


def decision(**changes):
    task = Task(task_id="a", instruction="Do it.", start_url="https://shop.example/", site="shop")
    return Decision(task, "an episode", Observation(make_screenshot(1), "", "", ()), **changes)


def test_a_new_judge_that_asks_a_model(tmp_path):
    kind = example("A new judge that asks a model")["PoliteJudge"]
    folder = tmp_path / "polite" / "plain"
    folder.mkdir(parents=True)
    (folder / "question.txt").write_text("Is this polite? {{answer}}")
    for said, outcome, num_unreadable in (("Yes", "success", 0), ("no", "failure", 0), ("Perhaps", "failure", 1)):
        judge = kind(JudgeModel(ScriptedChat([said]), name="my-model"), prompts=tmp_path)
        verdict = asyncio.run(judged(judge, make_attempt()))
        assert (verdict.outcome, verdict.num_unreadable) == (outcome, num_unreadable)
        assert (verdict.judge, verdict.judge_profile, verdict.cost.num_calls) == ("polite", "plain", 1)


def test_a_new_action_format():
    tap = example("A new action format")["TapFormat"]()
    now = decision()
    [turn] = tap.prompt(now)
    assert turn.parts[0] == now.seen.screenshot
    choice = tap.read("TAP 50 25", now.seen)
    assert (choice.action.name, choice.point) == ("click", (48, 16))
    assert tap.read("SAY 12 euros", now.seen).action.arguments.answer == "12 euros"
    for unreadable in ("tap", "DRAG 1 2", "TAP 500 2"):
        with pytest.raises(UnreadableActionError):
            tap.read(unreadable, now.seen)


def test_a_new_suite_with_its_judge(tmp_path):
    suite = example("A new suite with its judge")["sums"]("https://shop.example/")
    lines = {f"sums/{n}": [say("stop", answer="It is 2 I think")] for n in range(3)}
    run = SuiteRun(suite, ScriptedMind(lines), tmp_path, RunAbout(method="guess"))

    async def make_browser(task):
        return FakeBrowser()

    with run.on_record():
        asyncio.run(run.attempt(run.attempts(), make_browser))
    assert {one.episode.task.task_id: one.outcome for one in run.folder.episodes()} == {
        "sums/0": "failure",
        "sums/1": "success",
        "sums/2": "failure",
    }
    assert summarise(run.folder)["success_rate"] == pytest.approx(1 / 3)


def test_a_new_front():
    front = example("A new front")["DiaryFront"]()
    step = Step(screenshot=make_screenshot(0).ref(), url="https://shop.example/", error="x")
    mind = PolicyMind(None, front)
    shots = {make_screenshot(0).digest: make_screenshot(0)}
    prepared = mind.prepare([decision(), decision(steps=[step, step], screenshots=shots)])
    assert [fronted.turns for fronted in prepared.fronted] == [
        (),
        (Turn("user", ("Visited so far: https://shop.example/",)),),
    ]


def test_another_vector_store(tmp_path):
    embedder, items = QwenEmbedder(Backbone.toy(seed=3)), make_many(7)
    bank = Bank.create(tmp_path, embedder)
    bank.add(items, embedder)
    entries = bank.entries()
    stored = {item.trajectory.trajectory_id: item for item in items}
    vectors = embedder.embed_trajectories([stored[entry.trajectory_id] for entry in entries])
    with sqlite3.connect(tmp_path / "vectors.sqlite") as store:
        store.execute("CREATE TABLE embedder (identity TEXT)")
        store.execute("INSERT INTO embedder VALUES (?)", [embedder.identity])
        store.execute("CREATE TABLE items (entry TEXT, vector BLOB)")
        rows = [(entry.model_dump_json(), vector.tobytes()) for entry, vector in zip(entries, vectors, strict=True)]
        store.executemany("INSERT INTO items VALUES (?, ?)", rows)
    other = example("Another vector store")["SqliteBank"].open(tmp_path / "vectors.sqlite")
    query = Query.of(items[2].trajectory)
    for guarded in (None, query):
        hits = [one.search(vectors[2], guarded, 5).hits for one in (bank, other)]
        assert [hit.trajectory_id for hit in hits[0]] == [hit.trajectory_id for hit in hits[1]]
    name = entries[0].trajectory_id
    assert other.load(name).trajectory == bank.load(name).trajectory


def test_a_new_gate(tmp_path, monkeypatch):
    monkeypatch.setattr("focusmem.model.gate.GATES", dict(GATES))
    gate = example("A new gate")["CosineGate"]
    monkeypatch.setitem(GATES, "cosine", gate)
    backbone = Backbone.toy()
    memory = MemoryPolicy(backbone, MemoryConfig(gate=GateConfig(kind="cosine", hidden_width=8))).eval()
    assert isinstance(memory.gate, gate)
    Checkpoint.save(memory, tmp_path / "memory")
    loaded = Checkpoint.open(tmp_path / "memory").build(backbone)
    assert isinstance(loaded.gate, gate)
    state, blocks = torch.randn(3, memory.pool.width), torch.randn(3, 8, backbone.width)
    evidence, is_valid = torch.randn(3, backbone.width), torch.tensor([True, True, False])
    with torch.no_grad():
        trust = [one.gate(state, blocks, evidence, is_valid) for one in (memory, loaded)]
    assert torch.equal(trust[0].logits_N, trust[1].logits_N)
    assert not trust[0].keep_N[2], "padding never passes"


def test_another_host_for_the_policy():
    policy = example("Another host for the policy")["CommandPolicy"]
    shout = "import sys; print(sys.stdin.read().upper())"
    [reply] = PolicyMind(policy(sys.executable, "-c", shout), EmptyFront()).ask([decision()])
    assert "DO IT." in reply.text
    [broken] = PolicyMind(policy(sys.executable, "-c", "raise SystemExit('gone')"), EmptyFront()).ask([decision()])
    assert isinstance(broken.error, WorldError)
    assert "gone" in str(broken.error)


def test_text_hosts_refuse_latent_memory():
    policy = example("Another host for the policy")["CommandPolicy"]("true")

    class Latent:
        row = object()

    with pytest.raises(ConfigError, match="embeddings"):
        policy.reply([Latent()])
