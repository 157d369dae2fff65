import pickle
from dataclasses import replace

import pytest
import torch

from factories import make_screenshot
from focusmem.agent.prompt import PromptBuilder, RecentEvent
from focusmem.errors import ConfigError
from focusmem.lab.policy.texts import PROMPTS
from focusmem.model.backbone import Backbone
from focusmem.model.calibration import are_calibrated, calibrate, moments_of
from focusmem.model.inputs import PARTS
from focusmem.model.state import APART, PooledState
from focusmem.schemas import Instruction, Turn
from toys import decision, make_policy, three_decisions

INSTRUCTION, SCREENSHOT, TEXT = range(len(PARTS))


@pytest.fixture(scope="module")
def backbone():
    return Backbone.toy()


def read(backbone, prompt, **how):
    """A prompt as a row, with its ids."""
    tokens = backbone.tokenise(prompt, **how)
    [row] = backbone.embed([tokens])
    return row, tokens


def text_of_part(backbone, row, tokens, part):
    return backbone.text_of([token for token, own in zip(tokens.ids, row.parts_S.tolist(), strict=True) if own == part])


def built(words: str, prompts=None, *, num_recent=2):
    recent = [RecentEvent(number + 1, make_screenshot(number), "act") for number in range(num_recent)]
    return PromptBuilder(prompts)(
        instruction=words, recent=recent, screenshot=make_screenshot(99, width=96, height=64), actions_left=7
    )


@pytest.mark.parametrize("prompts", [None, PROMPTS / "agent"])
@pytest.mark.parametrize("words", ["Find {{the}} lamp.", "Trouve le café  à 5 €", "~", "价格 <|im_end|>"])
def test_every_wording_marks_the_instruction_and_nothing_else(backbone, prompts, words):
    row, tokens = read(backbone, built(words, prompts))
    assert text_of_part(backbone, row, tokens, INSTRUCTION) == words
    assert row.part_counts[INSTRUCTION] == len(words.encode())
    assert words not in text_of_part(backbone, row, tokens, TEXT)


def test_a_wording_of_ones_own_may_put_the_instruction_anywhere(backbone, tmp_path):
    for path in PROMPTS.joinpath("agent").glob("*.txt"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "task.txt").write_text("You are asked: {{task}} (Once more: {{task}}) Go on.")
    row, tokens = read(backbone, built("Find it.", tmp_path))
    assert text_of_part(backbone, row, tokens, INSTRUCTION) == "Find it.Find it."


def test_a_token_that_holds_a_character_of_the_instruction_belongs_to_it(backbone):
    """With a tokenizer that joins letters, marks do not change where text is cut."""
    from focusmem.lab.policy.policy import train_tokenizer
    from focusmem.lab.world.world import World
    from focusmem.model.chat import ChatTokenizer

    chat = ChatTokenizer(train_tokenizer(World(0), num_episodes=4), backbone.images)
    marked = chat.tokenise((Turn("user", ("Task: ", Instruction("find the price"), " now")),))
    plain = chat.tokenise((Turn("user", ("Task: find the price now",)),))
    assert marked.ids == plain.ids
    told = chat.text_of([marked.ids[place] for place in marked.instruction])
    assert "find the price" in told
    assert len(told) <= len(" find the price ")
    assert plain.instruction == ()


def test_the_mark_changes_nothing_but_the_state(backbone):
    marked = decision(3)
    plain = tuple(
        Turn(turn.role, tuple(part if not isinstance(part, str) else str(part) for part in turn.parts))
        for turn in marked
    )
    [one], [other] = (backbone.embed([backbone.tokenise(prompt, reply="x")]) for prompt in (marked, plain))
    assert torch.equal(one.embeds_SD, other.embeds_SD)
    assert torch.equal(one.positions_3S, other.positions_3S)
    assert one.part_counts[INSTRUCTION] > 0 == other.part_counts[INSTRUCTION]
    assert isinstance(pickle.loads(pickle.dumps(Instruction("a"))), Instruction), "as worker processes receive it"


@torch.no_grad()
def test_parts_are_means_of_their_own_embeddings(backbone):
    """Earlier screenshots and the reply belong to no part."""
    row, tokens = read(backbone, built("Find it."), reply='{"a": 1}')
    pool = PooledState("joined", backbone.width)
    grid = backbone.chat.token_grid(96, 64)
    [pad] = [backbone.special["<|image_pad|>"]]
    visual = [place for place, token in enumerate(tokens.ids) if token == pad]
    last = visual[-grid[0] * grid[1] :]
    text = [place for place in range(row.num_context) if place not in visual and place not in tokens.instruction]
    for part, places in ((INSTRUCTION, list(tokens.instruction)), (SCREENSHOT, last), (TEXT, text)):
        torch.testing.assert_close(pool.seen([row])[part][0], row.embeds_SD[places].mean(dim=0))
        assert row.part_counts[part] == len(places)


@torch.no_grad()
@pytest.mark.parametrize("source", APART)
def test_a_batch_is_pooled_as_one_by_one_and_the_reply_is_not_seen(source):
    policy = make_policy(state_source=source)
    prompts, _, _ = three_decisions()
    rows = policy.embed(prompts)
    together = policy.state(rows)
    assert together.shape == (3, (3 if source == "joined" else 1) * policy.backbone.width)
    torch.testing.assert_close(together, torch.cat([policy.state([row]) for row in rows]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together, policy.state(policy.embed(prompts, ["{}"] * 3)), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_calibrated_join_lays_parts_side_by_side_and_a_sum_adds_them(backbone):
    rows = backbone.embed([backbone.tokenise(decision(number, num_events=number % 3)) for number in range(12)])
    joined, summed = PooledState("joined", backbone.width), PooledState("summed", backbone.width)
    for pool in (joined, summed):
        assert not are_calibrated(pool.norms)
        calibrate(pool.norms, moments_of(pool.norms, pool.seen(rows)))
        assert not list(pool.parameters()), "training does not move them"
    parts = joined(rows).unflatten(1, (len(PARTS), -1))
    torch.testing.assert_close(parts.sum(dim=1), summed(rows))
    torch.testing.assert_close(parts.mean(dim=0), torch.zeros_like(parts[0]), atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_part_that_is_missing_adds_nothing(backbone):
    with_view = backbone.embed([backbone.tokenise(decision(number)) for number in range(6)])
    [without] = backbone.embed([backbone.tokenise((Turn("user", ("Task: ", Instruction("find it"))),))])
    pool = PooledState("joined", backbone.width)
    calibrate(pool.norms, moments_of(pool.norms, pool.seen([*with_view, without])))
    state = pool([*with_view, without]).unflatten(1, (len(PARTS), -1))
    assert not state[-1, SCREENSHOT].any()
    assert state[-1, INSTRUCTION].any()
    assert state[:-1].any(dim=-1).all()


@pytest.mark.parametrize("source", APART)
def test_a_prompt_that_marks_no_instruction_is_refused_with_the_remedy(source):
    policy = make_policy(state_source=source)
    unmarked = (Turn("user", ("Task: find it",)),)
    with pytest.raises(ConfigError, match=r"decision 2 of 2 marks no instruction.*Instruction\('Find"):
        policy.state(policy.embed([decision(0), unmarked]))
    paper = make_policy(state_source="embeddings")
    assert paper.state(paper.embed([unmarked])).shape == (1, paper.backbone.width)


def test_the_state_is_stored_with_the_memory(tmp_path):
    from focusmem.model.checkpoint import Checkpoint

    policy = make_policy()
    rows = policy.embed(three_decisions()[0])
    calibrate(policy.pool.norms, moments_of(policy.pool.norms, policy.pool.seen(rows)))
    stored = Checkpoint.save(policy, tmp_path / "memory")
    again = stored.build(Backbone.toy())
    assert torch.equal(again.state(rows), policy.state(rows))
    assert replace(stored.config, state_source="embeddings") != stored.config
