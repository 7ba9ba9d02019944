"""Programs of the real Apache TVM, each in a separate process."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..programs import hiding_torch, output_of

HERE = Path(__file__).parent
needs_tvm = pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="needs Apache TVM: pip install apache-tvm==0.27.0.post1"
)


def runtime_only() -> dict[str, str]:
    """An environment in which TVM loads only its runtime, which includes RPC: the compiler takes seconds."""
    return hiding_torch() | {"TVM_USE_RUNTIME_LIB": "1"}


def seen_by(script: str, *arguments: object) -> dict[str, Any]:
    """The results of a TVM client: the last line that the script prints, as JSON."""
    printed = output_of(HERE / script, *map(str, arguments), env=runtime_only(), seconds=120)
    return dict(json.loads(printed.splitlines()[-1]))


@contextmanager
def tvm_server(**environment: str) -> Iterator[str]:
    """The address of a new TVM server. It serves one client at a time; its key is ``k``."""
    script = HERE / "tvm_server.py"
    with subprocess.Popen(
        [sys.executable, script],
        env=runtime_only() | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdigit(), f"the TVM server did not start; see: {script}"
        yield f"tcp://127.0.0.1:{port}"
        process.stdin.close()
