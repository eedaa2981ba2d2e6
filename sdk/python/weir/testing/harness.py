"""An operator with a host around it."""

from __future__ import annotations

import json
from collections import deque
from contextlib import contextmanager
from typing import Any, Callable, Generic, Iterator, Mapping, Sequence, TypeVar

from .. import _host
from .._driver import Driver
from ..batch import key_hash
from ..operator import Operator, Stateful
from ..state.chunk import CLASSES, ENTRIES, LAST, read_entries, read_sections
from ..types import Cut, Level, Progress, SnapshotMode, TaskInfo
from .checkpoint import Checkpoint
from .fake import Call, Fake, HostTrap
from .row import Row

KEY_GROUPS = 128

O = TypeVar("O", bound=Operator)


def task() -> TaskInfo:
    """A task that has all 128 key groups to itself."""
    return subtask(0, 1)


def subtask(number: int, parallelism: int) -> TaskInfo:
    """One of several subtasks, with its part of 128 key groups."""
    first, end = (-(-n * KEY_GROUPS // parallelism) for n in (number, number + 1))
    return TaskInfo("test", "operator", number, parallelism, KEY_GROUPS, first, end, 0x5EED + number)


class Harness(Generic[O]):
    """Opens an operator and plays the host for it."""

    def __init__(self, kind: type[O], config: Mapping[str, Any] | None = None, task: TaskInfo | None = None) -> None:
        """Raises what the operator raises, as `Failure.invalid`."""
        task = task or subtask(0, 1)
        self._driver: Driver[O] = Driver(kind)
        self._descriptor = self._driver.describe()
        self._descriptor.check()
        self._fake = Fake(self._descriptor, task)
        self._task = task
        with self._in_call(Call.OPEN):
            self._driver.open(json.dumps(dict(config or {})), task)
        self._outputs: list[list[Row]] = [[] for _ in self._descriptor.outputs]
        self._rejected: list[tuple[Row, str]] = []
        self._checkpoint = Checkpoint()
        self._wake_at: int | None = None
        self._epoch = 0
        self._open: SnapshotMode | None = None
        self._changed_since = False

    @classmethod
    def restore(
        cls,
        kind: type[O],
        checkpoint: Checkpoint | Sequence[Checkpoint],
        config: Mapping[str, Any] | None = None,
        task: TaskInfo | None = None,
    ) -> Harness[O]:
        """Opens an operator and lets it take over a checkpoint; or one subtask, and its part of the checkpoints of all subtasks of an earlier
        run, which may have been more or fewer. Raises what the operator raises."""
        harness = cls(kind, config, task)
        checkpoints = [checkpoint] if isinstance(checkpoint, Checkpoint) else checkpoint
        merged = Checkpoint.merge(checkpoints, harness._task)
        descriptor = harness._descriptor
        if not descriptor.oldest <= merged.state_version <= descriptor.state_version:
            raise ValueError(
                f"state of version {merged.state_version}, and the operator reads {descriptor.oldest} to {descriptor.state_version}: the host "
                "refuses to start it"
            )
        harness._checkpoint = merged
        harness._fake.chunks = deque(merged.chunks())
        with harness._in_call(Call.RESTORE):
            harness._driver.restore(merged.state_version)
            if harness._fake.chunks:
                raise HostTrap(f"{len(harness._fake.chunks)} chunks of state were not read: read all of them")
        return harness

    @property
    def operator(self) -> O:
        """The operator itself, for looking into it."""
        return self._driver.operator

    def process(self, port: int, rows: Sequence[Row]) -> None:
        """Hands a batch to an input port, and goes on until the operator has no more to say. Raises what the operator raises; what it emitted in
        the failed call is dropped."""
        if not 0 <= port < len(self._descriptor.inputs):
            raise ValueError(f"there is no input port {port}: the operator has {len(self._descriptor.inputs)}")
        if not rows:
            raise ValueError("a batch that is handed to an operator has at least one record")
        columns = Row.batch(rows).to_columns()
        if self._descriptor.inputs[port].keyed:
            columns = columns._replace(hashes=[key_hash(row.key or b"") for row in rows])
        self._fake.input = rows
        self._run(Call.PROCESS, lambda: self._driver.process(port, columns))

    def advance(self, watermark: int) -> None:
        """Event time moves."""
        self._run(Call.DATA, lambda: self._driver.advance(watermark))

    def set_time(self, now: int) -> None:
        """Processing time moves; if it comes to what the operator asked for, it is woken."""
        self._fake.time = max(now, self._fake.time)
        if self._wake_at is not None and self._wake_at <= now:
            self._wake_at = None
            self._run(Call.DATA, self._driver.wake)

    @property
    def wake_time(self) -> int | None:
        """When the operator has asked to be woken."""
        return self._wake_at

    def finish(self, port: int) -> None:
        """An input port ends."""
        self._run(Call.DATA, lambda: self._driver.finish(port))

    def take(self, port: int) -> list[Row]:
        """Takes what was emitted on a port so far."""
        rows, self._outputs[port] = self._outputs[port], []
        return rows

    def take_rejected(self) -> list[tuple[Row, str]]:
        """Takes the records that were rejected so far, with the reasons."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def take_log(self) -> list[tuple[Level, str]]:
        """Takes what was logged so far."""
        lines, self._fake.log = self._fake.log, []
        return lines

    def metric(self, name: str) -> float | None:
        """A counter or gauge, or the last observation of a histogram."""
        return self._fake.metrics.get(name)

    def snapshot(self, mode: SnapshotMode = SnapshotMode.INCREMENTAL) -> Checkpoint:
        """Takes a whole snapshot at once, incremental where that is possible, and gives the checkpoint after it."""
        self.begin_snapshot(mode)
        while self.snapshot_step(2**31) is Progress.MORE:
            pass
        return self.checkpoint

    def begin_snapshot(self, mode: SnapshotMode = SnapshotMode.INCREMENTAL) -> None:
        """Begins a snapshot that is taken in steps. One that is open is abandoned; then, and the first time, this one is full."""
        self._epoch += 1
        full = self._open is not None or not self._checkpoint.exists
        self._open = SnapshotMode.FULL if full else mode
        self._fake.written = []
        self._changed_since = False

    def snapshot_step(self, chunks: int = 1) -> Progress:
        """One step: after `chunks` chunks the operator is asked to stop. When it is done, `checkpoint` has it."""
        if self._open is None:
            raise ValueError("begin_snapshot comes before snapshot_step")
        self._fake.chunk_budget = chunks
        with self._in_call(Call.SNAPSHOT):
            progress = self._driver.snapshot(Cut(self._epoch, self._open))
        if progress is Progress.DONE:
            self._checkpoint.apply(self._open, self._fake.written, self._descriptor.state_version)
            self._open = None
            if not self._changed_since:
                self._check_state()
        return progress

    @property
    def checkpoint(self) -> Checkpoint:
        """The last snapshot that was done, as it would be restored."""
        return self._checkpoint.copy()

    def _check_state(self) -> None:
        """Finds values that were changed without their collection being told: what is stored is not what is there."""
        operator = self._driver.operator
        if not isinstance(operator, Stateful) or type(operator).snapshot is not Stateful.snapshot:
            return
        stored: dict[tuple[str, str, bytes], bytes] = {}
        fragments = b""
        for chunk in self._checkpoint.chunks():
            for operation, name, body in read_sections(chunk.data):
                if operation == CLASSES:
                    continue
                fragments += body
                if operation in (ENTRIES, LAST):
                    for key, value in read_entries(fragments):
                        stored[str(chunk.scope), name, key] = value
                    fragments = b""
        found = {}
        for part in operator.segments.parts:
            for scope, key, value in part.peek():
                found[str(scope), part.name, key] = value
        for place in sorted(stored.keys() | found.keys()):
            if stored.get(place) != found.get(place):
                raise AssertionError(
                    f"state {place[1]!r} has changed under the key {place[2]!r} and was not told: take a value that is changed in place with "
                    "value(), each time, or set it again"
                )

    def _run(self, call: Call, first: Callable[[], Progress]) -> None:
        self._changed_since = True
        with self._in_call(call):
            progress = first()
        self._commit()
        while progress is Progress.MORE:
            with self._in_call(Call.DATA):
                progress = self._driver.resume()
            self._commit()

    @contextmanager
    def _in_call(self, call: Call) -> Iterator[None]:
        before = _host.current
        _host.current = self._fake
        self._fake.begin(call)
        try:
            yield
        finally:
            _host.current = before
            self._fake.call = Call.NONE

    def _commit(self) -> None:
        """The call has returned: what it said takes effect."""
        for port, rows in self._fake.emitted:
            self._outputs[port].extend(rows)
        self._rejected.extend(self._fake.rejected)
        asked = self._fake.asked_wake
        if asked is not None:
            self._wake_at = asked if self._wake_at is None else min(asked, self._wake_at)
