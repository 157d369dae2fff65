"""A folder like the one that ships, of untrained toys: everything runs, and what the policy says is garbage."""

from pathlib import Path

from focusmem.lab.memory.embedder import EmbedderTrainingConfig, load_embedder, train_embedder
from focusmem.lab.memory.expert_bank import write_expert_bank
from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.world.world import World
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.compressor import CompressorConfig
from focusmem.model.config import MemoryConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.policy import MemoryPolicy
from small_lab import SMALL


def make_toy_weights(folder: Path) -> None:
    policy = new_policy(train_tokenizer(World(0), num_episodes=20), **SMALL)
    policy.save(folder / "policy")
    train_embedder(policy, EmbedderTrainingConfig(num_steps=1, num_pairs=2, num_workers=0), folder / "embedder")
    write_expert_bank(folder / "bank", World(0), load_embedder(policy, folder / "embedder"), num_sites=2)
    config = MemoryConfig(
        lora=LoraConfig(rank=2), compressor=CompressorConfig(num_tokens=4, num_heads=2, num_refinements=1)
    )
    for name, stage in (("full", "stage_b"), ("action-only", "stage_a")):
        Checkpoint.save(MemoryPolicy(policy, config), folder / "memory" / name, notes={"stage": stage, "variant": name})
