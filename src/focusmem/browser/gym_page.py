"""Pages of BrowserGym: its observations as ours, and our actions in its language.

Whoever steps the environment implements `_step`: ourselves (`gym_browser.py`), or BrowserGym with our agent
(`recipes/browsergym_agent.py`). Places are pixels of the screenshot in both worlds. Tried with BrowserGym 0.14.3.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from PIL import Image

from focusmem.browser.base import SCROLL_SHARE, Performed
from focusmem.browser.grounder import Grounder
from focusmem.browser.grounding import NameGrounder, find_field
from focusmem.browser.keys import read_key, unknown_key
from focusmem.schemas import Observation, Screenshot
from focusmem.schemas.action import AnyAction
from focusmem.schemas.observation import ControlInfo, ControlKind
from focusmem.schemas.record import storable_text

ACTION_SETS: Final = ("coord", "nav", "chat")
"""The parts of BrowserGym's language that our actions need."""

_FIELDS: Final = frozenset({"textbox", "searchbox", "combobox", "spinbutton", "listbox"})
_BUTTONS: Final = frozenset({"button", "checkbox", "radio", "switch", "tab", "menuitem", "option", "slider"})
_VISIBLE: Final = 0.5
_WAIT_MS: Final = 2000
_SELECT_ALL: Final = "keyboard_press('ControlOrMeta+a')"


class GymPage(ABC):
    """A `Browser` without `open` and `close`."""

    def __init__(self, *, grounder: Grounder | None = None, presses_enter: bool = False) -> None:
        self._grounder, self._presses_enter = grounder or NameGrounder(), presses_enter
        self._obs: Mapping[str, Any] = {}
        self._reward: float | None = None
        self._is_over = False

    @abstractmethod
    async def _step(self, code: str) -> None:
        """Lets the environment perform an action of its language, and notes the new observation."""

    async def observe(self) -> Observation:
        return observation_of(self._obs, reward=self._reward, is_over=self._is_over)

    async def perform(self, action: AnyAction, point: tuple[int, int] | None = None) -> Performed:
        code, performed = await self._code(action, point)
        if performed.error is not None:
            return performed
        await self._step(code)
        problem = str(self._obs.get("last_action_error") or "").strip()
        return Performed(performed.click_point, problem or None)

    async def _code(self, action: AnyAction, point: tuple[int, int] | None) -> tuple[str, Performed]:
        """The action in BrowserGym's language. Texts of the policy stand in it as quoted values only."""
        match action.name:
            case "click":
                place = await self._place(action.arguments.description, point)
                if isinstance(place, str):
                    return "", Performed(error=place)
                return f"mouse_click({place[0]}, {place[1]})", Performed(place)
            case "type":
                return await self._typing(action.arguments.text, action.arguments.description, point)
            case "scroll":
                sign = 1 if action.arguments.direction == "down" else -1
                return f"scroll(0, {sign * round(SCROLL_SHARE * len(self._obs['screenshot']))})", Performed()
            case "press_key":
                key = read_key(action.arguments.key)
                if key is None:
                    return "", Performed(error=unknown_key(action.arguments.key))
                return f"keyboard_press({key!r})", Performed()
            case "goto":
                return f"goto({action.arguments.url!r})", Performed()
            case "wait":
                return f"noop({_WAIT_MS})", Performed()
            case "stop":
                return f"send_msg_to_user({action.arguments.answer!r})", Performed()

    async def _typing(self, text: str, description: str | None, point: tuple[int, int] | None) -> tuple[str, Performed]:
        place: tuple[int, int] | str | None
        if point is None and description is None:
            field = find_field(None, controls_of(self._obs), has_focus=_has_field_focused(self._obs))
            place = field.centre if isinstance(field, ControlInfo) else field
        else:
            place = await self._place(description or "", point, is_field=True)
        if isinstance(place, str):
            return "", Performed(error=place)
        click = [] if place is None else [f"mouse_click({place[0]}, {place[1]})"]
        enter = ["keyboard_press('Enter')"] if self._presses_enter else []
        return "\n".join([*click, _SELECT_ALL, f"keyboard_type({text!r})", *enter]), Performed(place)

    async def _place(
        self, description: str, point: tuple[int, int] | None, *, is_field: bool = False
    ) -> tuple[int, int] | str:
        if point is not None:
            return point
        view = _View(self._obs)
        found = await self._grounder.find(description, view, is_field=is_field)
        height, width = self._obs["screenshot"].shape[:2]
        return found if isinstance(found, str) else found.pixel(width, height)


@dataclass(frozen=True)
class _View:
    obs: Mapping[str, Any]

    async def controls(self) -> Sequence[ControlInfo]:
        return controls_of(self.obs)

    async def screenshot(self) -> Screenshot:
        return screenshot_of(self.obs)


def observation_of(obs: Mapping[str, Any], *, reward: float | None = None, is_over: bool = False) -> Observation:
    titles, [active] = obs["open_pages_titles"], obs["active_page_index"]
    return Observation(
        screenshot=screenshot_of(obs),
        url=storable_text(str(obs["url"])),
        title=storable_text(str(titles[int(active)])),
        controls=controls_of(obs),
        reward=reward,
        is_over=is_over,
    )


def screenshot_of(obs: Mapping[str, Any]) -> Screenshot:
    return Screenshot.from_image(Image.fromarray(np.ascontiguousarray(obs["screenshot"])))


def goal_of(obs: Mapping[str, Any]) -> str:
    """The task in words. Pictures of a goal are left out."""
    texts = [part["text"] for part in obs["goal_object"] if part["type"] == "text"]
    return storable_text("\n".join(texts).strip()) or "The task is not told in words."


def controls_of(obs: Mapping[str, Any]) -> tuple[ControlInfo, ...]:
    """The controls in view from top to bottom, by the accessibility tree and the places that BrowserGym adds to it."""
    nodes = {node["nodeId"]: node for node in obs["axtree_object"]["nodes"]}
    height, width = obs["screenshot"].shape[:2]
    found = []
    for node in nodes.values():
        known = obs["extra_element_properties"].get(node.get("browsergym_id")) or {}
        kind = _kind(node, known)
        role = str(node.get("role", {}).get("value"))
        name = storable_text(_name(node, nodes)) or (role if kind == "field" else "")
        box = known.get("bbox")
        if kind is None or not name.strip() or box is None or (known.get("visibility") or 0) < _VISIBLE:
            continue
        left, top = max(0, round(box[0])), max(0, round(box[1]))
        right, bottom = min(width, round(box[0] + box[2])), min(height, round(box[1] + box[3]))
        if left < right and top < bottom:
            found.append(ControlInfo(name=name, kind=kind, left=left, top=top, width=right - left, height=bottom - top))
    return tuple(sorted(found, key=lambda control: (control.top, control.left)))


def _has_field_focused(obs: Mapping[str, Any]) -> bool:
    focused = obs.get("focused_element_bid")
    return any(
        node.get("browsergym_id") == focused and node.get("role", {}).get("value") in _FIELDS
        for node in obs["axtree_object"]["nodes"]
        if focused
    )


def _kind(node: Mapping[str, Any], known: Mapping[str, Any]) -> ControlKind | None:
    role = node.get("role", {}).get("value")
    if role in _FIELDS:
        return "field"
    if role == "link":
        return "link"
    return "button" if role in _BUTTONS or known.get("clickable") else None


def _name(node: Mapping[str, Any], nodes: Mapping[str, Any]) -> str:
    """The accessible name, or else the text inside."""
    name = str(node.get("name", {}).get("value") or "")
    if name.strip():
        return name
    inside = [nodes[child] for child in node.get("childIds", ()) if child in nodes]
    texts = [_name(child, nodes) for child in inside if child.get("role", {}).get("value") != "InlineTextBox"]
    return " ".join(text for text in texts if text.strip())
