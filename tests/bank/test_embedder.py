import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from banks import make_stored
from factories import make_screenshot
from focusmem.bank import Bank
from focusmem.bank.embedder import EmbedderConfig, Moment, QwenEmbedder, evenly_chosen
from focusmem.errors import BackboneError, ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.images import prepare_image
from focusmem.schemas import Screenshot, StoredTrajectory, make_action


@pytest.fixture(scope="module")
def backbone():
    return Backbone.toy()


@pytest.fixture(scope="module")
def embedder(backbone):
    return QwenEmbedder(backbone)


def moments():
    return [
        Moment(instruction="How much is the mug?", site="shop.example", screenshots=(make_screenshot(1),)),
        Moment(instruction="Where?"),
        Moment(screenshots=(make_screenshot(2, width=128, height=64),)),
        Moment(),
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
    assert (vectors.dtype, vectors.shape) == (np.float32, (4, embedder.width))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert embedder.embed_queries([]).shape == (0, embedder.width)


def test_batch_equals_one_by_one(embedder):
    alone = np.concatenate([embedder.embed_queries([moment]) for moment in moments()])
    np.testing.assert_allclose(embedder.embed_queries(moments()), alone, atol=1e-5)
    order = [2, 0, 3, 1]
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
        system, user = embedder.query_prompt(moments()[0])
        assert (system.role, system.parts) == ("system", (expected,))
        assert user.role == "user"


def test_pictures_come_before_the_text(embedder):
    _, user = embedder.query_prompt(moments()[0])
    assert user.parts == (make_screenshot(1), "How much is the mug?\nSite: shop.example")


def test_nothing_to_read_is_null(embedder):
    assert embedder.query_prompt(Moment())[1].parts == ("NULL",)
    assert embedder.query_prompt(Moment(instruction="  "))[1].parts == ("NULL",)


def test_parts_of_the_text_are_chosen_and_ordered_by_the_config(backbone):
    embedder = QwenEmbedder(backbone, EmbedderConfig(key_parts=("actions", "instruction"), max_key_frames=0))
    [text] = embedder.key_prompt(make_stored(0))[1].parts
    *actions, instruction = text.splitlines()
    assert len(actions) == 2
    assert '"name": "click"' in actions[0]
    assert instruction == make_stored(0).trajectory.instruction
    query = QwenEmbedder(backbone, EmbedderConfig(query_parts=("actions",)))
    moment = Moment(instruction="x", actions=(make_action("wait"),))
    assert "wait" in query.query_prompt(moment)[1].parts[0]


def test_the_latest_screenshots_make_the_query(backbone):
    shots = tuple(make_screenshot(number) for number in range(4))
    embedder = QwenEmbedder(backbone, EmbedderConfig(num_query_frames=2))
    assert embedder.query_prompt(Moment(instruction="x", screenshots=shots))[1].parts[:2] == shots[2:]


@pytest.mark.parametrize(
    ("total", "num", "expected"),
    [(15, 4, [0, 5, 9, 14]), (15, 2, [0, 14]), (15, 1, [14]), (15, 0, []), (3, 3, [0, 1, 2]), (0, 0, []), (0, 1, [])],
)
def test_frames_are_chosen_evenly_with_the_first_and_the_last(total, num, expected):
    assert evenly_chosen(total, num) == expected


def test_a_trajectory_of_fifteen_steps_fits(backbone):
    """Screenshots of 1280x720 pixels are 880 tokens each: fifteen of them are too many for the default length."""
    stored = make_stored(0, num_steps=15)
    large = stored.trajectory.steps[0].screenshot.model_copy(update={"width": 1280, "height": 720})
    shot = Screenshot(png=b"", digest=large.sha256, width=1280, height=720)
    steps = tuple(step.model_copy(update={"screenshot": large}) for step in stored.trajectory.steps)
    stored = StoredTrajectory(stored.trajectory.model_copy(update={"steps": steps}), {large.sha256: shot})
    embedder = QwenEmbedder(backbone)
    prompt = embedder.key_prompt(stored)
    assert len(embedder.backbone.tokenise(prompt).ids) <= 8192
    assert sum(isinstance(part, Screenshot) for part in prompt[1].parts) == 9
    assert (embedder.counts.num_frames, embedder.counts.num_frames_used) == (15, 9)


@pytest.mark.parametrize("limit", [128, 200, 400, 1000])
def test_whatever_fits_is_kept_and_no_more(backbone, limit):
    item = make_stored(0, num_steps=9)
    embedder = QwenEmbedder(backbone, EmbedderConfig(max_length=limit))
    prompt = embedder.key_prompt(item)
    length = len(embedder.backbone.tokenise(prompt).ids)
    assert length <= limit
    frames = [part for part in prompt[1].parts if isinstance(part, Screenshot)]
    assert embedder.counts.num_frames_used == len(frames)
    if limit == 1000:
        assert len(frames) == 9
    elif len(frames) > 1:
        assert frames[0].digest == item.trajectory.steps[0].screenshot.sha256
    if frames:
        assert frames[-1].digest == item.trajectory.steps[-1].screenshot.sha256


def test_a_text_that_is_too_long_is_cut_and_counted(backbone):
    embedder = QwenEmbedder(backbone, EmbedderConfig(max_length=300))
    moment = Moment(instruction="caf\u00e9 \U0001f600 " * 200, screenshots=(make_screenshot(1),))
    prompt = embedder.query_prompt(moment)
    assert len(embedder.backbone.tokenise(prompt).ids) <= 300
    assert isinstance(prompt[1].parts[0], Screenshot), "the page is worth more than the end of a long text"
    assert moment.instruction.startswith(prompt[1].parts[1][:50])
    assert embedder.counts.num_texts_cut == 1


def test_at_most_so_many_frames(backbone):
    embedder = QwenEmbedder(backbone, EmbedderConfig(max_key_frames=2))
    embedder.embed_trajectories([make_stored(0, num_steps=9)])
    assert (embedder.counts.num_frames, embedder.counts.num_frames_used) == (9, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_parts": ("title",)}, "choose one of 'instruction', 'site' or 'actions'"),
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
    assert identity(query_instruction="Other", num_query_frames=3, max_batch_tokens=7) == embedder.identity
    others = [
        identity(key_instruction="Other"),
        identity(max_key_frames=3),
        identity(key_parts=("instruction",)),
        identity(max_pixels=200_000),
        QwenEmbedder(Backbone.toy(seed=1)).identity,
    ]
    assert len({embedder.identity, *others}) == 6


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
