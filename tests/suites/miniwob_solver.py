"""A solver for MiniWoB++ that reads the page's elements, and a grounder that finds what it names.

It acts through the seven actions only. A description is a CSS selector, which may be followed by the element's text:
`#area button|Cancel`. `point=80,120` is a place in the page's pixels.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from focusmem.agent.decision import Decision
from focusmem.agent.mind import Reply
from focusmem.browser.grounder import Point
from focusmem.schemas import action_to_json, make_action
from focusmem.suites.miniwob import MINIWOB_LIMITS, NAME

_FIND = """(selector, text) => {
    const plain = (words) => words.replace(/\\s+/g, " ").trim();
    const isShown = (element) => element.getClientRects().length > 0 && element.checkVisibility();
    const all = [...document.querySelectorAll(selector)].filter(isShown);
    const said = (element) => plain(element.value || element.textContent);
    const found = text === null ? all[0] : all.find((element) => said(element) === text);
    if (!found) return null;
    found.scrollIntoView({ block: "nearest", behavior: "instant" });
    const place = found.getBoundingClientRect();
    return [place.left + place.width / 2, place.top + place.height / 2];
}"""


class SelectorGrounder:
    async def find(self, description, view, *, is_field=False):
        scale = MINIWOB_LIMITS.scale
        point = re.fullmatch(r"point=([\d.]+),([\d.]+)", description)
        if point:
            return Point(float(point[1]) * scale, float(point[2]) * scale, "pixels")
        selector, is_text, text = description.partition("|")
        place = await view._evaluate(_FIND, selector, text if is_text else None)
        if place is None:
            return f"There is no {description}."
        return Point(place[0] * scale, place[1] * scale, "pixels")


def click(description: str):
    return make_action("click", description=description)


def fill(description: str, text: str):
    return make_action("type", text=text, description=description)


def key(name: str):
    return make_action("press_key", key=name)


SUBMIT = click("#subbtn")
Plan = Callable[[str], Iterator[object]]


def quoted(asked: str) -> list[str]:
    return re.findall(r'"([^"]*)"', asked)


def between(asked: str, before: str, after: str) -> str:
    return asked.partition(before)[2].partition(after)[0]


def checkboxes(asked):
    for name in between(asked, "Select ", " and click").split(", "):
        yield click(f"#area label|{name}")
    yield SUBMIT


def login(asked):
    user, password = quoted(asked)
    yield fill("#username", user)
    yield fill("#password", password)
    yield SUBMIT


def tabs(asked):
    for number in (1, 2, 3):
        yield click(f"#area a[href='#tabs-{number}']")
        yield click(f"#tabs-{number} .alink|{quoted(asked)[0]}")


def collapsible(asked):
    for number in (1, 2, 3, 4, 5, 6):
        yield click(f"#area h3:nth-of-type({number})")
        yield make_action("wait")
        yield click(f"#area .alink|{quoted(asked)[0]}")


def date(asked):
    month, day, year = re.search(r"(\d\d)/(\d\d)/(\d{4})", asked).groups()
    yield fill("#tt", f"{year}-{month}-{day}")
    yield SUBMIT


def time(asked):
    hour, minute, half = re.search(r"(\d+):(\d\d) ([AP]M)", asked).groups()
    yield fill("#tt", f"{int(hour) % 12 + 12 * (half == 'PM'):02}:{minute}")
    yield SUBMIT


def calendar_day(asked):
    """December 2016, of which the page shows the right month at first."""
    day = int(re.search(r"/(\d\d)/", asked)[1])
    yield click("#datepicker")
    yield make_action("wait")
    yield click(f".ui-datepicker-calendar a|{day}")
    yield SUBMIT


def rows(**plans: Plan) -> dict[str, Plan]:
    return {name.replace("_", "-"): plan for name, plan in plans.items()}


def steps(*actions) -> Plan:
    return lambda asked: iter(actions)


PLANS: dict[str, Plan] = {
    "click-test": steps(SUBMIT),
    "click-test-2": steps(SUBMIT),
    "click-test-transfer": steps(SUBMIT),
    "click-button": lambda asked: iter([click(f"#area button|{quoted(asked)[0]}")]),
    "unicode-test": lambda asked: iter([click(f"#area button|{quoted(asked)[0]}")]),
    "click-button-sequence": steps(click("#subbtn"), click("#subbtn2")),
    "click-link": lambda asked: iter([click(f"#area .alink|{quoted(asked)[0]}")]),
    "click-dialog": steps(click(".ui-dialog-titlebar-close")),
    "click-dialog-2": lambda asked: iter(
        [click(".ui-dialog-titlebar-close" if quoted(asked) == ["x"] else f".ui-dialog button|{quoted(asked)[0]}")]
    ),
    "click-tab": lambda asked: iter([click(f"#area a[href='#tabs-{asked[-2]}']")]),
    "click-tab-2": tabs,
    "click-tab-2-easy": tabs,
    "click-tab-2-medium": tabs,
    "click-collapsible": steps(click("#area h3"), make_action("wait"), SUBMIT),
    "click-collapsible-nodelay": steps(click("#area h3"), make_action("wait"), SUBMIT),
    "click-collapsible-2": collapsible,
    "click-collapsible-2-nodelay": collapsible,
    "click-checkboxes": checkboxes,
    "click-checkboxes-large": checkboxes,
    "click-checkboxes-transfer": checkboxes,
    "click-option": lambda asked: iter([click(f"#area label|{between(asked, 'Select ', ' and click')}"), SUBMIT]),
    "choose-list": lambda asked: iter(
        [fill("#options", between(asked, "Select ", " from the list")), click("#area button")]
    ),
    "enter-text": lambda asked: iter([fill("#tt", quoted(asked)[0]), SUBMIT]),
    "enter-text-dynamic": lambda asked: iter([fill("#tt", quoted(asked)[0]), SUBMIT]),
    "enter-text-2": lambda asked: iter(
        [fill("#tt", quoted(asked)[0].upper() if "upper" in asked else quoted(asked)[0].lower()), SUBMIT]
    ),
    "enter-password": lambda asked: iter(
        [fill("#password", quoted(asked)[0]), fill("#verify", quoted(asked)[0]), SUBMIT]
    ),
    "enter-date": date,
    "enter-time": time,
    "choose-date-easy": calendar_day,
    "choose-date-medium": calendar_day,
    "login-user": login,
    "login-user-popup": login,
    "focus-text": steps(click("#tt")),
    "focus-text-2": lambda asked: iter([click(f"#area input:nth-of-type({between(asked, 'the ', ' input')[0]})")]),
    "click-widget": lambda asked: iter([click(f"#area [data-type={quoted(asked)[0]}]")]),
    "form-sequence-3": lambda asked: iter(
        [
            click(".selectric"),
            make_action("wait"),
            click(f".selectric-items li|{between(asked, 'Choose ', ' from')}"),
            click(f"#buttons button|{quoted(asked)[0]}"),
        ]
    ),
    "click-menu-2": lambda asked: iter(
        [click("#open-menu"), make_action("wait"), click(f"#menu div|{quoted(asked)[1]}")]
    ),
    "click-color": lambda asked: iter([click(f"[data-color={between(asked, 'the ', ' colored')}]")]),
    "copy-paste": steps(
        *(click("#area textarea"), key("Control+A"), key("Control+C")),
        *(click("#answer-input"), key("Control+V"), SUBMIT),
    ),
    "scroll-text-2": lambda asked: iter(
        [click("#text-area"), key("Control+End" if "bottom" in asked else "Control+Home"), SUBMIT]
    ),
}


class SolverMind:
    """Follows the plan of each task, and stops when the plan is over."""

    def __init__(self) -> None:
        self._plans: dict[str, Iterator[object]] = {}

    def ask(self, decisions: Sequence[Decision]) -> list[Reply]:
        return [Reply(action_to_json(self._next(decision))) for decision in decisions]

    def forget(self, episode_id: str) -> None:
        self._plans.pop(episode_id, None)

    def _next(self, decision: Decision):
        task = decision.task
        if decision.episode_id not in self._plans:
            name = task.task_id.removeprefix(f"{NAME}/").partition(".")[0]
            self._plans[decision.episode_id] = PLANS[name](task.instruction) if name in PLANS else iter(())
        return next(self._plans[decision.episode_id], make_action("stop", answer=""))
