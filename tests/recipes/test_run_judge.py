from pathlib import Path

import pytest

from focusmem.clients.scripted import ScriptedChat
from focusmem.errors import ConfigError
from focusmem.judges.chat_judge import ChatJudge
from focusmem.recipes.run_judge import (
    CHAT_JUDGES,
    JUDGE_NAMES,
    KEY_VARIABLE,
    JudgeSettings,
    is_same_model,
    make_action_judge,
    make_auditor,
    make_judge,
    make_probe_judge,
    with_store,
)


@pytest.mark.parametrize("name", JUDGE_NAMES)
def test_every_judge_is_made_by_its_name_without_an_endpoint(name):
    judge = make_judge(name, JudgeSettings())
    assert judge.needs_answer == (name != "automatic")
    if isinstance(judge, ChatJudge):
        assert (judge.name, judge.profile, judge.model.client, judge.model.departures) == (name, "paper", None, ())
        assert judge.model.name == "gemini-3.1-pro"


def test_the_auditor_and_the_judges_of_items_ask_for_the_papers_model():
    for make in (make_auditor, make_probe_judge, make_action_judge):
        assert make(JudgeSettings()).model.name == "gemini-3.1-pro"


@pytest.mark.parametrize(("name", "kind"), CHAT_JUDGES.items())
def test_every_profile_has_its_texts_and_asks_for_its_model(name, kind):
    for profile, model in kind.profiles.items():
        judge = make_judge(name, JudgeSettings(profile=profile), client=ScriptedChat([]))
        assert (judge.profile, judge.model.name, judge.model.departures) == (profile, model, ())
        assert judge.model.seed == (42 if profile == "official" else None)


def test_another_model_and_a_temperature_are_departures():
    judge = make_judge("webvoyager", JudgeSettings(model="Qwen/Qwen3-VL-8B-Instruct", temperature=0.5))
    assert judge.model.departures == (
        "judged by Qwen/Qwen3-VL-8B-Instruct, where the profile asks for gemini-3.1-pro",
        "temperature 0.5, where the profile asks for 0",
    )
    others = [make_judge("webvoyager", JudgeSettings(model="m", temperature=heat)).key for heat in (0.0, 0.5)]
    assert len({judge.key, *others}) == 3


@pytest.mark.parametrize(
    ("model", "asked_for", "is_same"),
    [
        ("gemini-3.1-pro", "gemini-3.1-pro", True),
        ("google/gemini-3.1-pro-preview", "gemini-3.1-pro", True),
        ("Gemini-3.1-Pro", "gemini-3.1-pro", True),
        ("o4-mini-2025-04-16", "o4-mini", True),
        ("gpt-4o-2024-11-20", "gpt-4o", True),
        ("gpt-4o-mini", "gpt-4o", False),
        ("gemini-3.1-pro-lite", "gemini-3.1-pro", False),
        ("gemini-3.1-flash", "gemini-3.1-pro", False),
        ("not-gemini-3.1-pro", "gemini-3.1-pro", False),
    ],
)
def test_a_models_name_may_have_a_path_before_and_a_date_behind(model, asked_for, is_same):
    assert is_same_model(model, asked_for) == is_same


def test_a_paper_rule_may_be_switched_off_or_on():
    settings = JudgeSettings(profile="official")
    assert not make_judge("online-mind2web", settings).needs_answer
    assert make_judge("online-mind2web", JudgeSettings(profile="official", needs_answer=True)).needs_answer


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        ("webarena", JudgeSettings(), "no judge 'webarena'; choose one of mmina"),
        (
            "mmina",
            JudgeSettings(profile="holistic"),
            "'mmina' has no profile 'holistic'; choose one of paper, official",
        ),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(name, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        make_judge(name, settings)


def test_an_endpoint_is_asked_with_the_settings_and_its_own_key(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "a-secret-key")
    settings = JudgeSettings(url="http://localhost:1/v1", model="m", max_tokens=99, temperature=0.5)
    config = make_judge("webvoyager", with_store(settings, Path("run"))).model.client.config
    assert (config.url, config.model, config.max_tokens, config.temperature) == ("http://localhost:1/v1", "m", 99, 0.5)
    assert (config.key_variable, config.timeout_s, config.store) == (KEY_VARIABLE, 300.0, Path("run/judge_replies"))
    assert "a-secret-key" not in repr(config)
