"""Hands on a reading only when it differs by at least `least` from the last one handed on, for each key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import weir
from weir.state import KeyedState, Part


@dataclass
class Config:
    """What may stand under `config` in the pipeline file."""

    least: float = 0.0
    """By how much a value has to differ."""


def reading(document: Any) -> float:
    """The value of a reading. Other members of the object are of no interest here, and go on with it."""
    value = document.get("value") if isinstance(document, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("it has no number under `value`")
    return float(value)


@weir.export
class Changes(weir.Stateful):
    """The operator. What it has to remember between two calls lies in here, and nowhere else."""

    @classmethod
    def descriptor(cls) -> weir.Descriptor:
        return weir.Descriptor(
            name="{{name}}",
            version="0.1.0",
            summary="Hands on a reading when it has changed.",
            # Keyed: all records of a key come to the same subtask, in order, with the key group of the key.
            inputs=[weir.Port("in", "readings: JSON objects with a number under `value`", keyed=True)],
            outputs=[weir.Port("out", "those that have changed, as they came in", keyed=True)],
            state=weir.StateKind.KEYED,
            # Raise the version when you change what the state looks like, and bring the old one up to date in `migrate`.
            state_version=1,
            # For people and their tools; `__init__` checks the configuration in any case.
            config_schema={
                "type": "object",
                "properties": {"least": {"type": "number", "minimum": 0}},
                "additionalProperties": False,
            },
        )

    def __init__(self, config: Mapping[str, Any], task: weir.TaskInfo) -> None:
        self.least = weir.json.config(Config, config).least
        # The value that was handed on last, by key. This is the state: it is in every checkpoint and survives crashes. The name is how it
        # is found again; never change it.
        self.last: KeyedState[float] = KeyedState("last", task)

    def state(self) -> list[Part]:
        """The collections that are written into checkpoints, and only what has changed in them."""
        return [self.last]

    def process(self, port: int, batch: weir.Batch, out: weir.Output) -> None:
        """Called for each batch of records. What it emits takes effect when it returns: the call is a transaction."""
        changed = []
        for record in batch:
            # A record that cannot be processed is no failure: put it aside, with the reason, and go on.
            if record.key is None:
                out.reject(record.index, "it has no key")
                continue
            try:
                value = reading(record.json())
            except ValueError as error:
                out.reject(record.index, f"it is no reading: {error}")
                continue
            last = self.last.get(record)
            if last is None or abs(value - last) >= self.least:
                self.last[record] = value
                changed.append(record.index)
        # Once for the whole batch: that is cheaper than once a record.
        out.emit(0, batch.select(changed))
