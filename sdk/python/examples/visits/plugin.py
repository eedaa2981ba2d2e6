"""Sessions by key: records that are at most 30 seconds apart belong together."""

from collections.abc import Iterator, Mapping
from typing import Any

import weir
from weir.state import EventTimers, KeyedState

GAP = 30_000_000

Session = tuple[int, int, int]
"""Start, end, and how many records."""


@weir.export
class Visits(weir.Stateful):
    @classmethod
    def descriptor(cls) -> weir.Descriptor:
        return weir.Descriptor(
            name="visits",
            version="0.1.0",
            summary="Sessions by key, with a gap of 30 seconds.",
            inputs=[weir.Port("in", "what happened, by key", keyed=True)],
            outputs=[weir.Port("out", "START END COUNT KEY for each session", keyed=True)],
            state=weir.StateKind.KEYED,
            state_version=1,
        )

    def __init__(self, config: Mapping[str, Any], task: weir.TaskInfo) -> None:
        # The open sessions of a key, in order of time: none is nearer to another than the gap.
        self.sessions: KeyedState[list[Session]] = KeyedState("sessions", task, list)
        # The end of each open session.
        self.ends = EventTimers("ends", task)

    def state(self) -> list[weir.state.Part]:
        return [self.sessions, self.ends]

    def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
        for record in batch:
            if record.key is None:
                out.reject(record.index, "no key")
            elif record.time is None:
                out.reject(record.index, "no time")
            else:
                self.visit(record, record.time)

    def visit(self, record: weir.Record, time: int) -> None:
        """Adds a record to the sessions of its key, which may join two of them."""
        sessions = self.sessions.value(record)
        near = [session for session in sessions if session[0] - GAP <= time <= session[1] + GAP]
        start = min([time, *(session[0] for session in near)])
        end = max([time, *(session[1] for session in near)])
        count = 1 + sum(session[2] for session in near)
        for session in near:
            sessions.remove(session)
            self.ends.remove(record, session[1])
        sessions.append((start, end, count))
        sessions.sort()
        self.ends.add(record, end)

    def advance(self, watermark: int, out: weir.Output) -> Iterator[None]:
        batch = weir.BatchBuilder()
        # Of a session that ends at the end of time, or near it, the last watermark is the end as well.
        over = watermark if watermark == weir.END_OF_TIME else watermark - GAP
        for timer in self.ends.due(max(over, weir.NO_TIME)):
            sessions = self.sessions.value(timer)
            start, end, count = next(session for session in sessions if session[1] == timer.time)
            sessions.remove((start, end, count))
            if not sessions:
                del self.sessions[timer]
            batch.push(end, timer.key, b"%d %d %d %b" % (start, end, count, timer.key))
            if len(batch) == 4096:
                out.emit(0, batch)
                batch.clear()
                yield
        out.emit(0, batch)
