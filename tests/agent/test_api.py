"""Memory for other people's agents gives what our own agent gets from the same parts."""

import gc

import pytest
import torch

import focusmem.agent.api
from banks import WordEmbedder, make_many, make_stored
from factories import make_screenshot
from focusmem import Memory
from focusmem.agent.bank_retriever import BankRetriever
from focusmem.agent.decision import Decision
from focusmem.agent.fronts.latent import LatentFront, MemoryUse
from focusmem.agent.local_policy import LocalPolicy
from focusmem.agent.policy_mind import PolicyMind
from focusmem.agent.prompt import PromptBuilder, RecentEvent
from focusmem.bank import Bank
from focusmem.bank.embedder import QwenEmbedder
from focusmem.errors import BackboneError, CheckpointError, ConfigError, PolicyError, RecordError, StorageError
from focusmem.evidence import Serialiser
from focusmem.lab.policy.texts import PROMPTS
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.generation import GenerationConfig
from focusmem.schemas import (
    Annotations,
    Instruction,
    Observation,
    Step,
    Task,
    Turn,
    action_to_json,
    make_action,
    parse_action,
)
from toys import make_policy

SHORT = GenerationConfig(max_new_tokens=6)
QUESTION = "Where is the thingcc made?"


class CountingEmbedder(WordEmbedder):
    num_asked = 0

    def embed_queries(self, moments):
        self.num_asked += len(moments)
        return super().embed_queries(moments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A policy, a memory of it and a bank on disk."""
    folder = tmp_path_factory.mktemp("api")
    policy = make_policy()
    policy.backbone.save(folder / "policy")
    Checkpoint.save(policy, folder / "memory")
    Bank.create(folder / "bank", WordEmbedder()).add(make_many(6), WordEmbedder())
    return folder


@pytest.fixture(scope="module")
def policy():
    return make_policy()


@pytest.fixture
def embedder():
    return CountingEmbedder()


@pytest.fixture
def memory(policy, folder, embedder):
    return make_memory(policy, folder, embedder)


def make_memory(policy, folder, embedder, **use):
    front = LatentFront(policy, Serialiser(), MemoryUse(**use))
    return Memory(front, bank=Bank.open(folder / "bank"), embedder=embedder)


def screen(number):
    return make_screenshot(300 + number)


def click(number):
    return make_action("click", description=f"link {number}")


def rows_equal(one, other):
    return torch.equal(one.embeds_SD, other.embeds_SD) and torch.equal(one.positions_3S, other.positions_3S)


def after(episode, num_steps):
    for number in range(num_steps):
        episode.observe(screen(number), click(number))
    return episode


# What it gives.


@pytest.mark.parametrize(
    ("stage", "is_dynamic", "is_gated"),
    [
        ({}, True, True),
        ({"name": "stage_a"}, False, False),
        ({"name": "stage_b", "is_dynamic": True, "is_gated": False}, True, False),
        ({"name": "stage_b", "is_dynamic": False, "is_gated": True}, False, True),
        ({"name": "stage_b", "is_dynamic": False, "is_gated": False}, False, False),
        ({"name": "gate", "is_dynamic": True}, True, True),
    ],
)
def test_parts_that_were_not_trained_do_not_act(policy, folder, tmp_path, stage, is_dynamic, is_gated):
    Checkpoint.save(policy, tmp_path / "memory", notes={"config": {"stage": stage}} if stage else None)
    use = Memory.load(folder / "policy", tmp_path / "memory").front.use
    assert (use.is_dynamic, use.is_gated) == (is_dynamic, is_gated)
    told = MemoryUse(num_episodic=1)
    assert Memory.load(folder / "policy", tmp_path / "memory", use=told).front.use == told


def test_parts_that_were_trained_may_be_switched_off(policy, folder, tmp_path):
    """As for the checkpoints whose fixed blocks the paper probes after stage B."""
    stage = {"name": "stage_b", "is_dynamic": True, "is_gated": True}
    acting = {"is_dynamic": False, "is_gated": False}
    Checkpoint.save(policy, tmp_path / "memory", notes={"config": {"stage": stage}, "acting": acting})
    use = Memory.load(folder / "policy", tmp_path / "memory").front.use
    assert (use.is_dynamic, use.is_gated) == (False, False)
    trained = Checkpoint.open(tmp_path / "memory").trained_parts()
    assert (trained.is_dynamic, trained.is_gated) == (True, True)


def test_parts_that_were_not_trained_cannot_be_switched_on(policy, folder, tmp_path):
    acting = {"is_dynamic": False, "is_gated": True}
    Checkpoint.save(policy, tmp_path / "memory", notes={"config": {"stage": {"name": "stage_a"}}, "acting": acting})
    with pytest.raises(CheckpointError, match="switches on a part that was never trained"):
        Memory.load(folder / "policy", tmp_path / "memory")


@pytest.mark.parametrize("shows", [True, False])
def test_a_memory_acts_with_the_prompts_it_was_trained_with(policy, folder, tmp_path, shows):
    """Whether they say which actions failed; a card of the laboratory says nothing, and its prompts do."""
    Checkpoint.save(policy, tmp_path / "memory", notes={} if shows else {"shows_errors": False})
    memory = Memory.load(folder / "policy", tmp_path / "memory")
    episode = memory.begin(QUESTION)
    episode.observe(screen(0), click(0), error="There is no such link.")
    prompt = episode.prefix(screen(1)).prompt
    told = [part for turn in prompt for part in turn.parts if isinstance(part, str) and "no such link" in part]
    assert bool(told) == shows
    assert memory.front.serialise.shows_errors == shows


@pytest.mark.parametrize(
    ("notes", "field"),
    [
        ({"acting": []}, "notes.acting "),
        ({"acting": {"is_gated": "no"}}, "notes.acting.is_gated "),
        ({"config": []}, "notes.config "),
        ({"config": None}, "notes.config "),
        ({"config": {"stage": "stage_a"}}, "notes.config.stage "),
        ({"config": {"stage": {"name": "stage_b", "is_gated": "no"}}}, "notes.config.stage.is_gated "),
    ],
)
def test_a_card_that_cannot_tell_what_was_trained_is_refused(policy, folder, tmp_path, notes, field):
    Checkpoint.save(policy, tmp_path / "memory", notes=notes)
    with pytest.raises(CheckpointError, match=f"is damaged: {field}"):
        Memory.load(folder / "policy", tmp_path / "memory")
    assert Memory.load(folder / "policy", tmp_path / "memory", use=MemoryUse()).front.use == MemoryUse()


def test_it_speaks_in_other_words_where_it_is_told_to(folder):
    memory = Memory.load(folder / "policy", folder / "memory", prompts=PROMPTS)
    [ours, theirs] = [
        after(one.begin(QUESTION), 6).prefix(screen(9))
        for one in (Memory.load(folder / "policy", folder / "memory"), memory)
    ]
    assert (
        ours.prompt
        != theirs.prompt
        == PromptBuilder(PROMPTS / "agent")(
            instruction=QUESTION,
            recent=[RecentEvent(n + 1, screen(n), action_to_json(click(n))) for n in range(1, 6)],
            screenshot=screen(9),
            actions_left=9,
        )
    )
    assert not torch.equal(ours.embeddings_PD, theirs.embeddings_PD)


def test_it_is_what_our_own_agent_gets(policy, folder, embedder):
    memory = Memory.load(folder / "policy", folder / "memory", bank=folder / "bank", embedder=embedder)
    episode = after(memory.begin(QUESTION), 5)
    prefix = episode.prefix(screen(9))

    local, retriever = LocalPolicy(policy.backbone, SHORT), BankRetriever(Bank.open(folder / "bank"), embedder)
    mind = PolicyMind(local, LatentFront(policy, Serialiser()), retriever=retriever)
    steps = [Step(screenshot=screen(number).ref(), action=click(number)) for number in range(5)]
    screenshots = {screen(number).digest: screen(number) for number in range(5)}
    seen = Observation(screen(9), "", "", ())
    decision = Decision(episode.task, "own", seen, steps, screenshots)
    [own] = mind.prepare([decision]).fronted
    recent = [RecentEvent(number + 1, screen(number), action_to_json(click(number))) for number in range(5)]
    prompt = PromptBuilder()(instruction=QUESTION, recent=recent, screenshot=screen(9), actions_left=10)

    assert prefix.prompt == own.prompt == prompt
    assert rows_equal(prefix.row, own.row)
    assert [item.role for item in prefix.items] == ["episodic"] * 3 + ["working"]
    assert prefix.items == own.offered
    assert prefix.reply(SHORT) == mind.ask([decision])[0].text


def test_the_vectors_in_front_of_the_plain_prompt_are_the_whole_input(policy, folder, embedder):
    memory = make_memory(policy, folder, embedder, is_gated=False)
    prefix = after(memory.begin(QUESTION), 8).prefix(screen(9))
    assert [(one.role, one.rank) for one in prefix.items] == [
        ("episodic", 0), ("episodic", 1), ("episodic", 2), ("working", 0), ("working", 1),
    ]  # fmt: skip
    num = 5 * policy.config.compressor.num_tokens
    assert prefix.embeddings_PD.shape == (num, policy.backbone.width)
    [plain] = policy.embed([prefix.prompt])
    assert torch.equal(torch.cat([prefix.embeddings_PD, plain.embeds_SD]), prefix.row.embeds_SD)
    assert torch.equal(prefix.row.positions_3S[:, :num], torch.arange(num).expand(3, -1))
    assert torch.equal(prefix.row.positions_3S[:, num:], plain.positions_3S + num)


def test_every_item_says_where_it_comes_from_and_what_became_of_it(memory):
    prefix = after(memory.begin(QUESTION), 4).prefix(screen(9))
    *found, expired = prefix.items
    assert found[0].trajectory_id == "trajectory-1", "the same kind of question about another thing"
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert all(one.trust_logit is not None for one in prefix.items)
    assert (expired.role, expired.num_steps, expired.score, expired.trajectory_id) == ("working", 1, None, None)
    accepted = sum(one.num_tokens for one in prefix.items if one.is_accepted)
    assert len(prefix.embeddings_PD) == accepted


def test_a_closed_gate_leaves_the_plain_prompt(folder, embedder):
    policy = make_policy()
    with torch.no_grad():
        policy.gate.out.bias.fill_(-20.0)
    prefix = make_memory(policy, folder, embedder).begin(QUESTION).prefix(screen(0))
    assert prefix.embeddings_PD.shape == (0, policy.backbone.width)
    assert rows_equal(prefix.row, policy.embed([prefix.prompt])[0])
    assert [one.is_accepted for one in prefix.items] == [False] * 3


def test_several_episodes_reply_together_as_each_alone(memory):
    prefixes = [after(memory.begin(f"{QUESTION} {number}"), number).prefix(screen(9)) for number in (0, 5)]
    assert memory.reply(prefixes, SHORT) == [prefix.reply(SHORT) for prefix in prefixes]
    assert memory.reply([]) == []


def test_sampling_takes_a_seed(memory):
    prefix = memory.begin(QUESTION).prefix(screen(0))
    warm = GenerationConfig(max_new_tokens=6, temperature=1.0)
    assert prefix.reply(warm, seed=3) == prefix.reply(warm, seed=3)


def test_another_prompt_is_read_for_instead_of_ours(memory):
    own = (Turn("user", ("Do this: ", Instruction(QUESTION))), Turn("user", (screen(0), "What would you do?")))
    episode = memory.begin(QUESTION)
    ours, others = episode.prefix(screen(0)), episode.prefix(screen(0), prompt=own)
    assert others.prompt == own
    assert [one.trust_logit for one in ours.items] != [one.trust_logit for one in others.items]
    with pytest.raises(ConfigError, match="marks no instruction"):
        episode.prefix(screen(0), prompt=(Turn("user", (screen(0), f"Do this: {QUESTION}")),))


def test_what_is_not_shown_is_remembered(policy, folder, embedder):
    for num_recent, num_remembered in ((0, 2), (1, 1), (3, 0)):
        memory = make_memory(policy, folder, embedder, num_recent=num_recent, num_episodic=0)
        prefix = after(memory.begin(QUESTION), 2).prefix(screen(9))
        assert sum(one.num_steps for one in prefix.items) == num_remembered
        assert str(prefix.prompt).count("Step ") == 2 - num_remembered
    memory = make_memory(policy, folder, embedder, num_recent=4)
    with pytest.raises(ConfigError, match="num_recent is 4"):
        memory.begin(QUESTION).prefix(screen(0))
    assert memory.begin(QUESTION).prefix(screen(0), prompt=(Turn("user", (Instruction("Find it."),)),)).items


# Finding.


def test_an_unchanged_moment_is_embedded_once(memory, embedder):
    episode = memory.begin(QUESTION)
    first, again = episode.prefix(screen(0)), episode.prefix(screen(0).png)
    assert rows_equal(first.row, again.row)
    memory.begin(QUESTION).prefix(screen(0).image())
    assert embedder.num_asked == 1
    episode.prefix(screen(1))
    assert embedder.num_asked == 2
    episode.observe(screen(0), click(0))
    episode.prefix(screen(1))
    assert embedder.num_asked == 3


def test_what_was_found_is_read_from_disk_once_for_an_episode(policy, tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add(make_many(2), embedder)
    episode = make_memory(policy, tmp_path, embedder).begin(QUESTION)
    first = episode.prefix(screen(0))
    for path in bank.folder.path.rglob("*.png"):
        path.unlink()
    assert rows_equal(episode.prefix(screen(0)).row, first.row)
    with pytest.raises(StorageError):
        make_memory(policy, tmp_path, embedder).begin(QUESTION).prefix(screen(0))


def test_what_could_give_the_task_away_is_left_out_unless_told(memory):
    names = [one.trajectory_id for one in memory.begin("Anything", task_id="shop/1").prefix(screen(0)).items]
    assert "trajectory-1" not in names
    about = Annotations(instance="thingca")
    annotated = memory.begin(Task(task_id="x", instruction="y", start_url="", site="", annotations=about))
    assert annotated.prefix(screen(0)).removed.ids("instance") == ("trajectory-2",)
    same = memory.begin("Where is the thingba made?").prefix(screen(0))
    assert same.removed.ids("template") == ("trajectory-1",)
    free = memory.begin("Where is the thingba made?", is_guarded=False).prefix(screen(0))
    assert free.items[0].trajectory_id == "trajectory-1"


def test_only_trajectories_that_ended_so_are_searched(policy, folder, embedder):
    bank = Bank.open(folder / "bank")
    found = {}
    for outcomes in (None, ("success",), ("error",)):
        memory = Memory(LatentFront(policy, Serialiser()), bank=bank, embedder=embedder, outcomes=outcomes)
        items = memory.begin(QUESTION, is_guarded=False).prefix(make_screenshot(9)).items
        found[outcomes] = {bank.load(item.trajectory_id).trajectory.outcome for item in items}
    assert found[None]
    assert found["success",] <= {"success"}
    assert found["error",] <= {"error"}


def test_only_trusted_sources_are_searched_and_items_name_theirs(policy, folder, tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add([make_stored(number, source=("ours", "theirs")[number % 2]) for number in range(6)], embedder)
    parts = {"policy": folder / "policy", "checkpoint": folder / "memory", "bank": tmp_path / "bank"}
    with pytest.raises(ConfigError, match="focusmem bank trust"):
        Memory.load(**parts, embedder=embedder, only_trusted=True)
    bank.trust(["ours"])
    for only_trusted, sources in ((True, {"ours"}), (False, {"ours", "theirs"})):
        memory = Memory(
            LatentFront(policy, Serialiser(), MemoryUse(num_episodic=6)),
            bank=bank,
            embedder=embedder,
            only_trusted=only_trusted,
        )
        episode = after(memory.begin(QUESTION, is_guarded=False), 5)
        items = episode.prefix(screen(9)).items
        assert {item.source for item in items if item.role == "episodic"} == sources
        assert {item.source for item in items if item.role == "working"} == {None}


def test_without_a_bank_there_is_the_episode_itself(policy, folder):
    memory = Memory.load(Backbone.load(folder / "policy", dtype=torch.float32), folder / "memory")
    episode = memory.begin("Find the lamp.")
    first = episode.prefix(screen(0))
    assert (first.items, first.removed, len(first.embeddings_PD)) == ((), None, 0)
    assert isinstance(first.reply(SHORT), str)
    assert [one.role for one in after(episode, 4).prefix(screen(9)).items] == ["working"]


def test_a_bank_may_be_empty(policy, tmp_path, embedder):
    Bank.create(tmp_path / "bank", embedder)
    assert make_memory(policy, tmp_path, embedder).begin(QUESTION).prefix(screen(0)).items == ()


def test_what_was_observed_can_be_remembered_in_another_episode(policy, tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    memory = make_memory(policy, tmp_path, embedder)
    done = after(memory.begin("How much is the red lamp?", task_id="red"), 3).trajectory("run-1", outcome="success")
    assert bank.add([done], embedder).added == ("run-1",)
    [item] = memory.begin("How heavy is the red lamp?").prefix(screen(0)).items
    assert (item.trajectory_id, item.num_steps) == ("run-1", 3)
    closed = after(memory.begin("x"), 1).trajectory("run-2", closing=screen(8))
    assert closed.trajectory.closing.screenshot == screen(8).ref()
    assert set(closed.screenshots) == {screen(0).digest, screen(8).digest}
    with pytest.raises(ConfigError, match="Nothing has been observed"):
        memory.begin("x").trajectory("run-2")
    with pytest.raises(ConfigError, match="This trajectory cannot be kept: trajectory_id"):
        after(memory.begin("x"), 1).trajectory("../run-2")


# Telling it what was done.


def test_an_action_may_come_in_any_form(memory):
    episode = memory.begin(QUESTION)
    text = f"I will do this: {action_to_json(click(1))}"
    steps = [episode.observe(screen(0), form) for form in (click(1), click(1).model_dump(), text)]
    assert [step.action for step in steps] == [click(1)] * 3
    assert steps[2].reply == text


def test_plain_words_are_kept_as_words(memory):
    episode = memory.begin(QUESTION)
    step = episode.observe(screen(0), "tap the third tile")
    assert (step.action, step.error) == (None, "In words: tap the third tile")
    failed = episode.observe(screen(1), "swipe", error="Nothing moved.")
    assert failed.error == "In words: swipe This did not work: Nothing moved."
    shown = str(episode.prefix(screen(2)).prompt)
    assert "Step 1: tap the third tile\\n" in shown
    assert "Step 2: swipe This did not work: Nothing moved.\\n" in shown


def test_a_reply_that_cannot_be_read_is_kept_as_our_own_agent_does(memory):
    episode = memory.begin(QUESTION)
    for reply in ("I would rather not.", '{"name": "fly", "arguments": {}}'):
        with pytest.raises(PolicyError) as caught:
            parse_action(reply)
        step = episode.observe(screen(0), reply, error=str(caught.value))
        assert (step.action, step.reply, step.error) == (None, reply, str(caught.value))
    assert episode.observe(screen(0), '{"name": "fly", "arguments": {}}').error == str(caught.value)


def test_a_policy_may_write_anything(memory):
    assert memory.begin(QUESTION).observe(screen(0), "a\0b").reply == "a\ufffdb"


@pytest.mark.parametrize("action", [{"name": "fly"}, {"name": "click"}, {"name": {1, 2}}, {}])
def test_a_dictionary_that_is_no_action_is_the_callers(memory, action):
    with pytest.raises(ConfigError, match="is not an action"):
        memory.begin(QUESTION).observe(screen(0), action)


def test_what_cannot_be_kept_is_said(memory):
    with pytest.raises(ConfigError, match="This step cannot be kept: reply is too long"):
        memory.begin(QUESTION).observe(screen(0), 150_000 * "x")
    with pytest.raises(ConfigError, match="This task cannot be kept: instruction"):
        memory.begin(" ")
    with pytest.raises(RecordError, match="not a PNG"):
        memory.begin(QUESTION).prefix(b"JFIF")
    with pytest.raises(RecordError, match="PIL image, not from str"):
        memory.begin(QUESTION).prefix("screen.png")


# Loading.


def test_what_does_not_belong_together_is_refused(folder, tmp_path, embedder):
    bank, checkpoint, policy = folder / "bank", folder / "memory", folder / "policy"
    with pytest.raises(StorageError, match="holds no checkpoint"):
        Memory.load(policy, tmp_path / "nothing")
    with pytest.raises(StorageError, match="no bank at"):
        Memory.load(policy, checkpoint, bank=tmp_path / "nothing", embedder=embedder)
    with pytest.raises(BackboneError, match="not a folder"):
        Memory.load(tmp_path / "nothing", checkpoint)
    with pytest.raises(CheckpointError, match="another architecture"):
        Memory.load(Backbone.toy(width=96), checkpoint)
    with pytest.raises(CheckpointError, match="other weights"):
        Memory.load(Backbone.toy(seed=5), checkpoint)
    with pytest.raises(StorageError, match="another embedder"):
        Memory.load(policy, checkpoint, bank=bank, embedder=WordEmbedder("words-2"))
    with pytest.raises(ConfigError, match="give the embedder as well"):
        Memory.load(policy, checkpoint, bank=bank)
    with pytest.raises(ConfigError, match="without a bank"):
        Memory.load(policy, checkpoint, embedder=embedder)


def test_the_package_hands_it_out():
    assert Memory is focusmem.agent.api.Memory
    with pytest.raises(AttributeError, match="Memories"):
        _ = focusmem.Memories


def test_a_chunk_that_grew_equals_the_same_chunk_read_at_once(policy, folder, embedder):
    stepwise, at_once = (make_memory(policy, folder, embedder) for _ in range(2))
    growing = stepwise.begin(QUESTION)
    for number in range(7):
        growing.observe(screen(number), click(number))
        grown = growing.prefix(screen(99))
    whole = at_once.begin(QUESTION)
    for number in range(7):
        whole.observe(screen(number), click(number))
    torch.testing.assert_close(grown.row.embeds_SD, whole.prefix(screen(99)).row.embeds_SD, rtol=1e-4, atol=1e-5)
    assert (stepwise.front.cache.counts.num_extended, at_once.front.cache.counts.num_extended) == (3, 0)


def test_an_episode_that_is_dropped_frees_its_chunk(memory):
    episode = memory.begin(QUESTION)
    for number in range(5):
        episode.observe(screen(number), click(number))
    episode.prefix(screen(99))
    assert memory.front.cache.num_growing_bytes > 0
    del episode
    gc.collect()
    assert memory.front.cache.num_growing_bytes == 0


def test_each_screenshot_is_looked_at_once_by_policy_encoder_and_embedder(tmp_path):
    policy, looks = make_policy(), []
    policy.backbone.model.model.visual.register_forward_hook(
        lambda module, inputs, kwargs, out: looks.append(len(kwargs["grid_thw"])), with_kwargs=True
    )
    embedder, stored = QwenEmbedder(policy.backbone), make_many(4)
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add(stored, embedder)
    memory = Memory(LatentFront(policy, Serialiser()), bank=bank, embedder=embedder)
    episode = memory.begin(QUESTION)
    for number in range(8):
        memory.reply([episode.prefix(screen(number))], SHORT)
        episode.observe(screen(number), click(number))
    distinct = {digest for one in stored for digest in one.screenshots} | set(episode.screenshots)
    assert sum(looks) == len(distinct)


def test_an_embedder_from_the_policys_own_weights_shares_its_tower(folder):
    Bank.create(folder / "own", QwenEmbedder.load(folder / "policy"))
    loaded = Memory.load(folder / "policy", folder / "memory", bank=folder / "own", embedder=folder / "policy")
    embedder = loaded.mind.retriever.embedder.backbone
    assert embedder.pictures is loaded.policy.backbone.pictures
    assert embedder.model.model.visual is loaded.policy.backbone.model.model.visual
