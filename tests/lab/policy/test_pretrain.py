import itertools
import json
import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from focusmem.errors import ConfigError, TrainingError
from focusmem.lab.policy import pretrain as module
from focusmem.lab.policy.corpus import LEARNT, Corpus
from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.policy.pretrain import WEIGHTS, PretrainConfig, StepLoss, batch_logits, pretrain, shares_of_step
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.inputs import TokenRow, stack_rows
from focusmem.schemas import Screenshot

ROPE = {"rope_type": "default", "rope_theta": 1e5, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rope_parameters": ROPE,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 1,
    "depth": 3,
    "out_hidden_size": 64,
    "deepstack_visual_indexes": [0, 1],
}
SIZES = (("text_config", tuple(TEXT.items())), ("vision_config", tuple(VISION.items())))


def small_config(**changes) -> PretrainConfig:
    values = {
        "minutes": 0.05,
        "device": "cpu",
        "num_workers": 0,
        "max_tokens": 1500,
        "num_reading_steps": 3,
        "save_every_s": 0.5,
        "score_every_s": 100.0,
        "sizes": SIZES,
    }
    return PretrainConfig(**values | changes)


real_score = module.score


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A step takes half a second by this clock, on every machine, so the settings' minutes are numbers of steps."""
    clock = SimpleNamespace(monotonic=partial(next, itertools.count(0, 0.25)))
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "score", lambda *args, **kwargs: {"decision": (0.0, 1)})
    monkeypatch.setattr(module, "train_tokenizer", partial(train_tokenizer, num_episodes=30))


def test_writes_a_policy_that_loads_with_its_card(tmp_path):
    policy = pretrain(small_config(), tmp_path)
    loaded = Backbone.load(tmp_path / "policy", dtype=torch.bfloat16)
    assert loaded.identity().weights == policy.identity().weights
    card = json.loads((tmp_path / "policy" / "card.json").read_text())
    assert card["num_steps"] == 6
    assert 0 <= card["waiting_rate"] <= 1
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["num_steps"] == card["num_steps"]


def test_a_run_that_begins_with_an_earlier_policy_tells_how_that_was_made(tmp_path):
    pretrain(small_config(minutes=0.01), tmp_path / "one")
    pretrain(small_config(minutes=0.01, start=str(tmp_path / "one" / "policy")), tmp_path / "two")
    first, second = (json.loads((tmp_path / name / "policy" / "card.json").read_text()) for name in ("one", "two"))
    assert second["before"] == first
    assert str(tmp_path) not in json.dumps(second)


def test_a_gradient_that_is_no_number_stops_the_run_and_spoils_nothing(tmp_path, monkeypatch):
    pretrain(small_config(minutes=0.02), tmp_path)
    before = (tmp_path / "state.pt").read_bytes()
    whole = module.losses_of

    def spoilt(logits, targets, batch):
        loss = whole(logits, targets, batch)
        return StepLoss(loss.sums_L * float("nan"), loss.nums_L)

    monkeypatch.setattr(module, "losses_of", spoilt)
    with pytest.raises(TrainingError, match="not finite"):
        pretrain(small_config(minutes=0.1), tmp_path)
    assert (tmp_path / "state.pt").read_bytes() == before


def test_a_run_is_not_gone_on_with_under_other_settings(tmp_path, monkeypatch):
    pretrain(small_config(minutes=0.01), tmp_path)
    with pytest.raises(ConfigError, match="another seed"):
        pretrain(small_config(minutes=0.02, seed=9), tmp_path)
    monkeypatch.setitem(module.EVERYTHING, "decision", 0.5)
    with pytest.raises(ConfigError, match="another mix"):
        pretrain(small_config(minutes=0.02), tmp_path)


def test_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    """The number of the next batch, the optimizer and the time spent all come back."""
    pretrain(small_config(), tmp_path)
    seen = []
    step = module._step
    monkeypatch.setattr(
        module, "_step", lambda state, batch, config: seen.append(state.num_steps) or step(state, batch, config)
    )
    before = json.loads((tmp_path / "policy" / "card.json").read_text())
    pretrain(small_config(minutes=0.1), tmp_path)
    after = json.loads((tmp_path / "policy" / "card.json").read_text())
    assert seen[0] == before["num_steps"]
    assert after["trained_s"] > before["trained_s"]


def test_a_pause_keeps_to_the_schedule_of_the_whole(tmp_path, monkeypatch):
    """Paused and gone on with: the learning rate falls over the whole time, not over each run."""
    rates = []
    step = module._step

    def watched(state, batch, config):
        loss = step(state, batch, config)
        rates.append((state.trained_s, [optimizer.param_groups[0]["lr"] for optimizer in state.optimizers]))
        return loss

    monkeypatch.setattr(module, "_step", watched)
    config = small_config(minutes=0.1, pause_after=0.05, warmup_steps=1)
    for _ in range(2):
        pretrain(config, tmp_path)
    assert [spent for spent, _ in rates] == sorted(spent for spent, _ in rates)
    for spent, rate in rates:
        share = spent / (config.minutes * 60)
        scale = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share))
        assert rate == pytest.approx([config.matrix_rate * scale, config.other_rate * scale], rel=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["transcription", "episode", "decision", "question"])
def test_fast_path_equals_the_path_that_acts(kind):
    """What is trained on must be what will be seen: same scores for each example of a packed batch."""
    world = World(0)
    policy = new_policy(train_tokenizer(world, num_episodes=30), **{part: dict(values) for part, values in SIZES})
    batch = Corpus(world, policy.chat).batch({kind: 1.0}, 3, max_tokens=3000)
    packed, targets, _ = batch_logits(policy, batch)
    pictures = [Screenshot.from_image(Image.fromarray(one.numpy())) for one in batch.pixels_NHWC]
    shown = iter(pictures[index] for index in batch.picture_of_place.tolist())
    num_pads = math.prod(policy.chat.token_grid(*pictures[0].image().size))
    for row in range(len(batch.tags)):
        start, end = batch.starts_R[row : row + 2].tolist()
        ids = batch.ids_T[start:end].tolist()
        num_pictures = ids.count(policy.special["<|image_pad|>"]) // num_pads
        own = TokenRow(tuple(ids), tuple(next(shown) for _ in range(num_pictures)))
        hidden = policy.run(stack_rows(policy.embed([own])))[0]
        is_own = batch.row_M == row
        acted = policy.logits(hidden[batch.before_M[is_own] - start])
        torch.testing.assert_close(packed[is_own], acted, rtol=1e-3, atol=1e-3)
        assert targets[is_own].tolist() == [ids[place + 1 - start] for place in batch.before_M[is_own].tolist()]


OF_OFFICES = {"list", "entry", "probe"}
"""Kinds that only training with `offices` has."""


def test_a_loss_counts_each_kind_by_its_weight():
    sums = torch.arange(1.0, 1 + len(LEARNT))
    nums = torch.full((len(LEARNT),), 2.0)
    weights = [WEIGHTS[name] for name in LEARNT]
    expected = sum(one * weight for one, weight in zip(sums.tolist(), weights, strict=True)) / (2 * sum(weights))
    assert StepLoss(sums, nums).weighted.item() == pytest.approx(expected)


def test_reading_comes_first_then_everything():
    config = small_config(num_reading_steps=200)
    early, late = shares_of_step(199, config), shares_of_step(200, config)
    reading = ("transcription", "line", "answer")
    assert sum(early[kind] for kind in reading) > 0.5 > sum(late[kind] for kind in reading)
    assert set(late) == set(LEARNT) - {"record"} - OF_OFFICES
    for shares in (early, late):
        assert sum(shares.values()) == pytest.approx(1.0)


def test_config_names_the_field():
    with pytest.raises(ConfigError, match="minutes"):
        PretrainConfig(minutes=0, device="cpu")


def test_a_gpu_that_is_not_there_is_named_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="no such GPU"):
        pretrain(small_config(device="cuda"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_drills_change_the_text_blocks_and_nothing_that_sees(tmp_path):
    pretrain(small_config(), tmp_path / "before")
    start = tmp_path / "before" / "policy"
    pretrain(small_config(start=str(start), drills=True, is_half=True, max_tokens=3000), tmp_path / "after")
    before, after = (Backbone.load(path) for path in (start, tmp_path / "after" / "policy"))
    changed = {
        "visual" in name
        for name, weights in before.model.state_dict().items()
        if not torch.equal(weights, after.model.state_dict()[name])
    }
    assert changed == {False}
    card = json.loads((tmp_path / "after" / "policy" / "card.json").read_text())
    assert set(card["config"]["mix"]) == {"drills", "weights"}


def test_drills_need_a_policy_to_mend():
    with pytest.raises(ConfigError, match="name it with start"):
        small_config(drills=True)


def test_every_kind_is_scored_on_sites_kept_apart():
    config = small_config(max_tokens=3000)
    policy = new_policy(train_tokenizer(World(0), num_episodes=30), **{part: dict(values) for part, values in SIZES})
    scores = real_score(policy, World(0), config, num_batches=1)
    kinds = {name.split("/")[0] for name in scores if "tokens" not in name}
    assert kinds == set(LEARNT) - {"episode", "record"} - OF_OFFICES
    assert all(0 <= rate <= 1 and num > 0 for rate, num in scores.values())
