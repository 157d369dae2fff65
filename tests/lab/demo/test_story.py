from PIL import Image

from focusmem.lab.demo import story as lab_demo_story
from focusmem.lab.demo.story import Attempt, Brought, Parting, TaskStory, told
from focusmem.schemas import Screenshot, Step


def make_story(**changes) -> TaskStory:
    values = {
        "number": 1,
        "task_id": "e-0.price.evaluation.7",
        "site": "e-0",
        "kind": "price",
        "instruction": "How much is the lamp?",
        "right_answer": "$9.00",
        "outcomes": {"none": "failure", "full": "success"},
        "attempts": {
            "none": Attempt("failure", None, 15, 4.0, None),
            "full": Attempt("success", "$9.00", 6, 2.0, None),
        },
        "brought": (Brought("e-0.price.bank.1", "What costs the hat?", True, 6, 6), Brought("x", "Else", False, 1, 0)),
        "parting": Parting(2, {"none": "click 'Specs'", "full": "click 'Offer'"}),
    }
    return TaskStory(**values | changes)


def test_a_story_says_what_happened_and_why():
    text = "\n".join(told([make_story()]))
    assert "Task 1 (e-0.price.evaluation.7): How much is the lamp?" in text
    assert "Without memory: not solved, after 15 steps, without an answer" in text
    assert "With memory: solved, after 6 steps, with the answer '$9.00'" in text
    assert "They part at step 2. Without memory: click 'Specs'. With memory: click 'Offer'." in text
    assert "'What costs the hat?' (this site; the gate let it in at 6 of 6 steps)" in text
    assert "'Else' (another site; the gate let it in at 0 of 1 step)" in text
    assert "Solved without memory: 0 of 1; with memory: 1 of 1." in text


def test_a_story_in_which_nothing_came_and_the_world_broke():
    broken = Attempt("error", None, 1, 1.0, "The page has died.")
    text = "\n".join(told([make_story(attempts={"none": broken, "full": broken}, brought=(), parting=None)]))
    assert text.count("broken off after 1 step: The page has died.") == 2
    assert "Both did the same at every step." in text
    assert "Memory brought no trajectory." in text


def test_a_story_without_steps_tells_of_none():
    broken = Attempt("error", None, 0, 0.0, "There was no browser.")
    text = "\n".join(told([make_story(attempts={"none": broken, "full": broken}, brought=(), parting=None)]))
    assert "Neither took a step." in text
    assert "the same" not in text


def test_replies_that_are_no_action_are_told_apart():
    shot = Screenshot.from_image(Image.new("RGB", (2, 2))).ref()
    hm, ha, long = (Step(screenshot=shot, error="No action.", reply=reply) for reply in ("hm", "ha", "h" * 100))
    assert lab_demo_story._parting({"none": [hm, hm], "full": [hm, hm]}) is None
    parting = lab_demo_story._parting({"none": [hm, hm, hm], "full": [hm, ha, hm]})
    assert parting == Parting(2, {"none": "wrote 'hm', which is no action", "full": "wrote 'ha', which is no action"})
    assert lab_demo_story._parting({"none": [long], "full": []}).actions["none"] == (
        f"wrote '{'h' * 60}'..., which is no action"
    )
