"""One value for a subtask as a whole."""

from __future__ import annotations

import dataclasses
from typing import Generic, Iterable, Iterator, TypeVar

from ..types import SHARED, SUBTASK, Scope
from .codec import Makers, decode, encode
from .part import Part

V = TypeVar("V")


class _Value(Part, Generic[V]):
    _scope: Scope

    def __init__(self, name: str, value: V, *, classes: Iterable[type] = ()) -> None:
        declared = [*classes]
        if dataclasses.is_dataclass(value):
            declared.append(type(value))
        super().__init__(name, declared)
        self._value = value
        self._changed = False
        self._kept: bytes | None = None

    @property
    def value(self) -> V:
        """The value. Set it to change it; after changing it in place, set it to itself."""
        return self._value

    @value.setter
    def value(self, value: V) -> None:
        self._value = value
        self._changed = True

    def scopes(self) -> Iterable[Scope]:
        return [self._scope]

    def all_scopes(self) -> Iterable[Scope]:
        return [self._scope]

    def changed_scopes(self) -> Iterable[Scope]:
        return [self._scope] if self._changed else []

    def begin_cut(self, scopes: Iterable[Scope]) -> None:
        if self._scope in scopes:
            self._kept = encode(self._value, self.classes)
            self._changed = False

    def entries(self, scope: Scope) -> Iterator[tuple[bytes, bytes]]:
        kept, self._kept = self._kept, None
        assert kept is not None, "a segment is written after its cut"
        yield b"", kept

    def peek(self) -> Iterator[tuple[Scope, bytes, bytes]]:
        yield self._scope, b"", encode(self._value, self.classes)

    def abandon(self) -> None:
        self._kept = None

    def owns(self, scope: Scope) -> bool:
        return scope == self._scope

    def read(self, scope: Scope, key: bytes, value: bytes, makers: Makers) -> None:
        self._value = decode(value, makers)


class SubtaskValue(_Value[V]):
    """A value that belongs to this subtask alone: with it, a job refuses to start with another parallelism."""

    _scope = SUBTASK


class SharedValue(_Value[V]):
    """A value that is the same in all subtasks, as rules that all of them received: after a change of the parallelism each gets a copy."""

    _scope = SHARED
