"""Processing time. For event time see `Operator.advance` and `weir.state.EventTimers`."""

from __future__ import annotations

from . import _host


def now() -> int:
    """The time at which the host began this call, in microseconds since 1970. It stands still within a call, never goes back, and is the same
    when the call is re-executed."""
    return _host.current.now()


def wake_at(at: int) -> None:
    """Asks for a call of `Operator.wake` at that time, or at once if it has passed. The host keeps one such time, the earliest asked for, and
    forgets it when it calls."""
    _host.current.wake_at(at)
