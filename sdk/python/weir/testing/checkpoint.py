"""Keeps segments as the host does: a base replaces, a delta comes on top, an incremental snapshot leaves what it does not write."""

from __future__ import annotations

from typing import Sequence

from ..types import SHARED, SUBTASK, Chunk, Scope, SegmentKind, SnapshotMode, TaskInfo

_ORDER = ["key-group", "subtask", "shared", "item"]


class Checkpoint:
    """The state of one subtask, as it would be restored."""

    def __init__(self) -> None:
        self.state_version = 0
        """That of the plugin that wrote it."""
        self.exists = False
        self.written = 0
        """The bytes that the last snapshot wrote."""
        self._segments: dict[Scope, list[Chunk]] = {}

    def copy(self) -> Checkpoint:
        other = Checkpoint()
        other.state_version, other.exists, other.written = self.state_version, self.exists, self.written
        other._segments = {scope: list(chunks) for scope, chunks in self._segments.items()}
        return other

    def chunks(self) -> list[Chunk]:
        """All chunks, in the order in which a restore reads them."""
        scopes = sorted(self._segments, key=lambda scope: (_ORDER.index(scope.name), scope.group))
        return [chunk for scope in scopes for chunk in self._segments[scope]]

    def __len__(self) -> int:
        """The bytes of all chunks."""
        return sum(len(chunk.data) for chunk in self.chunks())

    def contents(self) -> list[tuple[str, list[bytes]]]:
        """Segments with the bytes of their chunks in order."""
        found: dict[str, list[bytes]] = {}
        for chunk in self.chunks():
            found.setdefault(str(chunk.scope), []).append(chunk.data)
        return list(found.items())

    def damaged(self, change: dict[int, bytes]) -> Checkpoint:
        """The same with the bytes of some chunks, by their place in `chunks`, replaced: for tests of what a damaged state leads to."""
        other, at = self.copy(), 0
        for scope in sorted(other._segments, key=lambda scope: (_ORDER.index(scope.name), scope.group)):
            chunks = other._segments[scope]
            for place, chunk in enumerate(chunks):
                if at in change:
                    chunks[place] = chunk._replace(data=change[at])
                at += 1
        return other

    def apply(self, mode: SnapshotMode, written: Sequence[Chunk], state_version: int) -> None:
        """A snapshot is done."""
        self.exists, self.state_version = True, state_version
        self.written = sum(len(chunk.data) for chunk in written)
        if mode is SnapshotMode.FULL:
            self._segments = {}
        replaced = set()
        for chunk in written:
            chunks = self._segments.setdefault(chunk.scope, [])
            if chunk.kind is SegmentKind.BASE and chunk.scope not in replaced:
                chunks.clear()
                replaced.add(chunk.scope)
            if chunk.data or chunk.kind is not SegmentKind.BASE:
                chunks.append(chunk)
        self._segments = {scope: chunks for scope, chunks in self._segments.items() if chunks}

    @classmethod
    def merge(cls, checkpoints: Sequence[Checkpoint], task: TaskInfo) -> Checkpoint:
        """What a subtask gets of the checkpoints of all subtasks of an earlier run."""
        merged = cls()
        merged.exists = True
        for number, checkpoint in enumerate(checkpoints):
            merged.state_version = checkpoint.state_version
            for scope, chunks in checkpoint._segments.items():
                if scope.name == "key-group":
                    mine = task.first_key_group <= scope.group < task.end_key_group
                elif scope == SUBTASK:
                    if len(checkpoints) != task.parallelism:
                        raise ValueError(
                            f"a segment of scope subtask refuses another parallelism: {len(checkpoints)} before, {task.parallelism} now"
                        )
                    mine = number == task.subtask
                elif scope == SHARED:
                    mine = scope not in merged._segments
                else:
                    mine = number % task.parallelism == task.subtask
                if mine:
                    merged._segments.setdefault(scope, []).extend(chunks)
        return merged
