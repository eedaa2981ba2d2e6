"""What an operator is: the contract of `wit/processor.wit` and `wit/checkpoint.wit` as two Python classes."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, Iterable, Iterator, Mapping, TypeVar, Union

from .batch import Batch
from .descriptor import Descriptor
from .output import Output
from .snapshot import SnapshotReader, SnapshotWriter
from .state.segments import Part, Segments
from .types import Cut, Progress, TaskInfo

Answer = Union[Progress, None, Iterator[Any]]
"""What a call answers: nothing or `Progress.DONE`, `Progress.MORE`, or it is a generator."""


class Operator(ABC):
    """What an operator does with data.

    A call is a transaction: what it emits takes effect when it returns. The host makes one call at a time. What an operator remembers between
    calls lies in `self`, and nowhere else; what is to survive a crash, in the collections of `weir.state`, see `Stateful`.

    The same calls must lead to the same results: take time from `weir.time.now` and randomness from `TaskInfo.seed`, and do not let
    the order of a `set` of text or bytes reach output or state.

    `process`, `advance`, `wake` and `finish` may be generators, for those that have more to emit than is good to keep in memory. Each
    `yield` is a place where the call may be interrupted: when a MiB has been emitted, the host passes it on, waits while downstream is
    busy, and the generator goes on. No other call and no step of a snapshot comes in between.
    """

    @classmethod
    @abstractmethod
    def descriptor(cls) -> Descriptor:
        """Says what this plugin is; always the same."""

    def __init__(self, config: Mapping[str, Any], task: TaskInfo) -> None:
        """Makes an operator that is ready to work. `config` is what the pipeline gives, empty where that is nothing; see
        `weir.json.config`. Raises `Failure.invalid` where it makes no sense: a person has to change something."""

    @abstractmethod
    def process(self, port: int, batch: Batch, out: Output) -> Answer:
        """Takes a batch that came in on an input port. It has at least one record. Records may be out of order in event time, and late.

        A record that cannot be processed is not a failure: `Output.reject` it and go on. Raises `Failure.retry` if the operator's state is as
        it was; `Failure.fatal` to start over from the last checkpoint."""

    def advance(self, watermark: int, out: Output) -> Answer:
        """Event time has moved: all records at or before `watermark` have come, but for late ones. Emit what was waiting for that. After a
        restore the first watermark may be one that the state has already seen."""

    def wake(self, out: Output) -> Answer:
        """Processing time has come to what `weir.time.wake_at` asked for, or later; it may also be called when nothing is due."""

    def finish(self, port: int, out: Output) -> Answer:
        """An input port has ended. Not called when a job is stopped before its end."""

    def resume(self, out: Output) -> Answer:
        """Goes on with a call that returned `Progress.MORE`. No other call comes in between. Not for generators: those go on by themselves."""


class Stateful(Operator):
    """An operator with state that survives crashes, upgrades and rescaling.

    `state` names the collections that make it up; writing and reading them is done for it.
    """

    @abstractmethod
    def state(self) -> Iterable[Part]:
        """The collections of `weir.state` that make up the state: all of them, always the same."""

    def migrate(self, state_version: int) -> None:
        """State of an older version has been read: bring it up to date. All of it is written in the next snapshot. Only called for a
        `state_version` from the descriptor's `oldest_state_version` up to, not including, its `state_version`."""

    def snapshot(self, cut: Cut, writer: SnapshotWriter) -> Progress:
        """Writes the state as it is at the first call with this epoch. `Progress.MORE` lets the stream go on and asks for another call; what
        changes in between does not show in this snapshot."""
        return self.segments.snapshot(cut, writer)

    def restore(self, state_version: int, reader: SnapshotReader) -> None:
        """Takes over state, on a fresh operator. `state_version` is that of the plugin which wrote it."""
        self.segments.restore(reader)
        if state_version != self.descriptor().state_version:
            self.migrate(state_version)
            self.segments.rewrite()

    @property
    def segments(self) -> Segments:
        """What writes and reads the collections."""
        segments: Segments | None = self.__dict__.get("_segments")
        if segments is None:
            segments = self.__dict__["_segments"] = Segments(self.state())
        return segments


O = TypeVar("O", bound=Operator)


def export(operator: type[O]) -> type[O]:
    """Makes a component of an operator. Once a plugin, as a decorator of the class in the module that `weir plugin build` is pointed at. In
    tests it does nothing."""
    if "wit_world" in sys.modules or _in_component():
        from ._component import install

        install(operator, sys.modules[operator.__module__])
    return operator


def _in_component() -> bool:
    """Whether this is a build of a component, where the modules that are generated from the contract are there."""
    from importlib.util import find_spec

    return sys.platform == "wasi" and find_spec("wit_world") is not None
