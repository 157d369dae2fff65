"""Result files of other agents, made by hand in exactly the shapes that the harnesses write."""

import base64
import json

from factories import make_screenshot

PICTURES = [make_screenshot(seed, width=60, height=40) for seed in range(5)]


def write_json(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def write_pictures(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in zip(names, PICTURES, strict=False):
        (folder / name).write_bytes(picture.png)


# WebVoyager

LOOK = (
    "Observation:{note} please analyze the attached screenshot and give the Thought and Action. I've provided the tag "
    "name of each element and the text it contains (if text exists).\n{elements}"
)
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,{b64_img}"}}
OMITTED = "Observation: A screenshot and some texts. (Omitted in context.)"


def look(elements="", note="", task=""):
    return {
        "role": "user",
        "content": [{"type": "text", "text": task + LOOK.format(note=note, elements=elements)}, PICTURE],
    }


def said(action, thought="The box is there."):
    return {"role": "assistant", "content": f"Thought: {thought}\n\nAction: {action}"}


def task_words(task="Find a blue mug.", url="https://www.shop.example/"):
    return f"Now given a task: {task}  Please interact with {url} and get the answer. \n"


def webvoyager_messages(*actions, opening=None):
    messages = [{"role": "system", "content": "Imagine."}]
    for index, action in enumerate(actions):
        messages += [look(task=(opening or task_words()) if index == 0 else ""), said(action)]
    return messages


def write_webvoyager(folder, messages, *, num_pictures=None, name="taskShop--4"):
    place = folder / name
    num_pictures = sum(one["role"] == "user" for one in messages) if num_pictures is None else num_pictures
    write_pictures(place, *(f"screenshot{number}.png" for number in range(1, num_pictures + 1)))
    write_json(place / "interact_messages.json", messages)
    return place


# Online-Mind2Web


def write_mind2web(folder, *, num_pictures=3, name="fb7b", **changes):
    result = {
        "task_id": name,
        "task": "Find a blue mug.",
        "final_result_response": "12 euros",
        "action_history": ["<input> -> TYPE: blue mug", '<button class="go"> -> CLICK'],
        "thoughts": ["I type.", "I click."],
        "input_image_paths": [],
    }
    write_json(
        folder / name / "result.json", {key: value for key, value in (result | changes).items() if value is not ...}
    )
    write_pictures(folder / name / "trajectory", *(f"{n}_full_screenshot.png" for n in range(num_pictures)))
    return folder / name


# MolmoWeb


def molmoweb_step(name, values, *, number=1, description=None, error=None, url="https://shop.example/"):
    return {
        "screenshot": f"screenshot_{number:03}.png",
        "user_message": f"user_message_{number:03}.txt",
        "other_obs": {"page_index": 0, "open_pages_titles": ["Shop"], "open_pages_urls": [url], "url": url},
        "action": {
            "action_str": f"{name}(...)",
            "action_description": description,
            "action_output": {"thought": "So it is.", "action": values, "action_name": name},
        },
        "error": error,
        "action_timestamp": 1760000000.0,
        "raw_output": None,
    }


CLICK = {
    "bid": "42",
    "button": "left",
    "click_type": "single",
    "bbox": [10.0, 20.0, 8.0, 4.0],
    "node_properties": {"role": "button", "value": "Search"},
}


def write_molmoweb(folder, *actions, name="shop_4", verdicts=None, **metadata):
    """`actions` are pairs of a name and values."""
    steps = {
        str(number): molmoweb_step(action, values, number=number)
        for number, (action, values) in enumerate(actions, start=1)
    }
    place = folder / name
    write_json(place / "trajectory.json", steps)
    write_json(place / "metadata.json", {"goal": "Find a blue mug.", "eps_name": name} | metadata)
    write_pictures(place / "images", *(f"screenshot_{number:03}.png" for number in range(1, len(actions) + 1)))
    for judge, verdict in (verdicts or {}).items():
        write_json(place / f"{judge}_verdict.json", {"thought": "Look.", "verdict": verdict})
    return place


def answered(text="[ANSWER] 12 euros"):
    return "send_msg_to_user", {"msg": text}


# browser-use


def browser_use_step(*actions, number=1, element=None, error=None, message=None, **changes):
    return {
        "model_output": {
            "evaluation_previous_goal": "Success",
            "memory": "",
            "next_goal": "Find it.",
            "thinking": "I see a box.",
            "action": list(actions),
        },
        "result": [{"is_done": False, "error": error} if error else {"is_done": False}],
        "state": {
            "tabs": [],
            "screenshot_path": f"/tmp/browser_use_agent_1/screenshots/step_{number}.png",
            "interacted_element": [element],
            "url": "https://shop.example/",
            "title": "Shop",
        },
        "metadata": {"step_start_time": 1.0, "step_end_time": 2.0, "step_number": number},
        "state_message": message,
    } | changes


ELEMENT = {
    "node_id": 1,
    "node_name": "INPUT",
    "attributes": {"placeholder": "Search all mugs"},
    "bounds": {"x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0},
    "ax_name": None,
}
REQUEST = "<agent_state>\n<user_request>\nFind a blue mug.\n</user_request>\n</agent_state>"
DONE = {"done": {"text": "12 euros", "success": True}}


def write_browser_use(folder, *steps, name="mug.json"):
    path = write_json(folder / name, {"history": list(steps)})
    write_pictures(folder / "screenshots", *(f"step_{number}.png" for number in range(1, 5)))
    return path


# CoMEM


def picture_uri(number=0):
    return "data:image/png;base64," + base64.b64encode(PICTURES[number].png).decode()


def comem_round(response, number=0):
    content = [{"type": "image_url", "image_url": {"url": picture_uri(number)}}, {"type": "text", "text": "A page."}]
    return {
        "timestamp": "2025-10-01T12:00:00",
        "messages": [{"role": "user", "content": content}],
        "response": response,
    }


def write_comem(folder, *responses, part="success", name="c1", **changes):
    document = {
        "session_id": "session_1",
        "conversation_id": name,
        "task_description": "Find a blue mug.",
        "total_rounds": len(responses),
        "rounds": [comem_round(text, number) for number, text in enumerate(responses)],
        "evaluation": {"evaluation": {"Correctness": part == "success"}, "analysis": ""},
    }
    return write_json(folder / "mmina" / "shopping" / "qwen" / "run1" / part / f"{name}.jsonl", document | changes)
