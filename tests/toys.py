"""Small real models and prompts that the model tests share."""

import torch

from factories import make_screenshot
from focusmem.model.backbone import Backbone
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.injection import Place
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.schemas import Instruction, Prompt, Turn

EPISODIC, WORKING = 0, 1


def make_config(**changes) -> MemoryConfig:
    values = {"lora": LoraConfig(rank=4, dropout=0.0), "compressor": CompressorConfig(num_heads=4)}
    return MemoryConfig(**(values | changes))


def make_policy(*, seed: int = 0, is_trained: bool = True, dtype=torch.float32, **changes) -> MemoryPolicy:
    """A toy policy; `is_trained` fills the weights that start at zero, so that every part does something."""
    torch.manual_seed(seed)
    policy = MemoryPolicy(Backbone.toy(seed=seed, dtype=dtype), make_config(**changes))
    if is_trained:
        shake(policy)
    return policy.eval()


def shake(policy: MemoryPolicy, *, seed: int = 7) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in policy.trained_state().items():
            # The gate's last layer stays small, so that its decisions are those a test sets.
            if not name.startswith("gate.out"):
                tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator).to(tensor))


def decision(seed: int, *, num_events: int = 1) -> Prompt:
    """A decision prompt with screenshots of two different sizes."""
    history = [
        Turn("user", (make_screenshot(seed + 10 + event, width=64, height=96), f"Step {event}: click {seed}"))
        for event in range(num_events)
    ]
    task = Turn("user", ("Task: ", Instruction(f"find item {seed * 7}")))
    now = Turn("user", (make_screenshot(seed, width=128, height=64), "This is the page now."))
    return (Turn("system", ("You act on web pages.",)), *history, task, now)


def evidence_turns(seed: int, *, num_events: int = 2) -> list[Turn]:
    events = [
        Turn("user", (make_screenshot(seed + 50 + event, width=96, height=64), f"Action: go {event}"))
        for event in range(num_events)
    ]
    return [Turn("user", (f"A record. Task: number {seed}",)), *events]


def evidence(seed: int, *, num_events: int = 2) -> Prompt:
    return (
        *evidence_turns(seed, num_events=num_events),
        Turn("user", (f"The record has {num_events} steps.",)),
    )


def three_decisions() -> tuple[list[Prompt], list[Prompt], list[Place]]:
    """Decisions with two, no and three evidence items of different lengths, and where each item belongs."""
    prompts = [decision(0), decision(1, num_events=3), decision(2, num_events=2)]
    records = [evidence(number, num_events=1 + number % 3) for number in range(5)]
    places = [
        Place(0, EPISODIC, 0),
        Place(0, WORKING, 0),
        Place(2, EPISODIC, 0),
        Place(2, EPISODIC, 1),
        Place(2, WORKING, 0),
    ]
    return prompts, records, places
