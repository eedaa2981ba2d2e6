"""Write weir operators in Python.

weir is a stream runtime whose operators are WebAssembly components with exactly-once state. An operator is a class that derives from
`Operator`, or from `Stateful` if it keeps state; `export` makes a component of it. It needs no file, no socket and no clock: batches come
in, batches go out, and what it remembers lies in its fields.

The running mean of a JSON field by key, with state that survives crashes, upgrades and rescaling:

>>> from dataclasses import dataclass
>>> import weir
>>> from weir.state import KeyedState
>>>
>>> @dataclass
... class Sum:
...     readings: int = 0
...     degrees: float = 0.0
>>>
>>> @weir.export
... class Mean(weir.Stateful):
...     @classmethod
...     def descriptor(cls):
...         return weir.Descriptor(
...             name="mean",
...             version="1.0.0",
...             summary="The mean of all readings of a sensor so far.",
...             inputs=[weir.Port("in", "readings by sensor", keyed=True)],
...             outputs=[weir.Port("out", "the mean so far, one record for each that came in", keyed=True)],
...             state=weir.StateKind.KEYED,
...             state_version=1,
...         )
...
...     def __init__(self, config, task):
...         self.sums = KeyedState("sums", task, Sum)
...
...     def state(self):
...         return [self.sums]
...
...     def process(self, port, batch, out):
...         means = weir.BatchBuilder()
...         for record in batch:
...             try:
...                 degrees = float(record.json()["degrees"])
...             except (KeyError, TypeError, ValueError):
...                 out.reject(record.index, "not a reading")
...                 continue
...             sum = self.sums.value(record)
...             sum.readings += 1
...             sum.degrees += degrees
...             means.push(record.time, record.key, str(sum.degrees / sum.readings).encode())
...         out.emit(0, means)

And its test, which needs neither weir nor WebAssembly:

>>> from weir.testing import Harness, Row
>>> harness = Harness(Mean)
>>> harness.process(0, [Row("attic", '{"degrees":20}', 1), Row("attic", "hot")])
>>> harness.take(0)
[Row(b'attic', b'20.0', 1)]
>>> len(harness.take_rejected())
1
>>> restored = Harness.restore(Mean, harness.snapshot())
>>> restored.process(0, [Row("attic", '{"degrees":30}')])
>>> restored.take(0)
[Row(b'attic', b'25.0')]

Where to look: `Operator` and `Stateful` for what the host calls, and when; `Batch`, `Record` and `BatchBuilder` for what comes in and goes out;
`weir.state` for state; `weir.json` for the configuration and JSON values; `weir.log`, `weir.metrics` and `weir.time` for what else the host
offers; `weir.testing` for tests.
"""

from . import json, log, metrics, time
from .batch import Batch, BatchBuilder, Column, Key, Record, key_group, key_hash
from .descriptor import Descriptor, Port, StateKind
from .operator import Operator, Stateful, export
from .output import Output
from .snapshot import SnapshotReader, SnapshotWriter
from .types import (
    END_OF_TIME,
    NO_TIME,
    Chunk,
    Cut,
    Failure,
    FailureKind,
    Level,
    Progress,
    Scope,
    SegmentKind,
    SnapshotMode,
    TaskInfo,
)

__version__ = "0.1.0"

__all__ = [
    "END_OF_TIME",
    "NO_TIME",
    "Batch",
    "BatchBuilder",
    "Chunk",
    "Column",
    "Cut",
    "Descriptor",
    "Failure",
    "FailureKind",
    "Key",
    "Level",
    "Operator",
    "Output",
    "Port",
    "Progress",
    "Record",
    "Scope",
    "SegmentKind",
    "SnapshotMode",
    "SnapshotReader",
    "SnapshotWriter",
    "StateKind",
    "Stateful",
    "TaskInfo",
    "export",
    "json",
    "key_group",
    "key_hash",
    "log",
    "metrics",
    "time",
]
