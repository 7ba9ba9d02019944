"""Payloads of graphs (native/runtime/graph): any text is refused, or runs within its own memory.

Functions that load are called with the tensors that they ask for.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np

from farcall._core import load_module_from_bytes
from farcall.errors import FarcallError

from . import harness

REFUSALS = (FarcallError, ValueError, TypeError, IndexError, RuntimeError, MemoryError)
MOST = 1 << 16  # elements of an argument, and bytes of working memory


def _arguments(function: dict[str, Any]) -> list[np.ndarray] | None:
    """Inputs and outputs of a function, with 3 for each size that is not a number; None: too large."""
    found = []
    for index in function["inputs"] + function["outputs"]:
        dtype, shape = function["values"][index][:2]
        dims = [3 if isinstance(dim, str) else dim for dim in shape]
        if abs(np.prod(dims, dtype=float)) > MOST:
            return None
        found.append(np.ones(dims, dtype))
    return found


def _is_small(function: dict[str, Any]) -> bool:
    numbers = json.dumps([function.get("values"), function.get("nodes"), function.get("sizes")])
    words = numbers.replace("[", " ").replace("]", " ").replace(",", " ").split()
    small = all(len(word) < 6 for word in words if word.lstrip("-").isdigit())
    return small and isinstance(function.get("workspace", 0), (int, str)) and len(numbers) < 1 << 14


def one_input(data: bytes) -> None:
    """Load the payload, and call its functions."""
    with contextlib.suppress(*REFUSALS):
        module = load_module_from_bytes("farcall.json", data)
        functions = json.loads(data.partition(b"\0")[0])["functions"]
        for name, function in functions.items():
            arguments = _arguments(function) if _is_small(function) else None
            if arguments is not None:
                module[name](*arguments)


if __name__ == "__main__":
    harness.main("graph", one_input)
