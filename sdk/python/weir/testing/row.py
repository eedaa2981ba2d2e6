"""A record as tests write and compare it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Sequence, Union

from ..batch import Batch, BatchBuilder

Text = Union[str, bytes, None]


@dataclass(frozen=True, order=True, init=False)
class Row:
    """A record: key, value, event time and headers. Text is taken as UTF-8; `None` is no key, or a tombstone."""

    key: bytes | None
    value: bytes | None
    time: int | None
    headers: tuple[tuple[str, bytes], ...]

    def __init__(
        self, key: Text, value: Text, time: int | None = None, headers: Iterable[tuple[str, Text]] = ()
    ) -> None:
        put = object.__setattr__
        put(self, "key", _bytes(key))
        put(self, "value", _bytes(value))
        put(self, "time", time)
        put(self, "headers", tuple((name, _bytes(value) or b"") for name, value in headers))

    def __repr__(self) -> str:
        parts = [repr(self.key), repr(self.value)]
        if self.time is not None or self.headers:
            parts.append(repr(self.time))
        if self.headers:
            parts.append(repr(self.headers))
        return f"Row({', '.join(parts)})"

    @property
    def text(self) -> str:
        """The value as text; empty where there is none."""
        return (self.value or b"").decode()

    @classmethod
    def batch(cls, rows: Sequence[Row]) -> Batch:
        """A batch of rows."""
        builder = BatchBuilder()
        for row in rows:
            builder.push(row.time, row.key, row.value)
            for name, value in row.headers:
                builder.header(name, value)
        return builder.build()

    @classmethod
    def of_batch(cls, batch: Batch) -> list[Row]:
        """The rows of a batch."""
        return [cls(record.key, record.value, record.time, record.headers) for record in batch]


def _bytes(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
