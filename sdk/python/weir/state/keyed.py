"""A value for each key."""

from __future__ import annotations

import dataclasses
from typing import Callable, Generic, Iterable, Iterator, TypeVar, overload

from ..batch import Key
from ..types import TaskInfo
from .codec import Makers, decode, encode
from .part import GroupedPart, Keyed

V = TypeVar("V")
D = TypeVar("D")


class KeyedState(GroupedPart[V], Generic[V]):
    """A value for each key, asked for by a `Record`, a `Timer` or a `Key`.

    ```python
    last: KeyedState[float] = KeyedState("last", task)
    last[record] = 3.5
    last.get(record)                       # 3.5

    sums = KeyedState("sums", task, Sum)   # Sum is a dataclass
    sums.value(record).readings += 1       # a Sum(), if there was none
    ```

    A value that can be changed in place has to be taken by `value` for that, each time: that is how the collection knows. Values may be
    of the types that `weir.state.codec` names. Iteration is by key group, then by key: the same for a collection that grew and one that was
    restored.
    """

    def __init__(
        self,
        name: str,
        task: TaskInfo,
        default: Callable[[], V] | None = None,
        *,
        classes: Iterable[type] = (),
    ) -> None:
        """`default` makes the value of a key that was not seen before, for `value`; if it is a dataclass, values are of that. `classes` are
        further dataclasses that occur in values."""
        declared = [*classes, default] if dataclasses.is_dataclass(default) and isinstance(default, type) else [*classes]
        super().__init__(name, task, declared)
        self._default = default

    def _encode(self, value: V) -> bytes:
        return encode(value, self.classes)

    def _decode(self, value: bytes, makers: Makers) -> V:
        decoded: V = decode(value, makers)
        return decoded

    @overload
    def get(self, keyed: Keyed) -> V | None: ...
    @overload
    def get(self, keyed: Keyed, default: D) -> V | D: ...
    def get(self, keyed: Keyed, default: D | None = None) -> V | D | None:
        """The value of a key, which is not to be changed in place; `default` if there is none."""
        return self._table(keyed).get(self._key(keyed), default)

    def __getitem__(self, keyed: Keyed) -> V:
        return self._table(keyed)[self._key(keyed)]

    def __contains__(self, keyed: Keyed) -> bool:
        return self._key(keyed) in self._table(keyed)

    def __setitem__(self, keyed: Keyed, value: V) -> None:
        self.put_at(keyed.group, self._key(keyed), value)

    def __delitem__(self, keyed: Keyed) -> None:
        key, table = self._key(keyed), self._table(keyed)
        if key not in table:
            raise KeyError(key)
        self._touch(keyed.group, table, key)
        del table[key]

    def discard(self, keyed: Keyed) -> None:
        """Removes a key if it is there."""
        if keyed in self:
            del self[keyed]

    @overload
    def pop(self, keyed: Keyed) -> V | None: ...
    @overload
    def pop(self, keyed: Keyed, default: D) -> V | D: ...
    def pop(self, keyed: Keyed, default: D | None = None) -> V | D | None:
        """Removes a key and gives its value; `default` if it is not there."""
        key, table = self._key(keyed), self._table(keyed)
        if key not in table:
            return default
        self._touch(keyed.group, table, key)
        return table.pop(key)

    def value(self, keyed: Keyed) -> V:
        """The value of a key, to be changed in place until the end of the call. A key that is not there gets a default."""
        return self.value_at(keyed.group, self._key(keyed))

    def value_at(self, group: int, key: bytes) -> V:
        """As `value`, for code that goes through columns: `zip(batch.groups, batch.keys)`."""
        try:
            table = self._tables[group]
        except KeyError:
            raise self._not_ours(group) from None
        if self._kept:
            self._touch(group, table, key)
        else:
            self._changed.add(group)
        try:
            return table[key]
        except KeyError:
            made = table[key] = self._made()
            return made

    def get_at(self, group: int, key: bytes) -> V | None:
        """As `get`, for code that goes through columns."""
        table = self._tables.get(group)
        if table is None:
            raise self._not_ours(group)
        return table.get(key)

    def put_at(self, group: int, key: bytes, value: V) -> None:
        """Sets a value, for code that goes through columns."""
        table = self._tables.get(group)
        if table is None:
            raise self._not_ours(group)
        self._touch(group, table, key)
        table[key] = value

    def keys(self) -> Iterator[Key]:
        """All keys."""
        for group, table in self._tables.items():
            for key in sorted(table):
                yield Key(key, group)

    def items(self) -> Iterator[tuple[Key, V]]:
        """All keys with their values, which are not to be changed in place."""
        for group, table in self._tables.items():
            for key in sorted(table):
                yield Key(key, group), table[key]

    def _made(self) -> V:
        if self._default is None:
            raise TypeError(
                f"state {self.name!r} has no default for a new key: give it one, KeyedState({self.name!r}, task, default), or ask with get()"
            )
        return self._default()

    def _key(self, keyed: Keyed) -> bytes:
        key = keyed.key
        if key is None:
            raise ValueError(f"state {self.name!r} was asked by a record without a key: reject such records, or skip them")
        return key
