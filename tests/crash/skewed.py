"""The worker process, on a machine whose clock is wrong by some seconds.

    python -m tests.crash.skewed PID-OF-THE-TEST SECONDS

The wall clock is changed before anything else is imported, so that nobody has the right one.
"""

from __future__ import annotations

import datetime as dates
import importlib
import sys
import time

SECONDS = float(sys.argv[2])
WALL, WALL_NS, CLOCK = time.time, time.time_ns, time.clock_gettime


class Wrong(dates.datetime):
    """A date and time as this machine has it."""

    __slots__ = ()  # of the size that compiled modules expect

    @classmethod
    def now(cls, tz: dates.tzinfo | None = None) -> Wrong:
        """The machine's time."""
        return cls.fromtimestamp(time.time(), tz)


def set_clock() -> None:
    """Make the wall clock wrong. The steady one is counted from no date, and has no wrong."""
    time.time = lambda: WALL() + SECONDS
    time.time_ns = lambda: WALL_NS() + int(SECONDS * 1e9)
    time.clock_gettime = lambda which: CLOCK(which) + (SECONDS if which == time.CLOCK_REALTIME else 0.0)
    dates.datetime = Wrong  # type: ignore[misc]  # that it is another class is the point


if __name__ == "__main__":
    set_clock()
    importlib.import_module("tests.crash.worker_process").main()
