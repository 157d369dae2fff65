import json

from PIL import Image

from focusmem.training.plots import plot_run
from focusmem.training.vital_signs import VitalSigns


def line(step: int, *, gate: bool) -> dict:
    loss = {"action": 2 / step, "total": 2.1 / step} | ({"gate": 0.7 / step} if gate else {"semantic": 1 / step})
    passage = {"ordinary": 0.9, "negative": 1 / step} if gate else {"ordinary": None, "negative": None}
    return {"step": step, "loss": loss, "gradient_norm": 1.0, "passage": passage}


def write(folder, *, gate: bool) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(line(step, gate=gate)) for step in range(1, 60)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n" + lines[0][:20])


def test_draws_each_loss_and_the_gate_where_there_is_one(tmp_path):
    write(tmp_path / "a", gate=False)
    write(tmp_path / "b", gate=True)
    assert [path.name for path in plot_run(tmp_path / "a", title="stage_a")] == ["losses.png"]
    assert [path.name for path in plot_run(tmp_path / "b", title="stage_b")] == ["losses.png", "gate.png"]
    for path in tmp_path.rglob("*.png"):
        with Image.open(path) as image:
            assert image.size[0] > 500
            assert len(image.convert("RGB").getcolors(10**6)) > 50, "something is drawn"


def test_draws_the_vital_signs_that_were_measured(tmp_path):
    signs = VitalSigns(60, 0.5, 0.4, None, 1.0, 0.02).as_plain()
    lines = [line(1, gate=False), line(2, gate=False) | {"vital_signs": signs}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    assert [path.name for path in plot_run(tmp_path, title="stage_b")] == ["losses.png", "vital.png"]


def test_a_run_without_steps_has_no_pictures(tmp_path):
    assert plot_run(tmp_path, title="stage_a") == []
