import pytest
import torch

from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.world.world import World

SMALL = {
    "text_config": {"num_hidden_layers": 1, "intermediate_size": 64},
    "vision_config": {
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_heads": 1,
        "depth": 3,
        "deepstack_visual_indexes": [0, 1],
    },
}
"""Sizes of an untrained policy that is as quick as the laboratory's pictures allow. The tower sees them all."""


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def policy(world):
    torch.manual_seed(0)
    return new_policy(train_tokenizer(world, num_episodes=30), **SMALL)
