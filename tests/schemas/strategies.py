"""Hypothesis strategies for records: everything that the field types allow, in small sizes."""

from datetime import UTC

from hypothesis import settings
from hypothesis import strategies as st

from focusmem.schemas import (
    Annotations,
    Consultation,
    Environment,
    EvidenceItem,
    JudgeReply,
    Run,
    ScreenshotRef,
    Step,
    Task,
    Trajectory,
    Verdict,
    make_action,
)

FAST = settings(max_examples=60)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
words = texts.filter(lambda text: text.strip() != "")
identifiers = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9_-])?", fullmatch=True)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
outcomes = st.sampled_from(["success", "failure", "error", "not_judged"])
numbers = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-(2**64) + 1, 2**64 - 1)
times = st.datetimes(timezones=st.timezones() | st.just(UTC)).filter(lambda time: 1 < time.year < 9999)
json_values = st.recursive(
    st.none() | st.booleans() | integers | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def maybe(strategy):
    return st.none() | strategy


def _action(name, **arguments):
    """The arguments are strategies; an optional one that draws None is left out."""
    drawn = st.fixed_dictionaries({**arguments, "reasoning": maybe(texts)})
    return drawn.map(lambda found: make_action(name, **{k: v for k, v in found.items() if v is not None}))


actions = st.one_of(
    _action("click", description=words),
    _action("type", text=texts.filter(bool), description=maybe(words)),
    _action("scroll", direction=st.sampled_from(["up", "down"])),
    _action("press_key", key=words),
    _action("goto", url=words),
    _action("wait"),
    _action("stop", answer=texts),
)

refs = st.builds(ScreenshotRef, sha256=digests, width=st.integers(1, 5000), height=st.integers(1, 5000))
pixels = st.integers(0, 5000)
steps = st.builds(
    Step,
    screenshot=refs,
    action=actions,
    reply=maybe(texts),
    url=maybe(texts),
    click_point=maybe(st.tuples(pixels, pixels)),
    error=maybe(texts),
)
some_steps = st.lists(steps, min_size=1, max_size=3).map(tuple)
annotations = st.builds(Annotations, instance=maybe(texts), template=maybe(texts))
trajectories = st.builds(
    Trajectory,
    schema_version=st.just(1),
    trajectory_id=identifiers,
    task_id=words,
    instruction=words,
    start_url=texts,
    site=texts,
    steps=some_steps,
    outcome=outcomes,
    source=words,
    annotations=annotations,
)
items = st.builds(
    EvidenceItem,
    item_id=words,
    role=st.sampled_from(["episodic", "working"]),
    instruction=maybe(texts),
    steps=some_steps,
    rank=st.integers(0, 100),
    score=maybe(numbers),
    trajectory_id=maybe(texts),
)
tasks = st.builds(
    Task,
    schema_version=st.just(1),
    task_id=words,
    instruction=words,
    start_url=texts,
    site=texts,
    answer=maybe(texts),
    annotations=annotations,
    allowed_sites=st.lists(words, max_size=2).map(tuple),
    max_steps=st.integers(1, 1000),
)
replies = st.builds(JudgeReply, part=words, text=texts, prompt=digests, is_cut_off=st.booleans(), is_echo=st.booleans())
consultations = st.builds(
    Consultation,
    model=words,
    prompts=digests,
    temperature=st.floats(0, 2),
    departures=st.lists(words, max_size=2).map(tuple),
    replies=st.lists(replies, max_size=2).map(tuple),
)
verdicts = st.builds(
    Verdict,
    schema_version=st.just(1),
    task_id=words,
    outcome=outcomes,
    reason=texts,
    judge=words,
    judge_profile=maybe(texts),
    consultation=maybe(consultations),
    strict=maybe(st.sampled_from(["success", "failure", "unreadable"])),
    num_unreadable=st.integers(0, 9),
)
environments = st.builds(
    Environment,
    commit=maybe(st.binary(min_size=20, max_size=20).map(bytes.hex)),
    has_uncommitted_changes=maybe(st.booleans()),
    packages=st.dictionaries(texts, texts, max_size=3),
    system=st.dictionaries(texts, texts, max_size=3),
    hardware=st.dictionaries(texts, texts, max_size=3),
    seeds=st.dictionaries(texts, st.integers(0, 2**64 - 1), max_size=3),
)
runs = st.builds(
    Run,
    schema_version=st.just(1),
    run_id=identifiers,
    command=st.lists(texts, max_size=3).map(tuple),
    status=st.just("finished"),
    key=identifiers,
    config=st.dictionaries(texts, json_values, max_size=3),
    started_at=times,
    finished_at=times,
    num_tasks=maybe(st.integers(0, 100)),
    error=maybe(texts),
)
