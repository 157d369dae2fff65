"""The frozen policy as teacher: it reads each item raw, describes it, and answers the functional questions of its role.

Paper, Appendix A.2 and B.2. None of this depends on trained weights, so it is done once, before stage A, and kept.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone, VisionFeatures
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.inputs import TokenRow, alike_in_length
from focusmem.progress import Progress
from focusmem.training.batch import TrainingBatch, TrainingData, TrainingItem
from focusmem.training.lessons import Description, LessonStore
from focusmem.training.pathway import Look, brought_along
from focusmem.training.questions import DESCRIBE, SUBTYPES, Questions, problem_with


@dataclass(frozen=True, kw_only=True)
class TeacherConfig:
    prompts: Path | None = None
    """A folder with other wordings of the questions."""
    max_new_tokens: int = 384
    """Longer descriptions are cut; a target that is cut is no JSON, and discarded."""
    max_batch_tokens: int = 65_536
    """Items are read together up to this many tokens, padding and all questions included."""

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_batch_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"TeacherConfig.{name} is {getattr(self, name)}; it must be at least 1.")


@dataclass
class TeacherCounts:
    num_made: int = 0
    num_found: int = 0
    """Items whose lesson was there already."""
    num_targets: int = 0
    """Functional answers of all these items that can be learnt from."""
    discarded: Counter[str] = field(default_factory=Counter)
    """The others, by subtype."""


def lesson_store(folder: Path, backbone: Backbone, config: TeacherConfig | None = None) -> LessonStore:
    """Where the lessons of this policy are kept; data that trains stage A reads them from here."""
    config = config or TeacherConfig()
    identity = backbone.identity()
    policy = f"{identity.architecture} {identity.weights} {config.max_new_tokens}"
    return LessonStore(folder, policy=policy, questions=Questions(config.prompts))


class Teacher:
    def __init__(
        self, backbone: Backbone, folder: Path, config: TeacherConfig | None = None, *, look: Look | None = None
    ) -> None:
        """Lessons go to `folder`. `look` sees pictures that batches bring along, as in training."""
        self.backbone, self.config, self.look = backbone, config or TeacherConfig(), look
        self.store = lesson_store(folder, backbone, self.config)

    def prepare(self, data: TrainingData) -> TeacherCounts:
        """A lesson for every item of the data. Stopped and called again, it goes on with what is missing."""
        counts, known = TeacherCounts(), set[str]()
        with Progress("teach", total=data.num_batches) as line:
            for number in range(data.num_batches):
                batch = data.batch(number)
                items = {item.digest: item for item in batch.items if item.digest not in known}
                known |= items.keys()
                self._teach(batch, list(items.values()), counts)
                num_discarded = counts.discarded.total()
                line.step(note=f"{counts.num_made} made  {counts.num_found} found  {num_discarded} answers discarded")
        return counts

    def _teach(self, batch: TrainingBatch, items: Sequence[TrainingItem], counts: TeacherCounts) -> None:
        missing = []
        for item in items:
            discarded = self.store.discarded(item.digest)
            if discarded is None:
                missing.append(item)
            else:
                counts.num_found += 1
                _count(counts, item, discarded)
        if not missing:
            return
        rows = [self.backbone.tokenise(item.prompt, is_complete=True) for item in missing]
        num_questions = 1 + max(map(len, SUBTYPES.values()))
        max_tokens = self.config.max_batch_tokens // num_questions
        seen = brought_along(batch.pixels, self.look, self.backbone)
        # Padding is no matter here: a group costs as many passes as its longest answer has tokens.
        lengths = [len(row.ids) for row in rows]
        for group in alike_in_length(lengths, max_tokens=max_tokens, max_padding=max_tokens):
            for item, discarded in self._teach_group([missing[number] for number in group], seen):
                counts.num_made += 1
                _count(counts, item, discarded)

    @torch.no_grad()
    def _teach_group(
        self, items: Sequence[TrainingItem], seen: Mapping[str, VisionFeatures]
    ) -> list[tuple[TrainingItem, dict[str, str]]]:
        """Ask all questions about some items at once and store what came out; returns what was wrong with answers."""
        asked = [(item, name) for item in items for name in (DESCRIBE, *SUBTYPES[item.role])]
        questions = self.store.questions
        rows = [self.backbone.tokenise(questions.ask_about(item.prompt, name)) for item, name in asked]
        config = GenerationConfig(max_new_tokens=self.config.max_new_tokens)
        replies = generate(self.backbone, self.backbone.embed(rows, seen=seen), config)
        described = [
            self._with_reply(row, reply)
            for (_, name), row, reply in zip(asked, rows, replies, strict=True)
            if name == DESCRIBE
        ]
        embedded = self.backbone.embed(described, seen=seen)
        hidden_MD = self.backbone.target_hidden(embedded)
        hidden = torch.split(hidden_MD, [row.num_target for row in described])
        answers: dict[str, dict[str, str]] = {item.digest: {} for item in items}
        for (item, name), reply in zip(asked, replies, strict=True):
            answers[item.digest][name] = self.backbone.text_of(reply).strip()
        done = []
        for item, row, states_MD in zip(items, embedded, hidden, strict=True):
            own = answers[item.digest]
            text = own.pop(DESCRIBE).replace("\0", "")  # for people; what is learnt from are the ids
            description = Description(questions.ask(DESCRIBE), text, row.target_ids, states_MD)
            problems = {name: problem_with(name, text) for name, text in own.items()}
            discarded = {name: problem for name, problem in problems.items() if problem is not None}
            targets = {name: text for name, text in own.items() if name not in discarded}
            self.store.write(item.digest, description, targets=targets, discarded=discarded)
            done.append((item, discarded))
        return done

    def _with_reply(self, row: TokenRow, reply: Sequence[int]) -> TokenRow:
        """A question with its generated answer, ended where the policy ended it."""
        was_cut = len(reply) == self.config.max_new_tokens
        ids = (*reply, *(() if was_cut else (self.backbone.special["<|im_end|>"],)))
        return TokenRow((*row.ids, *ids), row.pictures, num_target=len(ids))


def _count(counts: TeacherCounts, item: TrainingItem, discarded: Mapping[str, str]) -> None:
    counts.num_targets += len(SUBTYPES[item.role]) - len(discarded)
    counts.discarded.update(discarded.keys())
