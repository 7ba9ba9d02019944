"""Libraries whose functions are registered as operators of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

import farcall as fc
from farcall import ffi
from farcall.ffi._torch_ops import TorchOps


@pytest.fixture(scope="package")
def lib(torch_kernels: Path) -> ffi.Module:
    return ffi.load_library(torch_kernels)


@pytest.fixture(scope="package")
def ops(lib: ffi.Module) -> TorchOps:
    from .library import FAKES, spaces

    return lib.as_torch_op(next(spaces), fake=FAKES)


@pytest.fixture(scope="package")
def digits_ops(digits_artifact: Path) -> TorchOps:
    from .library import spaces

    return fc.load_module(digits_artifact).as_torch_op(next(spaces))
