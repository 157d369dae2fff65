import json

import pytest

from focusmem.errors import ConfigError
from focusmem.lab.policy.examination import ExaminationConfig, examine, fields_right
from focusmem.model.backbone import Backbone

STATE = json.dumps({"latest_observed_state": "home", "last_recorded_action": {"name": "wait", "arguments": {}}})


def test_every_field_that_agrees_counts():
    assert fields_right("working_state", STATE, STATE) == [True, True]
    other = json.loads(STATE) | {"latest_observed_state": "dialog"}
    assert fields_right("working_state", STATE, json.dumps(other)) == [False, True]


def test_what_is_missing_or_added_is_wrong():
    fields = json.loads(STATE)
    added = fields | {"guess": "more"}
    assert fields_right("working_state", STATE, json.dumps(added)) == [True, True, False]
    fields.pop("latest_observed_state")
    assert fields_right("working_state", STATE, json.dumps(fields)) == [False, True]


@pytest.mark.parametrize("reply", ["", "no JSON", "[1, 2]", '"home"'])
def test_a_reply_of_another_shape_has_nothing_right(reply):
    assert fields_right("working_state", STATE, reply) == [False, False]


def test_descriptions_are_compared_clause_by_clause():
    truth = "Wiror Depot, a market. home; results for mug. search wants the full name. answer $3.20."
    assert all(fields_right("describe", truth, truth))
    wrong = truth.replace("results for mug", "results for cup")
    assert fields_right("describe", truth, wrong).count(False) == 1
    longer = truth.replace("home;", "home; dialog;")
    assert fields_right("describe", truth, longer) == [*fields_right("describe", truth, truth), False]


def test_an_untrained_policy_is_found_to_know_nothing():
    results = examine(Backbone.toy(), ExaminationConfig(num_values=2, num_records=2, batch_size=4))
    assert results["values_read"] | {"by_name": {}} == {
        "right_rate": 0.0, "interval": results["values_read"]["interval"], "num": 2, "by_name": {},
    }  # fmt: skip
    assert results["fields_right"]["right_rate"] == 0.0
    assert set(results["fields_right"]["by_name"]) == {
        "describe", "episodic_summary", "episodic_anchor", "working_state", "working_change",
    }  # fmt: skip


def test_config_names_the_field():
    with pytest.raises(ConfigError, match="num_values"):
        ExaminationConfig(num_values=0)


@pytest.mark.slow
def test_skills_at_offices_are_examined_if_they_are_asked_for(policy):
    config = ExaminationConfig(num_values=1, num_records=1, num_entries=2, num_requests=3, num_probed=2, batch_size=8)
    results = examine(policy, config)
    assert set(results["entries_right"]["by_name"]) == {"told", "seen", "record"}
    assert results["entries_right"]["num"] == 6
    assert results["requests_right"]["num"] == 3
    assert len(results["probes_right"]["by_name"]) == 6
    assert results["entries_right"]["right_rate"] == results["requests_right"]["right_rate"] == 0.0
