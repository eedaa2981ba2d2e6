"""Says what a plugin is, port by port."""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


class StateKind(enum.Enum):
    """What kind of state an operator has."""

    STATELESS = "stateless"
    """None."""
    WHOLE = "whole"
    """State of the subtask as a whole."""
    KEYED = "keyed"
    """State by key, which follows the key groups when the parallelism changes."""


@dataclass(frozen=True)
class Port:
    """An input or an output. Its number is its place in the list, from 0."""

    name: str
    summary: str = ""
    keyed: bool = False
    """Of an input: records come partitioned by key, with hashes. Of an output: every record has a key."""


@dataclass(frozen=True)
class Descriptor:
    """What a plugin says about itself."""

    name: str
    version: str
    summary: str = ""
    inputs: Sequence[Port] = ()
    outputs: Sequence[Port] = ()
    state: StateKind = StateKind.STATELESS
    state_version: int = 0
    """Version of the format of the state. Raise it when that changes. 0 where there is no state, else from 1."""
    oldest_state_version: int | None = None
    """The oldest format that `restore` still reads; that which it writes unless said otherwise."""
    config_schema: Mapping[str, Any] | str | None = None
    """A JSON Schema (2020-12) for the configuration, at most 64 KiB."""
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema_text(self) -> str | None:
        """The schema as JSON."""
        schema = self.config_schema
        return schema if schema is None or isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)

    @property
    def oldest(self) -> int:
        """The oldest state version that is read."""
        return self.state_version if self.oldest_state_version is None else self.oldest_state_version

    def check(self) -> None:
        """Raises `ValueError` where the host would refuse the plugin."""
        _check_name("the plugin", self.name)
        if not _VERSION.fullmatch(self.version) or len(self.version) > 64:
            raise ValueError(f"the version {self.version!r} of plugin {self.name!r} is no semantic version: write it as 1.2.3")
        if not 1 <= len(self.inputs) <= 64:
            raise ValueError(f"plugin {self.name!r} has {len(self.inputs)} inputs: declare 1 to 64")
        if len(self.outputs) > 64:
            raise ValueError(f"plugin {self.name!r} has {len(self.outputs)} outputs: declare at most 64")
        for kind, ports in (("input", self.inputs), ("output", self.outputs)):
            names = [port.name for port in ports]
            for port in ports:
                _check_name(f"an {kind} of plugin {self.name!r}", port.name)
                _check_length(f"the summary of {kind} {port.name!r}", port.summary, 1024)
                if names.count(port.name) > 1:
                    raise ValueError(f"plugin {self.name!r} has two {kind}s called {port.name!r}: give each its own name")
        _check_length(f"the summary of plugin {self.name!r}", self.summary, 1024)
        if self.oldest > self.state_version:
            raise ValueError(
                f"the oldest state version {self.oldest} of plugin {self.name!r} is above its state version "
                f"{self.state_version}: it may be at most that"
            )
        if self.state is StateKind.STATELESS and self.state_version:
            raise ValueError(
                f"plugin {self.name!r} has state version {self.state_version} and no state: say state=StateKind.KEYED or WHOLE"
            )
        schema = self.schema_text
        if schema is not None:
            _check_length(f"the config schema of plugin {self.name!r}", schema, 64 << 10)
            try:
                parsed = json.loads(schema)
            except ValueError as error:
                raise ValueError(f"the config schema of plugin {self.name!r} is not JSON: {error}") from None
            if not isinstance(parsed, dict):
                raise ValueError(f"the config schema of plugin {self.name!r} is no JSON object: {schema[:60]}")
        if len(self.attributes) > 64:
            raise ValueError(f"plugin {self.name!r} has {len(self.attributes)} attributes: at most 64 are allowed")
        for name, value in self.attributes.items():
            if not name:
                raise ValueError(f"plugin {self.name!r} has an attribute without a name")
            _check_length(f"the name of attribute {name!r}", name, 64)
            _check_length(f"the value of attribute {name!r}", value, 1024)


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name for {what}: take 1 to 63 lower-case letters, digits and hyphens, the first not a hyphen"
        )


def _check_length(what: str, text: str, most: int) -> None:
    length = len(text.encode())
    if length > most:
        raise ValueError(f"{what} has {length} bytes: at most {most} are allowed")
