"""The losses of both stages against the paper's Algorithms 1 and 2, written out once more in float64.

Blocks, readout and gate are computed here from their weights by the equations of Appendix A. Only the frozen models are
called: the encoder for H, the policy for the distributions.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional as F

from focusmem.model.injection import Injection
from focusmem.model.inputs import stack_rows
from focusmem.recipes.training import PAPER
from focusmem.training.batch import TrainingBatch
from focusmem.training.objective import Objective
from focusmem.training.prepared import Preparer
from focusmem.training.stage import LOSS_NAMES, divisors_of
from focusmem.training.stage_a import StageA
from focusmem.training.stage_b import StageB
from training.samples import make_batch, make_loop, make_memory_policy

ROLES = {"episodic": 0, "working": 1}


@pytest.fixture(scope="module")
def policy():
    """The draws of the gate keep every block, so that no randomness is left in Algorithm 2."""
    made = make_memory_policy(state_source="embeddings")
    made.backbone.model.double()
    torch.nn.init.constant_(made.gate.out.bias, 12.0)
    return made.convert(torch.float64)


@pytest.fixture(scope="module")
def batch():
    return TrainingBatch.merged([make_batch(0), make_batch(1)])


@dataclass
class ByHand:
    """The paper's equations, one item and one decision at a time."""

    policy: object

    def evidence(self, item):
        """H_i, its mean, and nothing padded."""
        [row] = self.policy.encoder.backbone.embed(
            [self.policy.encoder.backbone.tokenise(item.prompt, is_complete=True)]
        )
        hidden_LE = self.policy.encoder(stack_rows([row]))[0]
        return hidden_LE, hidden_LE.mean(dim=0)

    def compressed(self, hidden_LE, queries_KH, role):
        """C_Phi(s; Q) + e, Appendix A.1."""
        own, config = self.policy.compressor, self.policy.config.compressor
        features = own.w_in(own.norm_evidence(hidden_LE))
        latents = queries_KH
        for _ in range(config.num_refinements):
            read, width = [], own.width // config.num_heads
            queries, keys = own.w_query(own.norm_attention(latents)), own.w_key(features)
            values = own.w_value(features)
            for head in range(config.num_heads):
                part = slice(head * width, (head + 1) * width)
                scores = queries[:, part] @ keys[:, part].T / math.sqrt(width)
                read.append(scores.softmax(dim=-1) @ values[:, part])
            latents = latents + own.w_result(torch.cat(read, dim=-1))
            latents = latents + own.ffn_down(F.gelu(own.ffn_up(own.norm_ffn(latents))))
        return own.w_out(own.norm_out(latents)) + own.role_vectors_RD[role]

    def fixed(self, item):
        role = ROLES[item.role]
        return self.compressed(self.evidence(item)[0], self.policy.compressor.base_queries_RKH[role], role)

    def dynamic(self, item, state_D):
        """Q_0 + A(u, h, e), Appendix A.3; u and h are scaled to unit mean square, as docs/paper.md says."""
        role, own = ROLES[item.role], self.policy.readout
        hidden_LE, summary_E = self.evidence(item)

        def unit(vector):
            return vector / vector.square().mean().sqrt()

        seen = unit(state_D) + unit(summary_E) + self.policy.compressor.role_vectors_RD[role]
        residual = own.out(F.gelu(own.hidden(own.norm(seen)))).unflatten(-1, (own.num_tokens, -1))
        return self.compressed(hidden_LE, self.policy.compressor.base_queries_RKH[role] + residual, role)

    def trust(self, state_D, block_KD):
        """g = T(u, Pool(Z))."""
        own = self.policy.gate
        state = own.project_state(own.norm_state(state_D))
        block = own.project_block(own.norm_block(block_KD.mean(dim=0)))
        return own.out(F.gelu(own.hidden(torch.cat([state, block, state * block]))))[0]

    def state(self, prompt):
        """u: the mean of the context's input embeddings."""
        [row] = self.policy.embed([prompt])
        return row.embeds_SD.double().mean(dim=0)

    def log_chances(self, prompt, ids, blocks):
        """log Pi(. | blocks, prompt, ids before), at each of the ids."""
        backbone = self.policy.backbone
        asked = backbone.tokenise(prompt)
        [row] = backbone.embed([type(asked)((*asked.ids, *ids), asked.pictures, num_target=len(ids))])
        if blocks:
            row = Injection.prefixed(row, torch.stack(blocks))
        logits_MV, _ = self.policy.target_logits([row])
        return logits_MV.double().log_softmax(dim=-1)

    def surprise(self, prompt, ids, blocks):
        """-sum_j log Pi(id_j | ...)."""
        return -self.log_chances(prompt, ids, blocks)[range(len(ids)), list(ids)].sum()

    def reply_ids(self, text):
        chat = self.policy.backbone.chat
        return [*chat.encode(text), chat.special["<|im_end|>"]]

    def ordered(self, batch, uses):
        return sorted(uses, key=lambda use: (ROLES[batch.items[use.item].role], use.rank))

    def loss_a(self, batch):
        """Algorithm 1, lines 2 to 17."""
        semantic = functional = action = torch.zeros((), dtype=torch.float64)
        for item in batch.items:
            if item.lesson is None:
                continue
            block, told = self.fixed(item), item.lesson.description
            latent = self.log_chances(told.question, told.ids, [block])
            raw = self.policy.backbone.logits(told.hidden_MD.double()).double().log_softmax(dim=-1).detach()
            semantic = semantic + (raw.exp() * (raw - latent)).sum()
            for pair in item.lesson.functional:
                functional = functional + self.surprise(pair.question, self.reply_ids(pair.target), [block])
        num_tokens = sum(len(self.reply_ids(one.reply)) for one in batch.decisions)
        for one in batch.decisions:
            uses = self.ordered(batch, [use for use in one.uses if not use.is_negative])
            blocks = [self.fixed(batch.items[use.item]) for use in uses]
            action = action + self.surprise(one.prompt, self.reply_ids(one.reply), blocks) / num_tokens
        basis = 0.5 * semantic + 0.5 * functional
        return action + 0.25 * basis

    def loss_b(self, batch):
        """Algorithm 2, lines 2 to 17, with every mask one."""
        gate = action = torch.zeros((), dtype=torch.float64)
        num_tokens = sum(len(self.reply_ids(one.reply)) for one in batch.decisions)
        for one in batch.decisions:
            state_D, blocks = self.state(one.prompt), []
            for use in self.ordered(batch, one.uses):
                blocks.append(self.dynamic(batch.items[use.item], state_D))
                if use.is_negative:
                    gate = gate - torch.log(1 - torch.sigmoid(self.trust(state_D, blocks[-1].detach())))
            action = action + self.surprise(one.prompt, self.reply_ids(one.reply), blocks) / num_tokens
        return action + 0.05 * gate


def total_of(policy, stage, batch, num_shares):
    """What a training step minimises on a batch that so many passes share."""
    shares = Preparer(policy, stage.needs).shares(batch, range(num_shares), num_shares)
    counts = {name: sum(share.counts[name] for share in shares) for name in LOSS_NAMES}
    divisors = divisors_of(stage, counts)
    scales = {name: stage.weights.get(name, 0.0) / divisors[name] for name in LOSS_NAMES}
    objective = Objective(policy, stage, make_loop(), None)
    return sum(objective(share, scales, torch.Generator().manual_seed(0))[0] for share in shares)


@pytest.mark.parametrize("num_shares", [1, 3])
def test_stage_a_minimises_the_sums_of_algorithm_1(policy, batch, num_shares):
    with torch.no_grad():
        expected = ByHand(policy).loss_a(batch)
        assert total_of(policy.train(), StageA(PAPER.variant.stage_a), batch, num_shares).item() == pytest.approx(
            expected.item(), rel=1e-9
        )


@pytest.mark.parametrize("num_shares", [1, 3])
def test_stage_b_minimises_the_sums_of_algorithm_2(policy, batch, num_shares):
    with torch.no_grad():
        expected = ByHand(policy).loss_b(batch)
        found = total_of(policy.train(), StageB(PAPER.variant.stage_b), batch, num_shares)
    # State, summary and trust pass through float32.
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_mean_is_the_sum_divided_by_its_tokens_or_blocks(policy, batch):
    counts = {"action": 5, "semantic": 7, "functional": 0, "gate": 3, "order": 2}
    summed = divisors_of(StageA(PAPER.variant.stage_a), counts) | {
        "gate": divisors_of(StageB(PAPER.variant.stage_b), counts)["gate"]
    }
    assert summed == {"action": 5, "semantic": 1, "functional": 1, "gate": 1, "order": 2}
