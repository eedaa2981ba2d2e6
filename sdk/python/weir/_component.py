"""The component: what weir calls, and what it offers, by way of the modules that componentize-py generates from the contract.

Imported only where those are, while a component is built. What a module does when it is imported is done then, once, and is part of the
component; the host is there only later, in calls.
"""

from __future__ import annotations

import gc
import sys
from types import ModuleType, TracebackType
from typing import Any, Callable, TypeVar

from componentize_py_types import Err  # type: ignore[import-not-found, unused-ignore]
from wit_world.imports import log, metrics, output, timers  # type: ignore[import-not-found, unused-ignore]
from wit_world.imports import types as wit  # type: ignore[import-not-found, unused-ignore]

try:
    from wit_world.exports import checkpoint as _checkpoint  # type: ignore[import-not-found, unused-ignore]
    from wit_world.imports import snapshots  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    # The world `simple-operator`: state is left to the host.
    _checkpoint = snapshots = None

from . import _host, _sandbox
from ._driver import Driver
from ._host import Columns
from .descriptor import Descriptor, StateKind
from .operator import Operator
from .types import Chunk, Cut, Failure, FailureKind, Level, Progress, Scope, SegmentKind, SnapshotMode, TaskInfo

T = TypeVar("T")

_LEVELS = {level: log.Level[level.name] for level in Level}
_PROGRESS = {progress: wit.Progress[progress.name] for progress in Progress}
_FAILURES = {kind: wit.FailureKind[kind.name] for kind in FailureKind}
_STATES = {kind: wit.StateKind[kind.name] for kind in StateKind}

_called = False
"""Whether the host has called yet: while a component is built there is none."""


class _Weir:
    """The host, as `weir._host.Host`."""

    def emit(self, port: int, columns: Columns) -> None:
        output.emit(port, wit.Batch(*columns))

    def reject(self, index: int, reason: str) -> None:
        output.reject(index, reason)

    def reject_batch(self, columns: Columns, reason: str) -> None:
        output.reject_batch(wit.Batch(*columns), reason)

    def log_write(self, level: Level, message: str) -> None:
        # Half of a surrogate pair is in no UTF-8 and would trap.
        log.write(_LEVELS[level], message.encode("utf-8", "backslashreplace").decode())

    def log_enabled(self, level: Level) -> bool:
        return bool(log.enabled(_LEVELS[level]))

    def count(self, name: str, delta: int) -> None:
        metrics.count(name, delta)

    def gauge(self, name: str, value: float) -> None:
        metrics.gauge(name, value)

    def observe(self, name: str, value: float) -> None:
        metrics.observe(name, value)

    def now(self) -> int:
        return int(timers.now())

    def wake_at(self, at: int) -> None:
        timers.wake_at(at)

    def snapshot_write(self, scope: Scope, kind: SegmentKind, data: bytes) -> bool:
        return bool(snapshots.write(snapshots.Segment(_to_scope(scope), snapshots.SegmentKind[kind.name]), data))

    def snapshot_read(self) -> Chunk | None:
        chunk = snapshots.read()
        if chunk is None:
            return None
        source = chunk.source
        return Chunk(_from_scope(source.scope), SegmentKind[source.kind.name], chunk.origin, chunk.data)


def _to_scope(scope: Scope) -> Any:
    match scope.name:
        case "key-group":
            return snapshots.Scope_KeyGroup(scope.group)
        case "subtask":
            return snapshots.Scope_Subtask()
        case "shared":
            return snapshots.Scope_Shared()
        case "item":
            return snapshots.Scope_Item()
    raise ValueError(f"{scope.name!r} is no scope: take Scope.key_group(...), SUBTASK, SHARED or ITEM")


def _from_scope(scope: Any) -> Scope:
    if isinstance(scope, snapshots.Scope_KeyGroup):
        return Scope.key_group(scope.value)
    if isinstance(scope, snapshots.Scope_Subtask):
        return Scope("subtask")
    return Scope("shared" if isinstance(scope, snapshots.Scope_Shared) else "item")


class _LogWriter:
    """A text stream whose lines are logged. While the component is built they go where they went before."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, level: Level, before: Any) -> None:
        self._level = level
        self._before = before
        self._line = ""

    def write(self, text: str) -> int:
        if not _called:
            return int(self._before.write(text))
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            _host.current.log_write(self._level, line)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def end_call(self) -> None:
        """A call ends: a line that has no end is logged as it is."""
        if self._line:
            line, self._line = self._line, ""
            _host.current.log_write(self._level, line)

    def flush(self) -> None:
        if not _called:
            self._before.flush()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False


_streams = (_LogWriter(Level.INFO, sys.stdout), _LogWriter(Level.WARN, sys.stderr))


def _call(function: Callable[..., T], *arguments: Any) -> T:
    """Makes a call of the host: failures become its own, and whatever else goes wrong is logged before it traps."""
    global _called
    _called = True
    try:
        return function(*arguments)
    except Failure as failure:
        raise Err(wit.Failure(_FAILURES[failure.kind], failure.message)) from None
    except BaseException as error:
        _log_traceback(error)
        raise
    finally:
        for stream in _streams:
            stream.end_call()


def _log_traceback(error: BaseException) -> None:
    """Logs where an exception comes from, and last what it is: that becomes the reason of the trap."""
    for stream in _streams:
        stream.end_call()
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or (None if chain[-1].__suppress_context__ else chain[-1].__context__)) is not None:
        if len(chain) == 8 or cause in chain:
            break
        chain.append(cause)
    for cause in reversed(chain[1:]):
        _host.current.log_write(Level.ERROR, f"first, {_shown(cause)}")
    _host.current.log_write(Level.ERROR, _shown(error))


def _shown(error: BaseException) -> str:
    places = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        # Modules lie in numbered folders while a component is built.
        path = "/".join(part for part in code.co_filename.split("/") if part and not part.isdigit())
        places.append(f"{path}:{trace.tb_lineno} in {getattr(code, 'co_qualname', code.co_name)}")
        trace = trace.tb_next
    if len(places) > 12:
        places[6:-6] = [f"... {len(places) - 12} more ..."]
    try:
        what = f"{type(error).__name__}: {error}"
    except Exception:
        what = type(error).__name__
    return f"{what[:1500]} (at {', from '.join(reversed(places))})"


def _task(task: Any) -> TaskInfo:
    return TaskInfo(
        job=task.job,
        node=task.node,
        subtask=task.subtask,
        parallelism=task.parallelism,
        key_groups=task.key_groups,
        first_key_group=task.first_key_group,
        end_key_group=task.end_key_group,
        seed=task.seed,
        attributes={attribute.name: attribute.value for attribute in task.attributes},
    )


def _descriptor(descriptor: Descriptor) -> Any:
    descriptor.check()
    return wit.Descriptor(
        name=descriptor.name,
        version=descriptor.version,
        summary=descriptor.summary,
        inputs=[wit.Port(port.name, port.summary, port.keyed) for port in descriptor.inputs],
        outputs=[wit.Port(port.name, port.summary, port.keyed) for port in descriptor.outputs],
        state=_STATES[descriptor.state],
        state_version=descriptor.state_version,
        oldest_state_version=descriptor.oldest,
        config_schema=descriptor.schema_text,
        attributes=[wit.Attribute(name, value) for name, value in descriptor.attributes.items()],
    )


def install(operator: type[Operator], module: ModuleType) -> None:
    """Gives a module the classes that componentize-py looks for in it."""
    _host.current = _Weir()
    sys.stdout, sys.stderr = _streams
    # What the toolchain would print about an exception has been logged already, and printing it looks for source files, which traps.
    sys.excepthook = lambda *_: None
    _sandbox.install(lambda: _called, timers.now)
    driver = Driver(operator)

    class Processor:
        def describe(self) -> Any:
            return _call(lambda: _descriptor(driver.describe()))

        def open(self, config: str, task: Any) -> None:
            _call(driver.open, config, _task(task))

        def process(self, port: int, input: Any) -> Any:
            return _PROGRESS[_call(driver.process, port, _columns(input))]

        def advance(self, watermark: int) -> Any:
            return _PROGRESS[_call(driver.advance, watermark)]

        def wake(self) -> Any:
            return _PROGRESS[_call(driver.wake)]

        def finish(self, port: int) -> Any:
            return _PROGRESS[_call(driver.finish, port)]

        def resume(self) -> Any:
            return _PROGRESS[_call(driver.resume)]

    class Checkpoint:
        def snapshot(self, epoch: int, mode: Any) -> Any:
            return _PROGRESS[_call(driver.snapshot, Cut(epoch, SnapshotMode[mode.name]))]

        def restore(self, state_version: int) -> None:
            _call(driver.restore, state_version)

    module.Processor = Processor  # type: ignore[attr-defined]
    module.Checkpoint = Checkpoint  # type: ignore[attr-defined]
    # What is there now stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()


def _columns(batch: Any) -> Columns:
    return Columns(
        batch.timestamps,
        batch.hashes,
        batch.key_offsets,
        batch.keys,
        batch.key_nulls,
        batch.value_offsets,
        batch.values,
        batch.value_nulls,
        batch.header_offsets,
        batch.headers,
    )
