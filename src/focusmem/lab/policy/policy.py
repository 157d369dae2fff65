"""The laboratory's own policy: the Qwen3-VL architecture at about 20 million parameters, with its own tokenizer."""

import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from focusmem.lab.policy.texts import PROMPTS
from focusmem.lab.world.answers import QUESTIONS, answer_to
from focusmem.lab.world.rollout import roll_out
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import KINDS, USES, make_task
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.chat import SPECIAL_TOKENS
from focusmem.model.devices import fast_dtype, usable_device
from focusmem.model.images import ImageConfig
from focusmem.schemas import action_to_json

VOCABULARY_SIZE = 2_048
IMAGES = ImageConfig(min_pixels=32 * 32, max_pixels=VIEW_WIDTH * VIEW_HEIGHT)
_TEXT_WIDTH, _TOWER_WIDTH, _HEAD_WIDTH = 384, 256, 64


def architecture(special_ids: dict[str, int]) -> dict[str, Any]:
    """Arguments of the library's `Qwen3VLConfig`."""
    return {
        "tie_word_embeddings": True,
        "image_token_id": special_ids["<|image_pad|>"],
        "video_token_id": special_ids["<|video_pad|>"],
        "vision_start_token_id": special_ids["<|vision_start|>"],
        "vision_end_token_id": special_ids["<|vision_end|>"],
        "text_config": {
            "vocab_size": VOCABULARY_SIZE,
            "hidden_size": _TEXT_WIDTH,
            "intermediate_size": 832,
            "num_hidden_layers": 8,
            "num_attention_heads": _TEXT_WIDTH // _HEAD_WIDTH,
            "num_key_value_heads": 2,
            "head_dim": _HEAD_WIDTH,
            "max_position_embeddings": 16_384,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 100_000.0,
                "mrope_section": [12, 10, 10],
                "mrope_interleaved": True,
            },
        },
        "vision_config": {
            "depth": 6,
            "hidden_size": _TOWER_WIDTH,
            "intermediate_size": 2 * _TOWER_WIDTH,
            "num_heads": _TOWER_WIDTH // _HEAD_WIDTH,
            "out_hidden_size": _TEXT_WIDTH,
            "num_position_embeddings": 1024,
            "deepstack_visual_indexes": [2, 4],
        },
    }


def new_policy(tokenizer: Tokenizer, *, seed: int = 0, **changes: dict[str, Any]) -> Backbone:
    """An untrained policy; `changes` replaces fields of the text or vision config, for tests."""
    sizes = architecture(tokenizer.get_vocab(with_added_tokens=True))
    for part, values in changes.items():
        sizes[part] = sizes[part] | values
    torch.manual_seed(seed)
    return Backbone.from_sizes(sizes, tokenizer, IMAGES, name="laboratory policy")


def load_policy(folder: Path, device: str = "cpu") -> Backbone:
    """A trained policy, in the precision that is fast on the device."""
    found = usable_device(device)
    return Backbone.load(folder, dtype=fast_dtype(found), device=found)


def train_tokenizer(world: World, *, num_episodes: int = 400) -> Tokenizer:
    """A byte-level BPE tokenizer trained on the laboratory's texts. Digits are single tokens, so that numbers can be
    read.
    """
    return Tokenizer.from_str(_trained(world.seed, num_episodes))


@lru_cache(maxsize=8)
def _trained(world_seed: int, num_episodes: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_all_texts(World(world_seed), num_episodes), trainer)
    return str(tokenizer.to_str())


def _all_texts(world: World, num_episodes: int) -> Iterator[str]:
    rng = random.Random(0)
    fixed = [path.read_text(encoding="utf-8") for path in sorted(PROMPTS.rglob("*.txt"))]
    for _ in range(num_episodes):
        site_id = f"p-{rng.randrange(4000)}"
        task = make_task(
            world, site_id, rng.choice(KINDS[world.family(site_id)]), rng.choice(USES), rng.randrange(10**6)
        )
        rollout = roll_out(world, task, Solver.expert(world, task))
        yield task.task.instruction
        yield from fixed
        for step in rollout.steps:
            yield action_to_json(step.action)
            yield world.scene(step.path).text()
        for question in sorted({name for names in QUESTIONS.values() for name in names}):
            yield answer_to(world, question, rollout, rollout.steps)
