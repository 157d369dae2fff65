from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from banks import make_stored
from factories import make_screenshot
from focusmem.bank import Bank
from focusmem.bank.embedder import EmbedderConfig, QwenEmbedder, evenly_chosen
from focusmem.bank.forms import Event, Moment
from focusmem.bank.reembedding import reembed
from focusmem.errors import BackboneError, ConfigError, StorageError
from focusmem.model.backbone import Backbone
from focusmem.model.images import prepare_image
from focusmem.schemas import LeftOut, Screenshot, Step, StoredTrajectory, action_to_json, make_action


@pytest.fixture(scope="module")
def backbone():
    return Backbone.toy()


@pytest.fixture(scope="module")
def embedder(backbone):
    return QwenEmbedder(backbone)


def make_moment(num_recent=3, *, instruction="How much is the mug?"):
    """A moment after some steps, with a screenshot of its own for each of them and for the current screen."""
    recent = (Event(make_screenshot(number), f"action {number}") for number in range(num_recent))
    return Moment(instruction=instruction, recent=tuple(recent), screenshot=make_screenshot(num_recent))


def moments():
    return [
        make_moment(),
        Moment(instruction="Where?"),
        Moment(screenshot=make_screenshot(2, width=128, height=64)),
        Moment(),
        make_moment(1),
    ]


@torch.no_grad()
def library_vector(embedder: QwenEmbedder, prompt) -> np.ndarray:
    """The library's own forward pass, which finds images and positions by itself."""
    row = embedder.backbone.tokenise(prompt)
    ids = torch.tensor([row.ids])
    pictures = {}
    if row.pictures:
        patches = [prepare_image(picture.image(), embedder.backbone.images) for picture in row.pictures]
        pictures = {
            "pixel_values": torch.cat([torch.from_numpy(one.values_PF) for one in patches]),
            "image_grid_thw": torch.tensor([[1, *one.grid] for one in patches]),
            "mm_token_type_ids": (ids == embedder.backbone.special["<|image_pad|>"]).int(),
        }
    out = embedder.backbone.model.model(input_ids=ids, attention_mask=torch.ones_like(ids), **pictures)
    last = out.last_hidden_state[0, -1]
    return (last / last.norm()).numpy()


def test_a_vector_is_the_librarys_last_hidden_state_at_the_last_token(embedder):
    items = [make_stored(number, num_steps=2 + number) for number in range(3)]
    for vector, item in zip(embedder.embed_trajectories(items), items, strict=True):
        np.testing.assert_allclose(vector, library_vector(embedder, embedder.key_prompt(item)), atol=1e-5)
    for vector, moment in zip(embedder.embed_queries(moments()), moments(), strict=True):
        np.testing.assert_allclose(vector, library_vector(embedder, embedder.query_prompt(moment)), atol=1e-5)


def test_rows_are_float32_and_of_length_one(embedder):
    vectors = embedder.embed_queries(moments())
    assert (vectors.dtype, vectors.shape) == (np.float32, (5, embedder.width))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert embedder.embed_queries([]).shape == (0, embedder.width)


def test_batch_equals_one_by_one(embedder):
    alone = np.concatenate([embedder.embed_queries([moment]) for moment in moments()])
    np.testing.assert_allclose(embedder.embed_queries(moments()), alone, atol=1e-5)
    order = [2, 0, 4, 3, 1]
    mixed = embedder.embed_queries([moments()[place] for place in order])
    np.testing.assert_allclose(mixed, alone[order], atol=1e-5)


def test_padding_changes_nothing(backbone, embedder):
    """A short input beside a long one is padded; with one input at a time nothing is."""
    long = Moment(instruction="word " * 300)
    together = embedder.embed_queries([moments()[1], long])
    small = QwenEmbedder(backbone, EmbedderConfig(max_batch_tokens=1))
    np.testing.assert_allclose(together, small.embed_queries([moments()[1], long]), atol=1e-5)


# What is read


def test_the_instruction_is_the_systems_turn_and_ends_with_a_mark(backbone):
    for instruction, expected in (
        ("Find it", "Find it."),
        ("Find it?", "Find it?"),
        (" \u3042\u3002 ", "\u3042\u3002"),
    ):
        embedder = QwenEmbedder(backbone, EmbedderConfig(query_instruction=instruction))
        system, user = embedder.query_prompt(moments()[1])
        assert (system.role, system.parts) == ("system", (expected,))
        assert user.role == "user"


def test_a_query_is_the_whole_decision_context(embedder):
    """Instruction, the latest events with screenshot and action, and the current screenshot; pictures come first."""
    moment = make_moment()
    shots = tuple(make_screenshot(number) for number in range(4))
    text = "How much is the mug?\naction 0\naction 1\naction 2"
    assert embedder.query_prompt(moment)[1].parts == (*shots, text)
    assert embedder.left_out_of_query(moment).is_nothing


def test_a_key_is_the_whole_trajectory(embedder):
    item = make_stored(0, num_steps=5)
    steps = item.trajectory.steps
    shots = tuple(item.screenshots[step.screenshot.sha256] for step in steps)
    text = "\n".join([item.trajectory.instruction, *(action_to_json(step.action) for step in steps)])
    assert embedder.key_prompt(item)[1].parts == (*shots, text)
    assert embedder.left_out_of_trajectory(item).is_nothing


def test_a_step_without_an_action_is_read_by_the_reply(embedder):
    item = make_stored(0)
    step = Step(screenshot=item.trajectory.steps[1].screenshot, reply="Hm.", error="The reply has no action.")
    steps = (item.trajectory.steps[0], step)
    item = StoredTrajectory(item.trajectory.model_copy(update={"steps": steps}), item.screenshots)
    assert embedder.key_prompt(item)[1].parts[-1].splitlines()[2] == "Hm."
    moment = Moment.of(item.trajectory, steps, item.screenshots, make_screenshot(9), num_recent=3)
    assert embedder.query_prompt(moment)[1].parts[-1].splitlines()[2] == "Hm."


@pytest.mark.parametrize("change", ["action", "screenshot", "order"])
def test_recent_events_change_the_query(embedder, change):
    moment = make_moment()
    first, second, third = moment.recent
    changed = {
        "action": (replace(first, action="another action"), second, third),
        "screenshot": (replace(first, screenshot=make_screenshot(9)), second, third),
        "order": (second, first, third),
    }[change]
    one, other = embedder.embed_queries([moment, replace(moment, recent=changed)])
    assert not np.allclose(one, other, atol=1e-4)


def test_actions_change_the_key(embedder):
    item = make_stored(0)
    first, last = item.trajectory.steps
    changed = first.model_copy(update={"action": make_action("wait")})
    other = StoredTrajectory(item.trajectory.model_copy(update={"steps": (changed, last)}), item.screenshots)
    one, another = embedder.embed_trajectories([item, other])
    assert not np.allclose(one, another, atol=1e-4)


def test_a_picture_of_a_moment_is_looked_at_once():
    """Successive moments share all screenshots but one."""
    embedder, looked_at = QwenEmbedder(Backbone.toy()), []
    embedder.backbone.model.model.visual.register_forward_hook(lambda _, given, out, **more: looked_at.append(1))
    for number in range(4):
        embedder.embed_queries([make_moment(number)])
        assert len(looked_at) == number + 1


def test_nothing_to_read_is_null(embedder):
    assert embedder.query_prompt(Moment())[1].parts == ("NULL",)
    assert embedder.query_prompt(Moment(instruction="  "))[1].parts == ("NULL",)


def test_the_laboratorys_form_is_what_its_embedder_was_trained_on(backbone):
    embedder = QwenEmbedder(backbone, EmbedderConfig(form="laboratory-1"))
    query = embedder.query_prompt(make_moment())[1].parts
    assert query == (make_screenshot(2), make_screenshot(3), "How much is the mug?")
    item = make_stored(0, num_steps=5)
    *shots, text = embedder.key_prompt(item)[1].parts
    ends = item.trajectory.steps[0], item.trajectory.steps[-1]
    assert shots == [item.screenshots[step.screenshot.sha256] for step in ends]
    assert len(text.splitlines()) == 6


@pytest.mark.parametrize(
    ("total", "num", "expected"),
    [(15, 4, [0, 5, 9, 14]), (15, 2, [0, 14]), (15, 1, [14]), (15, 0, []), (3, 3, [0, 1, 2]), (0, 0, []), (0, 1, [])],
)
def test_frames_are_chosen_evenly_with_the_first_and_the_last(total, num, expected):
    assert evenly_chosen(total, num) == expected


@pytest.mark.parametrize(
    ("num_steps", "config", "num_read"), [(15, {}, 15), (19, {}, 15), (15, {"max_length": 8192}, 7)]
)
def test_what_is_read_of_a_long_trajectory(backbone, num_steps, config, num_read):
    """Screenshots of 1280x720 pixels are 880 tokens each: fifteen of them fit, and evenly spaced ones of more."""
    stored = make_stored(0, num_steps=num_steps)
    large = stored.trajectory.steps[0].screenshot.model_copy(update={"width": 1280, "height": 720})
    shot = Screenshot(png=b"", digest=large.sha256, width=1280, height=720)
    steps = tuple(step.model_copy(update={"screenshot": large}) for step in stored.trajectory.steps)
    stored = StoredTrajectory(stored.trajectory.model_copy(update={"steps": steps}), {large.sha256: shot})
    embedder = QwenEmbedder(backbone, EmbedderConfig(**config))
    prompt = embedder.key_prompt(stored)
    assert len(embedder.backbone.tokenise(prompt).ids) <= embedder.config.max_length
    assert sum(isinstance(part, Screenshot) for part in prompt[1].parts) == num_read
    assert embedder.left_out_of_trajectory(stored) == LeftOut(num_frames=num_steps - num_read)


@pytest.mark.parametrize("limit", [128, 200, 400, 1200, 3000])
def test_whatever_fits_is_kept_and_no_more(backbone, limit):
    item = make_stored(0, num_steps=9)
    embedder = QwenEmbedder(backbone, EmbedderConfig(max_length=limit))
    prompt = embedder.key_prompt(item)
    length = len(embedder.backbone.tokenise(prompt).ids)
    assert length <= limit
    frames = [part for part in prompt[1].parts if isinstance(part, Screenshot)]
    left_out = embedder.left_out_of_trajectory(item)
    assert left_out.num_frames == 9 - len(frames)
    text = "\n".join([item.trajectory.instruction, *(action_to_json(step.action) for step in item.trajectory.steps)])
    assert prompt[1].parts[-1] == text[: len(text) - left_out.num_characters]
    assert left_out.num_characters == 0 or len(frames) <= 1, "text comes first"
    if limit == 3000:
        assert len(frames) == 9
    elif len(frames) > 1:
        assert frames[0].digest == item.trajectory.steps[0].screenshot.sha256
    if frames:
        assert frames[-1].digest == item.trajectory.steps[-1].screenshot.sha256


def test_a_text_that_is_too_long_is_cut_and_counted(backbone):
    embedder = QwenEmbedder(backbone, EmbedderConfig(max_length=300))
    moment = Moment(instruction="caf\u00e9 \U0001f600 " * 200, screenshot=make_screenshot(1))
    prompt = embedder.query_prompt(moment)
    assert len(embedder.backbone.tokenise(prompt).ids) <= 300
    assert isinstance(prompt[1].parts[0], Screenshot), "the page is worth more than the end of a long text"
    assert moment.instruction.startswith(prompt[1].parts[1][:50])
    num_read = len(prompt[1].parts[1])
    assert embedder.left_out_of_query(moment).num_characters == len(moment.instruction.strip()) - num_read > 0


def test_of_a_query_that_is_too_long_the_latest_screenshots_stay(backbone):
    moment = make_moment()
    room = len(backbone.tokenise(QwenEmbedder(backbone).query_prompt(moment)).ids) - 1
    embedder = QwenEmbedder(backbone, EmbedderConfig(max_length=room))
    assert embedder.query_prompt(moment)[1].parts[:3] == tuple(make_screenshot(number) for number in (1, 2, 3))
    assert embedder.left_out_of_query(moment) == LeftOut(num_frames=1)


def test_at_most_so_many_frames(backbone):
    embedder = QwenEmbedder(backbone, EmbedderConfig(max_key_frames=2))
    assert embedder.left_out_of_trajectory(make_stored(0, num_steps=9)) == LeftOut(num_frames=7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "complete"}, "choose one of 'complete-1' or 'laboratory-1'"),
        ({"max_length": 5}, "at least 128"),
        ({"max_key_frames": -1}, "at least 0"),
        ({"max_batch_tokens": 0}, "at least 1"),
    ],
)
def test_a_config_checks_itself(changes, message):
    with pytest.raises(ConfigError, match=message):
        EmbedderConfig(**changes)


# Who it is


def test_identity_follows_what_shapes_the_vectors_of_trajectories(backbone, embedder):
    def identity(**changes):
        return QwenEmbedder(backbone, EmbedderConfig(**changes)).identity

    assert identity() == embedder.identity
    assert embedder.identity.startswith("complete-1:")
    assert identity(query_instruction="Other", max_batch_tokens=7, max_key_frames=15) == embedder.identity
    others = [
        identity(key_instruction="Other"),
        identity(max_key_frames=3),
        identity(form="laboratory-1"),
        identity(max_length=8192),
        identity(max_pixels=200_000),
        QwenEmbedder(Backbone.toy(seed=1)).identity,
    ]
    assert len({embedder.identity, *others}) == 7


def test_the_backbone_given_is_left_as_it_is(backbone):
    before = (backbone.images, backbone.identity())
    QwenEmbedder(backbone, EmbedderConfig(max_pixels=100_000))
    assert (backbone.images, backbone.identity()) == before


@pytest.fixture(scope="module")
def checkpoint(backbone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    backbone.save(folder)
    return folder


def test_a_checkpoint_folder_gives_the_same_embedder(checkpoint, embedder):
    loaded = QwenEmbedder.load(checkpoint)
    assert loaded.identity == embedder.identity
    np.testing.assert_allclose(loaded.embed_queries(moments()), embedder.embed_queries(moments()), atol=1e-5)


def test_a_checkpoint_may_lack_the_head_but_nothing_else(checkpoint, embedder, tmp_path):
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "SHA256SUMS").unlink()
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    head = next((name for name in tensors if "lm_head" in name), None)
    assert head is not None
    save_file({name: tensor for name, tensor in tensors.items() if name != head}, file, metadata={"format": "pt"})
    headless = QwenEmbedder.load(tmp_path)
    np.testing.assert_allclose(headless.embed_queries(moments()), embedder.embed_queries(moments()), atol=1e-5)
    assert headless.identity == QwenEmbedder.load(tmp_path).identity
    with pytest.raises(BackboneError, match="incomplete"):
        Backbone.load(tmp_path)
    norm = next(name for name in tensors if name.endswith("language_model.norm.weight"))
    save_file({name: one for name, one in tensors.items() if name not in (head, norm)}, file, metadata={"format": "pt"})
    with pytest.raises(BackboneError, match="incomplete"):
        QwenEmbedder.load(tmp_path)


def test_a_bank_with_a_real_architecture(tmp_path, embedder):
    bank = Bank.create(tmp_path / "bank", embedder)
    items = [make_stored(number) for number in range(4)]
    bank.add(items, embedder)
    for item in items:
        hit = bank.search(embedder.embed_trajectories([item])[0], None).hits[0]
        assert hit.trajectory_id == item.trajectory.trajectory_id
        assert hit.score == pytest.approx(1, abs=1e-4)


def test_a_bank_of_another_form_is_refused_until_it_is_reembedded(tmp_path, backbone, embedder):
    other = QwenEmbedder(backbone, EmbedderConfig(form="laboratory-1"))
    bank = Bank.create(tmp_path / "bank", other)
    bank.add([make_stored(0, num_steps=5)], other)
    with pytest.raises(StorageError, match=r"form laboratory-1, and the given .* form complete-1\..*bank reembed"):
        bank.check_embedder(embedder.identity)
    assert [entry.num_frames_left_out for entry in bank.entries()] == [3]
    assert dict(reembed(tmp_path / "bank", embedder).shortened) == {}
    bank = Bank.open(tmp_path / "bank")
    bank.check_embedder(embedder.identity)
    assert [entry.num_frames_left_out for entry in bank.entries()] == [0]
