import pytest
import torch

from focusmem.model.growing_chunk import GrowingChunk
from focusmem.model.injection import Place
from focusmem.schemas import Turn
from toys import WORKING, evidence, evidence_turns, make_policy


@torch.no_grad()
@pytest.mark.parametrize("form", ["keys_values", "features"])
def test_extended_chunk_equals_the_chunk_encoded_again(form):
    policy = make_policy()
    opening, *events = evidence_turns(0, num_events=4)
    chunk = GrowingChunk(policy, [opening])
    for num_events, event in enumerate(events, start=1):
        chunk.append([event])
        grown = chunk.encoded([Turn("user", (f"The record has {num_events} steps.",))], form=form)
        again = policy.encode([evidence(0, num_events=num_events)], form=form)[0]
        assert grown.evidence.num_tokens == again.evidence.num_tokens
        torch.testing.assert_close(grown.summary_NE, again.summary_NE, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(grown.looks_NE, again.looks_NE, rtol=1e-4, atol=1e-5)
        place = [Place(0, WORKING, 0)]
        torch.testing.assert_close(
            policy.read([grown], place, None), policy.read([again], place, None), rtol=1e-4, atol=1e-5
        )


@torch.no_grad()
def test_only_the_new_event_is_read():
    policy = make_policy()
    opening, first, second = evidence_turns(0, num_events=2)
    chunk = GrowingChunk(policy, [opening])
    chunk.append([first])
    lengths = []
    policy.encoder.register_forward_pre_hook(lambda module, inputs: lengths.append(inputs[0].lengths[0]))
    chunk.append([second])
    backbone = policy.encoder.backbone
    assert lengths == [len(backbone.tokenise((second,), is_complete=True).ids)]


@torch.no_grad()
def test_a_failed_read_leaves_the_chunk_as_it_was(monkeypatch):
    policy = make_policy()
    opening, first, second = evidence_turns(0, num_events=2)
    closing = [Turn("user", ("The record has 2 steps.",))]
    chunk = GrowingChunk(policy, [opening])
    chunk.append([first])
    block = policy.encoder.backbone.language_model.layers[2]

    def out_of_memory(*args, **kwargs):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(block.mlp, "forward", out_of_memory)
        with pytest.raises(MemoryError):
            chunk.append([second])
    chunk.append([second])
    grown, again = chunk.encoded(closing), policy.encode([evidence(0, num_events=2)])[0]
    torch.testing.assert_close(grown.summary_NE, again.summary_NE, rtol=1e-4, atol=1e-5)


def test_training_mode_is_refused():
    with pytest.raises(RuntimeError, match=r"policy\.eval"):
        GrowingChunk(make_policy().train(), evidence_turns(0)[:1])


def test_weights_that_change_in_between_are_noticed():
    policy = make_policy()
    opening, event = evidence_turns(0, num_events=1)
    chunk = GrowingChunk(policy, [opening])
    with torch.no_grad():
        policy.compressor.w_in.bias.add_(1.0)
    with pytest.raises(RuntimeError, match="start a new GrowingChunk"):
        chunk.append([event])
