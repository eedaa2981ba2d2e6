"""How a value of state becomes bytes and comes back.

Values are `None`, `bool`, `int`, `float`, `str`, `bytes`, `list`, `tuple`, `dict` and dataclasses, nested as you like. Nothing else: bytes
that were stored never choose which code runs, as they do in a pickle, and equal values become equal bytes, whichever objects they are
made of. The order of a `dict` is part of its value, as it is for the program that iterates over it: an operator that was restored and one
that ran on behave alike.

```text
value  = "N" | "F" | "T"                          None, False, True
       | "b" i8 | "i" i32 | "q" i64               an int, in the shortest that holds it
       | "I" length (u32) bytes                   a longer one: two's complement, little-endian
       | "d" f64                                  a float; all NaNs are one
       | "s" length (u8) UTF-8 | "S" length (u32) UTF-8
       | "y" length (u8) bytes | "Y" length (u32) bytes
       | "l" count (u32) value*                   a list
       | "t" count (u32) value*                   a tuple
       | "m" count (u32) (value value)*           a dict, in its order
       | "r" number of the class (u8) value*      a dataclass: the values of its fields, see `Classes`
```
"""

from __future__ import annotations

import dataclasses
from functools import partial
from struct import Struct, error as StructError
from typing import Any, Callable, Iterable

from ..types import Failure

NESTING_MAX = 100
"""How deep values may be nested. What is deeper is most likely a list that contains itself."""

_I8 = Struct("<cb")
_I32 = Struct("<ci")
_I64 = Struct("<cq")
_F64 = Struct("<cd")
_U8 = Struct("<cB")
_U32 = Struct("<cI")
_COUNT = Struct("<I")
_LONG = Struct("<q")
_INT = Struct("<i")
_DOUBLE = Struct("<d")

_NAN = b"d" + bytes.fromhex("000000000000f87f")

Fields = tuple[str, tuple[str, ...]]


def corrupt(what: str) -> Failure:
    """The failure of state that cannot be read."""
    return Failure.invalid(f"state cannot be read: {what}")


class Classes:
    """The dataclasses that a collection may hold, in the order of their names.

    A value refers to its class by number, and the names of classes and fields stand once in each chunk (`stored`). So a field that has been
    added since, with a default, is no problem.
    """

    def __init__(self, owner: str, classes: Iterable[type]) -> None:
        self.owner = owner
        unique = dict.fromkeys(classes)
        for kind in unique:
            if not dataclasses.is_dataclass(kind):
                raise TypeError(f"{kind!r} is no dataclass: classes of state {owner!r} have to be")
        self.classes: list[type] = sorted(unique, key=lambda kind: kind.__name__)
        names = [kind.__name__ for kind in self.classes]
        if len(set(names)) < len(names) or len(names) > 255:
            raise ValueError(f"state {owner!r} declares classes {names}: at most 255, no two of one name")
        self.numbers = {kind: number for number, kind in enumerate(self.classes)}
        self.fields = [tuple(field.name for field in dataclasses.fields(kind)) for kind in self.classes]

    def stored(self) -> bytes:
        """Names of classes and fields, as they go into a chunk; empty where there are none."""
        if not self.classes:
            return b""
        return encode(tuple((kind.__name__, fields) for kind, fields in zip(self.classes, self.fields)), NO_CLASSES)

    def makers(self, stored: bytes) -> list[tuple[int, Callable[[list[Any]], Any]]]:
        """For each class that a chunk names, the number of its fields and what makes an object of their values."""
        table = decode(stored, [])
        if not isinstance(table, tuple):
            raise corrupt(f"the classes of {self.owner!r} are no tuple")
        return [self._maker(*entry) for entry in table]

    def _maker(self, name: str, stored: tuple[str, ...]) -> tuple[int, Callable[[list[Any]], Any]]:
        kind = next((kind for kind in self.classes if kind.__name__ == name), None)
        if kind is None:
            raise corrupt(
                f"{self.owner!r} holds a {name}, which it does not declare: keep the class, and read the old state with a higher state "
                "version"
            )
        now = self.fields[self.numbers[kind]]
        for label in stored:
            if label not in now:
                raise corrupt(
                    f"{self.owner!r} holds a {name} with a field {label!r}, which the class does not have: keep the field, or raise the "
                    "state version and bring old state up to date in migrate()"
                )
        added: list[tuple[str, Callable[[], Any]]] = []
        for field in dataclasses.fields(kind):
            if field.name in stored:
                continue
            if field.default_factory is not dataclasses.MISSING:
                added.append((field.name, field.default_factory))
            elif field.default is not dataclasses.MISSING:
                added.append((field.name, partial(_same, field.default)))
            else:
                raise corrupt(f"{self.owner!r} holds a {name} without {field.name!r}: give the new field a default")
        new, put = object.__new__, object.__setattr__

        def make(values: list[Any]) -> Any:
            made: Any = new(kind)
            for label, value in zip(stored, values):
                put(made, label, value)
            for label, default in added:
                put(made, label, default())
            return made

        return len(stored), make


def _same(value: Any) -> Any:
    return value


NO_CLASSES = Classes("", ())


def encode(value: Any, classes: Classes) -> bytes:
    """The bytes of a value. Raises `TypeError` or `ValueError` for what cannot be kept in state."""
    parts: list[bytes] = []
    _put(value, parts.append, classes, NESTING_MAX)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _put(value: Any, add: Callable[[bytes], None], classes: Classes, depth: int) -> None:
    kind = type(value)
    if kind is int:
        if -0x80 <= value <= 0x7F:
            add(_I8.pack(b"b", value))
        elif -0x80000000 <= value <= 0x7FFFFFFF:
            add(_I32.pack(b"i", value))
        elif -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            add(_I64.pack(b"q", value))
        else:
            length = value.bit_length() // 8 + 1
            add(_U32.pack(b"I", length) + value.to_bytes(length, "little", signed=True))
    elif kind is str:
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"state {classes.owner!r} cannot hold {value[:40]!r}: half of a surrogate pair is no text; keep bytes instead"
            ) from None
        add((_U8.pack(b"s", len(data)) if len(data) < 256 else _U32.pack(b"S", len(data))) + data)
    elif kind is bytes:
        add((_U8.pack(b"y", len(value)) if len(value) < 256 else _U32.pack(b"Y", len(value))) + value)
    elif value is None:
        add(b"N")
    elif kind is bool:
        add(b"T" if value else b"F")
    elif kind is float:
        add(_F64.pack(b"d", value) if value == value else _NAN)
    elif depth == 0:
        raise ValueError(
            f"state {classes.owner!r} holds a value that is nested more than {NESTING_MAX} deep: does it contain itself? Keep it flat"
        )
    elif kind is list or kind is tuple:
        add(_U32.pack(b"l" if kind is list else b"t", len(value)))
        for item in value:
            _put(item, add, classes, depth - 1)
    elif kind is dict:
        add(_U32.pack(b"m", len(value)))
        for key, item in value.items():
            _put(key, add, classes, depth - 1)
            _put(item, add, classes, depth - 1)
    else:
        number = classes.numbers.get(kind)
        if number is None:
            raise _refusal(value, kind, classes)
        add(_U8.pack(b"r", number))
        for field in classes.fields[number]:
            _put(getattr(value, field), add, classes, depth - 1)


def _refusal(value: Any, kind: type, classes: Classes) -> TypeError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    if dataclasses.is_dataclass(kind):
        remedy = f"declare the class where the collection is made: classes=[{kind.__name__}]"
    elif issubclass(kind, (set, frozenset)):
        remedy = "keep a dict with None as its values, whose order is the same in every run"
    elif issubclass(kind, (bytearray, memoryview)):
        remedy = "keep bytes(...) of it"
    else:
        remedy = "keep None, bool, int, float, str, bytes, list, tuple, dict or a dataclass of those"
    return TypeError(f"state {classes.owner!r} cannot hold a {kind.__name__}, {shown}: {remedy}")


Makers = list[tuple[int, Callable[[list[Any]], Any]]]


def decode(data: bytes, makers: Makers) -> Any:
    """The value of exactly these bytes. Raises `Failure.invalid` where they are none."""
    try:
        value, end = _take(data, 0, makers, NESTING_MAX)
    except (IndexError, StructError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise corrupt(f"a value does not decode ({error})") from None
    if end != len(data):
        raise corrupt(f"a value of {end} bytes takes {len(data)}")
    return value


def _take(data: bytes, at: int, makers: Makers, depth: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag == 0x62:  # b
        byte = data[at]
        return (byte if byte < 0x80 else byte - 0x100), at + 1
    if tag == 0x69:  # i
        return _INT.unpack_from(data, at)[0], at + 4
    if tag == 0x71:  # q
        return _LONG.unpack_from(data, at)[0], at + 8
    if tag == 0x73 or tag == 0x79:  # s, y
        end = at + 1 + data[at]
        return _cut(data, at + 1, end, tag == 0x73), end
    if tag == 0x64:  # d
        return _DOUBLE.unpack_from(data, at)[0], at + 8
    if tag == 0x4E:  # N
        return None, at
    if tag == 0x54:  # T
        return True, at
    if tag == 0x46:  # F
        return False, at
    if tag == 0x72:  # r
        count, make = makers[data[at]]
        at += 1
        values = []
        for _ in range(count):
            value, at = _take(data, at, makers, _deeper(depth))
            values.append(value)
        return make(values), at
    count = _COUNT.unpack_from(data, at)[0]
    at += 4
    if tag == 0x53 or tag == 0x59:  # S, Y
        return _cut(data, at, at + count, tag == 0x53), at + count
    if tag == 0x49:  # I
        return int.from_bytes(_cut(data, at, at + count, False), "little", signed=True), at + count
    depth = _deeper(depth)
    if tag == 0x6C or tag == 0x74:  # l, t
        items = []
        for _ in range(count):
            item, at = _take(data, at, makers, depth)
            items.append(item)
        return (items if tag == 0x6C else tuple(items)), at
    if tag == 0x6D:  # m
        table = {}
        for _ in range(count):
            key, at = _take(data, at, makers, depth)
            table[key], at = _take(data, at, makers, depth)
        return table, at
    raise corrupt(f"{tag:#04x} begins no value")


def _cut(data: bytes, at: int, end: int, text: bool) -> Any:
    if end > len(data):
        raise corrupt("a value is cut short")
    return data[at:end].decode() if text else data[at:end]


def _deeper(depth: int) -> int:
    if depth == 0:
        raise corrupt(f"a value is nested more than {NESTING_MAX} deep")
    return depth - 1
