"""What a component has not: files, a clock of its own, randomness, modules that were not imported while it was built.

The toolchain's stubs trap without a word where a program asks for one of those. Here it gets the host's time, or an exception that says what
to do instead, and where it was asked for. Before the first call of the host, while the component is built, all of it is there.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import linecache
import os
import sys
import time
import warnings
from types import ModuleType
from typing import Any, Callable, Sequence

_FILES = ("open", "stat", "lstat", "listdir", "scandir", "mkdir", "unlink", "rename", "readlink")
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


def install(called: Callable[[], bool], now_us: Callable[[], int]) -> None:
    """Puts it into place. `called` says whether the host has called yet."""

    def refuse(owner: Any, name: str, error: type[Exception], message: str) -> None:
        before = getattr(owner, name, None)
        if before is None:
            return

        def refused(*arguments: Any, **options: Any) -> Any:
            if called():
                raise error(message)
            return before(*arguments, **options)

        refused.__name__ = name
        setattr(owner, name, refused)

    no_files = "a component has no files: read what you need when the module is imported, or take it from the configuration"
    for owner in (builtins, io):
        refuse(owner, "open", OSError, no_files)
    posix = sys.modules.get("posix", os)
    for owner in (os, posix):
        for name in _FILES:
            refuse(owner, name, OSError, no_files)
        refuse(owner, "urandom", OSError, "a component has no randomness: take it from TaskInfo.seed, as in random.Random(task.seed)")
    refuse(time, "sleep", OSError, "a component cannot sleep: ask for a call later with weir.time.wake_at")

    def now_ns() -> int:
        return int(now_us()) * 1000 if called() else 0

    def now() -> float:
        return now_ns() / 1e9

    for name in _CLOCKS:
        if hasattr(time, name):
            setattr(time, name, now)
            setattr(time, f"{name}_ns", now_ns)

    def no_source(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        return []

    # Warnings and tracebacks look for source lines; and the interpreter imports `warnings` only when it warns.
    linecache.getlines = no_source
    assert warnings
    # Before the finder that would look for files. Modules that are part of the interpreter are found before.
    files = [finder is importlib.machinery.PathFinder for finder in sys.meta_path]
    sys.meta_path.insert(files.index(True) if any(files) else len(files), _NotBuiltIn(called))


class _NotBuiltIn:
    """Looks for modules where there are none."""

    def __init__(self, called: Callable[[], bool]) -> None:
        self._called = called

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._called():
            raise ModuleNotFoundError(
                f"module {name!r} is not in the component: import it at the top of a module, so that it is loaded while the component is built",
                name=name,
            )
        return None
