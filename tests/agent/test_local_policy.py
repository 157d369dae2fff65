import pytest
import torch

import focusmem.agent.local_policy
from factories import make_screenshot
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.local_policy import LocalPolicy
from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.front import ReadFront
from focusmem.model.generation import GenerationConfig, generate
from focusmem.schemas import Turn
from toys import decision, evidence, make_policy

SHORT = GenerationConfig(max_new_tokens=8)
WARM = GenerationConfig(max_new_tokens=8, temperature=1.0)


@pytest.fixture(scope="module")
def backbone():
    return Backbone.toy()


@pytest.fixture
def read(monkeypatch):
    """The lengths of the fronts that were read."""
    lengths = []
    really = ReadFront.read

    def reading(backbone, row):
        lengths.append(row.length)
        return really(backbone, row)

    monkeypatch.setattr(focusmem.agent.local_policy.ReadFront, "read", reading)
    return lengths


def mixed(backbone):
    """Prompts alone, behind turns, and as rows with vectors in front."""
    rows = backbone.embed([backbone.tokenise(decision(number)) for number in (4, 5)])
    return [
        Fronted(decision(0), "a"),
        Fronted(decision(1, num_events=2), "b", turns=evidence(1)),
        Fronted(decision(4), "c", row=rows[0]),
        Fronted(decision(2), "d", turns=(*evidence(2, num_events=3), *evidence(3))),
        Fronted(decision(3, num_events=3), "e"),
        Fronted(decision(5), "f", row=rows[1]),
    ]


@pytest.mark.parametrize(("generation", "seeds"), [(SHORT, None), (WARM, [3, 1, 4, 1, 5, 9])])
def test_a_batch_is_answered_as_one_by_one(backbone, generation, seeds):
    policy, asked = LocalPolicy(backbone, generation), mixed(backbone)
    together = policy.reply(asked, seeds=seeds)
    alone = [
        LocalPolicy(backbone, generation).reply([one], seeds=None if seeds is None else [seeds[place]])[0]
        for place, one in enumerate(asked)
    ]
    assert together == alone
    assert len({completion.text for completion in together}) > 1


def test_a_prompt_alone_is_answered_as_by_the_plain_policy(backbone):
    prompts = [decision(number) for number in range(3)]
    rows = backbone.embed([backbone.tokenise(prompt) for prompt in prompts])
    plain = [backbone.text_of(ids) for ids in generate(backbone, rows, SHORT)]
    completions = LocalPolicy(backbone, SHORT).reply([Fronted(prompt, "x") for prompt in prompts])
    assert [completion.text for completion in completions] == plain
    assert [completion.num_input_tokens for completion in completions] == [row.length for row in rows]


def test_turns_in_front_are_answered_as_part_of_the_prompt(backbone):
    policy, turns = LocalPolicy(backbone, SHORT), evidence(1)
    [behind] = policy.reply([Fronted(decision(0), "a", turns=turns)])
    [whole] = policy.reply([Fronted((*turns, *decision(0)), "b")])
    assert behind == whole
    assert behind.num_input_tokens == policy.num_tokens(turns) + len(backbone.tokenise(decision(0)).ids)


def test_a_row_is_answered_as_it_is():
    memory = make_policy()
    [row] = memory.embed([decision(0)])
    row = memory.embed([decision(0), decision(1)])[1].shifted(3)
    [completion] = LocalPolicy(memory.backbone, SHORT).reply([Fronted(decision(0), "a", row=row)])
    assert completion.text == memory.reply([row], SHORT)[0]
    assert completion.num_input_tokens == row.length


def test_equal_turns_are_read_once_for_an_episode_and_freed_with_it(backbone, read):
    policy = LocalPolicy(backbone, SHORT)
    first, second = evidence(1), evidence(2, num_events=3)
    lengths = [policy.num_tokens(first), policy.num_tokens(second)]
    policy.reply([Fronted(decision(0), "a", turns=first), Fronted(decision(1), "b", turns=second)])
    assert read == lengths
    equal = (*(Turn(turn.role, turn.parts) for turn in evidence(1)),)
    policy.reply([Fronted(decision(2), "a", turns=equal)])
    assert read == lengths, "equal, though other objects"
    policy.forget("a")
    policy.forget("never asked")
    policy.reply([Fronted(decision(2), "a", turns=first), Fronted(decision(2), "b", turns=second)])
    assert read == [*lengths, lengths[0]]


def test_other_turns_replace_those_that_were_read(backbone, read):
    policy = LocalPolicy(backbone, SHORT)
    for number in (1, 2, 1):
        [completion] = policy.reply([Fronted(decision(0), "a", turns=evidence(number, num_events=number))])
        [fresh] = LocalPolicy(backbone, SHORT).reply(
            [Fronted(decision(0), "b", turns=evidence(number, num_events=number))]
        )
        assert completion == fresh
    assert len(read) == 6


def test_a_seed_decides_what_is_sampled(backbone):
    policy, asked = LocalPolicy(backbone, WARM), [Fronted((Turn("user", (make_screenshot(1), "Go.")),), "a")] * 2
    one, other = policy.reply(asked, seeds=[7, 8])
    assert one != other
    assert policy.reply(asked[:1], seeds=[8]) == [other]
    with pytest.raises(ConfigError, match="1 seeds were given for 2 prompts"):
        policy.reply(asked, seeds=[7])
    with pytest.raises(ConfigError, match="one seed per row"):
        policy.reply(asked)


def test_nothing_asked_is_nothing_answered(backbone):
    assert LocalPolicy(backbone).reply([]) == []


def test_the_identity_is_that_of_the_weights(backbone):
    assert LocalPolicy(backbone).identity == LocalPolicy(Backbone.toy(), SHORT).identity
    assert LocalPolicy(backbone).identity != LocalPolicy(Backbone.toy(seed=1)).identity


@pytest.mark.gpu
def test_a_reply_is_back_when_the_device_has_nothing_left_to_do():
    backbone = Backbone.toy().to(torch.device("cuda"))
    LocalPolicy(backbone, SHORT).reply([Fronted(decision(0), "a")])
    assert torch.cuda.current_stream().query()
