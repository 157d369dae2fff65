import io

import pytest

from focusmem.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when the test says so."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_the_line_tells_how_far_things_are(clock):
    line = Progress("encode", total=90, stream=io.StringIO())
    assert line.line() == "encode 0/90  0/s  starting"
    clock[0] += 10
    line.step(29, note="loss 1.2")
    line.step(failed=True)
    assert line.line() == "encode 30/90  loss 1.2  3/s  0:20 left  1 failed"


def test_long_work_counts_hours(clock):
    line = Progress("train", total=10_000, stream=io.StringIO())
    clock[0] += 1
    line.step()
    assert "2:46:39 left" in line.line()


def test_a_log_gets_whole_lines_now_and_then(clock):
    log = io.StringIO()
    with Progress("encode", total=40, stream=log, log_every_s=10) as line:
        for _ in range(40):
            clock[0] += 1
            line.step()
    shown = log.getvalue().splitlines()
    assert [text.split()[1] for text in shown] == ["0/40", "10/40", "20/40", "30/40", "40/40"], "the end is told once"


def test_a_terminal_redraws_one_line(clock):
    terminal = Terminal()
    with Progress("encode", total=2, stream=terminal) as line:
        for note in ("a long note", "short"):
            clock[0] += 1
            line.step(note=note)
    text = terminal.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    *_, before, last, _ = text.removesuffix("\n").split("\r")
    assert len(last) >= len(before.rstrip())
    assert "encode 2/2  short" in last


def test_what_an_earlier_run_did_does_not_count_as_speed(clock):
    line = Progress("train", total=100, start=60, stream=io.StringIO())
    clock[0] += 10
    line.step(20)
    assert line.line() == "train 80/100  2/s  0:10 left"
