import pytest

from focusmem.agent.decision import Decision
from focusmem.errors import ConfigError
from focusmem.lab.memory.misled import LabMisleading, MisledRetriever
from focusmem.lab.suite import LabSuite, LabSuiteConfig
from focusmem.lab.world.misleading import label_of
from focusmem.lab.world.rollout import roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import make_task
from focusmem.recipes.run_parts import Parts
from focusmem.recipes.run_settings import MemorySettings, RunSettings, SuiteSettings
from focusmem.recipes.run_suite import make_suite
from focusmem.schemas import Observation


def first_decision(world, task):
    first = roll_out(world, task, Solver.expert(world, task)).steps[0]
    return Decision(task.task, "1", Observation(screenshot_of(world, first), "", "", ()))


def settings(**memory):
    suite = SuiteSettings(name="lab-entries", lab=LabSuiteConfig(num_tasks=1))
    return RunSettings(suite=suite, memory=MemorySettings(**memory))


def test_near_misses_come_in_place_of_hits(world):
    task = make_task(world, "eo-3", "errand", "evaluation", 0)
    retriever = MisledRetriever(world, LabMisleading(labels=("near", "stale"), replaces_hits=True, num_each=2))
    decision = first_decision(world, task)
    [search] = retriever.find([decision], 3, 3)
    names = [found.hit.trajectory_id for found in search.found]
    assert [label_of(name) for name in names] == ["near", "stale", "near"]
    assert [found.hit.rank for found in search.found] == [0, 1, 2]
    assert all(retriever.load(name).trajectory.trajectory_id == name for name in names)


def test_a_run_can_be_misled():
    misleading = LabMisleading(labels=("near",), replaces_hits=True)
    chosen = settings(name="retrieved", lab_misleading=misleading)
    assert isinstance(Parts(chosen, make_suite(chosen)).retriever, MisledRetriever)


@pytest.mark.parametrize(
    ("memory", "message"),
    [({"name": "replay"}, "adds to the bank"), ({"name": "retrieved", "bank": "b"}, "adds to the bank")],
)
def test_what_cannot_be_misled_says_so(memory, message):
    chosen = settings(lab_misleading=LabMisleading(labels=("near",)), **memory)
    with pytest.raises(ConfigError, match=message):
        Parts(chosen, LabSuite(chosen.suite.lab, name="lab-entries"))
