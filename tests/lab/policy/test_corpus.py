import random

import pytest
import torch

from focusmem.agent.prompt import NUM_RECENT
from focusmem.errors import ConfigError
from focusmem.lab.policy.corpus import LEARNT, Corpus, Mix
from focusmem.lab.policy.policy import IMAGES, train_tokenizer
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.world import World
from focusmem.model.chat import ChatTokenizer
from focusmem.schemas import action_to_json, parse_action

KINDS = ("transcription", "line", "answer", "comparison", "search", "episode", "decision", "question")


@pytest.fixture(scope="module")
def corpus():
    world = World(0)
    return Corpus(world, ChatTokenizer(train_tokenizer(world, num_episodes=40), IMAGES))


def replies(corpus, example) -> list[str]:
    """The texts to learn, one per run of targets."""
    texts, run = [], []
    for token, place in zip((*example.ids, 0), (*example.learnt, 0), strict=True):
        if place:
            run.append(token)
        elif run:
            texts.append(corpus.chat.text_of(run))
            run = []
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_for_every_view_and_a_reply_to_learn(corpus, kind):
    rng = random.Random(1)
    rows, columns = corpus.chat.token_grid(VIEW_WIDTH, VIEW_HEIGHT)
    for _ in range(5):
        for example in corpus.examples(kind, rng, Mix.draw(rng)):
            num_pads = example.ids.count(corpus.chat.special["<|image_pad|>"])
            assert num_pads == len(example.views) * rows * columns
            assert len(example.ids) == len(example.learnt)
            assert any(example.learnt)
            targets = [token for token, place in zip(example.ids, example.learnt, strict=True) if place]
            assert targets[-1] == corpus.chat.special["<|im_end|>"]


def test_every_learnt_action_can_be_read(corpus):
    rng = random.Random(2)
    for kind in ("answer", "comparison", "search", "episode", "decision"):
        for _ in range(6):
            for example in corpus.examples(kind, rng, Mix.draw(rng)):
                assert [parse_action(text) for text in replies(corpus, example)]


def test_an_episode_teaches_every_one_of_its_actions(corpus):
    [example] = corpus.examples("episode", random.Random(3), Mix("none", 0, False, "episodic"))
    assert len(replies(corpus, example)) == len(example.views)


def test_a_record_in_front_teaches_its_actions_too(corpus):
    [first, *_] = corpus.examples("decision", random.Random(4), Mix("record", 1, False, "episodic"))
    said = replies(corpus, first)
    assert len(said) > 1
    assert all(parse_action(text) for text in said)
    assert {LEARNT[place - 1] for place in first.learnt if place} == {"record", "decision"}


def test_a_batch_comes_again_from_its_number(corpus):
    one, two, other = (corpus.batch({"decision": 1.0}, seed, max_tokens=6000) for seed in (5, 5, 6))
    assert torch.equal(one.ids_T, two.ids_T)
    assert torch.equal(one.pixels_NHWC, two.pixels_NHWC)
    assert not torch.equal(one.ids_T, other.ids_T)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_holds_each_picture_once_and_names_it_in_every_place(corpus, kind):
    batch = corpus.batch({kind: 1.0}, 1, max_tokens=8000)
    rows, columns = corpus.chat.token_grid(VIEW_WIDTH, VIEW_HEIGHT)
    assert len(batch.ids_T) == 8000
    assert len(batch.visual_V) == len(batch.picture_of_place) * rows * columns
    assert set(batch.picture_of_place.tolist()) == set(range(len(batch.pixels_NHWC)))
    assert batch.starts_R[0] == 0
    assert batch.starts_R[-1] == 8000
    assert batch.longest == int(batch.starts_R.diff().max())


def test_every_kind_gets_its_share_of_the_tokens(corpus):
    shares = {"transcription": 0.5, "episode": 0.3, "question": 0.2}
    batch = corpus.batch(shares, 2, max_tokens=60_000)
    sizes = batch.starts_R.diff().tolist()
    for kind, share in shares.items():
        own = sum(size for size, tag in zip(sizes, batch.tags, strict=False) if tag.startswith(kind))
        assert own / 60_000 == pytest.approx(share, abs=0.07)


def test_a_batch_too_small_for_any_example_says_so(corpus):
    with pytest.raises(ConfigError, match="max_tokens is 100"):
        corpus.batch({"transcription": 1.0}, 0, max_tokens=100)


def test_numbers_are_single_digits_and_text_comes_back(corpus):
    text = "Weight: 1234 g, $56.78"
    assert corpus.chat.text_of(corpus.chat.encode(text)) == text
    assert sum(corpus.chat.text_of([token]).isdigit() for token in corpus.chat.encode(text)) == 8


def test_slips_are_shown_and_never_learnt(corpus):
    """An episode teaches all but its slips; a decision at a slip teaches what should have been done."""
    rng, found = random.Random(6), 0
    mix = Mix("notes", 0, True, "working")
    while found < 5:
        state = rng.getstate()
        situation = corpus._situation(rng, mix)
        slips = [at for at, step in enumerate(situation.rollout.steps) if step.wanted]
        if not slips:
            continue
        found += 1
        rng.setstate(state)
        [episode] = corpus.examples("episode", rng, mix)
        right = [action_to_json(step.action) for step in situation.rollout.steps if not step.wanted]
        assert replies(corpus, episode) == right
        for at in slips:
            example = corpus._decision(situation, at, mix)
            assert replies(corpus, example)[-1] == action_to_json(situation.rollout.steps[at].wanted)
            told = replies(corpus, example)[:-1]
            shown = situation.rollout.steps[: max(0, at - NUM_RECENT)]
            assert told == [action_to_json(step.action) for step in shown if not step.wanted]


def test_a_failed_action_is_told_as_one(corpus):
    rng = random.Random(8)
    while True:
        situation = corpus._situation(rng, Mix("notes", 0, False, "working"))
        steps = situation.rollout.steps
        failed = [at for at, step in enumerate(steps) if step.error and at + 1 < len(steps)]
        if failed:
            break
    prompt = corpus.prompt_at(situation.task, steps, failed[0] + 1)
    text = "".join(part for turn in prompt for part in turn.parts if isinstance(part, str))
    assert f"{action_to_json(steps[failed[0]].action)} failed" in text
    assert text.count(" failed") == sum(step.error is not None for step in steps[max(0, failed[0] - 2) : failed[0] + 1])


def test_a_batch_of_words_alone_holds_no_picture(corpus):
    batch = corpus.batch({"comparison": 1.0}, 0, max_tokens=300)
    assert batch.pixels_NHWC.shape == (0, VIEW_HEIGHT, VIEW_WIDTH, 3)
    assert len(batch.letters_PVS) == len(batch.visual_V) == 0
    assert len(batch.before_M) > 0
