"""Libraries whose functions are operators of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

import farcall as fc
from farcall import ffi
from farcall.cpp import build
from farcall.ffi._torch_ops import TorchOps


@pytest.fixture(scope="package")
def lib() -> ffi.Module:
    source = Path(__file__).parents[1] / "torch_kernels.cpp"
    return ffi.load_library(build("torch_kernels", sources=str(source), extra_cflags=["-O0"]))


@pytest.fixture(scope="package")
def ops(lib: ffi.Module) -> TorchOps:
    from .library import FAKES, spaces

    return lib.as_torch_op(next(spaces), fake=FAKES)


@pytest.fixture(scope="package")
def digits_ops(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> TorchOps:
    from .library import spaces

    path = tmp_path_factory.mktemp("built") / "digits.so"
    fc.partition(digits).build().save(path)
    return fc.load_module(path).as_torch_op(next(spaces))
