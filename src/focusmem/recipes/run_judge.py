"""Judges by name, from the settings of a run or of `focusmem judge`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import NonNegativeFloat, PositiveInt

from focusmem.clients.base import ChatClient
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.clients.options import EndpointOptions
from focusmem.errors import ConfigError
from focusmem.judges.action_validity import ActionValidityJudge
from focusmem.judges.automatic import AutomaticReward
from focusmem.judges.base import Judge
from focusmem.judges.chat_judge import ChatJudge, chosen_profile
from focusmem.judges.content_probe import ContentProbeJudge
from focusmem.judges.deepshop import DeepShopJudge
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.judges.judge_model import JudgeModel
from focusmem.judges.mmina import MminaJudge
from focusmem.judges.screening import Auditor
from focusmem.judges.webjudge import WebJudge
from focusmem.judges.webvoyager import WebVoyagerJudge
from focusmem.settings import checked_dataclass

KEY_VARIABLE: Final = "FOCUSMEM_JUDGE_KEY"
"""The environment variable that holds the key of a judge model's endpoint."""

JUDGE_OPTIONS: Final = EndpointOptions(timeout_s=300.0)
"""Longer than those of a policy: judge models think, and see many screenshots."""

JUDGE_REPLIES: Final = "judge_replies"
"""The folder of a judge model's replies in a run's."""

_OFFICIAL_SEED: Final = 42
"""The seed of WebVoyager's own script."""


@checked_dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """How a judge model is asked. Judges that are rules, such as `exact`, need none of this."""

    profile: str | None = None
    """The variant of the rules, such as `paper` or `official`; None uses the judge's first one."""
    model: str | None = None
    """The model's name at the endpoint; None uses the one that the profile asks for."""
    url: str | None = None
    """The endpoint up to the API version. Without one, attempts that only a model can judge stay `not_judged`."""
    prompts: Path | None = None
    """A folder with other wordings: a folder for each judge, and in it one for each profile."""
    needs_answer: bool | None = None
    """Whether an attempt without an answer fails without a call; None follows the profile."""
    temperature: NonNegativeFloat = 0.0
    max_tokens: PositiveInt = 4096
    """Limit of a reply, thoughts included. A verdict that is cut off cannot be read."""
    num_together: PositiveInt = 8
    """Questions and attempts under way at the same time."""
    endpoint: EndpointOptions = JUDGE_OPTIONS
    """Limits and prices of the endpoint, and where its replies are kept; without a folder, in the run's."""


CHAT_JUDGES: Final[Mapping[str, type[ChatJudge]]] = {
    judge.name: judge for judge in (MminaJudge, WebVoyagerJudge, DeepShopJudge, WebJudge)
}
RULE_JUDGES: Final[Mapping[str, type[ExactAnswer] | type[AutomaticReward]]] = {
    "exact": ExactAnswer,
    "automatic": AutomaticReward,
}
JUDGE_NAMES: Final = (*CHAT_JUDGES, *RULE_JUDGES)
"""The judges of whole attempts."""


def make_judge(name: str, settings: JudgeSettings, *, client: ChatClient | None = None) -> Judge:
    """The judge of this name. `client` replaces the endpoint."""
    if name in RULE_JUDGES:
        return RULE_JUDGES[name]()
    if name not in CHAT_JUDGES:
        raise ConfigError(f"There is no judge '{name}'; choose one of {', '.join(JUDGE_NAMES)}.")
    kind = CHAT_JUDGES[name]
    return kind(
        judge_model(name, kind.profiles, settings, client),
        profile=settings.profile,
        prompts=settings.prompts,
        needs_answer=settings.needs_answer,
    )


def with_store(settings: JudgeSettings, run: Path) -> JudgeSettings:
    """The settings with a place for the endpoint's replies. It is the run's own, so that no reply is paid twice."""
    if settings.endpoint.store is not None:
        return settings
    return replace(settings, endpoint=replace(settings.endpoint, store=run / JUDGE_REPLIES))


def make_auditor(settings: JudgeSettings, *, client: ChatClient | None = None) -> Auditor:
    """The auditor that screens a suite."""
    return Auditor(judge_model(Auditor.name, Auditor.profiles, settings, client), prompts=settings.prompts)


def make_probe_judge(settings: JudgeSettings, *, client: ChatClient | None = None) -> ContentProbeJudge:
    model = judge_model(ContentProbeJudge.name, ContentProbeJudge.profiles, settings, client)
    return ContentProbeJudge(model, prompts=settings.prompts)


def make_action_judge(settings: JudgeSettings, *, client: ChatClient | None = None) -> ActionValidityJudge:
    model = judge_model(ActionValidityJudge.name, ActionValidityJudge.profiles, settings, client)
    return ActionValidityJudge(model, prompts=settings.prompts)


def judge_model(
    name: str, profiles: Mapping[str, str], settings: JudgeSettings, client: ChatClient | None
) -> JudgeModel:
    """The model that a judge asks, with what departs from the judge's profile."""
    profile = chosen_profile(name, profiles, settings.profile)
    asked_for = profiles[profile]
    model = settings.model or asked_for
    if client is None and settings.url is not None:
        client = _client(settings, settings.url, model)
    departures = (
        [] if is_same_model(model, asked_for) else [f"judged by {model}, where the profile asks for {asked_for}"]
    )
    if settings.temperature > 0:
        departures.append(f"temperature {settings.temperature:g}, where the profile asks for 0")
    return JudgeModel(
        client,
        name=model,
        max_together=settings.num_together,
        temperature=settings.temperature,
        seed=_OFFICIAL_SEED if profile == "official" else None,
        departures=tuple(departures),
    )


def is_same_model(model: str, asked_for: str) -> bool:
    """Whether a name means the model: providers put a path before names (`google/`) and a version or a date behind."""
    name = model.rpartition("/")[2].lower()
    rest = name.removeprefix(asked_for)
    return name == asked_for or (rest != name and (rest == "-preview" or rest.lstrip("-").replace("-", "").isdecimal()))


def _client(settings: JudgeSettings, url: str, model: str) -> ChatClient:
    config = ChatConfig.of(
        url,
        model,
        settings.endpoint,
        key_variable=KEY_VARIABLE,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
    )
    return OpenAIChat(config)
