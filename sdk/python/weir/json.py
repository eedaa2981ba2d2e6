"""JSON: values of records, and the configuration as a dataclass."""

from __future__ import annotations

import dataclasses
import itertools
import json
import types
import typing
from typing import Any, Mapping, TypeVar

from .types import Failure

NESTING_MAX = 100
"""How deep a document may be nested. The parser of Python recurses, and where WebAssembly's stack ends there is no exception but a trap."""

T = TypeVar("T")


_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Each bracket as a signed byte: one level deeper, or one less."""


def loads(document: bytes) -> Any:
    """Parses JSON. Raises `ValueError` where it is none, or nested more than `NESTING_MAX` deep."""
    if document.count(b"[") + document.count(b"{") > NESTING_MAX:
        # Without escapes, every other part between two quotes is a string.
        parts = document.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        steps = b"".join(parts[::2]).translate(_STEPS, _NO_BRACKETS)
        if max(itertools.accumulate(memoryview(steps).cast("b")), default=0) > NESTING_MAX:
            raise ValueError(f"it is nested more than {NESTING_MAX} deep")
    return json.loads(document)


def dumps(value: Any) -> bytes:
    """Writes JSON, compact and in UTF-8. Numbers that are not finite, which JSON does not have, raise `ValueError`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def config(kind: type[T], config: Mapping[str, Any]) -> T:
    """Makes a dataclass of the configuration, strictly: a name that the class does not have and a value of another type are failures of kind
    `invalid`. Fields may be of type `bool`, `int`, `float`, `str`, `list[...]`, `dict[str, ...]`, a dataclass, `Any`, or one of those or `None`; those
    with a default may be left out.
    """
    value: T = _read(kind, dict(config), "")
    return value


def _read(kind: Any, value: Any, path: str) -> Any:
    def refuse(fault: str) -> Failure:
        return Failure.invalid(f"configuration is not acceptable: {path or 'it'} {fault}")

    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        rest = [argument for argument in arguments if argument is not type(None)]
        if len(rest) == 1:
            return _read(rest[0], value, path)
        raise TypeError(f"{path}: a configuration cannot be of type {kind}: take one type, or one or None")
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise refuse(f"must be an object, not {_shown(value)}")
        hints = typing.get_type_hints(kind)
        known = {field.name: field for field in dataclasses.fields(kind)}
        for name in value:
            if name not in known:
                raise refuse(f"has {name!r}, which is not known: take one of {', '.join(sorted(known))}")
        found = {}
        for name, field in known.items():
            if name in value:
                found[name] = _read(hints[name], value[name], f"{path}.{name}" if path else name)
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise refuse(f"has no {name!r}, which must be given")
        return kind(**found)  # type: ignore[operator]
    if origin is list:
        if not isinstance(value, list):
            raise refuse(f"must be a list, not {_shown(value)}")
        return [_read(arguments[0], item, f"{path}[{at}]") for at, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise refuse(f"must be an object, not {_shown(value)}")
        return {name: _read(arguments[1], item, f"{path}.{name}") for name, item in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if kind not in (bool, int, float, str):
        raise TypeError(f"{path}: a configuration cannot be of type {kind}")
    if type(value) is not kind:
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
        raise refuse(f"must be {names[kind]}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
