"""A policy in this process. It puts memory in front of the tokens of prompts, and decodes the replies of a batch
together.
"""

from collections.abc import Sequence

from focusmem.agent.fronts.base import Fronted
from focusmem.agent.policy import Completion
from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.devices import wait_for
from focusmem.model.front import ReadFront
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.inputs import Row
from focusmem.schemas import Prompt


class LocalPolicy:
    """Reads the turns before an episode's prompts once, and keeps the result as long as these turns stay the same."""

    def __init__(self, backbone: Backbone, generation: GenerationConfig | None = None) -> None:
        self.backbone = backbone
        self.generation = generation or GenerationConfig()
        self._read: dict[str, tuple[Prompt, ReadFront]] = {}

    @property
    def identity(self) -> str:
        return self.backbone.identity().weights

    def reply(
        self,
        asked: Sequence[Fronted],
        *,
        seeds: Sequence[int] | None = None,
        generation: GenerationConfig | None = None,
    ) -> list[Completion]:
        """Prompts with turns before them are decoded as one batch, and all other prompts as another."""
        if seeds is not None and len(seeds) != len(asked):
            raise ConfigError(f"{len(seeds)} seeds were given for {len(asked)} prompts; give one for each.")
        completions = [Completion()] * len(asked)
        for has_turns in (False, True):
            places = [place for place, one in enumerate(asked) if bool(one.turns) == has_turns]
            if not places:
                continue
            batch = [asked[place] for place in places]
            batch_seeds = None if seeds is None else [seeds[place] for place in places]
            replies = self._decode(batch, batch_seeds, generation or self.generation, has_turns=has_turns)
            for place, completion in zip(places, replies, strict=True):
                completions[place] = completion
        wait_for(self.backbone.device)
        return completions

    def num_tokens(self, turns: Prompt) -> int:
        return len(self.backbone.tokenise(turns, is_complete=True).ids)

    def forget(self, episode_id: str) -> None:
        self._read.pop(episode_id, None)

    def _decode(
        self, asked: Sequence[Fronted], seeds: Sequence[int] | None, generation: GenerationConfig, *, has_turns: bool
    ) -> list[Completion]:
        rows = self._rows(asked)
        fronts = [self._front(one) for one in asked] if has_turns else None
        lengths = [row.length for row in rows]
        if fronts is not None:
            lengths = [length + front.length for length, front in zip(lengths, fronts, strict=True)]
        ids = generate(self.backbone, rows, generation, seeds=seeds, fronts=fronts)
        return [
            Completion(self.backbone.text_of(reply_ids), length) for reply_ids, length in zip(ids, lengths, strict=True)
        ]

    def _rows(self, asked: Sequence[Fronted]) -> list[Row]:
        """Prompts with latent memory are rows already; the others are embedded together."""
        plain = [one for one in asked if one.row is None]
        embedded = iter(self.backbone.embed([self.backbone.tokenise(one.prompt) for one in plain]) if plain else ())
        return [next(embedded) if one.row is None else one.row for one in asked]

    def _front(self, asked: Fronted) -> ReadFront:
        kept = self._read.get(asked.episode_id)
        if kept is None or kept[0] != asked.turns:
            self._read.pop(asked.episode_id, None)  # frees its memory before the next one is read
            [row] = self.backbone.embed([self.backbone.tokenise(asked.turns, is_complete=True)])
            kept = self._read[asked.episode_id] = asked.turns, ReadFront.read(self.backbone, row)
        return kept[1]
