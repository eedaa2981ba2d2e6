"""What the collections have in common: tables by key group that know what has changed and keep what a cut still needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Iterable, Iterator, Protocol, TypeVar

from ..types import Scope, TaskInfo
from .codec import Classes, Makers

V = TypeVar("V")


class Keyed(Protocol):
    """Whatever has a key and its key group: a `Record`, a `Key`, a `Timer`."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def group(self) -> int: ...


class Part(ABC):
    """A collection that `Segments` can write and read."""

    name: str
    """By which it is found again in a checkpoint: never change it."""
    classes: Classes

    def __init__(self, name: str, classes: Iterable[type] = ()) -> None:
        self.name = name
        self.raw_name = name.encode()
        if not 1 <= len(self.raw_name) <= 255:
            raise ValueError(f"the name of a collection has 1 to 255 bytes, not {len(self.raw_name)}: {name[:40]!r}")
        self.classes = Classes(name, classes)

    @abstractmethod
    def scopes(self) -> Iterable[Scope]:
        """The segments in which it has something."""

    @abstractmethod
    def all_scopes(self) -> Iterable[Scope]:
        """The segments in which it may have something."""

    @abstractmethod
    def changed_scopes(self) -> Iterable[Scope]:
        """The segments in which something has changed since the last cut."""

    @abstractmethod
    def begin_cut(self, scopes: Iterable[Scope]) -> None:
        """Takes the cut: these segments will be written."""

    @abstractmethod
    def entries(self, scope: Scope) -> Iterator[tuple[bytes, bytes]]:
        """What it had in a segment at the cut, in an order that depends on nothing else. Once for each cut; may be interrupted while the
        collection changes."""

    @abstractmethod
    def peek(self) -> Iterator[tuple[Scope, bytes, bytes]]:
        """All entries as they are now."""

    @abstractmethod
    def abandon(self) -> None:
        """Gives up the open cut."""

    @abstractmethod
    def owns(self, scope: Scope) -> bool:
        """Whether a segment of this scope may hold entries of it."""

    @abstractmethod
    def read(self, scope: Scope, key: bytes, value: bytes, makers: Makers) -> None:
        """Takes over an entry."""


class _Absent:
    """Stands for a key that was not there at the cut."""


_ABSENT = _Absent()


class GroupedPart(Part, Generic[V]):
    """Entries by key group."""

    def __init__(self, name: str, task: TaskInfo, classes: Iterable[type] = ()) -> None:
        super().__init__(name, classes)
        self._all = task.key_groups
        self._tables: dict[int, dict[bytes, V]] = {
            group: {} for group in range(task.first_key_group, task.end_key_group)
        }
        self._changed: set[int] = set()
        # By group, what entries were at the cut that have changed since: only groups that are still to be written are in here.
        self._kept: dict[int, dict[bytes, bytes | _Absent]] = {}

    def _encode(self, value: V) -> bytes:
        raise NotImplementedError

    def _decode(self, value: bytes, makers: Makers) -> V:
        raise NotImplementedError

    def _table(self, keyed: Keyed) -> dict[bytes, V]:
        try:
            return self._tables[keyed.group]
        except KeyError:
            raise self._not_ours(keyed.group) from None

    def _not_ours(self, group: int) -> ValueError:
        groups = list(self._tables)
        if group < 0:
            return ValueError(
                f"state {self.name!r} was asked by a record whose input port is not keyed: declare it so, Port(..., keyed=True)"
            )
        return ValueError(
            f"state {self.name!r} was asked for a key of key group {group}, and this subtask has {groups[0]} to {groups[-1]}: ask only for "
            "keys of records that came in on a keyed port"
        )

    def _touch(self, group: int, table: dict[bytes, V], key: bytes) -> None:
        """To be called before an entry changes."""
        self._changed.add(group)
        if self._kept:
            kept = self._kept.get(group)
            if kept is not None and key not in kept:
                kept[key] = self._encode(table[key]) if key in table else _ABSENT

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def scopes(self) -> Iterable[Scope]:
        return [Scope.key_group(group) for group, table in self._tables.items() if table]

    def all_scopes(self) -> Iterable[Scope]:
        return [Scope.key_group(group) for group in self._tables]

    def changed_scopes(self) -> Iterable[Scope]:
        return [Scope.key_group(group) for group in sorted(self._changed)]

    def begin_cut(self, scopes: Iterable[Scope]) -> None:
        self._changed = set()
        self._kept = {scope.group: {} for scope in scopes if scope.group in self._tables and scope.name == "key-group"}

    def entries(self, scope: Scope) -> Iterator[tuple[bytes, bytes]]:
        group = scope.group
        table, kept = self._tables[group], self._kept[group]
        keys = [key for key in table if kept.get(key) is not _ABSENT]
        keys.extend(key for key, value in kept.items() if value is not _ABSENT and key not in table)
        keys.sort()
        for key in keys:
            value = kept.get(key)
            if value is None:
                value = self._encode(table[key])
            assert isinstance(value, bytes), "a key that was not there at the cut is not among the keys"
            yield key, value
        del self._kept[group]

    def peek(self) -> Iterator[tuple[Scope, bytes, bytes]]:
        for group, table in self._tables.items():
            for key, value in table.items():
                yield Scope.key_group(group), key, self._encode(value)

    def abandon(self) -> None:
        self._kept = {}

    def owns(self, scope: Scope) -> bool:
        return scope.name == "key-group" and scope.group in self._tables

    def read(self, scope: Scope, key: bytes, value: bytes, makers: Makers) -> None:
        self._tables[scope.group][key] = self._decode(value, makers)

