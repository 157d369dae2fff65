import random

import pytest
import torch

from focusmem.lab.corpus import Corpus, Mix
from focusmem.lab.policy import IMAGES, train_tokenizer
from focusmem.lab.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world import World
from focusmem.model.chat import ChatTokenizer
from focusmem.schemas import parse_action

KINDS = ("transcription", "episode", "decision", "question")


@pytest.fixture(scope="module")
def corpus():
    world = World(0)
    return Corpus(world, ChatTokenizer(train_tokenizer(world, num_episodes=40), IMAGES))


def replies(corpus, example) -> list[str]:
    """The texts to learn, one per run of targets."""
    texts, run = [], []
    for token, is_target in zip((*example.ids, 0), (*example.is_target, False), strict=True):
        if is_target:
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
            assert len(example.ids) == len(example.is_target)
            assert any(example.is_target)
            targets = [token for token, learnt in zip(example.ids, example.is_target, strict=True) if learnt]
            assert targets[-1] == corpus.chat.special["<|im_end|>"]


def test_every_learnt_action_can_be_read(corpus):
    rng = random.Random(2)
    for kind in ("episode", "decision"):
        for _ in range(6):
            for example in corpus.examples(kind, rng, Mix.draw(rng)):
                assert [parse_action(text) for text in replies(corpus, example)]


def test_an_episode_teaches_every_one_of_its_actions(corpus):
    [example] = corpus.examples("episode", random.Random(3), Mix("none", 0, False, "episodic"))
    assert len(replies(corpus, example)) == len(example.views)


def test_a_batch_comes_again_from_its_number(corpus):
    one, two, other = (corpus.batch("decision", seed, max_tokens=6000) for seed in (5, 5, 6))
    assert torch.equal(one.ids_BS, two.ids_BS)
    assert torch.equal(one.pixels_NHWC, two.pixels_NHWC)
    assert one.ids_BS.shape != other.ids_BS.shape or not torch.equal(one.ids_BS, other.ids_BS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_holds_each_picture_once_and_names_it_in_every_place(corpus, kind):
    batch = corpus.batch(kind, 1, max_tokens=8000)
    rows, columns = corpus.chat.token_grid(VIEW_WIDTH, VIEW_HEIGHT)
    num_places = int((batch.ids_BS == corpus.chat.special["<|image_pad|>"]).sum()) // (rows * columns)
    assert len(batch.picture_of_place) == num_places
    assert set(batch.picture_of_place.tolist()) == set(range(len(batch.pixels_NHWC)))
    assert batch.ids_BS.numel() <= 8000 + 128 * len(batch.tags)


def test_numbers_are_single_digits_and_text_comes_back(corpus):
    text = "Weight: 1234 g, $56.78"
    assert corpus.chat.text_of(corpus.chat.encode(text)) == text
    assert sum(corpus.chat.text_of([token]).isdigit() for token in corpus.chat.encode(text)) == 8
