"""Small batches and policies that the training tests share. Equal arguments give equal samples."""

import json
import resource
from contextlib import contextmanager

import torch

from focusmem.model.backbone import Backbone
from focusmem.model.compressor import CompressorConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Prompt, Screenshot, Turn
from focusmem.training.batch import Decision, ItemUse, ListedBatches, TrainingBatch, TrainingItem
from focusmem.training.config import LoopConfig
from focusmem.training.lessons import Description, FunctionalPair, Lesson
from focusmem.training.objective import Objective, in_training
from focusmem.training.prepared import Preparer
from focusmem.training.questions import DESCRIBE, SUBTYPES, TARGETS
from focusmem.training.stage import LOSS_NAMES
from toys import decision, evidence, make_config, shake


def ask(name: str) -> Prompt:
    """A question of a few letters: bytes are tokens here, and the real ones are long."""
    return (Turn("user", (f"{name[-6:]}?",)),)


def make_memory_policy(*, seed: int = 0, dropout: float = 0.0, is_trained: bool = True, **changes) -> MemoryPolicy:
    """A toy policy that is quick to train; `is_trained` makes every part do something."""
    torch.manual_seed(seed)
    config = make_config(
        lora=LoraConfig(rank=4, dropout=dropout), compressor=CompressorConfig(num_heads=4, num_refinements=2), **changes
    )
    policy = MemoryPolicy(Backbone.toy(num_layers=2), config)
    if is_trained:
        shake(policy)
    return policy.eval()


def good_answer(subtype: str, seed: int) -> str:
    fields = {}
    for name, field in TARGETS[subtype].model_fields.items():
        is_text = field.annotation is str
        fields[name] = f"{name[:2]}{seed}" if is_text else {"name": "wait", "arguments": {}}
    return json.dumps(fields)


def make_lesson(role: str, seed: int) -> Lesson:
    """What a teacher might say, with made-up hidden states."""
    ids = tuple((17 * seed + 3 * place) % 200 for place in range(5 + seed % 3))
    hidden_MD = torch.randn(len(ids), 64, generator=torch.Generator().manual_seed(seed))
    pairs = [FunctionalPair(ask(subtype), good_answer(subtype, seed)) for subtype in SUBTYPES[role]]
    return Lesson(Description(ask(DESCRIBE), "", ids, hidden_MD), tuple(pairs[: 1 + seed % 2]))


def make_item(seed: int, *, role: str = "episodic", has_lesson: bool = True) -> TrainingItem:
    lesson = make_lesson(role, seed) if has_lesson else None
    return TrainingItem(
        item_id=f"{role}-{seed}", role=role, prompt=evidence(seed, num_events=1 + seed % 2), lesson=lesson
    )


def make_batch(seed: int = 0, *, has_lessons: bool = True) -> TrainingBatch:
    """Four decisions that share items: one uses none, one is misled, and an item is only there for its content."""
    base = 10 * seed
    items = (
        make_item(base, has_lesson=has_lessons),
        make_item(base + 1, role="working", has_lesson=has_lessons),
        make_item(base + 2, has_lesson=has_lessons),
        make_item(base + 3, has_lesson=False),
        make_item(base + 4, role="working", has_lesson=has_lessons),
    )
    uses = (
        (ItemUse(0, 0), ItemUse(1, 0)),
        (),
        (ItemUse(2, 0), ItemUse(0, 1), ItemUse(3, 2, is_negative=True)),
        (ItemUse(0, 0), ItemUse(3, 1, is_negative=True), ItemUse(1, 0)),
    )
    decisions = [
        Decision(prompt=decision(base + number, num_events=number % 2), reply=f'{{"n":{number}}}', uses=own)
        for number, own in enumerate(uses)
    ]
    return TrainingBatch(items=items, decisions=tuple(decisions))


def pictures_of(*prompts: Prompt) -> dict[str, Screenshot]:
    parts = [part for prompt in prompts for turn in prompt for part in turn.parts]
    return {part.digest: part for part in parts if isinstance(part, Screenshot)}


def make_data(num_batches: int, **changes) -> ListedBatches:
    return ListedBatches([make_batch(number, **changes) for number in range(num_batches)])


def make_loop(**changes) -> LoopConfig:
    values = {"learning_rate": 1e-3, "log_every_steps": 1, "save_every_steps": 100}
    return LoopConfig(**(values | changes))


def weights_of(policy: MemoryPolicy) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in policy.trained_state().items()}


def learnt_from(policy: MemoryPolicy, stage, batch: TrainingBatch, *, num_shares: int = 1, max_group_tokens=65_536):
    """Losses per token and gradients of one step on a batch, worked on in so many shares."""
    shares = Preparer(policy, stage.needs).shares(batch, range(num_shares), num_shares)
    counts = {name: max(1, sum(share.counts[name] for share in shares)) for name in LOSS_NAMES}
    scales = {name: stage.weights.get(name, 0.0) / counts[name] for name in LOSS_NAMES}
    losses = dict.fromkeys(stage.weights, 0.0)
    with in_training(policy, stage.trained_parts):
        objective = Objective(policy, stage, make_loop(max_group_tokens=max_group_tokens), None)
        objective.zero_grad(set_to_none=True)
        for share in shares:
            total, own = objective(share, scales, torch.Generator().manual_seed(0))
            total.backward()
            for name, value in own.sums.items():
                losses[name] += value.item() / counts[name]
        gradients = {name: parameter.grad.clone() for name, parameter in objective.named_parameters()}
    return losses, gradients


def open_gate(policy: MemoryPolicy) -> MemoryPolicy:
    """Every draw keeps every block, whatever the noise."""
    torch.nn.init.constant_(policy.gate.out.bias, 30.0)
    return policy


@contextmanager
def disk_that_takes(num_bytes: int):
    """Files cannot grow past this size: writing fails as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
