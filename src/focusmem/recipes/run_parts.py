"""The parts of a run, built from its settings: suite, policy, bank, front. Several runs may share loaded parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from focusmem.agent.api import trained_use
from focusmem.agent.bank_retriever import BankRetriever
from focusmem.agent.formats.base import ActionFormat
from focusmem.agent.formats.registry import make_format
from focusmem.agent.fronts.base import Front
from focusmem.agent.fronts.empty import EmptyFront
from focusmem.agent.fronts.latent import LatentFront, MemoryUse
from focusmem.agent.fronts.turns import ShowTrajectory, TurnsFront, show_raw, show_words
from focusmem.agent.local_policy import LocalPolicy
from focusmem.agent.policy import Policy
from focusmem.agent.policy_mind import PolicyMind
from focusmem.agent.prompt import PromptBuilder
from focusmem.agent.retrieval import Retriever
from focusmem.bank.base import SearchableBank
from focusmem.bank.embedder import Embedder, QwenEmbedder
from focusmem.bank.opening import open_bank
from focusmem.errors import ConfigError
from focusmem.evidence import Serialiser
from focusmem.files import cache_folder, sha256_hex
from focusmem.lab.memory.embedder import is_update
from focusmem.lab.memory.embedder import load_embedder as load_update
from focusmem.lab.memory.misled import LabMisleading, MisledRetriever
from focusmem.lab.memory.oracle import OracleRetriever, show_notes
from focusmem.lab.memory.recall import LabBank, searchable
from focusmem.lab.memory.variants import VARIANTS, load_memory, variant
from focusmem.lab.policy.texts import Texts
from focusmem.lab.shipped import SHIPPED_MEMORIES, Weights
from focusmem.lab.suite import LabSuite
from focusmem.lab.world.misleading import misleading_rollouts
from focusmem.lab.world.tasks import site_names
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.devices import fast_dtype, usable_device
from focusmem.model.evidence_cache import EvidenceCache
from focusmem.recipes.run_settings import LAB, LAB_SUITES, PolicySettings, RunSettings
from focusmem.recipes.run_suite import is_address
from focusmem.settings import nearest
from focusmem.suites.base import Suite

LATENT = "latent"
"""A trained memory of any variant. Its trained parts act."""


@dataclass(frozen=True)
class Wording:
    """The wording of a policy's prompts."""

    prompt: PromptBuilder
    serialise: Serialiser
    fronts: Path | None = None
    """A folder with another wording of the fronts' texts."""

    @classmethod
    def of(cls, source: str | None, *, shows_errors: bool = True) -> "Wording":
        """The wording for a name: None is our own wording, `lab` the laboratory's, and anything else is a folder."""
        if source == LAB:
            texts = Texts.load(shows_errors=shows_errors)
            return cls(texts.prompt, texts.serialise)
        if source is None:
            return cls(PromptBuilder(shows_errors=shows_errors), Serialiser(shows_errors=shows_errors))
        fronts = Path(source) / "fronts"
        return cls(
            PromptBuilder(Path(source) / "agent", shows_errors=shows_errors),
            Serialiser(Path(source) / "evidence", shows_errors=shows_errors),
            fronts if fronts.is_dir() else None,
        )

    @property
    def digest(self) -> str:
        """Equal for equal wordings."""
        return sha256_hex(f"{self.prompt.digest} {self.serialise.digest}".encode())


class Parts:
    """Loads each part once, when it is first needed. `share` makes the parts of another run that use the
    same policy.
    """

    def __init__(self, settings: RunSettings, suite: Suite, weights: Weights | None = None) -> None:
        self.settings, self.suite, self.weights = settings, suite, weights or Weights()
        self._check()

    def share(self, settings: RunSettings) -> "Parts":
        if settings.policy != self.settings.policy or settings.suite != self.settings.suite:
            raise ConfigError("Runs that share their parts need the same suite and the same policy.")
        other = Parts(settings, self.suite, self.weights)
        other.policy = self.policy
        return other

    def _check(self) -> None:
        """Checks everything that can be checked before anything is loaded."""
        memory = self.settings.memory
        _check_policy(self.settings)
        if memory.name not in memory_names():
            raise ConfigError(
                f"There is no memory '{memory.name}'; choose one of {', '.join(memory_names())}."
                f"{nearest(memory.name, memory_names())}"
            )
        if memory.name in _OF_LAB and not isinstance(self.suite, LabSuite):
            raise ConfigError(
                f"The memory '{memory.name}' knows the laboratory's own answers; use it with {' or '.join(LAB_SUITES)}."
            )
        if memory.lab_misleading.labels:
            self._check_misleading()
        if memory.checkpoint is not None and not self.is_latent:
            raise ConfigError(
                f"memory.checkpoint is {memory.checkpoint}, but the memory '{memory.name}' is not a trained one; leave "
                f"it out, or choose {LATENT} or one of {', '.join(VARIANTS)}."
            )
        if self.is_latent and self.checkpoint is None:
            raise ConfigError(
                f"The memory '{memory.name}' needs a checkpoint, the folder that training printed at its end; give it "
                f"with --checkpoint. Only {' and '.join(SHIPPED_MEMORIES)} ship, for the shipped policy."
            )

    def _check_misleading(self) -> None:
        memory = self.settings.memory
        if not isinstance(self.suite, LabSuite):
            raise ConfigError("memory.lab_misleading is for the laboratory only; leave it out.")
        if not memory.lab_misleading.replaces_hits and (memory.bank is not None or memory.name in _OF_LAB):
            raise ConfigError(
                "memory.lab_misleading adds to the bank of all experts, but this run searches another one; leave out "
                "--bank, or set memory.lab_misleading.replaces_hits=true."
            )
        if memory.name == "notes":
            raise ConfigError("The memory 'notes' has no words about misleading trajectories; choose another one.")

    @property
    def is_latent(self) -> bool:
        return self.settings.memory.name in (LATENT, *VARIANTS)

    @property
    def is_lab_suite(self) -> bool:
        return isinstance(self.suite, LabSuite)

    @property
    def is_shipped_policy(self) -> bool:
        return self.settings.policy.name == LAB

    @property
    def checkpoint(self) -> Path | None:
        memory = self.settings.memory
        if memory.checkpoint is not None:
            return Path(memory.checkpoint)
        ships = self.is_shipped_policy and memory.name in SHIPPED_MEMORIES
        return self.weights.memory(memory.name) if ships else None

    @cached_property
    def policy(self) -> Policy:
        return load_policy(self.settings.policy, self.weights)

    @property
    def backbone(self) -> Backbone:
        if isinstance(self.policy, LocalPolicy):
            return self.policy.backbone
        raise ConfigError(
            f"The memory '{self.settings.memory.name}' needs a policy in this process, because it reads the policy's "
            "embeddings; give a folder or a hub id as --policy."
        )

    @cached_property
    def wording(self) -> Wording:
        source = None if self.action_format else self.settings.policy.prompts
        is_lab = self.is_shipped_policy or isinstance(self.suite, LabSuite)
        return Wording.of(LAB if source is None and is_lab else source, shows_errors=self.shows_errors)

    @cached_property
    def action_format(self) -> ActionFormat | None:
        """The format of a foreign agent; None for our own."""
        policy = self.settings.policy
        prompts = None if policy.prompts is None else Path(policy.prompts)
        return make_format(policy.format, prompts, shows_errors=policy.shows_errors is not False)

    @property
    def prompts_digest(self) -> str:
        """Equal for equal wordings of everything that the policy is asked."""
        return (self.action_format or self.wording).digest

    @property
    def shows_errors(self) -> bool:
        """Whether prompts say which actions failed. A trained memory gets the prompts of its training; without one, the
        settings decide.
        """
        asked = self.settings.policy.shows_errors
        if self.checkpoint is None:
            return asked is not False
        trained = Checkpoint.open(self.checkpoint).trained_with_errors()
        if asked not in (None, trained):
            raise ConfigError(
                f"policy.shows_errors is {str(asked).lower()}, but the memory in {self.checkpoint} was trained with "
                f"prompts {'with' if trained else 'without'} error messages; leave the setting out."
            )
        return trained

    @cached_property
    def front(self) -> Front:
        return FRONTS.get(self.settings.memory.name, _latent_front)(self)

    @cached_property
    def embedder(self) -> Embedder:
        source = self.settings.memory.embedder or (LAB if self.is_shipped_policy else None)
        if source is None:
            raise ConfigError(
                f"The memory '{self.settings.memory.name}' searches a bank and needs its embedder; give it with "
                "--embedder."
            )
        return _load_embedder(self, source)

    @cached_property
    def bank(self) -> SearchableBank:
        """The given bank; otherwise, in the laboratory, all trajectories of experts; otherwise the bank that ships."""
        memory = self.settings.memory
        if memory.bank is None and isinstance(self.suite, LabSuite):
            return _experts_bank(self.suite, self.embedder, memory.lab_bank_sites, memory.lab_misleading)
        if memory.bank is None and not self.is_shipped_policy:
            raise ConfigError(f"The memory '{memory.name}' finds trajectories in a bank; give it with --bank.")
        return open_bank(bank_folder(memory.bank or LAB, self.weights))

    @cached_property
    def retriever(self) -> Retriever | None:
        if not self.front.num_found:
            return None
        memory = self.settings.memory
        if memory.lab_misleading.labels and memory.lab_misleading.replaces_hits:
            assert isinstance(self.suite, LabSuite), "checked above"
            return MisledRetriever(self.suite.world, memory.lab_misleading)
        if memory.name in _OF_LAB:
            return self.oracle
        return BankRetriever(self.bank, self.embedder, outcomes=memory.outcomes, only_trusted=memory.only_trusted)

    @cached_property
    def oracle(self) -> OracleRetriever:
        assert isinstance(self.suite, LabSuite), "checked above"
        return OracleRetriever(self.suite.world)

    def mind(self) -> PolicyMind:
        history = self.wording.serialise if self.settings.memory.shows_history else None
        return PolicyMind(
            self.policy,
            self.front,
            retriever=self.retriever,
            prompt=self.wording.prompt,
            history=history,
            seed=self.settings.policy.seed,
            action_format=self.action_format,
        )


# Fronts by name


def memory_names() -> tuple[str, ...]:
    return (*FRONTS, LATENT, *VARIANTS)


def _empty_front(parts: Parts) -> Front:
    return EmptyFront()


def _words_front(parts: Parts) -> Front:
    return _turns_front(parts, show_words(parts.wording.fronts), parts.settings.memory.num_found)


def _raw_front(parts: Parts) -> Front:
    return _turns_front(parts, show_raw(parts.wording.serialise), parts.settings.memory.num_found)


def _notes_front(parts: Parts) -> Front:
    return _turns_front(parts, show_notes(parts.oracle), 1)


def _replay_front(parts: Parts) -> Front:
    return _turns_front(parts, show_raw(parts.wording.serialise), 1)


def _turns_front(parts: Parts, show: ShowTrajectory, num_found: int) -> Front:
    return TurnsFront(parts.settings.memory.name, show, parts.policy.num_tokens, num_found=num_found)


FRONTS: Mapping[str, Callable[[Parts], Front]] = {
    "none": _empty_front,
    "words": _words_front,
    "retrieved": _raw_front,
    "notes": _notes_front,
    "replay": _replay_front,
}
_OF_LAB = ("notes", "replay")
"""Fronts that need the laboratory's own knowledge."""


def _latent_front(parts: Parts) -> Front:
    memory, checkpoint = parts.settings.memory, parts.checkpoint
    assert checkpoint is not None, "checked when the parts were made"
    if memory.name == LATENT:
        stored = Checkpoint.open(checkpoint)
        model, use = stored.build(parts.backbone), trained_use(stored)
    else:
        chosen = variant(memory.name)
        model = load_memory(parts.backbone, checkpoint, memory.name)
        use = MemoryUse(is_dynamic=chosen.is_dynamic, is_gated=chosen.is_gated)
    use = memory.use or replace(use, num_episodic=memory.num_found)
    cache = EvidenceCache(model, memory.cache)
    return LatentFront(model, parts.wording.serialise, use, name=memory.name, cache=cache)


# Policies, embedders and banks


def _check_policy(settings: RunSettings) -> None:
    policy, memory = settings.policy, settings.memory
    if policy.model is not None and not is_address(policy.name):
        raise ConfigError(
            f"policy.model is {policy.model!r}, but the policy {policy.name!r} is no endpoint; give the endpoint's URL "
            "as --policy."
        )
    if policy.format != "json" and (memory.name != "none" or memory.shows_history):
        raise ConfigError(
            f"The prompt of the format '{policy.format}' has no place for memory; use --memory none, or --format json."
        )


def load_policy(settings: PolicySettings, weights: Weights) -> Policy:
    if is_address(settings.name):
        from focusmem.agent.chat_policy import ChatPolicy

        return ChatPolicy.connect(settings.name, settings.model, settings.generation, settings.endpoint)
    device = usable_device(settings.device)
    source = weights.policy if settings.name == LAB else settings.name
    return LocalPolicy(Backbone.load(source, dtype=fast_dtype(device), device=device), settings.generation)


def _load_embedder(parts: Parts, source: str) -> Embedder:
    if source == LAB and not parts.is_shipped_policy:
        policy = load_policy(PolicySettings(device=parts.settings.policy.device), parts.weights)
        assert isinstance(policy, LocalPolicy), "the laboratory's policy is in this process"
        return load_update(policy.backbone, parts.weights.embedder)
    if source == LAB:
        return load_update(parts.backbone, parts.weights.embedder)
    if is_update(Path(source)):
        return load_update(parts.backbone, Path(source))
    embedder = QwenEmbedder.load(source, device=parts.settings.policy.device)
    if isinstance(parts.policy, LocalPolicy):
        embedder.backbone.share_vision(parts.policy.backbone)
    return embedder


def bank_folder(name: str, weights: Weights | None = None) -> Path:
    """A bank's folder; `lab` is the bank that ships."""
    return (weights or Weights()).bank if name == LAB else Path(name)


def _experts_bank(
    suite: LabSuite, embedder: Embedder, num_sites: int | None, misleading: LabMisleading
) -> SearchableBank:
    bank = LabBank(suite.world, suite.split, num_sites=num_sites)
    if misleading.labels:
        sites = site_names(suite.split)[:num_sites]
        misled = misleading_rollouts(suite.world, sites, misleading.labels, misleading.num_each)
        bank = LabBank(suite.world, suite.split, rollouts=[*bank.rollouts, *misled])
    return searchable(bank, embedder, kept=cache_folder() / "lab-bank")
