"""Attempts to export, and a way to write and read them again without a run."""

from unittest.mock import patch

from hypothesis import strategies as st

from factories import make_screenshot
from focusmem.data.importers.base import Choice
from focusmem.judges.base import Attempt
from focusmem.schemas import Closing, Step, Task, Trajectory, make_action
from schemas.strategies import actions, maybe, texts, words

PICTURES = [make_screenshot(seed, width=8, height=6) for seed in range(4)]

places = st.tuples(st.integers(0, 7), st.integers(0, 5))
pictures = st.sampled_from(PICTURES)
readable_steps = st.builds(
    lambda picture, action, url, error, place: Step(
        screenshot=picture.ref(),
        action=action,
        url=url,
        error=error,
        click_point=place if action.name in ("click", "type") else None,
    ),
    pictures,
    actions.filter(lambda action: action.name != "stop"),
    maybe(words),
    maybe(words),
    maybe(places),
)
unreadable_steps = st.builds(
    lambda picture, reply, url, error: Step(screenshot=picture.ref(), reply=reply, url=url, error=error),
    pictures,
    maybe(texts),
    maybe(words),
    words,
)


def make_attempt(steps, answer=None, *, closing=None, **changes):
    """The `stop` step is added if there is an answer."""
    if answer is not None:
        stop = make_action("stop", answer=answer)
        steps = [*steps, Step(screenshot=PICTURES[0].ref(), action=stop)]
    values = {
        "task_id": "webvoyager/Allrecipes--4",
        "instruction": "Find a mug",
        "start_url": "https://shop.example/",
        "site": "shop.example",
    }
    task = Task(**values | changes)
    trajectory = Trajectory(
        trajectory_id="attempt",
        task_id=task.task_id,
        instruction=task.instruction,
        start_url=task.start_url,
        site=task.site,
        steps=tuple(steps),
        closing=closing,
        source="test",
    )
    return Attempt(task, trajectory, {one.digest: one for one in PICTURES}, answer)


@st.composite
def attempts(draw, *, has_unreadable=True, step=readable_steps):
    steps = draw(st.lists(step | unreadable_steps if has_unreadable else step, min_size=1, max_size=4))
    answer = draw(maybe(texts))
    closing = Closing(screenshot=draw(pictures).ref(), url=draw(maybe(words)))
    enter = draw(st.sampled_from([None, False, True]))
    closing = draw(st.sampled_from([None, closing]))
    return make_attempt(steps, answer, closing=closing, instruction=draw(words), presses_enter=enter)


@patch("os.fsync", new=lambda handle: None)  # no test needs these files after a crash
def there_and_back(attempt, exporter, importer, folder):
    """What the importer makes of what the exporter wrote."""
    place = folder / exporter.folder(attempt.task.task_id)
    exporter.write(attempt, place)
    assert importer.find(folder) == [place]
    return importer.read(place, Choice("webvoyager"))
