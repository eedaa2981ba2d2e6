"""The life of an operator, as the host's calls drive it: the same in a component and in tests.

It makes the operator, turns columns into batches, runs generators until they have emitted enough, and says `DONE` where an operator says nothing.
"""

from __future__ import annotations

import json
from typing import Any, Generic, Iterator, TypeVar

from ._host import Columns
from .batch import Batch
from .descriptor import Descriptor
from .operator import Answer, Operator, Stateful
from .output import Output
from .snapshot import SnapshotReader, SnapshotWriter
from .types import Cut, Failure, Progress, TaskInfo

PAUSE_BYTES = 1 << 20
"""After so much output a generator is interrupted at its next `yield`."""

O = TypeVar("O", bound=Operator)


class Driver(Generic[O]):
    """An operator with its host's side."""

    operator: O

    def __init__(self, kind: type[O]) -> None:
        self.kind = kind
        self._key_groups = 0
        self._keyed: list[bool] = []
        self._running: Iterator[Any] | None = None

    def describe(self) -> Descriptor:
        return self.kind.descriptor()

    def open(self, config: str, task: TaskInfo) -> None:
        try:
            parsed = json.loads(config)
        except ValueError as error:
            raise Failure.invalid(f"configuration is not acceptable: it is not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise Failure.invalid(f"configuration is not acceptable: it must be an object, not {config[:60]}")
        self._key_groups = task.key_groups
        self.operator = self.kind(parsed, task)

    def process(self, port: int, columns: Columns) -> Progress:
        self._running = None
        out = Output()
        return self._settle(self.operator.process(port, Batch.from_columns(columns, self._key_groups), out), out)

    def advance(self, watermark: int) -> Progress:
        self._running = None
        out = Output()
        return self._settle(self.operator.advance(watermark, out), out)

    def wake(self) -> Progress:
        self._running = None
        out = Output()
        return self._settle(self.operator.wake(out), out)

    def finish(self, port: int) -> Progress:
        self._running = None
        out = Output()
        return self._settle(self.operator.finish(port, out), out)

    def resume(self) -> Progress:
        # A generator keeps the `Output` that it was called with.
        if self._running is not None:
            return self._go_on(self._running, self._out)
        out = Output()
        return self._settle(self.operator.resume(out), out)

    def snapshot(self, cut: Cut) -> Progress:
        if isinstance(self.operator, Stateful):
            return self.operator.snapshot(cut, SnapshotWriter())
        return Progress.DONE

    def restore(self, state_version: int) -> None:
        if isinstance(self.operator, Stateful):
            self.operator.restore(state_version, SnapshotReader())
        else:
            for chunk in SnapshotReader():
                raise Failure.invalid(
                    f"state cannot be read: a segment of {chunk.scope}, for an operator that keeps none: derive it from weir.Stateful"
                )

    def _settle(self, answer: Answer, out: Output) -> Progress:
        if answer is None:
            return Progress.DONE
        if isinstance(answer, Progress):
            return answer
        if not hasattr(answer, "__next__"):
            raise TypeError(f"an operator answers with nothing, a Progress, or as a generator, not with {answer!r}")
        return self._go_on(answer, out)

    def _go_on(self, generator: Iterator[Any], out: Output) -> Progress:
        out.bytes = 0
        self._running = None
        for _ in generator:
            if out.bytes >= PAUSE_BYTES:
                self._running, self._out = generator, out
                return Progress.MORE
        return Progress.DONE
