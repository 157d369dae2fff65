import copy
from dataclasses import dataclass

from focusmem.model.picture_memory import PictureMemory


@dataclass(frozen=True)
class Features:
    num_bytes: int


def test_the_least_recently_used_go_first():
    memory = PictureMemory(limit_bytes=20)
    first, second, third = (Features(number) for number in (8, 9, 10))
    memory.put("first", first)
    memory.put("second", second)
    assert memory.get("first") is first  # used again, so the other one goes first
    memory.put("third", third)
    assert [memory.get(key) for key in ("first", "second", "third")] == [first, None, third]
    assert (len(memory), memory.num_bytes) == (2, 18)


def test_what_is_kept_stays_as_it_is():
    memory = PictureMemory(limit_bytes=20)
    first = Features(8)
    memory.put("first", first)
    memory.put("first", Features(9))
    assert memory.get("first") is first
    assert memory.num_bytes == 8


def test_what_is_larger_than_the_limit_is_not_kept():
    memory = PictureMemory(limit_bytes=20)
    memory.put("large", Features(21))
    assert (len(memory), memory.num_bytes) == (0, 0)


def test_a_copy_begins_empty():
    memory = PictureMemory(limit_bytes=20)
    memory.put("first", Features(8))
    copied = copy.deepcopy(memory)
    assert (len(copied), copied.num_bytes, copied.limit_bytes) == (0, 0, 20)
    assert len(memory) == 1
