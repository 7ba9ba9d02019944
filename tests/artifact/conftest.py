"""Fixtures that call an artifact in both runtimes that can load it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farcall.artifact import Artifact

Call = Callable[..., Any]


@pytest.fixture(params=["farcall", "tvm_ffi"])
def main_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Artifact], Call]:
    """Loads an artifact in one of the two runtimes, and returns its ``main`` for numpy arrays."""
    if request.param == "farcall":
        return lambda artifact: artifact.load()["main"]
    return lambda artifact: _tvm_main(artifact, tmp_path)


def _tvm_main(artifact: Artifact, folder: Path) -> Call:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    main = tvm_ffi.load_module(str(artifact.save(folder / "model.so")))["main"]

    def call(*arguments: Any) -> Any:
        result = main(*arguments)
        if isinstance(result, tvm_ffi.Array):
            return tuple(map(np.from_dlpack, result))
        return np.from_dlpack(result)

    return call
