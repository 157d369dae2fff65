"""A mind that combines a policy with a front. It builds the prompts, finds trajectories, puts memory in front of the
prompts, and asks the policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from focusmem.agent.decision import Decision
from focusmem.agent.formats.base import ActionFormat, read_json
from focusmem.agent.fronts.base import Front, Fronted
from focusmem.agent.mind import Reply
from focusmem.agent.policy import Completion, Policy
from focusmem.agent.prompt import NUM_RECENT, PromptBuilder, RecentEvent, recent_events
from focusmem.agent.retrieval import Retriever, Search
from focusmem.agent.timing import timed
from focusmem.errors import ConfigError
from focusmem.evidence import Serialiser, working_items
from focusmem.schemas import Prompt, StepNotes
from focusmem.seeds import derive_seed


@dataclass
class Prepared:
    """Decisions with memory in front of their prompts."""

    searches: list[Search]
    fronted: list[Fronted]
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each part. Every decision waits for the whole batch, so all decisions have the same
    seconds."""


class PolicyMind:
    """Answers many episodes at once. Several minds may share a policy, a front or a retriever."""

    def __init__(
        self,
        policy: Policy,
        front: Front,
        *,
        retriever: Retriever | None = None,
        prompt: PromptBuilder | None = None,
        history: Serialiser | None = None,
        seed: int = 0,
        action_format: ActionFormat | None = None,
    ) -> None:
        """Without a retriever, no trajectories are found, and memory holds only the episode's own history. With
        `history`, events that have left the prompt are shown raw before it. `seed` is used only by a policy that
        samples. `action_format` replaces our own prompt and its parser by those of another agent.
        """
        self.policy, self.front, self.retriever, self.seed = policy, front, retriever, seed
        self.prompt = prompt or PromptBuilder()
        self.action_format = action_format
        self._history = history
        # Two runs of one task give their episodes the same ids, but a shared policy must distinguish them.
        self._name = uuid4().hex
        self._under_way: set[str] = set()

    def ask(self, decisions: Sequence[Decision]) -> list[Reply]:
        if not decisions:
            return []
        under_way = {decision.episode_id for decision in decisions}
        self._under_way |= under_way
        try:
            return self._answer(decisions)
        finally:
            # Some episodes may have ended while the policy answered; everything kept for them since then is freed now.
            for episode_id in under_way - self._under_way:
                self._free(episode_id)

    def prepare(self, decisions: Sequence[Decision], prompts: Sequence[Prompt] | None = None) -> Prepared:
        """Builds the prompts, searches and places memory, but asks for no reply. `prompts` replaces the agent's own
        prompts.
        """
        if prompts is None:
            prompts = [self.prompt_of(decision) for decision in decisions]
        seconds: dict[str, float] = {}
        with timed(seconds, "retrieve"):
            searches = self._search(decisions)
        with timed(seconds, "remember"):
            named = [replace(decision, episode_id=self._named(decision.episode_id)) for decision in decisions]
            fronted = self.front.place(prompts, named, searches)
        return Prepared(searches, fronted, seconds)

    def prompt_of(self, decision: Decision, events: Sequence[RecentEvent] | None = None) -> Prompt:
        """The agent's prompt for a decision. `events` replaces the latest events of the episode."""
        if self.action_format is not None:
            return self.action_format.prompt(decision)
        num_recent, num_steps = self.front.num_recent, len(decision.steps)
        if num_recent > NUM_RECENT:
            raise ConfigError(
                f"num_recent is {num_recent}, but our own prompt shows at most {NUM_RECENT} events, so some events "
                "would be neither shown nor remembered; use a smaller number, or your own prompt."
            )
        if events is None:
            events = recent_events(decision.steps, decision.screenshots, num_recent)
        asked = self.prompt(
            instruction=decision.task.instruction,
            recent=events[max(0, len(events) - num_recent) :],
            screenshot=decision.seen.screenshot,
            actions_left=decision.actions_left,
            presses_enter=decision.task.presses_enter is True,
        )
        if self._history is None or num_steps <= num_recent:
            return asked
        expired = working_items(decision.steps, instruction=decision.task.instruction, num_recent=num_recent)
        shown = [turn for item in expired for turn in self._history(item, decision.screenshots)]
        return (*shown, *asked)

    def forget(self, episode_id: str) -> None:
        self._under_way.discard(episode_id)
        self._free(episode_id)

    def _answer(self, decisions: Sequence[Decision]) -> list[Reply]:
        prepared = self.prepare(decisions)
        seeds = [derive_seed(self.seed, one.episode_id, len(one.steps)) for one in decisions]
        with timed(prepared.seconds, "reply"):
            completions = self.policy.reply(prepared.fronted, seeds=seeds)
        together = StepNotes(seconds=prepared.seconds, num_together=len(decisions))
        reader = read_json if self.action_format is None else self.action_format.read
        return [
            Reply(completion.text, _notes(fronted, search, completion, together), completion.error, reader)
            for completion, fronted, search in zip(completions, prepared.fronted, prepared.searches, strict=True)
        ]

    def _search(self, decisions: Sequence[Decision]) -> list[Search]:
        if self.retriever is None or not self.front.num_found:
            return [Search()] * len(decisions)
        return self.retriever.find(decisions, self.front.num_found, self.front.num_recent)

    def _named(self, episode_id: str) -> str:
        return f"{self._name} {episode_id}"

    def _free(self, episode_id: str) -> None:
        self.front.forget(self._named(episode_id))
        self.policy.forget(self._named(episode_id))


def as_text(prompt: Prompt) -> tuple[str, ...]:
    """A prompt turn by turn, with screenshots named by their digest."""
    return tuple(
        f"{turn.role}: " + "".join(part if isinstance(part, str) else f"[{part.digest}]" for part in turn.parts)
        for turn in prompt
    )


def _notes(fronted: Fronted, search: Search, completion: Completion, together: StepNotes) -> StepNotes:
    """`together` holds the notes that are equal for all decisions of the batch."""
    num_input, num_memory = completion.num_input_tokens, fronted.num_memory_tokens
    return StepNotes(
        prompt=as_text(fronted.prompt),
        offered=fronted.offered,
        num_removed=search.num_removed,
        left_out=search.left_out,
        num_prompt_tokens=None if num_input is None or num_memory is None else num_input - num_memory,
        num_memory_tokens=num_memory,
        num_encoded=fronted.num_encoded,
        thoughts=completion.thoughts or None,
        num_reply_tokens=completion.num_reply_tokens,
        cost_usd=completion.cost_usd,
        departures=completion.departures,
        seconds=together.seconds,
        num_together=together.num_together,
    )
