"""How a trained memory departs from the paper's configuration, for the memory's card.

Settings are compared field by field with the paper's settings. The recipe lists departures that are not settings, such
as how trajectories are found and who writes the lessons. Sizes and names of models are listed separately, as scale.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from focusmem.model.backbone import HUB_ID
from focusmem.model.checkpoint import Checkpoint
from focusmem.settings import differences, flattened

RECIPE_NOTE: Final = "recipe"
DEPARTURES_NOTE: Final = "departures"
SCALE_NOTE: Final = "scale"
ROUNDED: Final = "weights are rounded to bfloat16 when a stage ends"
"""The sentence on the card of a memory if a stage of its training rounded weights to bfloat16."""

_SCALE: Final = frozenset(
    {
        "policy", "embedder", "data.prompts", "batching.num_epochs", "loop_a.num_steps", "loop_b.num_steps",
        "variant.memory.lora.rank", "variant.memory.compressor.width", "variant.memory.compressor.num_heads",
        "variant.memory.readout.hidden_width", "variant.memory.gate.hidden_width",
    }
)  # fmt: skip
"""Settings that follow from the size of the policy and of the data."""
_NOT_COMPARED: Final = frozenset(
    {
        "recipe", "variant.name", "variant.acts_fixed", "start", "device", "seed", "evaluation", "data.trajectories",
        "data.bank", "num_workers", "save_every_steps", "log_every_steps", "max_minutes", "recomputes_blocks",
        "packs_rows", "stores_half", "num_passes", "max_group_tokens", "max_query_change", "num_held_out",
    }
)  # fmt: skip
"""Settings that are not compared: folders, speed, random numbers, and settings that the card shows elsewhere or in
words."""
_MODELS: Final = frozenset({"policy", "embedder"})
_WORDING: Final = "data.prompts"


@dataclass(frozen=True)
class Departures:
    recipe: str | None
    """The name of the recipe; None if the card does not say."""
    departures: tuple[str, ...] = ()
    """A line for each departure: a setting with its value and the paper's value, or a sentence."""
    scale: tuple[str, ...] = ()

    @classmethod
    def of(cls, stored: Checkpoint) -> "Departures":
        notes = stored.notes
        return cls(notes.get(RECIPE_NOTE), tuple(notes.get(DEPARTURES_NOTE, ())), tuple(notes.get(SCALE_NOTE, ())))

    def notes(self) -> dict[str, Any]:
        return {RECIPE_NOTE: self.recipe, DEPARTURES_NOTE: list(self.departures), SCALE_NOTE: list(self.scale)}


@dataclass(frozen=True)
class Origin:
    """What the settings of a training are compared with."""

    recipe: str
    paper: Mapping[str, Any]
    """The paper's settings of the same variant, as plain values."""
    named: Sequence[str] = field(default_factory=tuple)
    """Departures that are not settings of the paper, as sentences."""
    scale: Sequence[str] = field(default_factory=tuple)
    """Sizes and models that are not settings, as sentences."""

    def departures(self, settings: Mapping[str, Any], start: Checkpoint | None = None) -> Departures:
        """The departures of a training with these settings, including those of the memory that it begins with."""
        lines = list(Departures.of(start).departures) if start is not None else []
        stage_b = settings["variant"]["stage_b"]
        if stage_b is None:
            lines.append("there is no stage B: the fixed blocks of stage A act")
        paper, own = flattened(self.paper), flattened(settings)
        both = {name for name in paper.keys() & own.keys() if not name.startswith(_unused(stage_b))}
        changed = differences(
            {name: paper[name] for name in both}, {name: own[name] for name in both}, free=_NOT_COMPARED
        )
        told = {
            name: f"{name} is {_shown(name, now)} (paper: {_shown(name, before)})"
            for name, (before, now) in changed.items()
        }
        lines += [line for name, line in told.items() if name not in _SCALE]
        lines += self.named
        if any(loop["stores_half"] for loop in _loops(settings)):
            lines.append(ROUNDED)
        scale = [*self.scale, *(line for name, line in told.items() if name in _SCALE)]
        return Departures(self.recipe, tuple(dict.fromkeys(lines)), tuple(scale))


def _unused(stage_b: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Prefixes of the names of settings that have no effect without a stage B, a readout or a gate."""
    switches = stage_b or {"is_dynamic": False, "is_gated": False}
    names = [] if stage_b else ["variant.stage_b", "loop_b."]
    names += [] if switches["is_dynamic"] else ["variant.memory.readout.", "loop_b.readout_rate_times"]
    names += [] if switches["is_dynamic"] or switches["is_gated"] else ["variant.memory.state_"]
    names += [] if switches["is_gated"] else ["variant.memory.gate.", "loop_b.gate_rate_times", "thresholds"]
    return tuple(names)


def _loops(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The loop settings of each stage that is trained."""
    stage_b, gate = settings["variant"]["stage_b"], settings.get("gate")
    if settings["start"] is None or stage_b is None:
        yield settings["loop_a"]
    if stage_b is not None:
        yield settings["loop_b"]
        if gate is not None and stage_b["is_gated"] and not settings["variant"]["acts_fixed"]:
            yield gate


def _shown(name: str, value: Any) -> str:
    """A setting's value. Of a folder only the name is shown, because a card is published and the path is private."""
    if value is None:
        return "not set"
    if name == _WORDING:
        return "own wording"
    if name in _MODELS:
        return _name_of_model(str(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name_of_model(source: str) -> str:
    """The name of a model: a hub id or a short name as it is, or the last part of a folder's path."""
    is_hub_id = HUB_ID.fullmatch(source) is not None and not Path(source).is_dir()
    return source if is_hub_id else Path(source).absolute().name
