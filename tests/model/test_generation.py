import pytest
import torch

from factories import make_item
from focusmem.errors import ConfigError
from focusmem.evidence import Serialiser
from focusmem.model.front import ReadFront
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.inputs import stack_rows
from focusmem.schemas import Turn
from toys import make_policy, three_decisions


@pytest.fixture(scope="module")
def policy():
    return make_policy()


@pytest.fixture(scope="module")
def rows(policy):
    """Decisions with different numbers of blocks in front, none in the middle one."""
    prompts, records, places = three_decisions()
    rows = policy.embed(prompts)
    with torch.no_grad():
        memory = policy.remember(rows, policy.encode(records), places)
    return policy.inject(rows, memory)


@torch.no_grad()
def stepwise_argmax(policy, row, num_tokens: int) -> list[int]:
    """No cache: the whole row again for every token."""
    ids = []
    for _ in range(num_tokens):
        hidden = policy.backbone.run(stack_rows([row]))
        token = int(policy.backbone.logits(hidden[0, -1]).argmax())
        if token in policy.backbone.stop_ids:
            break
        ids.append(token)
        embed = policy.backbone.language_model.embed_tokens(torch.tensor([token]))
        row = type(row)(
            torch.cat([row.embeds_SD, embed]),
            torch.cat([row.positions_3S, torch.full((3, 1), row.next_position)], dim=1),
            torch.cat([row.visual_S, torch.tensor([False])]),
            row.deep_LVD,
            row.next_position + 1,
        )
    return ids


def test_greedy_with_memory_equals_stepwise_argmax_of_full_passes(policy, rows):
    replies = generate(policy.backbone, rows, GenerationConfig(max_new_tokens=24))
    assert replies == [stepwise_argmax(policy, row, 24) for row in rows]
    assert all(len(set(reply)) > 4 for reply in replies), "a reply of one token repeated would prove little"


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_a_reply_holds_no_pictures(policy, rows, temperature, monkeypatch):
    """Even where the policy would like to show one: whoever reads the reply would look for it."""
    picture = policy.backbone.special["<|image_pad|>"]
    plain = policy.backbone.logits

    def showing(hidden):
        logits = plain(hidden)
        logits[..., picture] = logits.max() + 5
        return logits

    monkeypatch.setattr(policy.backbone, "logits", showing)
    config = GenerationConfig(max_new_tokens=8, temperature=temperature)
    replies = generate(policy.backbone, rows, config, seeds=[1, 2, 3])
    assert all(replies)
    assert all(picture not in reply for reply in replies)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_batch_equals_one_by_one(policy, rows, temperature):
    config = GenerationConfig(max_new_tokens=12, temperature=temperature, top_p=0.9)
    together = generate(policy.backbone, rows, config, seeds=[1, 2, 3])
    alone = [generate(policy.backbone, [row], config, seeds=[seed])[0] for seed, row in enumerate(rows, start=1)]
    assert together == alone


def test_seeds_decide_the_sample(policy, rows):
    config = GenerationConfig(max_new_tokens=12, temperature=1.0)
    one, again, other = (generate(policy.backbone, rows[:1], config, seeds=[seed]) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_a_tiny_nucleus_is_greedy(policy, rows):
    greedy = generate(policy.backbone, rows, GenerationConfig(max_new_tokens=8))
    nucleus = GenerationConfig(max_new_tokens=8, temperature=1.0, top_p=1e-6)
    assert generate(policy.backbone, rows, nucleus, seeds=[1, 2, 3]) == greedy


def test_stops_at_the_stop_token_of_each_row(policy, rows, monkeypatch):
    monkeypatch.setattr(policy.backbone.chat, "stop_ids", frozenset())
    full = generate(policy.backbone, rows, GenerationConfig(max_new_tokens=10))
    stop = full[0][3]
    monkeypatch.setattr(policy.backbone.chat, "stop_ids", frozenset({stop}))
    cut = generate(policy.backbone, rows, GenerationConfig(max_new_tokens=10))
    expected = [reply[: reply.index(stop)] if stop in reply else reply for reply in full]
    assert cut == expected


def test_reply_is_text(policy, rows):
    replies = policy.reply(rows, GenerationConfig(max_new_tokens=5))
    assert len(replies) == 3
    assert all(isinstance(reply, str) for reply in replies)


@pytest.mark.parametrize("values", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}])
def test_config_names_the_field(values):
    with pytest.raises(ConfigError, match=f"GenerationConfig.{next(iter(values))}"):
        GenerationConfig(**values)


def test_sampling_without_seeds_is_refused(policy, rows):
    with pytest.raises(ConfigError, match="one seed per row"):
        generate(policy.backbone, rows, GenerationConfig(temperature=1.0))


def test_a_front_read_once_equals_reading_it_with_every_row(policy):
    """Fronts of different lengths, shared cache or not: the same replies as one long prompt each."""
    backbone = policy.backbone
    (first, _), (second, _), (third, _) = (make_item("episodic", num_steps=num, seed=num) for num in (1, 2, 3))
    serialise = Serialiser()
    screenshots = {}
    for num in (1, 2, 3):
        screenshots |= make_item("episodic", num_steps=num, seed=num)[1]
    fronts = [serialise(item, screenshots) for item in (first, second, third)]
    prompts = [(Turn("user", (f"Say something about {number}.",)),) for number in range(3)]
    config = GenerationConfig(max_new_tokens=6)
    whole = [backbone.tokenise((*front, *prompt)) for front, prompt in zip(fronts, prompts, strict=True)]
    expected = generate(backbone, backbone.embed(whole), config)
    read = [
        ReadFront.read(backbone, backbone.embed([backbone.tokenise(front, is_complete=True)])[0]) for front in fronts
    ]
    rows = backbone.embed([backbone.tokenise(prompt) for prompt in prompts])
    assert generate(backbone, rows, config, fronts=read) == expected
    for row, front, reply in zip(rows, read, expected, strict=True):
        assert generate(backbone, [row], config, fronts=[front]) == [reply]
