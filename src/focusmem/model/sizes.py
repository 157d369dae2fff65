"""The published Qwen3-VL sizes as plain numbers, so that parameters can be counted without any download."""

from typing import Any

from focusmem.errors import BackboneError

HUB_IDS = {
    "qwen3-vl-2b": "Qwen/Qwen3-VL-2B-Instruct",
    "qwen3-vl-4b": "Qwen/Qwen3-VL-4B-Instruct",
    "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
    "qwen3-vl-32b": "Qwen/Qwen3-VL-32B-Instruct",
}

TOY = "toy"

_SMALL_TOWER = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "deepstack_visual_indexes": [5, 11, 17],
}
_LARGE_TOWER = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "deepstack_visual_indexes": [8, 16, 24],
}

# name: width, FFN width, layers, attention heads, key/value heads, is the head tied to the embeddings, vision tower
_TEXT = {
    "qwen3-vl-2b": (2048, 6144, 28, 16, 8, True, _SMALL_TOWER),
    "qwen3-vl-4b": (2560, 9728, 36, 32, 8, True, _SMALL_TOWER),
    "qwen3-vl-8b": (4096, 12288, 36, 32, 8, False, _LARGE_TOWER),
    "qwen3-vl-32b": (5120, 25600, 64, 64, 8, False, _LARGE_TOWER),
}


def architecture(name: str) -> dict[str, Any]:
    """Arguments of the library's `Qwen3VLConfig` for a published size."""
    if name not in _TEXT:
        known = ", ".join([*_TEXT, TOY])
        raise BackboneError(f"Unknown backbone '{name}'. Known sizes: {known}.")
    width, ffn, layers, heads, kv_heads, is_tied, tower = _TEXT[name]
    return {
        "tie_word_embeddings": is_tied,
        "text_config": {
            "vocab_size": 151936,
            "hidden_size": width,
            "intermediate_size": ffn,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 128,
            "max_position_embeddings": 262144,
            "tie_word_embeddings": is_tied,
            "rope_parameters": _rope(theta=5_000_000.0, sections=(24, 20, 20)),
        },
        "vision_config": {"num_heads": 16, "out_hidden_size": width, **tower},
    }


def toy_architecture(
    *,
    vocab_size: int,
    special_ids: dict[str, int],
    width: int = 64,
    num_layers: int = 4,
    head_width: int = 16,
) -> dict[str, Any]:
    """The same architecture, DeepStack included, small enough for a laptop to train in seconds."""
    # Large enough for random weights to give varied replies; with the library's 0.02 every reply repeats one token.
    spread = {"initializer_range": 0.15}
    return {
        "tie_word_embeddings": False,
        "image_token_id": special_ids["<|image_pad|>"],
        "video_token_id": special_ids["<|video_pad|>"],
        "vision_start_token_id": special_ids["<|vision_start|>"],
        "vision_end_token_id": special_ids["<|vision_end|>"],
        "text_config": {
            **spread,
            "vocab_size": vocab_size,
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": num_layers,
            "num_attention_heads": width // head_width,
            "num_key_value_heads": max(1, width // head_width // 2),
            "head_dim": head_width,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
            "rope_parameters": _rope(theta=100_000.0, sections=_thirds(head_width // 2)),
        },
        "vision_config": {
            **spread,
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": width,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
    }


def _rope(*, theta: float, sections: tuple[int, int, int]) -> dict[str, Any]:
    return {
        "rope_type": "default",
        "rope_theta": theta,
        "mrope_section": list(sections),
        "mrope_interleaved": True,
    }


def _thirds(total: int) -> tuple[int, int, int]:
    """Split rotary frequencies over time, height and width as the published models do; time gets the remainder."""
    third = total // 3
    return total - 2 * third, third, third
