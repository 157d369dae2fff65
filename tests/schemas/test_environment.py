from focusmem.schemas import dump_record, parse_record
from focusmem.schemas.environment import collect_environment
from focusmem.schemas.run import Environment


def test_tells_where_it_ran_and_can_be_stored():
    found = collect_environment({"tasks": 3}, {"accelerator": "none"})
    assert found.seeds == {"tasks": 3}
    assert found.hardware["accelerator"] == "none"
    assert "torch" in found.packages
    assert parse_record(Environment, dump_record(found), "environment") == found
