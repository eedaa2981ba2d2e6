"""Counts by key in windows of a minute of event time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import weir
from weir.state import EventTimers, KeyedState

MINUTE = 60_000_000


@dataclass
class Counts:
    """What is known of a key."""

    total: int = 0
    """The records of all windows that have been emitted."""
    open: dict[int, int] = field(default_factory=dict)
    """The records of each window that has not, by its end."""


@weir.export
class Tally(weir.Stateful):
    @classmethod
    def descriptor(cls) -> weir.Descriptor:
        return weir.Descriptor(
            name="tally",
            version="0.1.0",
            summary="Counts by key in windows of a minute.",
            inputs=[weir.Port("in", "what is counted", keyed=True)],
            outputs=[weir.Port("out", "END COUNT TOTAL KEY for each window of a key", keyed=True)],
            state=weir.StateKind.KEYED,
            state_version=1,
        )

    def __init__(self, config: Mapping[str, Any], task: weir.TaskInfo) -> None:
        self.counts = KeyedState("counts", task, Counts)
        self.ends = EventTimers("ends", task)

    def state(self) -> list[weir.state.Part]:
        return [self.counts, self.ends]

    def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
        rows = zip(batch.timestamps, batch.keys, batch.groups)
        for row, (time, key, group) in enumerate(rows):
            if key is None:
                out.reject(row, "no key")
            elif time == weir.NO_TIME:
                out.reject(row, "no time")
            else:
                end = (time // MINUTE + 1) * MINUTE
                open = self.counts.value_at(group, key).open
                if end in open:
                    open[end] += 1
                else:
                    open[end] = 1
                    self.ends.add_at(group, key, end)

    def advance(self, watermark: int, out: weir.Output) -> Iterator[None]:
        batch = weir.BatchBuilder()
        for timer in self.ends.due(watermark):
            counts = self.counts.value(timer)
            count = counts.open.pop(timer.time)
            counts.total += count
            batch.push(timer.time, timer.key, b"%d %d %d %b" % (timer.time, count, counts.total, timer.key))
            if len(batch) == 4096:
                out.emit(0, batch)
                batch.clear()
                yield
        out.emit(0, batch)
