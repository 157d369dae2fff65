"""Rows laid end to end against the library's padded rows: the same states, and the same gradients."""

from dataclasses import replace

import pytest
import torch

from factories import make_screenshot
from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.inputs import stack_rows
from focusmem.model.lora import LoraConfig
from focusmem.schemas import Turn


@pytest.fixture
def backbone():
    return Backbone.toy(num_layers=3)


def some_rows(backbone):
    """With two pictures, with one, without any; of different lengths."""
    one, two = make_screenshot(1), make_screenshot(2)
    prompts = [
        (Turn("user", (one, "A mug.", two, "Where is it?")),),
        (Turn("user", ("Nothing to see.",)),),
        (Turn("system", ("Act.",)), Turn("user", ("Look:", two))),
    ]
    return backbone.embed([backbone.tokenise(prompt, reply="Here.") for prompt in prompts])


def states(backbone, rows, **settings):
    """Of what counts only: padding is nobody's business."""
    batch = stack_rows(rows)
    return backbone.run(batch, **settings)[batch.mask_BS]


@pytest.mark.parametrize("num_layers", [None, 1, 2])
def test_states_are_the_same(backbone, num_layers):
    rows = some_rows(backbone)
    with torch.no_grad():
        expected = states(backbone, rows, num_layers=num_layers)
        backbone.packs_rows = True
        found = states(backbone, rows, num_layers=num_layers)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_not_there_is_refused(backbone):
    backbone.packs_rows = True
    with pytest.raises(ConfigError, match="Cannot stop after layer 4"):
        backbone.run(stack_rows(some_rows(backbone)), num_layers=4)


@pytest.mark.parametrize("is_on", [True, False])
def test_with_low_rank_updates_states_and_gradients_are_the_same(backbone, is_on):
    attached = backbone.add_lora(LoraConfig(rank=4, dropout=0.0))
    torch.manual_seed(0)
    for update in attached.updates.values():
        torch.nn.init.normal_(update.up_OR, std=0.1)
    weights_D = torch.randn(backbone.width)

    def learnt(packs_rows):
        backbone.packs_rows = packs_rows
        rows = some_rows(backbone)
        inputs = [row.embeds_SD.clone().requires_grad_() for row in rows]
        rows = [replace(row, embeds_SD=own) for row, own in zip(rows, inputs, strict=True)]
        attached.updates.zero_grad()
        with attached.switch.turned(is_on):
            hidden = states(backbone, rows)
        (hidden @ weights_D).square().mean().backward()
        parameters = [parameter.grad for parameter in attached.updates.parameters()] if is_on else []
        return [hidden.detach(), *(own.grad for own in inputs), *parameters]

    for found, expected in zip(learnt(True), learnt(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_dropout_is_refused_and_not_forgotten(backbone):
    attached = backbone.add_lora(LoraConfig(rank=4, dropout=0.05))
    backbone.packs_rows = True
    with attached.switch.turned(True):
        attached.updates.train()
        with pytest.raises(ConfigError, match=r"LoraConfig.dropout is 0.05"):
            states(backbone, some_rows(backbone))
        attached.updates.eval()
        assert states(backbone, some_rows(backbone)).isfinite().all()


def test_a_cache_goes_the_librarys_way(backbone):
    backbone.packs_rows = True
    [row, *_] = some_rows(backbone)
    cache = backbone.new_cache()
    with torch.no_grad():
        cached = backbone.run(stack_rows([row]), cache=cache)
        packed = backbone.run(stack_rows([row]))
    assert cache.get_seq_length() == row.length
    torch.testing.assert_close(packed, cached, rtol=1e-4, atol=1e-5)
