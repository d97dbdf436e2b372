"""Processes that end with whoever started them.

    python -m tests.mortal PID UID GID COMMAND…

runs a command so, as another user where it has to be one. It imports next to nothing, so it costs no time.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent: int, last_signal: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel end this process when its starter dies, since a stopped one would stay for ever. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(last_signal))
        if os.getppid() != parent:
            sys.exit("the test is gone")


def main(parent: str, uid: str, gid: str, *command: str) -> None:
    """Become the command."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    # Only now: a change of the user takes the wish back. SIGQUIT is PostgreSQL's word for "at once, children too".
    die_with(int(parent), signal.SIGQUIT)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
