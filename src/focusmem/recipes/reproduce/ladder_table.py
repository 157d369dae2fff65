"""What the ladder has found so far: success by suite and variant over seeds, paired gains, vital signs, and what the
gate lets in.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from focusmem.evaluation.comparison import Pair, ReadRun, difference
from focusmem.evaluation.metrics import by_task
from focusmem.files import write_whole
from focusmem.recipes.reproduce.ladder import GATE_FILE, NEAR, NEAR_WITHOUT_GATE, SIGNS_FILE
from focusmem.recipes.reproduce.plan import Plan
from focusmem.recipes.run_settings import LAB, LAB_ENTRIES

_GAINS: Final = (
    ("full", "action-only"), ("readout", "content"), ("content", "action-only"), ("full", "readout"),
    ("full", "paper"), ("full", "none"), ("action-only", "none"), ("retrieved", "none"), ("replay", "none"),
)  # fmt: skip
"""The rows that are compared: the first minus the second."""
_WITHOUT_GATE: Final = " without gate"

Runs = Mapping[str, Mapping[int | None, ReadRun]]
"""By memory, then by seed; None for what is not trained."""


def write_results(plan: Plan, scale: str) -> dict[str, Any]:
    """Computes the tables from the finished units and writes results.json and results.md into the plan's folder."""
    results = ladder_results(plan, scale)
    write_whole(plan.folder / "results.json", json.dumps(results, indent=2).encode())
    write_whole(plan.folder / "results.md", "\n".join(_markdown(results)).encode())
    return results


def ladder_results(plan: Plan, scale: str) -> dict[str, Any]:
    finished = [unit.name for unit in plan.units if plan.is_finished(unit.name)]
    near = {**_runs(plan, finished, NEAR), **_runs(plan, finished, NEAR_WITHOUT_GATE, _WITHOUT_GATE)}
    beside = [(name, f"{name}{_WITHOUT_GATE}") for name in near if not name.endswith(_WITHOUT_GATE)]
    suites = {suite: _suite(_runs(plan, finished, suite), _GAINS) for suite in (LAB_ENTRIES, LAB)}
    return {
        "scale": scale,
        "num_units": len(plan.units),
        "num_finished": len(finished),
        "suites": suites | {f"{LAB_ENTRIES}, three near misses in place of the hits": _suite(near, beside)},
        "vital_signs": _stored(plan, finished, "signs", SIGNS_FILE),
        "gates": _stored(plan, finished, "gate", GATE_FILE),
    }


def _runs(plan: Plan, finished: Sequence[str], label: str, suffix: str = "") -> dict[str, dict[int | None, ReadRun]]:
    found: dict[str, dict[int | None, ReadRun]] = {}
    for unit in finished:
        path = plan.place(unit) / label
        if unit.startswith("eval-") and path.is_dir():
            memory, seed = _parts(unit.removeprefix("eval-"))
            found.setdefault(f"{memory}{suffix}", {})[seed] = ReadRun.read(path)
    return found


def _parts(name: str) -> tuple[str, int | None]:
    """The memory and the seed in the name of a unit."""
    memory, _, seed = name.rpartition("-")
    return (memory, int(seed)) if seed.isdigit() else (name, None)


def _suite(runs: Runs, gains: Sequence[tuple[str, str]]) -> dict[str, Any]:
    rows = [{"memory": memory, **_row(list(own.values()))} for memory, own in runs.items()]
    compared = [
        {"memory": first, "over": second, **gain}
        for first, second in gains
        if first in runs and second in runs
        for gain in [_gain(runs[first], runs[second])]
        if gain is not None
    ]
    return {"rows": rows, "gains": compared}


def _row(runs: Sequence[ReadRun]) -> dict[str, Any]:
    rates = [run.figures["success_rate"] for run in runs]
    return {
        "num_seeds": len(runs),
        "num_tasks": len(runs[0].manifest.tasks),
        "success_rate": None if None in rates else sum(rates) / len(rates),
        "success_rates": rates,
        "num_errors": sum(run.figures["num_errors"] for run in runs),
        "passage": _passage(runs),
    }


def _passage(runs: Sequence[ReadRun]) -> float | None:
    """The share of offered trajectories, without the history, that the gate let in; None without a gate."""
    accepted = [
        item.is_accepted
        for run in runs
        for one in run.episodes
        for notes in one.episode.notes
        for item in notes.offered
        if item.role == "episodic" and item.threshold_logit is not None
    ]
    return sum(accepted) / len(accepted) if accepted else None


def _gain(first: Mapping[int | None, ReadRun], second: Mapping[int | None, ReadRun]) -> dict[str, Any] | None:
    """The paired difference over the seeds that both have; an untrained memory stands against every seed. A task is one
    pair, whatever the number of seeds, because its attempts resemble each other.
    """
    is_trained = None not in first and None not in second
    both = first.keys() & second.keys()
    if is_trained and not both:
        return None
    chosen = [[run for seed, run in own.items() if not is_trained or seed in both] for own in (first, second)]
    episodes = [by_task(one for run in runs for one in run.episodes if one.outcome != "not_judged") for runs in chosen]
    kind_of = chosen[0][0].manifest.kind_of
    pairs = [
        Pair(episodes[0][task], episodes[1][task], kind)
        for task, kind in kind_of.items()
        if all(task in own for own in episodes)
    ]
    if not pairs:
        return None
    is_single = all(len(runs) == 1 for runs in chosen)
    return {"num_seeds": max(map(len, chosen)), **difference(pairs, is_single=is_single)}


def _stored(plan: Plan, finished: Sequence[str], kind: str, name: str) -> dict[str, Any]:
    units = [unit for unit in finished if unit.startswith(f"{kind}-")]
    return {unit.removeprefix(f"{kind}-"): json.loads((plan.place(unit) / name).read_text()) for unit in units}


# As Markdown


def _markdown(results: Mapping[str, Any]) -> Iterator[str]:
    done, num = results["num_finished"], results["num_units"]
    yield f"# The laboratory's ladder: {done} of {num} units\n"
    if results["scale"] != "full":
        yield f"A rehearsal at the scale `{results['scale']}`. The figures say nothing about memory.\n"
    for suite, tables in results["suites"].items():
        yield f"## {suite}\n"
        yield from _table(("memory", "seeds", "tasks", "success", "each seed", "passage"), map(_cells, tables["rows"]))
        yield from _table(("memory", "over", "seeds", "difference", "95 % interval"), map(_gain_cells, tables["gains"]))
    yield "## Vital signs on validation sites\n"
    columns = ("memory", "nats, own states", "nats, shuffled", "query change", "inert")
    yield from _table(columns, [_sign_cells(name, one) for name, one in results["vital_signs"].items()])
    yield "## Gates on evaluation sites\n"
    gates = [
        (
            name,
            _percent(one.get("right_passage")),
            _percent(one.get("misleading_passage")),
            _number(one.get("gate_auc")),
        )
        for name, one in results["gates"].items()
    ]
    yield from _table(("memory", "right blocks in", "misleading blocks in", "area under the curve"), gates)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    each = ", ".join(map(_percent, row["success_rates"]))
    rate = _percent(row["success_rate"])
    return row["memory"], str(row["num_seeds"]), str(row["num_tasks"]), rate, each, _percent(row["passage"])


def _gain_cells(gain: Mapping[str, Any]) -> tuple[str, ...]:
    interval = gain["success_difference_interval"]
    shown = "-" if interval is None else f"{100 * interval[0]:+.1f} to {100 * interval[1]:+.1f}"
    points = f"{100 * gain['success_difference']:+.1f} points"
    return gain["memory"], gain["over"], str(gain["num_seeds"]), points, shown


def _sign_cells(name: str, signs: Mapping[str, Any]) -> tuple[str, ...]:
    readout = signs["on_validation_sites"].get("readout", {})
    numbers = [_number(readout.get(field)) for field in ("own_nats", "shuffled_nats", "query_change")]
    is_inert = readout.get("is_inert")
    return name, *numbers, "-" if is_inert is None else "yes" if is_inert else "no"


def _table(columns: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
