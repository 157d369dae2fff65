"""The page as a reader has it: opened from a file in a real browser, with the keys pressed and the filters used."""

import time
from pathlib import Path

import pytest

from clocks import PATIENT_S
from factories import make_screenshot, make_trajectory
from focusmem.evaluation.metrics import figures
from focusmem.reports import write_page
from focusmem.schemas import LeftOut, RunFolder, make_action, save_trajectory
from stored_runs import (
    make_consultation,
    make_finished,
    make_notes,
    make_offer,
    make_task,
    with_action,
    with_closing,
    write_run,
)

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


class Reader:
    """A page that was opened, and what the browser said about it."""

    def __init__(self, chromium, page, context) -> None:
        self._chromium, self._page, self._context = chromium, page, context
        page.set_default_timeout(1000 * PATIENT_S)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.refused: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", lambda request: self.refused.append(f"{request.url} {request.failure}"))

    def open(self, path: Path, address: str = "") -> None:
        self._chromium.run(self._page.goto(f"{path.as_uri()}{address}"))

    def press(self, *keys: str) -> None:
        for key in keys:
            self._chromium.run(self._page.keyboard.press(key))

    def click(self, selector: str) -> None:
        self._chromium.run(self._page.click(selector))

    def type(self, selector: str, text: str) -> None:
        self._chromium.run(self._page.fill(selector, text))

    def see(self, script: str):
        return self._chromium.run(self._page.evaluate(script))

    def wait(self, script: str) -> None:
        """Until it is so. Playwright's own way compiles text in the page, which the page's policy forbids."""
        until = time.monotonic() + PATIENT_S
        while not self.see(script):
            assert time.monotonic() < until, script
            time.sleep(0.02)

    def prefer(self, scheme: str) -> None:
        self._chromium.run(self._page.emulate_media(color_scheme=scheme))

    def text(self, selector: str) -> str:
        return self.see(f"document.querySelector({selector!r}).textContent")

    def texts(self, selector: str) -> list[str]:
        return self.see(f"[...document.querySelectorAll({selector!r})].map((found) => found.textContent)")

    def titles(self) -> list[str]:
        return self.texts(".row-title")

    def position(self) -> str:
        return self.text(".position").split(",")[0]

    def close(self) -> None:
        self._chromium.run(self._context.close())


@pytest.fixture
def reader(chromium):
    """Fails a test whose page complained, or asked for anything but files and what is inside it."""
    process = chromium.run(chromium.pool.process(()))
    context = chromium.run(process.new_context(1200, 900))
    page = chromium.run(context.new_page())
    found = chromium.call(lambda: Reader(chromium, page, context))
    yield found
    found.close()
    assert found.complaints == []
    assert {address.split(":")[0] for address in found.requests} <= {"file", "data", "blob"}


def page_of(tmp_path, *runs, **options):
    folders = [write_run(tmp_path / name, finished) for name, finished in zip(("one", "other"), runs, strict=False)]
    opened = [RunFolder.open(folder) for folder in folders]
    return write_page(opened, tmp_path / "page.html", count_figures=figures, **options).path


def test_filters_and_search_narrow_the_list(tmp_path, reader):
    outcomes = ["success", "failure", "success", "error"]
    reader.open(page_of(tmp_path, [make_finished(number, outcome) for number, outcome in enumerate(outcomes)]))
    assert len(reader.titles()) == 4
    assert reader.texts("#filters button") == ["All4", "Won2", "Lost1", "Error1"]

    reader.click("[data-filter=won]")
    assert reader.titles() == ["How much is mug number 0?", "How much is mug number 2?"]
    reader.click("[data-filter=lost]")
    assert reader.titles() == ["How much is mug number 1?"]
    assert reader.text("#count") == "1 of 4 tasks"
    assert reader.text("#episode h2") == "How much is mug number 1?"

    reader.click("[data-filter=all]")
    reader.type("#search", "number 3")
    assert reader.titles() == ["How much is mug number 3?"]
    reader.type("#search", "nothing like it")
    assert reader.titles() == []


def test_keys_walk_through_steps_and_episodes(tmp_path, reader):
    reader.open(page_of(tmp_path, [make_finished(1, num_steps=4), make_finished(2, num_steps=2)]))
    assert reader.position() == "step 1 of 4"
    reader.press("ArrowRight", "j")
    assert reader.position() == "step 3 of 4"
    reader.press("k")
    assert reader.position() == "step 2 of 4"
    reader.press("End", "ArrowRight")
    assert reader.position() == "step 4 of 4"
    reader.press("Home", "ArrowLeft")
    assert reader.position() == "step 1 of 4"
    reader.press("]")
    assert reader.text("#episode h2") == "How much is mug number 2?"
    assert reader.position() == "step 1 of 2"
    reader.press("]", "[")
    assert reader.text("#episode h2") == "How much is mug number 1?"


def test_search_by_key_does_not_step(tmp_path, reader):
    reader.open(page_of(tmp_path, [make_finished(1), make_finished(2)]))
    reader.press("/", "j", "Backspace", "-", "2")
    assert reader.see("document.querySelector('#search').value") == "-2"
    assert reader.titles() == ["How much is mug number 2?"]
    assert reader.position() == "step 1 of 3"
    reader.press("Escape")
    assert reader.see("document.activeElement === document.body")
    assert len(reader.titles()) == 2
    reader.press("?")
    assert reader.see("document.querySelector('#keys').open")
    reader.press("Escape")
    assert not reader.see("document.querySelector('#keys').open")


def test_a_page_can_be_opened_at_a_step(tmp_path, reader):
    path = page_of(tmp_path, [make_finished(1), make_finished(2)])
    reader.open(path, "#task=2&step=3")
    assert reader.text("#episode h2") == "How much is mug number 2?"
    assert reader.position() == "step 3 of 3"
    reader.press("k")
    assert reader.see("location.hash") == "#task=2&step=2"


@pytest.mark.parametrize("address", ["#task=99&step=3", "#task=x", "#<b>"])
def test_a_senseless_address_opens_the_first_episode(tmp_path, reader, address):
    reader.open(page_of(tmp_path, [make_finished(1)]), address)
    assert reader.position() == "step 1 of 3"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_systems_theme_and_its_own_switch(tmp_path, reader, scheme):
    ground = "getComputedStyle(document.body).backgroundColor"
    reader.prefer(scheme)
    reader.open(page_of(tmp_path, [make_finished(1)]))
    before = reader.see(ground)
    assert before == {"light": "rgb(246, 245, 242)", "dark": "rgb(22, 24, 28)"}[scheme]
    reader.click("#theme")
    assert reader.see(ground) != before
    reader.press("t")
    assert reader.see(ground) == before


def test_the_click_is_a_dot_where_it_was(tmp_path, reader):
    reader.open(page_of(tmp_path, [make_finished(10, num_steps=3)]))
    trajectory, _ = make_trajectory(3, seed=10)
    x, y = trajectory.steps[0].click_point
    place = reader.see(
        """(() => {
          const box = (name) => document.querySelector(name).getBoundingClientRect();
          const [frame, dot] = [box('.seen .shot'), box('.seen .dot')];
          return [(dot.x + dot.width / 2 - frame.x) / frame.width, (dot.y + dot.height / 2 - frame.y) / frame.height];
        })()"""
    )
    assert place == pytest.approx([x / 96, y / 64], abs=0.01)
    reader.wait("document.querySelector('.seen img').naturalWidth === 96")


def test_the_screenshot_is_looked_at_closer_by_mouse_and_by_keys(tmp_path, reader):
    reader.open(page_of(tmp_path, [make_finished(1)]))
    for look in (lambda: reader.click(".seen .shot"), lambda: reader.press("Enter"), lambda: reader.press(" ")):
        look()
        assert reader.see("document.querySelector('#closer').open")
        reader.press("Escape")
        assert reader.see("document.activeElement.matches('.seen .shot')"), "one is back where one was"
    reader.press("j")
    assert reader.position() == "step 2 of 3"


def test_the_prompt_is_shown_on_demand(tmp_path, reader):
    trajectory, _ = make_trajectory(3, seed=1)
    digest = trajectory.steps[0].screenshot.sha256
    notes = (make_notes(prompt=("system: Act.", f"user: Look at {digest} now.")),) * 3
    reader.open(page_of(tmp_path, [make_finished(1, notes=notes)]))
    assert reader.texts(".prompt pre") == []
    reader.press("p")
    assert reader.texts(".prompt pre")[0] == "system: Act."
    reader.wait("document.querySelector('.prompt img').naturalWidth === 96")
    reader.press("j")
    assert len(reader.texts(".prompt pre")) == 2


def test_memory_shows_what_was_offered_and_what_became_of_it(tmp_path, reader):
    trajectory, screenshots = make_trajectory(2, seed=7)
    offers = [
        make_offer(trajectory),
        make_offer(trajectory, rank=1, is_accepted=False, trajectory_id="lost", trust_logit=18.0, threshold_logit=19.5),
        make_offer(
            trajectory,
            rank=0,
            role="working",
            trajectory_id=None,
            source=None,
            score=None,
            trust_logit=None,
            attention=(),
        ),
    ]
    save_trajectory(tmp_path / "one" / "recalled" / trajectory.trajectory_id, trajectory, screenshots)
    notes = make_notes(*offers, num_removed={"template": 4}, left_out=LeftOut(num_frames=2))
    reader.open(page_of(tmp_path, [make_finished(1, notes=(notes,) * 3)]))
    assert reader.text(".removed") == "Trajectories removed by the leakage guard: 4 by template."
    assert reader.text(".left-out").endswith("because it was too long: 2 screenshots and 0 characters.")
    assert reader.texts(".provenance") == ["Source: factory"] * 2
    assert reader.texts(".decision") == ["accepted", "rejected", "accepted"]
    assert reader.text(".memory h3 small") == "2 of 3 accepted, 16 memory tokens"
    assert reader.texts(".card:first-of-type .measure b") == ["0.83", "2.30"]
    assert reader.texts(".card:nth-of-type(2) .measure b") == ["0.83", "18.00"]
    assert reader.texts(".needed") == ["needs more than 0.50", "needs more than 19.50"]
    assert reader.text(".card .instruction") == trajectory.instruction
    assert reader.see("document.querySelectorAll('.card:first-of-type .thumbnail canvas.heat').length") == 2
    reader.wait("document.querySelector('.card .thumbnail img').naturalWidth === 96")

    pixels = "document.querySelector('.card canvas').getContext('2d').getImageData(0, 0, 3, 2).data"
    shares = reader.see(f"[...{pixels}]")[3::4]
    assert shares[0] > shares[1] > shares[2] == 0

    reader.press("h")
    assert reader.see("getComputedStyle(document.querySelector('.card canvas')).display") == "none"
    reader.press("h")
    reader.click(".card .thumbnail")
    assert reader.see("document.querySelector('#closer').open")
    assert reader.see("document.querySelectorAll('#closer canvas').length") == 1


def test_a_step_took_as_long_as_the_clock_says_with_its_parts_beside_it(tmp_path, reader):
    notes = (make_notes(wall_s=2.0, seconds={"wait": 1.0, "reply": 0.5}, num_together=3),) * 3
    reader.open(page_of(tmp_path, [make_finished(1, notes=notes)]))
    assert reader.see("document.querySelector('.times').ariaLabel") == "This step took 2.0 s"
    legend = reader.text(".legend")
    assert legend == "2.0 swait 1.0 sreply 500 msanswered together with 2 other decisions"


def test_memory_that_was_shown_raw_in_earlier_runs_is_not_called_nothing(tmp_path, reader):
    trajectory, _ = make_trajectory(2, seed=7)
    raw = make_offer(trajectory, trust_logit=None, num_tokens=0, attention=())
    notes = (make_notes(raw, num_memory_tokens=979), make_notes(num_memory_tokens=979), make_notes())
    reader.open(page_of(tmp_path, [make_finished(1, notes=notes)]))
    assert reader.text(".card .measures > .faint") == "2 steps, raw"
    reader.press("j")
    assert "The items of the 979 memory tokens were not recorded." in reader.text(".done")
    reader.press("j")
    assert "Memory offered nothing." in reader.text(".done")


def test_a_long_name_stays_within_its_card(tmp_path, reader):
    trajectory, screenshots = make_trajectory(12, seed=7)
    long = trajectory.model_copy(update={"trajectory_id": "much-" * 24 + "more"})
    save_trajectory(tmp_path / "one" / "recalled" / long.trajectory_id, long, screenshots)
    reader.open(page_of(tmp_path, [make_finished(1, notes=(make_notes(make_offer(long)),) * 3)]))
    widths = "(name) => document.querySelector(name).getBoundingClientRect().right"
    for part in (".card-head", ".decision", ".measures", ".thumbnails"):
        assert reader.see(f"({widths})('{part}')") <= reader.see(f"({widths})('.card')"), part


def pair(tmp_path, **options):
    """Four tasks in both runs: won by both, by one each, by none; the second also takes another way at its step 2."""
    outcomes = [("success", "success"), ("success", "failure"), ("failure", "success"), ("failure", "failure")]
    one, other = [], []
    for number, (first, second) in enumerate(outcomes):
        one.append(make_finished(number, first))
        recording = one[-1].recording
        changed = with_action(recording, 1, make_action("wait")) if number == 1 else recording
        other.append(make_finished(number, second, recording=changed, method="none"))
    return page_of(tmp_path, one, other, **options)


def test_two_runs_stand_side_by_side_with_their_divergence(tmp_path, reader):
    reader.open(pair(tmp_path))
    assert reader.texts(".tally") == ["A won alone 1", "B won alone 1", " both won 1", " neither won 1"]
    assert len(reader.texts(".column")) == 2
    assert reader.text(".divergence-line") == "Both runs took the same actions."

    reader.press("]", "End")
    assert "First difference at step 2" in reader.text("#divergence")
    reader.press("d")
    assert reader.position() == "step 2 of 3"
    assert reader.texts(".decided .verb") == ["type", "wait"]
    assert len(reader.texts(".differs")) == 2
    assert reader.see("document.querySelectorAll('.strip-step.diverges.current').length") == 2
    reader.press("Home")
    assert reader.texts(".differs") == []
    reader.click("#divergence")
    assert reader.position() == "step 2 of 3"


def test_pairs_that_were_not_judged_are_left_out_and_an_error_counts_as_not_won(tmp_path, reader):
    outcomes = [("success", "error"), ("error", "blocked"), ("failure", "not_judged"), ("success", "success")]
    one, other = ([make_finished(number, own) for number, own in enumerate(run)] for run in zip(*outcomes, strict=True))
    one.append(make_finished(7))
    reader.open(page_of(tmp_path, one, other))
    assert reader.texts(".tally") == [
        "A won alone 1", "B won alone 0", " both won 1", " neither won 1", " not judged in both 1",
        " in one run only 1",
    ]  # fmt: skip
    assert reader.text("[data-filter=only-a]") == "Only A won1"


def test_the_header_shows_the_figures(tmp_path, reader):
    judge = {
        "judge": "a model",
        "score": 0.5,
        "consultation": make_consultation("half"),
        "cost": {"num_calls": 3, "seconds": 2.0},
    }
    finished = [make_finished(1, verdict=judge), make_finished(2, "error", num_broken=1), make_finished(3, "blocked")]
    reader.open(page_of(tmp_path, finished))
    shown = dict(zip(reader.texts(".figures thead th"), reader.texts(".figures tbody tr > *"), strict=True))
    assert shown["success"].startswith("33 %")
    assert shown["won"] == "1 of 3100 % of 1 judged"
    assert (shown["failed"], shown["errors"], shown["blocked"]) == ("0", "11 restarted", "1")
    assert "Judged with a model by a model." in reader.text(".summary")
    assert (shown["mean score"], shown["judge calls"]) == ("0.5", "32.0 s")


def test_the_header_names_the_set_of_tasks_once(tmp_path, reader):
    runs = [[make_finished(1), make_finished(2)], [make_finished(1), make_finished(2)]]
    reader.open(page_of(tmp_path, *runs))
    digest = RunFolder.open(tmp_path / "one").manifest().subset.sha256
    assert reader.texts("#header .tasks") == [f"2 tasks of shop, revision r1, subset {digest[:12]}"]


def test_attempts_at_a_task_have_numbers(tmp_path, reader):
    finished = [make_finished(1), make_finished(1, "failure", attempt=2), make_finished(2)]
    reader.open(page_of(tmp_path, finished))
    names = "[...document.querySelectorAll('.row-notes span:first-child')].map((found) => found.textContent)"
    assert reader.see(names) == ["shop/task-1 #1", "shop/task-1 #2", "shop/task-2 #1"]
    assert reader.text("#count") == "3 attempts"
    reader.type("#search", "task-1 #2")
    assert reader.texts(".row-notes span:first-child") == ["shop/task-1 #2"]
    assert reader.text(".episode-head .task-id") == "shop/task-1 #2"


def test_the_closing_screenshot_is_the_last_card(tmp_path, reader):
    finished = make_finished(1, num_steps=2)
    closed = finished._replace(
        recording=with_closing(finished.recording, make_screenshot(77), "https://shop.example/end")
    )
    reader.open(page_of(tmp_path, [closed], [make_finished(1, num_steps=4)]))
    assert [len(reader.texts(f".strip:nth-child({run}) .strip-step")) for run in (1, 2)] == [3, 4]
    reader.press("j", "j")
    assert reader.text(".column:first-child .decided") == "After the last action"
    assert reader.text(".column:first-child .url") == "https://shop.example/end"
    assert reader.text(".column:nth-child(2) .position").startswith("step 3 of 4")
    reader.wait("document.querySelector('.closing .seen img').naturalWidth === 96")
    reader.click(".closing .seen .shot")
    assert reader.see("document.querySelector('#closer').open")
    assert reader.texts("#closer .verb") == [], "nothing was decided any more"
    reader.press("Escape", "j")
    assert "This episode has ended." in reader.text(".column:first-child")


def test_the_end_key_goes_to_the_closing_screenshot(tmp_path, reader):
    finished = make_finished(1, num_steps=2)
    path = page_of(tmp_path, [finished._replace(recording=with_closing(finished.recording, make_screenshot(77)))])
    reader.open(path)
    reader.press("End", "j")
    assert reader.see("location.hash") == "#task=1&step=3"
    assert reader.text(".strip-step.current .caption") == "end"
    reader.open(path, "?#task=1&step=99")
    assert reader.text(".decided") == "After the last action"


def test_the_verdict_tells_reason_score_judge_and_reply(tmp_path, reader):
    verdict = {
        "judge": "a model", "judge_profile": "strict", "score": 0.25, "reason": "It bought the wrong mug.",
        "consultation": make_consultation("Thoughts: ...\nVerdict: failure", departures=("no temperature",)),
        "strict": "success", "num_unreadable": 1,
        "cost": {"num_calls": 1, "seconds": 1.5, "num_prompt_tokens": 900, "usd": 0.0125},
    }  # fmt: skip
    broken = make_finished(2, "error", error="The site is down.", num_broken=2, verdict={"reason": "The site is down."})
    reader.open(page_of(tmp_path, [make_finished(1, "failure", verdict=verdict), broken]))
    assert reader.text(".verdict") == (
        "a model (strict): It bought the wrong mug. Score 0.25. Unreadable replies: 1. A strict parser reads: success."
    )
    assert "Verdict: failure" not in reader.text(".ending"), "it is folded"
    reader.click(".ending summary")
    reader.wait("document.querySelector('.ending pre') !== null")
    assert reader.text(".ending pre") == "Thoughts: ...\nVerdict: failure"
    assert reader.texts(".ending .folded p") == [
        "Replies of a model (1 call, 1.5 s, 900 tokens, 0.0125 dollars):",
        "Departure: no temperature.",
        "verdict",
    ]
    reader.press("]")
    assert reader.text(".broken") == "The attempt broke 2 times before and was started again."
    assert reader.texts(".ending p") == ["The site is down.", reader.text(".broken")], "a reason is told once"


def test_filters_of_two_runs(tmp_path, reader):
    reader.open(pair(tmp_path))
    shown = {}
    for name in ("won", "lost", "differs", "only-a", "only-b"):
        reader.click(f"[data-filter={name}]")
        shown[name] = [title[-2] for title in reader.titles()]
    assert shown == {"won": ["0"], "lost": ["3"], "differs": ["1", "2"], "only-a": ["1"], "only-b": ["2"]}


def test_an_episode_of_one_run_and_one_without_steps(tmp_path, reader):
    broken = make_finished(2, "error", notes=(), answer=None, error="The site is down.")
    reader.open(page_of(tmp_path, [make_finished(1, num_steps=2), broken], [make_finished(2, num_steps=3)]))
    assert "This run has no episode" in reader.text(".column:nth-child(2)")
    reader.press("]")
    assert "The site is down." in reader.text(".column")
    assert "No step was taken." in reader.text(".column")
    reader.press("End")
    assert "This episode has ended." in reader.text(".column")
    assert [words.split(",")[0] for words in reader.texts(".position")] == ["0 steps", "step 3 of 3"]


def test_pictures_beside_the_page_are_shown_too(tmp_path, reader):
    path = pair(tmp_path, max_bytes=1000)
    assert (tmp_path / "page_pictures").is_dir()
    reader.open(path)
    reader.wait("document.querySelector('.seen img').naturalWidth === 96")
    assert any("page_pictures/" in address for address in reader.requests)


def test_hostile_text_stays_text(tmp_path, reader):
    trajectory, screenshots = make_trajectory(1, seed=1)
    step = trajectory.steps[0].model_copy(
        update={
            "action": make_action("stop", answer=HOSTILE, reasoning=HOSTILE),
            "url": HOSTILE,
            "error": HOSTILE,
            "reply": HOSTILE,
        }
    )
    changes = {"steps": (step,), "instruction": HOSTILE}
    recording = with_closing((trajectory.model_copy(update=changes), screenshots), make_screenshot(77), HOSTILE)
    save_trajectory(tmp_path / "one" / "recalled" / trajectory.trajectory_id, *recording)
    notes = make_notes(
        make_offer(trajectory), make_offer(trajectory, trajectory_id=HOSTILE), prompt=(HOSTILE,), seconds={HOSTILE: 1.0}
    )
    task = make_task(1, instruction=HOSTILE, site=HOSTILE, answer=HOSTILE)
    asked = make_consultation(HOSTILE, model=HOSTILE, departures=(HOSTILE,))
    verdict = {"reason": HOSTILE, "judge": HOSTILE, "judge_profile": HOSTILE, "consultation": asked}
    changes = {"task": task, "method": HOSTILE, "answer": HOSTILE, "notes": (notes,), "error": "It broke."}
    reader.open(page_of(tmp_path, [make_finished(1, recording=recording, verdict=verdict, **changes)]))
    reader.press("p")
    reader.see("document.querySelectorAll('details').forEach((found) => { found.open = true; })")
    assert reader.text("#episode h2") == HOSTILE
    assert reader.text(".prompt pre") == HOSTILE
    assert reader.text(".verdict") == f"{HOSTILE} ({HOSTILE}): {HOSTILE}"
    reader.wait("document.querySelector('.ending pre') !== null")
    assert reader.text(".ending pre") == HOSTILE
    reader.press("End")
    assert reader.text(".closing .url") == HOSTILE
    assert reader.see("document.title") == "one - focusmem trace"
    assert reader.see("document.querySelectorAll('[onerror]').length") == 0


def test_even_markup_that_got_in_could_not_run(tmp_path, reader):
    """The content policy is the second wall: inline handlers and scripts are refused, and nothing may be fetched."""
    reader.open(page_of(tmp_path, [make_finished(1)]))
    reader.see(
        """(() => {
          const place = document.createElement('div');
          document.body.append(place);
          place.innerHTML = '<img src="data:," onerror="document.title = 1"><img src="https://example.org/x.png">';
          const script = document.createElement('script');
          script.textContent = 'document.title = 2';
          place.append(script);
          return fetch('https://example.org/').catch(() => null);
        })()"""
    )
    reader.wait("true")
    assert reader.see("document.title") == "one - focusmem trace"
    assert len(reader.complaints) >= 4
    assert all("Content Security Policy" in complaint for complaint in reader.complaints)
    assert "https://example.org/x.png csp" in reader.refused
    reader.complaints.clear()
    reader.requests.clear()


def test_five_hundred_episodes_load_only_the_pictures_in_view(tmp_path, reader):
    recordings = [make_trajectory(1, seed=number) for number in range(20)]
    finished = [make_finished(number, recording=recordings[number % 20]) for number in range(500)]
    finished[0] = make_finished(0, num_steps=60)
    reader.open(page_of(tmp_path, finished))
    reader.wait("document.querySelector('.seen img').naturalWidth === 96")
    assert len(reader.titles()) == 500
    assert reader.see("document.querySelectorAll('img').length") == 61
    assert reader.see("document.querySelectorAll('img[src]').length") < 30
