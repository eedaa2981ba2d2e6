"""Where `Stateful` writes state to and reads it from: segments, made of chunks."""

from __future__ import annotations

from typing import Iterator

from . import _host
from .types import ITEM, SHARED, SUBTASK, Chunk, Scope, SegmentKind

__all__ = ["CHUNK_BYTES_MAX", "ITEM", "SHARED", "SUBTASK", "Chunk", "Scope", "SegmentKind", "SnapshotReader", "SnapshotWriter"]

CHUNK_BYTES_MAX = 1 << 20
"""No chunk may be longer: what every host takes."""


class SnapshotWriter:
    """Takes the chunks of a snapshot."""

    def write(self, scope: Scope, kind: SegmentKind, data: bytes) -> bool:
        """Adds a chunk to a segment. It comes back as it is: make it something that can be decoded alone, of about 256 KiB and at most
        1 MiB.

        The first base chunk in a snapshot replaces the segment, further ones add to it; an empty base clears it; a delta comes on top.
        False asks to return `Progress.MORE` soon: the stream is waiting.
        """
        return _host.current.snapshot_write(scope, kind, data)


class SnapshotReader:
    """Gives back the chunks of a snapshot: by ascending key group, the other segments after them; in a segment the base before its
    deltas, chunks in the order in which they were written."""

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = _host.current.snapshot_read()
        if chunk is None:
            raise StopIteration
        return chunk
