"""The host of tests: records what an operator says and refuses what the real one refuses."""

from __future__ import annotations

import enum
import re
from collections import deque
from typing import Sequence

from .._host import Columns
from ..batch import Batch
from ..descriptor import Descriptor
from ..types import Chunk, Level, Scope, SegmentKind, TaskInfo
from .row import Row

_REASON_BYTES = 1024
_CHUNK_BYTES = 1 << 20
_METRICS = 256
_METRIC = re.compile(r"[a-z0-9_]{1,64}")


class HostTrap(Exception):
    """The host would end the instance here."""


class Call(enum.Enum):
    """Which kind of call is running."""

    PROCESS = "process"
    DATA = "advance, wake, finish or resume"
    SNAPSHOT = "snapshot"
    RESTORE = "restore"
    OPEN = "describe or open"
    NONE = "none"


_DATA = (Call.PROCESS, Call.DATA)


class Fake:
    """A `weir._host.Host`."""

    def __init__(self, descriptor: Descriptor, task: TaskInfo) -> None:
        self.call = Call.NONE
        self._subtask = task.subtask
        self._groups = range(task.first_key_group, task.end_key_group)
        self._outputs = descriptor.outputs
        self.input: Sequence[Row] = ()
        self.emitted: list[tuple[int, list[Row]]] = []
        self.rejected: list[tuple[Row, str]] = []
        self.log: list[tuple[Level, str]] = []
        self.metrics: dict[str, float] = {}
        self.time = 0
        self.asked_wake: int | None = None
        self.written: list[Chunk] = []
        self.chunk_budget = 0
        self.chunks: deque[Chunk] = deque()

    def begin(self, call: Call) -> None:
        """A call begins: what an earlier one left that failed is dropped."""
        self.call = call
        self.emitted, self.rejected, self.asked_wake = [], [], None

    def _allow(self, function: str, calls: tuple[Call, ...]) -> None:
        if self.call not in calls:
            raise HostTrap(f"{function} is not allowed in this call ({self.call.value}): the host traps")

    def emit(self, port: int, columns: Columns) -> None:
        self._allow("output.emit", _DATA)
        if not 0 <= port < len(self._outputs):
            raise HostTrap(f"there is no output port {port}: the operator has {len(self._outputs)}")
        rows = _rows(columns)
        if self._outputs[port].keyed:
            for row in rows:
                if row.key is None:
                    raise HostTrap(f"output port {port} is keyed, and a record has no key: {row!r}")
        self.emitted.append((port, rows))

    def reject(self, index: int, reason: str) -> None:
        self._allow("output.reject", (Call.PROCESS,))
        if not 0 <= index < len(self.input):
            raise HostTrap(f"there is no record {index} in this batch of {len(self.input)}")
        self.rejected.append((self.input[index], _cut(reason)))

    def reject_batch(self, columns: Columns, reason: str) -> None:
        self._allow("output.reject-batch", _DATA)
        self.rejected.extend((row, _cut(reason)) for row in _rows(columns))

    def log_write(self, level: Level, message: str) -> None:
        self.log.append((level, message))

    def log_enabled(self, level: Level) -> bool:
        return True

    def _metric(self, name: str, value: float) -> None:
        if not _METRIC.fullmatch(name):
            raise HostTrap(f"{name!r} is no name of a metric: take 1 to 64 lower-case letters, digits and underscores")
        self.metrics[name] = value
        if len(self.metrics) > _METRICS:
            raise HostTrap(f"more than {_METRICS} metrics: the host drops {name!r}")

    def count(self, name: str, delta: int) -> None:
        self._metric(name, self.metrics.get(name, 0) + delta)

    def gauge(self, name: str, value: float) -> None:
        self._metric(name, value)

    def observe(self, name: str, value: float) -> None:
        self._metric(name, value)

    def now(self) -> int:
        return 0 if self.call is Call.OPEN else self.time

    def wake_at(self, at: int) -> None:
        self._allow("timers.wake-at", _DATA)
        self.asked_wake = at if self.asked_wake is None else min(at, self.asked_wake)

    def snapshot_write(self, scope: Scope, kind: SegmentKind, data: bytes) -> bool:
        self._allow("snapshots.write", (Call.SNAPSHOT,))
        if len(data) > _CHUNK_BYTES:
            raise HostTrap(f"a chunk of {len(data)} bytes: a host may take no more than {_CHUNK_BYTES}")
        if scope.name == "key-group" and scope.group not in self._groups:
            raise HostTrap(f"key group {scope.group} is none of this subtask's, {self._groups}")
        if type(data) is not bytes:
            raise HostTrap(f"a chunk is bytes, not {type(data).__name__}")
        self.written.append(Chunk(scope, kind, self._subtask, data))
        self.chunk_budget -= 1
        return self.chunk_budget > 0

    def snapshot_read(self) -> Chunk | None:
        self._allow("snapshots.read", (Call.RESTORE,))
        return self.chunks.popleft() if self.chunks else None


def _cut(reason: str) -> str:
    return reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore")


def _rows(columns: Columns) -> list[Row]:
    """The rows of a batch that keeps the rules of the contract."""
    count = len(columns.timestamps)
    for time in columns.timestamps:
        if not -(2**63) <= time < 2**63:
            raise HostTrap(f"{time} is no event time: it must be between -2^63 and 2^63 - 1")
    if columns.hashes and len(columns.hashes) != count:
        raise HostTrap(f"{len(columns.hashes)} hashes for {count} records")
    for name, offsets, data, nulls in (
        ("keys", columns.key_offsets, columns.keys, columns.key_nulls),
        ("values", columns.value_offsets, columns.values, columns.value_nulls),
        ("headers", columns.header_offsets, columns.headers, b""),
    ):
        _check(name, count, offsets, data, nulls)
    return Row.of_batch(Batch.from_columns(columns))


def _check(name: str, count: int, offsets: list[int], data: bytes, nulls: bytes) -> None:
    def refuse(fault: str) -> HostTrap:
        return HostTrap(f"the column {name!r} of a batch is malformed: {fault}")

    for part, kind in ((offsets, list), (data, bytes), (nulls, bytes)):
        if type(part) is not kind:
            raise refuse(f"a {type(part).__name__} where a {kind.__name__} should be")
    if not offsets:
        if data or nulls:
            raise refuse("it has bytes and no offsets")
        return
    if len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] != len(data) or sorted(offsets) != offsets:
        raise refuse(f"{len(offsets)} offsets from {offsets[0]} to {offsets[-1]} for {count} records and {len(data)} bytes")
    if nulls:
        if len(nulls) != (count + 7) // 8:
            raise refuse(f"{len(nulls)} bytes of nulls for {count} records")
        if int.from_bytes(nulls, "little") >> count:
            raise refuse("bits of nulls beyond the last record are set")
        for row in range(count):
            if nulls[row >> 3] >> (row & 7) & 1 and offsets[row] != offsets[row + 1]:
                raise refuse(f"record {row} is null and has bytes")
