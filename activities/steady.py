"""The clock for deadlines within this process: it never jumps, and it goes on while the machine is suspended."""

from __future__ import annotations

import time

# CLOCK_MONOTONIC stands still while a machine sleeps: an attempt that slept past its deadline would still be sent.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)
