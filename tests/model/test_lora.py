import copy
import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from peft import LoraConfig as PeftConfig
from peft import get_peft_model

from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.growing_chunk import Growth, grow
from focusmem.model.injection import Place
from focusmem.model.inputs import stack_rows
from focusmem.model.lora import TARGETS, LoraConfig
from focusmem.model.policy import MemoryPolicy
from toys import decision, evidence, make_config, make_policy


def batch_of(backbone, prompts):
    return stack_rows(backbone.embed([backbone.tokenise(prompt) for prompt in prompts]))


@torch.no_grad()
def test_equals_peft_with_the_same_weights():
    ours, theirs = Backbone.toy(), Backbone.toy()
    attached = ours.add_lora(LoraConfig(rank=4, alpha=10, dropout=0.0))
    updates, switch = attached.updates, attached.switch
    for update in updates.values():
        update.up_OR.normal_(std=0.3)
    peft_config = PeftConfig(r=4, lora_alpha=10, target_modules=[target.split(".")[1] for target in TARGETS])
    theirs.model.model.language_model = get_peft_model(theirs.language_model, peft_config).base_model.model
    for name, update in updates.items():
        layer = theirs.language_model.get_submodule(name.replace("/", "."))
        layer.lora_A["default"].weight.copy_(update.down_RI)
        layer.lora_B["default"].weight.copy_(update.up_OR)
    prompts = [decision(0), decision(1, num_events=2)]
    with switch.turned(True):
        result = ours.run(batch_of(ours, prompts))
    torch.testing.assert_close(result, theirs.run(batch_of(theirs, prompts)), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(result, ours.run(batch_of(ours, prompts)), atol=1e-2), "the update must do something"


@torch.no_grad()
def test_switched_off_equals_a_model_that_never_had_lora():
    plain, policy = Backbone.toy(), make_policy()
    prompts = [decision(0), decision(1)]
    policy.encoder(batch_of(policy.backbone, prompts))  # the switch must be off again after the encoder ran
    assert torch.equal(policy.backbone.run(batch_of(policy.backbone, prompts)), plain.run(batch_of(plain, prompts)))


def test_updates_are_the_encoders_and_not_the_backbones():
    plain, policy = Backbone.toy(), make_policy()
    assert set(policy.backbone.state_dict()) == set(plain.state_dict())
    assert len(policy.encoder.updates) == len(TARGETS) * policy.backbone.num_layers
    assert not any(parameter.requires_grad for parameter in policy.backbone.parameters())


def training_gradients(is_checkpointed: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """One step in which the same weights run as encoder (LoRA on) and then as policy (LoRA off)."""
    policy = make_policy()
    if is_checkpointed:
        policy.backbone.checkpoint_gradients()
    rows = policy.embed([decision(0), decision(1)], replies=["yes", "no"])
    items = policy.encode_rows(policy.backbone.embed([policy.backbone.tokenise(evidence(0), is_complete=True)] * 2))
    logits, targets, _ = policy(rows, [items], [Place(0, 0, 0), Place(1, 0, 0)], is_gated=False)
    torch.nn.functional.cross_entropy(logits, targets).backward()
    gradients = {
        f"{part}.{name}": parameter.grad
        for part, module in policy.trained_parts().items()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    return gradients, logits.detach()


def test_gradient_checkpointing_recomputes_each_pass_with_its_own_switch():
    plain, plain_logits = training_gradients(is_checkpointed=False)
    again, again_logits = training_gradients(is_checkpointed=True)
    assert torch.equal(plain_logits, again_logits)
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient, rtol=1e-5, atol=1e-7, msg=name)


def test_forgetting_the_switch_in_recomputation_would_be_noticed(monkeypatch):
    """The guard itself: with recomputation blind to the switch, the gradients do differ."""
    monkeypatch.setattr(Backbone, "_recompute_contexts", lambda self: (nullcontext(), nullcontext()))
    with pytest.raises(torch.utils.checkpoint.CheckpointError):  # torch counts the saved tensors and finds others
        training_gradients(is_checkpointed=True)


def test_threads_have_a_switch_each():
    policy = make_policy()
    plain = policy.backbone.run(batch_of(policy.backbone, [decision(0)]))
    with policy.encoder.switch.turned(True), ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: policy.backbone.run(batch_of(policy.backbone, [decision(0)]))).result()
    assert torch.equal(other, plain)
    copied = copy.deepcopy(policy)
    assert copied.encoder.switch is not policy.encoder.switch


def test_hooks_go_with_the_encoder():
    backbone = Backbone.toy()
    layer = backbone.language_model.layers[0].self_attn.q_proj
    for _ in range(3):
        policy = MemoryPolicy(backbone, make_config())
        assert len(layer._forward_hooks) == 1
        del policy
        gc.collect()
    assert len(layer._forward_hooks) == 0
    assert backbone._loras == []


@torch.no_grad()
def test_checkpointing_does_not_touch_passes_with_a_cache():
    """The library drops the cache when it recomputes; replies and growing chunks must not notice."""
    policy = make_policy()
    rows = policy.embed([decision(0), decision(1)])
    before = policy.reply(rows)
    policy.backbone.checkpoint_gradients()
    with torch.enable_grad():
        policy.target_logits(policy.embed([decision(0)], ["ok"]))  # a pass that does recompute
    assert policy.reply(rows) == before
    [(_, read)] = grow(policy, [Growth.of(policy, evidence(0, num_events=1))], form="features")
    [(grown, _)] = grow(policy, [Growth.of(policy, evidence(0), read)], form="features")
    torch.testing.assert_close(grown.summary_NE, policy.encode([evidence(0)])[0].summary_NE, rtol=1e-4, atol=1e-5)


def test_dropout_acts_in_training_only():
    backbone = Backbone.toy()
    attached = backbone.add_lora(LoraConfig(rank=4, dropout=0.5))
    updates, switch = attached.updates, attached.switch
    for update in updates.values():
        torch.nn.init.normal_(update.up_OR)
    batch = batch_of(backbone, [decision(0)])
    with torch.no_grad(), switch.turned(True):
        assert not torch.equal(backbone.run(batch), backbone.run(batch))
        updates.eval()
        assert torch.equal(backbone.run(batch), backbone.run(batch))


def test_config_names_the_field():
    with pytest.raises(ConfigError, match=r"LoraConfig\.rank is 0"):
        LoraConfig(rank=0)
    with pytest.raises(ConfigError, match=r"LoraConfig\.dropout"):
        LoraConfig(dropout=1.0)
