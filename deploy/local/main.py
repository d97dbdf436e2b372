"""`settled local`: the stack on this machine, until Ctrl-C, or for the time of the demo."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from settled.local.demo import TASK, DemoFailed, run_demo
from settled.local.facts import Fact
from settled.local.places import Ports, program
from settled.local.processes import PartFailed
from settled.local.stack import Stack, running_stack

DEFAULT_PORT, DEFAULT_WEB_PORT = 7233, 8233
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAILED = 1
