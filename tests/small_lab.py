import pytest
import torch

from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.world.world import World


@pytest.fixture(scope="module")
def world():
    return World(0)


@pytest.fixture(scope="module")
def policy(world):
    """Untrained, with one text block: as quick as the laboratory's pictures allow."""
    torch.manual_seed(0)
    text = {"num_hidden_layers": 1, "intermediate_size": 64}
    vision = {"depth": 3, "intermediate_size": 32, "deepstack_visual_indexes": [0, 1]}
    return new_policy(train_tokenizer(world, num_episodes=30), text_config=text, vision_config=vision)
