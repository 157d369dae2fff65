"""Small, deterministic records for tests. Equal arguments give equal records."""

import numpy as np
from PIL import Image

from focusmem.schemas import EvidenceItem, Role, Screenshot, Step, Trajectory, make_action
from focusmem.schemas.action import AnyAction

FIELDS = {
    "episodic_summary": ["progress_summary", "useful_experience", "task_constraints", "anchor_decision"],
    "episodic_anchor": ["anchor_state", "anchor_action", "decision_basis"],
    "working_state": [
        "latest_observed_state",
        "important_state_facts",
        "current_progress",
        "remaining_constraints",
        "last_recorded_action",
    ],
    "working_change": ["initial_state", "observed_change", "latest_observed_state"],
}
"""Of the four functional answers, as the paper's Appendix B.2 names them, in its order."""


def make_screenshot(seed: int = 0, width: int = 96, height: int = 64) -> Screenshot:
    """A colourful picture: a few rectangles on a gradient, other ones for each seed."""
    random = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width, dtype=np.uint8)[None, :]
    pixels[..., 1] = np.linspace(0, 255, height, dtype=np.uint8)[:, None]
    pixels[..., 2] = random.integers(256)
    for _ in range(5):
        top, left = random.integers(height), random.integers(width)
        pixels[top : top + height // 4, left : left + width // 4] = random.integers(256, size=3)
    pixels[0, 0] = [seed % 256, seed // 256 % 256, seed // 65536 % 256]
    return Screenshot.from_image(Image.fromarray(pixels))


def make_actions(num_actions: int) -> list[AnyAction]:
    """A plausible episode of that length, which ends by stopping; of length zero, nothing."""
    middle = [
        make_action("click", description="the search box"),
        make_action("type", text="blue mug", description="the search box", reasoning="I know its name."),
        make_action("press_key", key="Enter"),
        make_action("scroll", direction="down"),
        make_action("wait"),
        make_action("goto", url="https://shop.example/cart"),
    ]
    actions = [middle[index % len(middle)] for index in range(num_actions - 1)]
    return [*actions, make_action("stop", answer="12 euros")][:num_actions]


def make_step(seed: int = 0, action: AnyAction | None = None) -> tuple[Step, Screenshot]:
    screenshot = make_screenshot(seed)
    step = Step(
        screenshot=screenshot.ref(),
        action=action or make_action("click", description=f"link number {seed}"),
        url=f"https://shop.example/{seed}",
        click_point=(seed % 96, 5),
    )
    return step, screenshot


def make_steps(num_steps: int, seed: int = 0) -> tuple[tuple[Step, ...], dict[str, Screenshot]]:
    pairs = [make_step(1000 * seed + index, action) for index, action in enumerate(make_actions(num_steps))]
    return tuple(step for step, _ in pairs), {screenshot.digest: screenshot for _, screenshot in pairs}


def make_trajectory(num_steps: int = 3, seed: int = 0) -> tuple[Trajectory, dict[str, Screenshot]]:
    steps, screenshots = make_steps(num_steps, seed)
    trajectory = Trajectory(
        trajectory_id=f"trajectory-{seed}",
        task_id=f"shop/{seed}",
        instruction=f"How much is mug number {seed}?",
        start_url="https://shop.example/",
        site="shop.example",
        steps=steps,
        outcome="success",
        source="factory",
    )
    return trajectory, screenshots


def make_item(
    role: Role = "episodic", num_steps: int = 3, seed: int = 0, rank: int = 0
) -> tuple[EvidenceItem, dict[str, Screenshot]]:
    steps, screenshots = make_steps(num_steps, seed)
    item = EvidenceItem(
        item_id=f"{role}-{seed}",
        role=role,
        instruction=f"How much is mug number {seed}?",
        steps=steps,
        rank=rank,
        score=0.5 if role == "episodic" else None,
        trajectory_id=f"trajectory-{seed}" if role == "episodic" else None,
    )
    return item, screenshots
