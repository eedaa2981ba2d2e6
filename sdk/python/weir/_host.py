"""The seam between the SDK and whoever plays the host.

In a component that is `_component.py`, which calls weir; in tests it is `testing/fake.py`. The rest of the SDK calls `current`, and does not
know which it is.
"""

from __future__ import annotations

import sys
from typing import NamedTuple, Protocol

from .types import Chunk, Level, Scope, SegmentKind


class Columns(NamedTuple):
    """A batch as the contract has it (`wit/types.wit`), column by column."""

    timestamps: list[int]
    hashes: list[int]
    key_offsets: list[int]
    keys: bytes
    key_nulls: bytes
    value_offsets: list[int]
    values: bytes
    value_nulls: bytes
    header_offsets: list[int]
    headers: bytes


class Host(Protocol):
    """What weir offers a plugin: the imports of `wit/worlds.wit`."""

    def emit(self, port: int, columns: Columns) -> None: ...
    def reject(self, index: int, reason: str) -> None: ...
    def reject_batch(self, columns: Columns, reason: str) -> None: ...
    def log_write(self, level: Level, message: str) -> None: ...
    def log_enabled(self, level: Level) -> bool: ...
    def count(self, name: str, delta: int) -> None: ...
    def gauge(self, name: str, value: float) -> None: ...
    def observe(self, name: str, value: float) -> None: ...
    def now(self) -> int: ...
    def wake_at(self, at: int) -> None: ...
    def snapshot_write(self, scope: Scope, kind: SegmentKind, data: bytes) -> bool: ...
    def snapshot_read(self) -> Chunk | None: ...


class Nowhere:
    """No host: where a module is imported outside of weir and outside of a test harness. Only messages go somewhere."""

    def log_write(self, level: Level, message: str) -> None:
        print(f"{level.name.lower()}: {message}", file=sys.stderr)

    def log_enabled(self, level: Level) -> bool:
        return True

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(
            f"{name!r} needs a host and there is none: run the operator in weir, or in a weir.testing.Harness"
        )


current: Host = Nowhere()  # type: ignore[assignment]
