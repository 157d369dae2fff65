"""A cache of the vision tower's features of pictures, for the next prompt that shows them."""

import threading
from collections import OrderedDict
from typing import Any, Generic, Protocol, TypeVar


class Measured(Protocol):
    @property
    def num_bytes(self) -> int: ...


FeaturesT = TypeVar("FeaturesT", bound=Measured)


class PictureMemory(Generic[FeaturesT]):
    """Features of screenshots by digest and state of the tower. The least recently used leave above `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.num_bytes = limit_bytes, 0
        self._features: OrderedDict[Any, FeaturesT] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> FeaturesT | None:
        with self._lock:
            if key in self._features:
                self._features.move_to_end(key)
            return self._features.get(key)

    def put(self, key: Any, features: FeaturesT) -> None:
        with self._lock:
            if key not in self._features:
                self._features[key] = features
                self.num_bytes += features.num_bytes
            while self.num_bytes > self.limit_bytes:
                _, oldest = self._features.popitem(last=False)
                self.num_bytes -= oldest.num_bytes

    def __len__(self) -> int:
        return len(self._features)

    def __deepcopy__(self, memo: dict[int, Any]) -> "PictureMemory[FeaturesT]":
        """A copied backbone starts with an empty cache."""
        return PictureMemory(self.limit_bytes)
