"""Batches as an operator sees them: columns as the host handed them over, cut into rows when somebody looks at the rows.

`Batch` is what comes in, `BatchBuilder` makes what goes out. A column that stays as it is is handed on as it came: neither its offsets nor its
bytes are looked at.
"""

from __future__ import annotations

import json
import sys
from array import array
from functools import partial
from itertools import accumulate, islice, repeat
from typing import Any, Iterable, Iterator, NamedTuple, Sequence, TypeVar, Union, overload

from ._host import Columns
from ._xxh3 import xxh3_64
from .types import NO_TIME

Cell = Union[bytes, None]
T = TypeVar("T")

_HIGH_HALF = 2 if sys.byteorder == "little" else 1


def key_hash(key: bytes) -> int:
    """The hash of a key: XXH3-64 with seed 0. Slow: on a keyed input the host has done this already, see `Batch.hashes`."""
    return xxh3_64(key)


def key_group(hash: int, key_groups: int) -> int:
    """The key group of a hash."""
    return (((hash >> 32) & 0xFFFF) * key_groups) >> 16


class Key(NamedTuple):
    """A key and its key group: what the collections of `weir.state` are asked by. A `Record` or a `Timer` will do as well."""

    key: bytes
    group: int

    @classmethod
    def of(cls, key: bytes, key_groups: int) -> Key:
        """A key that did not come with a record; `key_groups` is that of the `TaskInfo`."""
        return cls(key, key_group(xxh3_64(key), key_groups))


class Column(Sequence[Cell]):
    """Byte strings, one for each record, `None` where a record has none.

    A sequence like any other: `column[3]`, `for value in column`. It is cut into rows once, when it is first looked at.
    """

    __slots__ = ("_count", "_offsets", "_data", "_nulls", "_rows")

    def __init__(self, count: int, offsets: list[int], data: bytes, nulls: bytes) -> None:
        self._count = count
        self._offsets: list[int] | None = offsets
        self._data = data
        self._nulls = nulls
        self._rows: list[Cell] | None = None

    @classmethod
    def of(cls, rows: Iterable[Cell]) -> Column:
        """A column of these rows."""
        rows = list(rows)
        column = cls(len(rows), [], b"", b"")
        column._offsets = None
        column._rows = rows
        return column

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Cell: ...
    @overload
    def __getitem__(self, at: slice) -> list[Cell]: ...
    def __getitem__(self, at: int | slice) -> Cell | list[Cell]:
        return (self._rows or self.rows())[at]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._rows or self.rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and self.rows() == other.rows()

    def __repr__(self) -> str:
        return f"Column.of({self.rows()!r})"

    def rows(self) -> list[Cell]:
        """All rows as a list, which is not to be changed."""
        rows = self._rows
        if rows is None:
            offsets = self._offsets
            if not offsets:
                rows = [None] * self._count
            else:
                rows = list(map(self._data.__getitem__, map(slice, offsets, islice(offsets, 1, None))))
                for row in null_rows(self._nulls):
                    rows[row] = None
            self._rows = rows
        return rows

    def parts(self) -> tuple[list[int], bytes, bytes]:
        """Offsets, bytes and nulls as the contract has them."""
        if self._offsets is None:
            self._offsets, self._data, self._nulls = pack(self._rows or [])
        return self._offsets, self._data, self._nulls


def null_rows(nulls: bytes) -> Iterator[int]:
    """The numbers of the bits that are set."""
    for at, byte in enumerate(nulls):
        while byte:
            low = byte & -byte
            yield at * 8 + low.bit_length() - 1
            byte ^= low


def pack(rows: Sequence[Cell]) -> tuple[list[int], bytes, bytes]:
    """Offsets, bytes and nulls of rows."""
    nulls = b""
    if None in rows:
        bits = bytearray((len(rows) + 7) // 8)
        full: list[bytes] = []
        for at, row in enumerate(rows):
            if row is None:
                bits[at >> 3] |= 1 << (at & 7)
                row = b""
            full.append(row)
        if rows.count(None) == len(rows):
            return [], b"", b""
        rows, nulls = full, bytes(bits)
    try:
        data = b"".join(rows)  # type: ignore[arg-type]
    except TypeError:
        for at, row in enumerate(rows):
            if not isinstance(row, (bytes, bytearray, memoryview)):
                raise TypeError(
                    f"keys and values are bytes, and that of record {at} is {row!r}: encode it, as in str(x).encode()"
                ) from None
        raise
    if not rows:
        return [], b"", b""
    return list(accumulate(map(len, rows), initial=0)), data, nulls  # type: ignore[arg-type]


class Record(NamedTuple):
    """One record of a batch."""

    index: int  # type: ignore[assignment]
    """Its number in the batch: what `Output.reject` wants."""
    timestamp: int
    """Its event time, `NO_TIME` where it has none. See `time`."""
    key: bytes | None
    """Its key; an empty key is a key."""
    value: bytes | None
    """Its value; a record without one is a tombstone: what was known under its key is gone."""
    group: int
    """The key group of its key; -1 on an input that is not keyed."""
    batch: Batch

    @property
    def time(self) -> int | None:
        """Its event time in microseconds since 1970, if it has one."""
        return None if self.timestamp == NO_TIME else self.timestamp

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Its headers, in order; a name may come more than once."""
        return self.batch.headers(self.index)

    def json(self) -> Any:
        """Its value, parsed as JSON; `None` where it has no value. Raises `ValueError` if it is not JSON, or nested more than
        `weir.json.NESTING_MAX` deep."""
        from .json import loads

        return None if self.value is None else loads(self.value)


_record = partial(tuple.__new__, Record)


class Batch:
    """Records in columns. Cell `i` of each column belongs to record `i`.

    `for record in batch` is convenient; `zip(batch.timestamps, batch.keys, batch.values)` is faster.
    """

    __slots__ = ("timestamps", "hashes", "keys", "values", "_headers", "_key_groups", "_groups")

    timestamps: list[int]
    """The event time of each record, `NO_TIME` where it has none."""
    hashes: list[int]
    """The hash of each key on a keyed input, otherwise empty."""
    keys: Column
    """The keys."""
    values: Column
    """The values."""

    def __init__(
        self,
        timestamps: list[int],
        keys: Column,
        values: Column,
        headers: Column | None = None,
        hashes: Sequence[int] = (),
        key_groups: int = 0,
    ) -> None:
        count = len(timestamps)
        for name, column in (("keys", keys), ("values", values), ("headers", headers)):
            if column is not None and len(column) != count:
                raise ValueError(f"{len(column)} {name} for {count} records: there must be as many of them as of timestamps")
        self.timestamps = timestamps
        self.hashes = hashes if isinstance(hashes, list) else list(hashes)
        self.keys = keys
        self.values = values
        self._headers = headers
        self._key_groups = key_groups
        self._groups: list[int] | None = None

    @classmethod
    def from_columns(cls, columns: Columns, key_groups: int = 0) -> Batch:
        """A batch as the host hands it over. Nothing is copied."""
        count = len(columns.timestamps)
        headers = Column(count, columns.header_offsets, columns.headers, b"") if columns.header_offsets else None
        return cls(
            columns.timestamps,
            Column(count, columns.key_offsets, columns.keys, columns.key_nulls),
            Column(count, columns.value_offsets, columns.values, columns.value_nulls),
            headers,
            columns.hashes,
            key_groups,
        )

    def to_columns(self) -> Columns:
        """The batch as the host takes it. The host hashes keys anew."""
        key_offsets, keys, key_nulls = self.keys.parts()
        value_offsets, values, value_nulls = self.values.parts()
        header_offsets, headers = self._header_parts()
        return Columns(
            self.timestamps,
            [],
            key_offsets,
            keys,
            key_nulls,
            value_offsets,
            values,
            value_nulls,
            header_offsets,
            headers,
        )

    def _header_parts(self) -> tuple[list[int], bytes]:
        if self._headers is None:
            return [], b""
        offsets, data, _ = self._headers.parts()
        return (offsets, data) if data else ([], b"")

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def groups(self) -> list[int]:
        """The key group of each record; -1 for all of them on an input that is not keyed."""
        groups = self._groups
        if groups is None:
            key_groups = self._key_groups
            if self.hashes and key_groups:
                halves = memoryview(array("Q", self.hashes)).cast("B").cast("H")[_HIGH_HALF::4]
                groups = [half * key_groups >> 16 for half in halves]
            else:
                groups = [-1] * len(self.timestamps)
            self._groups = groups
        return groups

    def headers(self, row: int) -> list[tuple[str, bytes]]:
        """The headers of a record, in order."""
        return [] if self._headers is None else decode_headers(self._headers[row] or b"")

    def record(self, row: int) -> Record:
        """One record."""
        return Record(row, self.timestamps[row], self.keys[row], self.values[row], self.groups[row], self)

    def __iter__(self) -> Iterator[Record]:
        rows = zip(
            range(len(self.timestamps)), self.timestamps, self.keys.rows(), self.values.rows(), self.groups, repeat(self)
        )
        return map(_record, rows)

    def records(self) -> Iterator[Record]:
        """All records, in order."""
        return iter(self)

    def with_values(self, values: Column | Iterable[Cell]) -> Batch:
        """The same records with other values. Keys, times and headers go on as they came."""
        return self._with(values=values if isinstance(values, Column) else Column.of(values))

    def with_keys(self, keys: Column | Iterable[Cell]) -> Batch:
        """The same records with other keys."""
        keys = keys if isinstance(keys, Column) else Column.of(keys)
        return Batch(self.timestamps, keys, self.values, self._headers)

    def with_timestamps(self, timestamps: Iterable[int]) -> Batch:
        """The same records with other event times."""
        return self._with(timestamps=list(timestamps))

    def _with(self, timestamps: list[int] | None = None, values: Column | None = None) -> Batch:
        return Batch(
            self.timestamps if timestamps is None else timestamps,
            self.keys,
            self.values if values is None else values,
            self._headers,
            self.hashes,
            self._key_groups,
        )

    def select(self, rows: Sequence[int]) -> Batch:
        """Some of the records, by their numbers, in that order. All of them in order cost nothing."""
        if len(rows) == len(self) and all(map(int.__eq__, rows, range(len(self)))):
            return self

        def pick(column: Sequence[T]) -> list[T]:
            return [column[row] for row in rows]

        return Batch(
            pick(self.timestamps),
            Column.of(pick(self.keys.rows())),
            Column.of(pick(self.values.rows())),
            None if self._headers is None else Column.of(pick(self._headers.rows())),
            pick(self.hashes) if self.hashes else [],
            self._key_groups,
        )


class BatchBuilder:
    """Makes a batch, record by record."""

    __slots__ = ("timestamps", "keys", "values", "_headers")

    def __init__(self) -> None:
        self.timestamps: list[int] = []
        self.keys: list[Cell] = []
        self.values: list[Cell] = []
        self._headers: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def push(self, time: int | None, key: Cell, value: Cell) -> None:
        """Adds a record."""
        self.timestamps.append(NO_TIME if time is None else time)
        self.keys.append(key)
        self.values.append(value)
        if self._headers is not None:
            self._headers.append(b"")

    def push_record(self, record: Record) -> None:
        """Adds a record that came in, as it is, headers included."""
        self.push(record.timestamp, record.key, record.value)
        if record.batch._headers is not None:
            headers = record.batch._headers[record.index]
            if headers:
                self._begin_headers()[-1] = headers

    def push_json(self, time: int | None, key: Cell, value: Any) -> None:
        """Adds a record whose value is JSON."""
        from .json import dumps

        self.push(time, key, dumps(value))

    def header(self, name: str, value: bytes) -> None:
        """Adds a header to the record that was added last."""
        if not self.timestamps:
            raise ValueError(f"header {name!r} needs a record before it: push one first")
        self._begin_headers()[-1] += encode_header(name, value)

    def _begin_headers(self) -> list[bytes]:
        if self._headers is None:
            self._headers = [b""] * len(self.timestamps)
        return self._headers

    def build(self) -> Batch:
        """The batch so far. What is pushed later does not change it."""
        return Batch(
            self.timestamps.copy(),
            Column.of(self.keys),
            Column.of(self.values),
            None if self._headers is None else Column.of(self._headers),
        )

    def clear(self) -> None:
        """Empties it."""
        self.timestamps.clear()
        self.keys.clear()
        self.values.clear()
        self._headers = None


def encode_header(name: str, value: bytes) -> bytes:
    """A header as the contract has it."""
    text = name.encode()
    if len(text) > 0xFFFF:
        raise ValueError(f"the name of a header has {len(text)} bytes, and at most 65,535 are allowed: {name[:40]!r}...")
    return len(text).to_bytes(2, "little") + text + len(value).to_bytes(4, "little") + value


def decode_headers(data: bytes) -> list[tuple[str, bytes]]:
    """The headers of a record."""
    headers = []
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "little")
        name = data[at + 2 : end].decode("utf-8", "replace")
        at = end + 4 + int.from_bytes(data[end : end + 4], "little")
        headers.append((name, data[end + 4 : at]))
    return headers
