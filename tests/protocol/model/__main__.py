"""Every kind of service and every kind of world, then what each broken rule leads to.

python -m tests.protocol.model          # what the test walks
python -m tests.protocol.model --long   # larger worlds, too: minutes
"""

from __future__ import annotations

import sys

from tests.protocol.model.broken import BROKEN
from tests.protocol.model.configurations import LONG, WORLDS


def main(arguments: list[str]) -> int:
    """Print what holds, and what each broken rule leads to."""
    faults = 0
    for name, walked in (WORLDS | (LONG if "--long" in arguments else {})).items():
        result = walked()
        faults += not result.startswith("holds")
        sys.stdout.write(f"{name:66} {result}\n")
        sys.stdout.flush()
    for name, broken in BROKEN.items():
        result = broken.walk()
        faults += result.partition(":")[0] != broken.leads_to
        sys.stdout.write(f"broken rule '{name}': {result}\n")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
