import random

import pytest

from focusmem.errors import ConfigError
from focusmem.lab.policy.corpus import LEARNT, Mix
from focusmem.lab.policy.office_corpus import OfficeCorpus, list_view, told_values
from focusmem.lab.policy.policy import IMAGES, train_tokenizer
from focusmem.lab.policy.pretrain import OFFICES, WEIGHTS, PretrainConfig, pretrain, shares_of_step
from focusmem.lab.world.address import Address
from focusmem.lab.world.answers import facts_seen, values_of_lists
from focusmem.lab.world.office_answers import used_way
from focusmem.lab.world.probes import PROBES, probe_answer
from focusmem.lab.world.rollout import roll_out
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import make_task
from focusmem.lab.world.world import World
from focusmem.model.chat import ChatTokenizer
from focusmem.schemas import action_to_json, parse_action
from lab.policy.test_corpus import replies

KINDS = ("list", "entry", "request", "office question", "probe")


@pytest.fixture(scope="module")
def corpus():
    world = World(0)
    return OfficeCorpus(world, ChatTokenizer(train_tokenizer(world, num_episodes=40), IMAGES))


def prompt_text(prompt) -> str:
    return "".join(part for turn in prompt for part in turn.parts if isinstance(part, str))


def office_of(corpus, path):
    return corpus.world.office(Address.parse(path).site_id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_for_every_view_and_a_reply_to_learn(corpus, kind):
    rng = random.Random(1)
    rows, columns = corpus.chat.token_grid(VIEW_WIDTH, VIEW_HEIGHT)
    for _ in range(6):
        for example in corpus.examples(kind, rng, Mix.draw(rng)):
            assert example.ids.count(corpus.chat.special["<|image_pad|>"]) == len(example.views) * rows * columns
            assert any(example.learnt)
            assert {Address.parse(view.path).site_id.split("-")[0][0] for view in example.views} <= {"p"}


def test_every_value_to_learn_is_shown_before_it(corpus):
    """In words, in a view, or in the events of the prompt: nothing teaches to guess."""
    rng = random.Random(2)
    num_asked = 0
    for _ in range(20):
        for example in corpus.examples("request", rng, Mix.draw(rng)):
            last = example.views[-1]
            office = office_of(corpus, last.path)
            action = parse_action(replies(corpus, example)[-1])
            if used_way(office, Address.parse(last.path), action) is None:
                continue
            num_asked += 1
            values = {value for view in example.views[:-1] for value in facts_seen(corpus.world, view).values()}
            ids = [token for token, place in zip(example.ids, example.learnt, strict=True) if not place]
            told = corpus.chat.text_of(ids)
            given = [value for value in action.arguments.model_dump().values() if value]
            assert any(value in values or f"{value};" in told or f"{value}." in told for value in given)
    assert num_asked > 10


def test_entries_are_asked_for_with_the_action_that_gives_them(corpus):
    rng = random.Random(3)
    for number in range(4):
        for question in corpus.entry_questions(rng, number):
            value = next(iter(parse_action(question.reply).arguments.model_dump().values()))
            assert value in question.reply
            asked = prompt_text(question.prompt).rsplit("Task: give the ", 1)[1].removesuffix(".")
            if question.name == "told":
                assert f"{asked} {value}" in prompt_text(question.prompt)


def test_a_view_can_show_the_first_entries_alone(corpus):
    office = corpus.world.office("po-3")
    name = office.lists[0]
    whole, few = (facts_seen(corpus.world, list_view(office, name, few=num)) for num in (None, 2))
    assert list(few.items()) == list(whole.items())[:2]
    words = {word.text for word in corpus.world.scene(list_view(office, name, few=2).path).words()}
    assert set(office.values(name)) & words == set(office.values(name)[:2])


def test_told_values_are_those_of_the_notes(corpus):
    office = corpus.world.office("po-3")
    rollout = corpus._left_at("po-3", random.Random(0))
    shown = values_of_lists(corpus.world, rollout.steps)
    every = [(name, entry) for name in office.lists for entry in office.entries[name]]
    told = prompt_text([told_values(office, every)])
    assert all(f"{name} {value}" in told for name, value in shown.items())


def test_probes_are_never_lessons_and_ask_every_role(corpus):
    rng = random.Random(4)
    questions = [one for number in range(4) for one in corpus.probe_questions(rng, number)]
    assert {one.name for one in questions} == {name for names in PROBES.values() for name in names}
    assert all(one.reply and one.is_text for one in questions)


def test_what_is_left_and_what_failed_are_told_from_the_episode(corpus):
    world = corpus.world
    task = make_task(world, "po-1", "relay", "memory", 0)
    rollout = roll_out(world, task, Solver.expert(world, task))
    num = len(rollout.steps)
    assert probe_answer(world, "transfer_episodic", rollout, 0, num) == "Left: nothing. Failed: nothing."
    assert probe_answer(world, "transfer_working", rollout, 2, 4) == "Left: reach entrance. Failed: nothing."
    slipped = next(
        one
        for seed in range(50)
        if (one := roll_out(world, task, Solver.expert(world, task), slips=random.Random(seed))).steps[0].wanted
    )
    told = probe_answer(world, "transfer_working", slipped, 0, 1)
    assert told.endswith(f"Failed: {slipped.steps[0].action.name} {_given(slipped.steps[0].action)}.")


def _given(action):
    return " ".join(str(value) for value in action.arguments.model_dump().values() if value is not None)


def test_the_mix_for_offices_has_weights_and_needs_a_policy_to_continue():
    config = PretrainConfig(offices=True, start="somewhere")
    assert shares_of_step(0, config) == shares_of_step(9999, config) == OFFICES
    assert abs(sum(OFFICES.values()) - 1) < 1e-9
    assert set(WEIGHTS) == set(LEARNT)
    with pytest.raises(ConfigError, match="offices continues an existing policy"):
        PretrainConfig(offices=True)
    with pytest.raises(ConfigError, match="choose one"):
        PretrainConfig(offices=True, drills=True, start="somewhere")


@pytest.mark.slow
def test_a_policy_is_continued_with_offices(tmp_path, policy):
    policy.save(tmp_path / "start")
    config = PretrainConfig(
        offices=True, start=str(tmp_path / "start"), minutes=0.02, max_tokens=4000, num_workers=0, device="cpu"
    )
    pretrain(config, tmp_path / "run")
    assert (tmp_path / "run" / "policy" / "card.json").is_file()


def test_questions_about_decisions_show_what_they_need(corpus):
    rng = random.Random(5)
    asked = corpus.request_questions(rng)
    for _ in range(8):
        question = next(asked)
        assert action_to_json(parse_action(question.reply)) == question.reply
        assert "/" in question.name
