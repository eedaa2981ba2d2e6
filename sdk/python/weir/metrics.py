"""Numbers for people, for what only the plugin knows: the host counts records, bytes, time and failures by itself.

Names are 1 to 64 lower-case letters, digits and underscores; a plugin may have 256 of them. Call once a batch, not once a record.
"""

from __future__ import annotations

from . import _host


def count(name: str, delta: int = 1) -> None:
    """Adds to a counter."""
    _host.current.count(name, delta)


def gauge(name: str, value: float) -> None:
    """Sets a gauge."""
    _host.current.gauge(name, float(value))


def observe(name: str, value: float) -> None:
    """Adds an observation to a histogram."""
    _host.current.observe(name, float(value))
