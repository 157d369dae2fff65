"""The whole memory pathway's config, and its form on disk."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from focusmem.errors import ConfigError
from focusmem.model.compressor import CompressorConfig
from focusmem.model.gate import GateConfig
from focusmem.model.lora import LoraConfig
from focusmem.model.readout import ReadoutConfig

StateSource = Literal["embeddings", "hidden"]


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """Every default is the paper's."""

    lora: LoraConfig = field(default_factory=LoraConfig)
    compressor: CompressorConfig = field(default_factory=CompressorConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    state_source: StateSource = "embeddings"
    """u_t: the mean of the context's input embeddings (free), or of the policy's hidden states."""
    state_layer: int | None = None
    """With `hidden`: after how many of the policy's blocks to stop; costs that share of a prefill."""

    def __post_init__(self) -> None:
        if self.state_source not in get_args(StateSource):
            raise ConfigError(
                f"MemoryConfig.state_source is '{self.state_source}'; choose one of {get_args(StateSource)}."
            )
        if (self.state_source == "hidden") != (self.state_layer is not None):
            raise ConfigError(
                f"MemoryConfig.state_layer is {self.state_layer} with state_source '{self.state_source}'; "
                "give a layer with 'hidden' and none with 'embeddings'."
            )
        if self.gate.shares_projection and self.state_source != "embeddings":
            raise ConfigError(
                "GateConfig.shares_projection is for a state of embeddings, but MemoryConfig.state_source is "
                f"'{self.state_source}'."
            )


def config_to_dict(config: MemoryConfig) -> dict[str, Any]:
    return asdict(config)


def config_from_dict(values: dict[str, Any]) -> MemoryConfig:
    """The inverse of `config_to_dict`; unknown fields are errors."""
    config: MemoryConfig = _build(MemoryConfig, values, "MemoryConfig")
    return config


def _build(kind: type[Any], values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise ConfigError(f"{where} should be an object with named fields, not {type(values).__name__}.")
    unknown = set(values) - {one.name for one in fields(kind)}
    if unknown:
        raise ConfigError(f"{where} has no field {', '.join(sorted(unknown))}; this focusmem may be too old for it.")
    hints = get_type_hints(kind)
    arguments = {}
    for name, value in values.items():
        build = _build if is_dataclass(hints[name]) else _checked
        arguments[name] = build(hints[name], value, f"{where}.{name}")
    return kind(**arguments)


def _checked(hint: Any, value: Any, where: str) -> Any:
    value = tuple(value) if isinstance(value, list) else value
    try:
        return TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        raise ConfigError(f"{where} is {value!r:.60}. {error.errors()[0]['msg']}.") from error


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name, for comparing two of them and naming what differs."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
