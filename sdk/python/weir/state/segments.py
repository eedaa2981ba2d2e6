"""Snapshots of the collections of an operator, taken in steps.

All collections share one segment for each key group, and a base replaces what all of them had in it. So one `Segments` decides for all:
at the cut, which segments have changed; then each of those is written whole, as a base, in ascending order, while the collections keep what
changes before it was written.
"""

from __future__ import annotations

from typing import Iterable, Iterator

from ..snapshot import SnapshotReader, SnapshotWriter
from ..types import SHARED, SUBTASK, Chunk, Cut, Progress, Scope, SegmentKind, SnapshotMode
from .chunk import CLASSES, ENTRIES, FRAGMENT, LAST, ChunkBuilder, read_entries, read_sections
from .codec import Makers, corrupt
from .part import Part

__all__ = ["Part", "Segments"]

_ORDER = {"key-group": 0, SUBTASK.name: 1, SHARED.name: 2}


class Segments:
    """Writes and reads the collections of an operator."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = list(parts)
        names = [part.name for part in self.parts]
        for part in self.parts:
            if names.count(part.name) > 1:
                raise ValueError(f"two collections are named {part.name!r}: give each its own name")
        self._epoch: int | None = None
        self._steps: Iterator[bool] | None = None
        self._rewrite = False
        self._fragments: list[bytes] = []

    def rewrite(self) -> None:
        """Makes the next snapshot write everything: after state of an older version was read, whose bytes must not stay."""
        self._rewrite = True

    def snapshot(self, cut: Cut, writer: SnapshotWriter) -> Progress:
        """One step of a snapshot: `MORE` when the host has asked to stop and something is left."""
        if self._steps is None or self._epoch != cut.epoch:
            self._begin(cut, writer)
        assert self._steps is not None
        for go_on in self._steps:
            if not go_on:
                return Progress.MORE
        self._steps = None
        return Progress.DONE

    def _begin(self, cut: Cut, writer: SnapshotWriter) -> None:
        lost = self._steps is not None
        if lost:
            for part in self.parts:
                part.abandon()
        full = lost or self._rewrite or cut.mode is SnapshotMode.FULL
        scopes = {scope for part in self.parts for scope in (part.scopes() if full else part.changed_scopes())}
        if full and cut.mode is SnapshotMode.INCREMENTAL:
            # What an older version left, or an abandoned snapshot was to clear, must go.
            scopes.update(scope for part in self.parts for scope in part.all_scopes())
        ordered = sorted(scopes, key=_place)
        for part in self.parts:
            part.begin_cut(ordered)
        self._rewrite = False
        self._epoch = cut.epoch
        self._steps = self._write(ordered, writer)

    def _write(self, scopes: list[Scope], writer: SnapshotWriter) -> Iterator[bool]:
        """Writes segment after segment; gives the host's answer after each chunk but the last."""
        last = len(scopes) - 1
        for number, scope in enumerate(scopes):
            empty = True
            answer = True
            for chunk in self._chunks(scope):
                if not empty:
                    yield answer
                answer = writer.write(scope, SegmentKind.BASE, chunk)
                empty = False
            if empty:
                answer = writer.write(scope, SegmentKind.BASE, b"")
            if number < last:
                yield answer

    def _chunks(self, scope: Scope) -> Iterator[bytes]:
        builder = ChunkBuilder()
        for part in self.parts:
            if part.owns(scope):
                builder.section(part.raw_name, part.classes.stored())
                for key, value in part.entries(scope):
                    yield from builder.add(key, value)
        yield from builder.finish()

    def restore(self, reader: SnapshotReader) -> None:
        """Reads all that is left to read. Raises `Failure.invalid` that says what cannot be read."""
        for chunk in reader:
            self.restore_chunk(chunk)

    def restore_chunk(self, chunk: Chunk) -> None:
        """Reads one chunk, for operators that also write segments of their own."""
        makers: Makers = []
        for operation, name, body in read_sections(chunk.data):
            part = next((part for part in self.parts if part.name == name), None)
            if part is None:
                raise corrupt(f"it holds a collection {name!r}, which this plugin does not have")
            if not part.owns(chunk.scope):
                raise corrupt(f"the segment of {chunk.scope} holds {name!r}, which has nothing there in this subtask")
            if operation == CLASSES:
                makers = part.classes.makers(body)
                continue
            if operation == FRAGMENT:
                self._fragments.append(body)
                continue
            if operation == LAST:
                self._fragments.append(body)
                body = b"".join(self._fragments)
                self._fragments = []
            elif operation != ENTRIES:
                raise corrupt(f"{operation} is no operation of a section")
            for key, value in read_entries(body):
                part.read(chunk.scope, key, value, makers)
            makers = []


def _place(scope: Scope) -> tuple[int, int]:
    return _ORDER[scope.name], scope.group
