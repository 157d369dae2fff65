"""Hand-made files of exactly the shapes that the benchmarks have. The tasks are invented."""

import json
from pathlib import Path

HEX = "0123456789abcdef0123456789abcdef"

WEBVOYAGER = [
    {
        "web_name": "Allrecipes",
        "id": "Allrecipes--0",
        "ques": "Find a soup with 5 stars.",
        "web": "https://www.allrecipes.com/",
    },
    {
        "web_name": "Google Flights",
        "id": "Google Flights--8",
        "ques": "Find a flight from Oslo to Rome on Jan. 3rd.",
        "web": "https://www.google.com/travel/flights/",
    },
    {
        "web_name": "Amazon",
        "id": "Amazon--31",
        "ques": "Find a green chair made before March 5, 2024.",
        "web": "https://www.amazon.com/",
    },
]
ANSWERS = {
    "Allrecipes": {"notice": "", "answers": [{"id": 0, "type": "golden", "ans": "Leek soup"}]},
    "Google Flights": {"notice": "Prices change.", "answers": [{"id": 8, "type": "possible", "ans": "90 euros"}]},
}
DEEPSHOP = [
    {
        "web_name": "Amazon",
        "id": "Amazon--31",
        "ques": "Find a blue mug with 4 stars.",
        "web": "https://www.amazon.com/?language=en_US&currency=USD",
        "attribute": "Blue mug",
        "filter": "Rated 4 stars",
        "sort": "None",
        "category": "Home",
        "difficulty": "easy",
    },
    {
        "web_name": "Amazon",
        "id": "Amazon--541",
        "ques": "Find the cheapest red lamp.",
        "web": "https://www.amazon.com/?language=en_US&currency=USD",
        "attribute": "** Red lamp",
        "filter": "None",
        "sort": "Sorted by price",
        "category": "Home",
        "difficulty": "hard",
    },
]
ONLINE_MIND2WEB = [
    {
        "task_id": HEX,
        "confirmed_task": "Find a library on Example.",
        "website": "https://www.example.com/",
        "reference_length": 6,
        "level": "medium",
    },
    {
        "task_id": f"f{HEX[1:]}_110325",
        "confirmed_task": "Open the map of Sample.",
        "website": "https://sample.org/",
        "reference_length": 3,
        "level": "easy",
    },
]
KIWIX = "https://library.kiwix.org/viewer#wikipedia_en_all_maxi_2024-01/A/User%3AThe_other_Kiwix_guy/Landing"


def mmina_row(number: int, intent: str, **changes: object) -> dict[str, object]:
    return {
        "sites": ["shopping"],
        "task_id": number,
        "require_login": True,
        "storage_state": "./.auth/shopping_state.json",
        "start_url": KIWIX,
        "geolocation": None,
        "intent_template": intent,
        "instantiation_dict": {},
        "intent": intent,
        "require_reset": False,
        "eval": {
            "eval_types": ["string_match"],
            "reference_answers": {"fuzzy_match": ["Yes"]},
            "reference_url": "",
            "program_html": [],
            "string_note": "",
            "reference_answer_raw_annotation": ["Yes"],
        },
        "intent_template_id": 348,
        "hop_cnt": 1,
        "action_cnt": 3,
    } | changes


def several_hops(number: int) -> dict[str, object]:
    row = mmina_row(number, "Find a city, then a flight.")
    del row["hop_cnt"]
    return row | {"cnt_hop": 2, "procedure": ["wiki", "flight", "end"], "shop": "", "city": "Oslo", "flight": "x"}


def write_webvoyager(folder: Path, rows=WEBVOYAGER, *, has_answers: bool = True) -> Path:
    path = folder / "WebVoyager_data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))  # without a line break at the end, as upstream
    if has_answers:
        (folder / "reference_answer.json").write_text(json.dumps(ANSWERS))
    return path


def write_deepshop(folder: Path, rows=DEEPSHOP) -> Path:
    path = folder / "deepshop_test.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def write_online_mind2web(folder: Path, rows=ONLINE_MIND2WEB) -> Path:
    path = folder / "Online_Mind2Web.json"
    path.write_text(json.dumps(rows, indent=4))
    return path


def write_mmina(folder: Path, **domains) -> Path:
    """`wikipedia=[row, ...]` becomes mmina/wikipedia/1.json and so on."""
    for name, rows in domains.items():
        (folder / "mmina" / name).mkdir(parents=True)
        for number, row in enumerate(rows, start=1):
            (folder / "mmina" / name / f"{number}.json").write_text(json.dumps(row, indent=4))
    return folder / "mmina"


def shopping_row(number: int, intent: str = "How much is the mug?", **changes: object) -> dict[str, object]:
    """A row of the shop, without the two lines that some files lack."""
    row = mmina_row(number, intent, start_url="http://localhost:7770/", **changes)
    del row["hop_cnt"], row["action_cnt"]
    return row
