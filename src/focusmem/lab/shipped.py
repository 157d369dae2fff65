"""Paths of the laboratory's trained parts: those that ship with the package, or those of a folder with the same names.

<folder>/policy/           the policy
<folder>/embedder/         what makes it an embedder
<folder>/memory/<variant>/ memories that were trained for it
<folder>/bank/             a bank with the experts' trajectories of a few evaluation sites
"""

from dataclasses import dataclass, field
from pathlib import Path

from focusmem.errors import StorageError

SHIPPED = Path(__file__).parent / "weights"
SHIPPED_MEMORIES = ("full", "action-only")
"""Variants of memory whose trained weights ship."""


@dataclass(frozen=True)
class Weights:
    """The path of each trained part in a folder. If a part is missing, its path raises an error that says how to make
    it.
    """

    folder: Path = field(default_factory=lambda: SHIPPED)

    @property
    def policy(self) -> Path:
        return self._part("policy", "config.json", "focusmem lab pretrain --out RUN (it leaves it in RUN/policy)")

    @property
    def embedder(self) -> Path:
        return self._part("embedder", "card.json", f"focusmem lab embedder --out {self.folder / 'embedder'}")

    def memory(self, variant: str) -> Path:
        command = f"focusmem lab train {variant} --out RUN (it says where in RUN it is)"
        return self._part(f"memory/{variant}", "checkpoint.json", command)

    @property
    def bank(self) -> Path:
        return self._part("bank", "export.json", f"focusmem lab bank --out {self.folder / 'bank'}")

    def _part(self, name: str, needed: str, command: str) -> Path:
        place = self.folder / name
        if not (place / needed).is_file():
            what = "This copy of focusmem ships without" if self.folder == SHIPPED else f"{self.folder} lacks"
            raise StorageError(f"{what} the laboratory's {name}: there is no {place / needed}. Make it with: {command}")
        return place
