"""Training, our own agent and `focusmem.Memory` ask a bank the same question at equal moments."""

import pytest

from banks import WordEmbedder, make_many
from factories import make_screenshot
from focusmem import Memory
from focusmem.agent.bank_retriever import BankRetriever
from focusmem.agent.decision import Decision
from focusmem.agent.fronts.latent import LatentFront, MemoryUse
from focusmem.agent.policy_mind import PolicyMind, as_text
from focusmem.agent.prompt import NUM_RECENT
from focusmem.bank import Bank
from focusmem.bank.embedder import QwenEmbedder
from focusmem.data.config import DataConfig
from focusmem.data.preparation import prepare
from focusmem.evidence import Serialiser
from focusmem.model.backbone import Backbone
from focusmem.schemas import Observation, Task, action_to_json, make_action, save_trajectory
from toys import make_policy

ACTIONS = (
    make_action("click", description="the first link"),
    make_action("type", description="the search box", text="mug"),
    "no action at all",
    make_action("scroll", direction="down"),
    '{"name": "fly"}',
    make_action("wait"),
    make_action("stop", answer="blue"),
)
ASKED = (0, 1, 3, 5, 6)
"""The steps whose action can be learnt."""


class Noting(WordEmbedder):
    """Notes the queries as a real embedder would read them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedder, self.queries = QwenEmbedder(Backbone.toy(num_layers=1)), []

    def embed_queries(self, moments):
        self.queries += [as_text(self.embedder.query_prompt(moment)) for moment in moments]
        return super().embed_queries(moments)


@pytest.fixture(scope="module", params=[NUM_RECENT, 2, 0])
def num_recent(request):
    return request.param


@pytest.fixture(scope="module")
def asked(tmp_path_factory, num_recent):
    """The queries of one episode: of Memory, of our own agent, and of training."""
    folder, noting = tmp_path_factory.mktemp("finding"), [Noting() for _ in range(3)]
    bank = Bank.create(folder / "bank", WordEmbedder())
    bank.add(make_many(4), WordEmbedder())
    front = LatentFront(make_policy(), Serialiser(), MemoryUse(num_recent=num_recent))
    memory = Memory(front, bank=bank, embedder=noting[0])
    mind = PolicyMind(memory.policy, front, retriever=BankRetriever(bank, noting[1]))
    task = Task(task_id="mugs", instruction="Which colour has the mug?", start_url="", site="shop.example")
    episode = memory.begin(task)
    for number, action in enumerate(ACTIONS):
        if number in ASKED:
            episode.prefix(make_screenshot(100 + number))
        episode.observe(make_screenshot(100 + number), action)
    stored = episode.trajectory("own", outcome="success")
    steps, screenshots = stored.trajectory.steps, stored.screenshots
    for at in ASKED:
        seen = Observation(screenshots[steps[at].screenshot.sha256], "", "", ())
        mind.prepare([Decision(task, "1", seen, steps[:at], screenshots)])
    save_trajectory(folder / "own", stored.trajectory, screenshots)
    data = DataConfig(trajectories=(folder / "own",), bank=folder / "bank", min_steps=1, use=front.use)
    prepare(Backbone.toy(num_layers=1), lambda: noting[2], data, folder / "prepared", has_lessons=False)
    return [one.queries for one in noting]


def test_equal_moments_are_asked_equally(asked):
    of_memory, of_agent, of_training = asked
    assert of_memory == of_agent == of_training
    assert len(of_memory) == len(ASKED)


def test_a_query_holds_the_latest_events_as_the_prompt_shows_them(asked, num_recent):
    [_, user] = asked[0][3]  # after the fifth step
    shots = "".join(f"[{make_screenshot(100 + number).digest}]" for number in (2, 3, 4, 5)[3 - num_recent :])
    question, *events = user.splitlines()
    assert question == f"user: {shots}Which colour has the mug?"
    shown = ("no action at all", action_to_json(ACTIONS[3]), "fly")[3 - num_recent :]
    assert len(events) == num_recent
    assert all(words in event for words, event in zip(shown, events, strict=True))
