"""The types that plugin and host share: `wit/types.wit` and `wit/snapshots.wit` in Python."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Mapping, NamedTuple

NO_TIME = -(2**63)
"""The event time of a record that has none."""

END_OF_TIME = 2**63 - 1
"""The last watermark of a stream: nothing will come any more."""


class Progress(enum.Enum):
    """Whether a call has finished what it was called for."""

    DONE = "done"
    MORE = "more"


class FailureKind(enum.Enum):
    """What the host does about a call that failed."""

    RETRY = "retry"
    INVALID = "invalid"
    FATAL = "fatal"


class Failure(Exception):
    """Why a call failed: raise one of `Failure.retry`, `Failure.invalid` and `Failure.fatal`.

    Not for a record that cannot be processed: `Output.reject` it and go on.
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    @classmethod
    def retry(cls, message: str) -> Failure:
        """The same call may be made again later: nothing has changed in the operator."""
        return cls(FailureKind.RETRY, message)

    @classmethod
    def invalid(cls, message: str) -> Failure:
        """The configuration or the state is not acceptable: a person has to change something."""
        return cls(FailureKind.INVALID, message)

    @classmethod
    def fatal(cls, message: str) -> Failure:
        """Start over from the last checkpoint."""
        return cls(FailureKind.FATAL, message)


class Level(enum.IntEnum):
    """How much a message matters."""

    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4


@dataclass(frozen=True)
class TaskInfo:
    """Which part of which job an instance works on. Nothing in it differs between two runs of a job at the same parallelism."""

    job: str
    node: str
    subtask: int
    """Number of this subtask, from 0."""
    parallelism: int
    key_groups: int
    """How many key groups the job has."""
    first_key_group: int
    """This subtask's key groups: from this one ..."""
    end_key_group: int
    """... up to, not including, this one."""
    seed: int
    """For whatever needs randomness. The same for this subtask in every run of the job."""
    attributes: Mapping[str, str] = field(default_factory=dict)


class SnapshotMode(enum.Enum):
    """What a snapshot has to contain."""

    FULL = "full"
    INCREMENTAL = "incremental"


class Cut(NamedTuple):
    """Which snapshot a call of `Stateful.snapshot` is part of."""

    epoch: int
    """The epoch that ends with this cut. Another one than in the last call begins a new snapshot."""
    mode: SnapshotMode


class SegmentKind(enum.Enum):
    """How a chunk relates to what its segment held before."""

    BASE = "base"
    DELTA = "delta"


class Scope(NamedTuple):
    """Where a segment belongs when the parallelism changes."""

    name: str
    group: int = 0
    """The key group, where `name` is `key-group`."""

    @classmethod
    def key_group(cls, group: int) -> Scope:
        """To a key group of this subtask: it goes where the group goes."""
        return cls("key-group", group)

    def __str__(self) -> str:
        return f"key group {self.group}" if self.name == "key-group" else self.name


SUBTASK = Scope("subtask")
"""To this subtask alone: the job refuses to start with another parallelism."""

SHARED = Scope("shared")
"""To every subtask alike: any one copy goes to all."""

ITEM = Scope("item")
"""To any subtask: each chunk is an item of a list that is dealt out anew."""


class Chunk(NamedTuple):
    """A piece of a segment."""

    scope: Scope
    kind: SegmentKind
    origin: int
    """The number of the subtask that wrote it."""
    data: bytes
