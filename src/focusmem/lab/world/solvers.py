"""Rule-based agents: an expert that knows a site's conventions, and an explorer that does not.

Expert and explorer use the same procedure with different beliefs. The explorer assumes the common form of each
convention until it fails, then tries the other forms, and gives up before its steps run out.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from focusmem.lab.world.address import Address
from focusmem.lab.world.office_visit import OfficeVisit
from focusmem.lab.world.pages import FACT_NAMES, ORDERS
from focusmem.lab.world.requests import Request
from focusmem.lab.world.scene import SCROLL_PIXELS, Scene, Shape
from focusmem.lab.world.site import MENU_LABELS, Entry, Site
from focusmem.lab.world.tasks import MAX_STEPS, LabTask
from focusmem.lab.world.world import World
from focusmem.schemas import make_action
from focusmem.schemas.action import AnyAction

GIVE_UP = "unknown"


class Beliefs:
    """A solver's beliefs about a site's conventions: for each, the forms left to try, the most likely first."""

    def __init__(self, choices: dict[str, list[str]]) -> None:
        self._choices = choices

    def best(self, convention: str) -> str | None:
        """The most likely form that is left; None if all have failed."""
        left = self._choices.get(convention, [])
        return left[0] if left else None

    def rule_out(self, convention: str, choice: str) -> None:
        left = self._choices.get(convention, [])
        if choice in left:
            left.remove(choice)

    @classmethod
    def true(cls, site: Site) -> "Beliefs":
        own = site.conventions
        sections = {group: [home] for group, home in own.section_of.items()}
        optional = {"dialog": own.dialog, "edition": own.edition, "offer": own.offer}
        known = {name: [value] for name, value in optional.items() if value is not None}
        return cls({"query": [own.query], "menu": [own.menu], **sections, **known})

    @classmethod
    def common(cls, site: Site, rng: random.Random) -> "Beliefs":
        """The prior: common forms first, then the other forms on the pages, in random order."""

        def shuffled(labels: Sequence[str]) -> list[str]:
            return rng.sample(list(labels), len(labels))

        sections = {
            group: [home, *(name for name in shuffled(site.sections) if name != home)]
            for group, home in site.rules.common_sections.items()
        }
        return cls(
            {
                "query": ["full", *shuffled(["last", "first"])],
                "menu": [MENU_LABELS[0], *shuffled(MENU_LABELS[1:])],
                "dialog": shuffled(site.dialog_buttons),
                "edition": shuffled(site.edition_links),
                "offer": shuffled(site.sections),
                **sections,
            }
        )


class Knowledge(Beliefs):
    """The expert's beliefs, which are right. They do not change, even after a wrong click."""

    def rule_out(self, convention: str, choice: str) -> None:
        pass


def _visit(world: World, task: LabTask, request: Request, rng: random.Random | None) -> OfficeVisit:
    return OfficeVisit(world.office(task.site_id), request, rng, make_action("stop", answer=GIVE_UP))


@dataclass
class View:
    """The information that a solver gets: the path and the clickable names."""

    path: str
    names: tuple[str, ...]
    """Names of the controls in view, from top to bottom."""

    @classmethod
    def of_url(cls, url: str, names: Sequence[str]) -> "View":
        split = urlsplit(url)
        return cls(split.path + (f"?{split.query}" if split.query else ""), tuple(names))


@dataclass
class Solver:
    """Chooses the next action from the current page. It remembers only what it has found out."""

    world: World
    task: LabTask
    beliefs: Beliefs
    max_steps: int = MAX_STEPS
    _num_steps: int = 0
    _scroll: int = 0
    _path: str = ""
    _typed: str | None = None
    _found: dict[int, str] = field(default_factory=dict)
    _visit: OfficeVisit | None = None
    sought: str | None = None
    """The element that the last action was searching, if it was not in view."""

    @classmethod
    def expert(cls, world: World, task: LabTask) -> "Solver":
        if task.request is not None:
            return cls(world, task, Knowledge({}), _visit=_visit(world, task, task.request, None))
        return cls(world, task, Knowledge.true(world.site(task.site_id)))

    @classmethod
    def explorer(cls, world: World, task: LabTask, rng: random.Random) -> "Solver":
        if task.request is not None:
            return cls(world, task, Beliefs({}), _visit=_visit(world, task, task.request, rng))
        return cls(world, task, Beliefs.common(world.site(task.site_id), rng))

    def next(self, view: View) -> AnyAction:
        """The action for this view. Call it once per step."""
        self._num_steps += 1
        self.sought = None
        if view.path != self._path:
            self._path, self._scroll = view.path, 0
        action = self._decide(view)
        if self._num_steps >= self.max_steps and action.name != "stop":
            return make_action("stop", answer=GIVE_UP)
        if action.name == "scroll":
            self._follow_scroll(action.arguments.direction)
        self._typed = action.arguments.text if action.name == "type" else None
        return action

    def slipped(self, path: str, scroll: int) -> None:
        """Updates the solver's position after an action that it did not choose."""
        self._path, self._scroll, self._typed = path, scroll, None

    # Decisions by page

    def _decide(self, view: View) -> AnyAction:
        if self._typed is not None:
            return make_action("press_key", key="Enter")
        if self._visit is not None:
            return self._visit.next_action(self._address, view.names)
        site = self.site
        if set(site.dialog_buttons) <= set(view.names):
            return self._try("dialog")
        match self._address.parts:
            case ("join",):
                # Only the button that led here can have been wrong.
                self.beliefs.rule_out("dialog", self.beliefs.best("dialog") or "")
                return make_action("click", description="Back to start")
            case ("menu", _, label):
                self.beliefs.rule_out("menu", label)
                return make_action("click", description="Back to the list")
            case ("entry", _, "edition", label) if label == self._wrong_edition(label):
                self.beliefs.rule_out("edition", label)
                return make_action("click", description="Back to the entry")
        return self._in_list(view) if self.task.category else self._in_entries(view)

    def _in_list(self, view: View) -> AnyAction:
        """Find the list, filter it, order it, read its first line."""
        task, address = self.task, self._address
        match address.parts:
            case ("kind", category) if category == task.category:
                if address.query.get("only") == task.material and address.query.get("order") == task.order:
                    assert task.task.answer is not None
                    return make_action("stop", answer=task.task.answer)
                menu = self.beliefs.best("menu")
                while menu is not None and menu not in view.names and self._scroll == 0:
                    self.beliefs.rule_out("menu", menu)
                    if self.beliefs.best("menu") == menu:
                        break  # an expert's belief cannot be ruled out
                    menu = self.beliefs.best("menu")
                return self._click(menu, view) if menu else self._give_up()
            case ("menu", category) if category == task.category:
                is_filtered = address.query.get("only") == task.material
                return self._click(ORDERS[task.order or "low"] if is_filtered else f"Only {task.material}", view)
        return self._click(f"All of kind {task.category}", view)

    def _in_entries(self, view: View) -> AnyAction:
        """Visit each entry in turn, then answer."""
        goal = next((index for index in self.task.entries if index not in self._found), None)
        if goal is None:  # everything has been seen, but a slip replaced the answer
            return self._answer()
        entry = self.site.entries[goal]
        match self._address.parts:
            case ("entry", number, *rest) if number == str(goal):
                return self._on_entry(entry, tuple(rest), view)
            case ("find",):
                if found := self._on_results(entry, view):
                    return found
        return self._search(entry, view)

    def _on_entry(self, entry: Entry, rest: Sequence[str], view: View) -> AnyAction:
        if self._shows(entry):
            self._found[entry.index] = entry.facts[self.task.fact or ""]
            return self._answer() if len(self._found) == len(self.task.entries) else self._in_entries(view)
        if self._is_picture_task and rest == ("picture",):
            return self._down_or_give_up()
        if not rest and set(self.site.edition_links) <= set(view.names):
            return self._try("edition")
        if self._is_picture_task:
            label = next((name for name in view.names if name in self.site.rules.picture_labels), None)
            return make_action("click", description=label) if label else self._up_or_give_up()
        convention = self.site.group_of(self.task.fact or "")
        if rest and rest[0] == "part":
            if self._scroll < self._scene.max_scroll and rest[1] == self.beliefs.best(convention):
                return make_action("scroll", direction="down")
            self.beliefs.rule_out(convention, rest[1])
            return self._click("Back to the entry", view)
        section = self.beliefs.best(convention)
        return self._click(section, view) if section else self._give_up()

    def _on_results(self, entry: Entry, view: View) -> AnyAction | None:
        """Open the entry if it is among the results; None if the query was wrong."""
        if "Nothing found" in self._scene.text():
            self.beliefs.rule_out("query", self.beliefs.best("query") or "")
            return None
        asked = self._address.query.get("q", "").lower()
        if asked != self._query(entry).lower():
            return None  # these are the results for the previous entry
        if entry.name in view.names:
            return make_action("click", description=entry.name)
        if self._scroll < self._scene.max_scroll:
            self.sought = entry.name
            return make_action("scroll", direction="down")
        return make_action("click", description="Next page") if "Next page" in view.names else self._give_up()

    # Actions

    def _search(self, entry: Entry, view: View) -> AnyAction:
        if self.beliefs.best("query") is None:
            return self._give_up()
        if "Search" not in view.names:
            return make_action("scroll", direction="up")
        return make_action("type", text=self._query(entry), description="Search")

    def _query(self, entry: Entry) -> str:
        words = entry.name.split()
        return {"full": entry.name, "last": words[-1], "first": words[0]}.get(self.beliefs.best("query") or "", "")

    def _click(self, name: str, view: View) -> AnyAction:
        """Click an element, or scroll towards it."""
        if name in view.names:
            return make_action("click", description=name)
        self.sought = name
        places = [control.box for control in self._scene.controls if control.name == name]
        if places and places[0].top < self._scroll:
            return make_action("scroll", direction="up")
        if places and self._scroll < self._scene.max_scroll:
            return make_action("scroll", direction="down")
        # The element is not on this page: start again from the home page.
        home = f"{self.site.name} home"
        if not places and name != home:
            return self._click(home, view)
        return self._give_up()

    def _try(self, convention: str) -> AnyAction:
        choice = self.beliefs.best(convention)
        return make_action("click", description=choice) if choice else self._give_up()

    def _answer(self) -> AnyAction:
        assert self.task.task.answer is not None
        return make_action("stop", answer=self.task.task.answer)

    def _give_up(self) -> AnyAction:
        return make_action("stop", answer=GIVE_UP)

    def _down_or_give_up(self) -> AnyAction:
        return make_action("scroll", direction="down") if self._scroll < self._scene.max_scroll else self._give_up()

    def _up_or_give_up(self) -> AnyAction:
        return make_action("scroll", direction="up") if self._scroll > 0 else self._give_up()

    def _follow_scroll(self, direction: str) -> None:
        change = SCROLL_PIXELS if direction == "down" else -SCROLL_PIXELS
        self._scroll = min(max(0, self._scroll + change), self._scene.max_scroll)

    # The current page

    @property
    def site(self) -> Site:
        return self.world.site(self.task.site_id)

    @property
    def _address(self) -> Address:
        return Address.parse(self._path)

    @property
    def _scene(self) -> Scene:
        return self.world.scene(self._path)

    @property
    def _is_picture_task(self) -> bool:
        return self.task.fact in self.site.rules.picture_facts

    def _wrong_edition(self, label: str) -> str | None:
        """The label, if its page says that there is nothing more."""
        return label if "nothing more to show" in self._scene.text() else None

    def _shows(self, entry: Entry) -> bool:
        """Whether the wanted fact is visible in the view."""
        if self._is_picture_task:
            return any(isinstance(item, Shape) and item.is_in_view(self._scroll) for item in self._scene.drawn)
        label = f"{FACT_NAMES[self.task.fact or '']}:".split()[0]
        value = entry.facts[self.task.fact or ""].split()[0]
        in_view = [word for word in self._scene.words() if word.is_in_view(self._scroll)]
        tops = {item.top for item in in_view if item.text == label}
        return any(item.text == value and item.top in tops for item in in_view)
