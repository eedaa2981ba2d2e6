"""Messages for people. The host adds job, node, subtask and time, cuts a line at 4 KiB and drops what is too much.

`print` goes here too, at level info; what is written to `sys.stderr` at level warn.
"""

from __future__ import annotations

from . import _host
from .types import Level


def write(level: Level, message: str) -> None:
    """Logs a line."""
    _host.current.log_write(level, message)


def enabled(level: Level) -> bool:
    """Whether a message of this level would be kept: ask before you spend time on making one. Do not let the answer change anything
    else."""
    return _host.current.log_enabled(level)


def debug(message: str) -> None:
    """Logs a line at level debug."""
    write(Level.DEBUG, message)


def info(message: str) -> None:
    """Logs a line at level info."""
    write(Level.INFO, message)


def warn(message: str) -> None:
    """Logs a line at level warn."""
    write(Level.WARN, message)


def error(message: str) -> None:
    """Logs a line at level error."""
    write(Level.ERROR, message)
