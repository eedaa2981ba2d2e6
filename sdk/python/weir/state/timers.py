"""Times in event time, each with a key."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from struct import Struct
from typing import Iterator, NamedTuple

from ..types import END_OF_TIME, NO_TIME, Scope, TaskInfo
from .codec import Makers, corrupt
from .part import GroupedPart, Keyed

_TIME = Struct(">Q")
_TIME_BYTES = 8


class Timer(NamedTuple):
    """A time and the key it was set for. The collections of `weir.state` can be asked by it."""

    time: int
    key: bytes
    group: int


class EventTimers(GroupedPart[None]):
    """Times in event time, each with a key; for a key, each time once. In order of time, then of the bytes of the key.

    ```python
    timers = EventTimers("timers", task)
    timers.add(record, window_end)         # in process
    for timer in timers.due(watermark):    # in advance
        ...
    ```
    """

    # An entry is the time, shifted so that it has no sign, in big-endian, and the key: its bytes are in the order of the timers.

    def __init__(self, name: str, task: TaskInfo) -> None:
        super().__init__(name, task)
        # All entries, and some that have been removed since: what is not in its table is skipped.
        self._heap: list[tuple[bytes, int]] = []
        self._ordered = True

    def _encode(self, value: None) -> bytes:
        return b""

    def _decode(self, value: bytes, makers: Makers) -> None:
        if value:
            raise corrupt(f"a timer of {self.name!r} has a value of {len(value)} bytes")

    def add(self, keyed: Keyed, time: int) -> bool:
        """Sets a timer. False if it was set."""
        key = keyed.key
        if key is None:
            raise ValueError(f"timers {self.name!r} were asked by a record without a key: reject such records, or skip them")
        return self.add_at(keyed.group, key, time)

    def add_at(self, group: int, key: bytes, time: int) -> bool:
        """As `add`, for code that goes through columns."""
        table = self._tables.get(group)
        if table is None:
            raise self._not_ours(group)
        entry = _entry(time, key)
        if entry in table:
            return False
        self._touch(group, table, entry)
        table[entry] = None
        self._order()
        heappush(self._heap, (entry, group))
        return True

    def remove(self, keyed: Keyed, time: int) -> bool:
        """Removes a timer. False if it was not set."""
        table, entry = self._table(keyed), _entry(time, keyed.key or b"")
        if entry not in table:
            return False
        self._touch(keyed.group, table, entry)
        del table[entry]
        return True

    def is_set(self, keyed: Keyed, time: int) -> bool:
        """Whether a timer is set."""
        return _entry(time, keyed.key or b"") in self._table(keyed)

    def due(self, watermark: int) -> Iterator[Timer]:
        """Removes the timers up to and including `watermark`, in order, one after the other as they are asked for. What is set in between comes
        in its turn."""
        last = _TIME.pack(watermark - NO_TIME)
        while True:
            self._order()
            heap = self._heap
            if not heap or heap[0][0][:_TIME_BYTES] > last:
                return
            entry, group = heappop(heap)
            table = self._tables[group]
            if entry in table:
                self._touch(group, table, entry)
                del table[entry]
                yield _timer(entry, group)

    def next_time(self) -> int | None:
        """The earliest time that is set."""
        self._order()
        while self._heap:
            entry, group = self._heap[0]
            if entry in self._tables[group]:
                return _timer(entry, group).time
            heappop(self._heap)
        return None

    def __iter__(self) -> Iterator[Timer]:
        """All timers, in order."""
        entries = sorted((entry, group) for group, table in self._tables.items() for entry in table)
        return (_timer(entry, group) for entry, group in entries)

    def read(self, scope: Scope, key: bytes, value: bytes, makers: Makers) -> None:
        if len(key) < _TIME_BYTES:
            raise corrupt(f"a timer of {self.name!r} has {len(key)} bytes")
        super().read(scope, key, value, makers)
        self._heap.append((key, scope.group))
        self._ordered = False

    def _order(self) -> None:
        if not self._ordered:
            heapify(self._heap)
            self._ordered = True


def _entry(time: int, key: bytes) -> bytes:
    if not NO_TIME <= time <= END_OF_TIME:
        raise ValueError(f"{time} is no time for a timer: it must be between -2^63 and 2^63 - 1 microseconds")
    return _TIME.pack(time - NO_TIME) + key


def _timer(entry: bytes, group: int) -> Timer:
    return Timer(_TIME.unpack_from(entry)[0] + NO_TIME, entry[_TIME_BYTES:], group)
