"""The teacher on a toy policy that was taught its answers by heart, so that what it says is known."""

import json

import pytest
import torch

from focusmem.errors import ConfigError, StorageError
from focusmem.model.backbone import Backbone
from focusmem.model.generation import GenerationConfig, generate
from focusmem.schemas import Turn
from focusmem.training.batch import ListedBatches, Pixels, TrainingBatch, TrainingItem
from focusmem.training.questions import SUBTYPES, Questions
from focusmem.training.teacher import Teacher, TeacherConfig, lesson_store
from training.samples import disk_that_takes, make_item

ANSWERS = {
    "describe": "A mug is found.",
    "episodic_summary": '{"progress_summary":"p","useful_experience":"u","task_constraints":"t","anchor_decision":"a"}',
    "episodic_anchor": '{"anchor_state":"s","decision_basis":"b"}',
    "working_state": "No idea.",
    "working_change": '{"initial_state":"i","observed_change":"o","latest_observed_state":"l"}',
}
ITEMS = [make_item(0, has_lesson=False), make_item(1, role="working", has_lesson=False)]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    """Questions of a few letters: bytes are tokens here."""
    folder = tmp_path_factory.mktemp("prompts")
    for number, name in enumerate(ANSWERS):
        (folder / f"{name}.txt").write_text(f"Q{number}")
    return folder


@pytest.fixture(scope="module")
def backbone(prompts):
    """A policy that gives these answers, whatever the record: learnt in a moment, then frozen."""
    backbone, questions = Backbone.toy(num_layers=2), Questions(prompts)
    backbone.model.requires_grad_(True)
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=4e-3)
    tokens = [
        backbone.tokenise(questions.ask_about(item.prompt, name), reply=ANSWERS[name])
        for item in ITEMS
        for name in ("describe", *SUBTYPES[item.role])
    ]
    ids = torch.tensor([token for row in tokens for token in row.ids[-row.num_target :]])
    for _ in range(400):
        rows = backbone.embed(tokens)  # anew: head and embeddings may be one matrix
        loss = torch.nn.functional.cross_entropy(backbone.logits(backbone.target_hidden(rows)), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.01:
            break
    backbone.model.requires_grad_(False)
    return backbone


@pytest.fixture
def teacher(backbone, prompts, tmp_path):
    return Teacher(backbone, tmp_path / "lessons", TeacherConfig(prompts=prompts, max_new_tokens=110))


def data_of(*items: TrainingItem) -> ListedBatches:
    return ListedBatches([TrainingBatch(items=items[:1]), TrainingBatch(items=items)])


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_lessons_hold_what_was_said_and_only_good_answers(teacher):
    counts = teacher.prepare(data_of(*ITEMS))
    assert (counts.num_made, counts.num_found, counts.num_targets) == (2, 0, 2)
    assert counts.discarded == {"episodic_anchor": 1, "working_state": 1}
    assert counts.reasons.total() == 2
    assert counts.reasons["wrong fields"] == 1
    for item, subtype in zip(ITEMS, ("episodic_summary", "working_change"), strict=True):
        lesson = teacher.store.read(item.digest)
        assert lesson.description.text == ANSWERS["describe"]
        [pair] = lesson.functional
        assert pair.target == ANSWERS[subtype]
        assert pair.question == teacher.store.questions.ask(subtype)


def test_why_an_answer_was_discarded_is_written_down(teacher):
    teacher.prepare(data_of(*ITEMS))
    cards = [json.loads(path.read_text()) for path in files_in(teacher.store.folder) if path.suffix == ".json"]
    discarded = {name: why for card in cards for name, why in card["discarded"].items()}
    assert discarded["episodic_anchor"]["reason"] == "wrong fields"
    assert "anchor_action is missing" in discarded["episodic_anchor"]["message"]
    assert discarded["working_state"]["reason"] in ("no object", "cut off", "malformed")


@torch.no_grad()
def test_stored_states_and_the_head_give_the_teachers_scores_exactly(teacher, backbone):
    """The pass by which they were made, once more: with the record raw in front, every score bit for bit."""
    teacher.prepare(data_of(ITEMS[0]))
    description = teacher.store.read(ITEMS[0].digest).description
    prompt = teacher.store.questions.ask_about(ITEMS[0].prompt, "describe")
    [row] = backbone.embed([backbone.tokenise(prompt, reply=ANSWERS["describe"])])
    assert row.target_ids == description.ids
    logits = backbone.logits(backbone.target_hidden([row]))
    assert torch.equal(backbone.logits(description.hidden_MD), logits)
    assert logits.argmax(dim=-1).tolist() == list(description.ids), "greedy: each token was the likeliest"


def test_a_description_that_was_cut_has_no_end_mark(backbone, prompts, tmp_path):
    teacher = Teacher(backbone, tmp_path, TeacherConfig(prompts=prompts, max_new_tokens=6))
    counts = teacher.prepare(data_of(ITEMS[0]))
    lesson = teacher.store.read(ITEMS[0].digest)
    assert lesson.description.text == ANSWERS["describe"][:6].strip()
    assert len(lesson.description.ids) == lesson.description.hidden_MD.shape[0] == 6
    assert counts.discarded.total() == 2
    assert counts.reasons.total() == 2


def test_together_equals_one_by_one(teacher, backbone, prompts, tmp_path):
    teacher.prepare(data_of(*ITEMS))
    config = TeacherConfig(prompts=prompts, max_new_tokens=110, max_batch_tokens=1)
    alone = Teacher(backbone, tmp_path / "alone", config)
    alone.prepare(data_of(*ITEMS))
    for item in ITEMS:
        one, two = (store.read(item.digest) for store in (teacher.store, alone.store))
        assert one.description.ids == two.description.ids
        torch.testing.assert_close(one.description.hidden_MD, two.description.hidden_MD, rtol=1e-4, atol=1e-4)
        assert one.functional == two.functional


def test_goes_on_with_what_is_missing(teacher, monkeypatch):
    teacher.prepare(data_of(ITEMS[0]))
    before = {path: path.stat().st_mtime_ns for path in files_in(teacher.store.folder)}
    counts = teacher.prepare(data_of(*ITEMS))
    assert (counts.num_made, counts.num_found, counts.num_targets) == (1, 1, 2)
    assert counts.discarded == {"episodic_anchor": 1, "working_state": 1}, "those of an earlier run included"
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    again = teacher.prepare(data_of(*ITEMS))
    assert (again.num_made, again.num_found) == (0, 2)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("damage", ["cut", "gone", "changed"])
def test_a_damaged_lesson_is_refused_and_made_again(teacher, suffix, damage):
    teacher.prepare(data_of(ITEMS[0]))
    whole = teacher.store.read(ITEMS[0].digest)
    [path] = [path for path in files_in(teacher.store.folder) if path.suffix == suffix]
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-20] if damage == "cut" else data[:-4] + bytes(4))
    message = r"no lesson about the item 'mug'.*Teacher.prepare" if damage == "gone" else "'mug' is damaged"
    with pytest.raises(StorageError, match=message):
        teacher.store.read(ITEMS[0].digest, name="mug")
    assert teacher.prepare(data_of(ITEMS[0])).num_made == 1
    assert teacher.store.read(ITEMS[0].digest).description.ids == whole.description.ids


def test_lessons_belong_to_a_policy_and_a_wording(teacher, backbone, tmp_path):
    teacher.prepare(data_of(ITEMS[0]))
    folder = teacher.store.folder
    for other in (
        lesson_store(folder, Backbone.toy(num_layers=2, seed=1), teacher.config),
        lesson_store(folder, backbone, TeacherConfig(max_new_tokens=110)),
        lesson_store(folder, backbone, TeacherConfig(prompts=teacher.config.prompts, max_new_tokens=50)),
    ):
        with pytest.raises(StorageError, match="by another policy or in other words"):
            other.read(ITEMS[0].digest)
    same = lesson_store(folder, backbone, teacher.config)
    assert same.read(ITEMS[0].digest).functional == teacher.store.read(ITEMS[0].digest).functional


def test_a_full_disk_is_said_and_leaves_nothing_half_done(teacher):
    with disk_that_takes(100), pytest.raises(StorageError, match=r"Could not write .*File too large"):
        teacher.prepare(data_of(ITEMS[0]))
    assert files_in(teacher.store.folder) == []
    assert teacher.prepare(data_of(ITEMS[0])).num_made == 1


def test_pictures_that_a_batch_brings_along_are_seen_by_the_one_who_can(backbone, prompts, tmp_path):
    """The laboratory's screenshots carry no PNG: their pixels come with the batch."""
    real = ITEMS[0].prompt
    pictures = [part for turn in real for part in turn.parts if not isinstance(part, str)]
    bare = {one.digest: type(one)(png=b"", digest=one.digest, width=one.width, height=one.height) for one in pictures}
    prompt = tuple(
        Turn(turn.role, tuple(part if isinstance(part, str) else bare[part.digest] for part in turn.parts))
        for turn in real
    )
    item = TrainingItem(item_id="bare", role="episodic", prompt=prompt)
    pixels = torch.zeros(len(pictures), 64, 96, 3, dtype=torch.uint8)
    batch = TrainingBatch(items=(item,), pixels=Pixels(tuple(bare), pixels))
    fresh = Backbone.toy(num_layers=2)
    fresh.load_state_dict(backbone.state_dict())
    asked = []

    def look(pixels: Pixels):
        asked.append(pixels.digests)
        return dict(zip(pixels.digests, backbone.see(pictures), strict=True))

    config = TeacherConfig(prompts=prompts, max_new_tokens=110)
    teacher = Teacher(fresh, tmp_path, config, look=look)
    teacher.prepare(ListedBatches([batch]))
    assert asked == [tuple(bare)]
    assert teacher.store.read(item.digest).description.text == ANSWERS["describe"]
    with pytest.raises(ConfigError, match="pass look="):
        Teacher(fresh, tmp_path / "blind", config).prepare(ListedBatches([batch]))


@torch.no_grad()
def test_teaching_leaves_no_trace_on_the_policy(teacher, backbone):
    rows = backbone.embed([backbone.tokenise(ITEMS[0].prompt)])
    before = generate(backbone, rows, GenerationConfig(max_new_tokens=5))
    teacher.prepare(data_of(ITEMS[0]))
    assert generate(backbone, rows, GenerationConfig(max_new_tokens=5)) == before
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


def test_whatever_a_policy_says_can_be_stored(tmp_path):
    """An untrained one says every byte there is."""
    counts = Teacher(Backbone.toy(num_layers=2), tmp_path, TeacherConfig(max_new_tokens=40)).prepare(
        ListedBatches([TrainingBatch(items=tuple(make_item(seed, has_lesson=False) for seed in range(6)))])
    )
    assert (counts.num_made, counts.num_targets) == (6, 0)


def test_config_names_the_field():
    with pytest.raises(ConfigError, match=r"TeacherConfig.max_new_tokens is 0"):
        TeacherConfig(max_new_tokens=0)
