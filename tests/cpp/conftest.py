"""One library of C++ kernels, built once, for all tests of the header."""

from __future__ import annotations

from pathlib import Path

import pytest

from farcall.cpp import build
from farcall.ffi import Module, load_library

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")


@pytest.fixture(scope="session")
def library() -> str:
    """The path of tests/cpp/kernels.cpp as a library; warnings are errors."""
    return build(
        "kernels", sources=str(Path(__file__).with_name("kernels.cpp")), extra_cflags=["-O0", *STRICT]
    )


@pytest.fixture(scope="session")
def kernels(library: str) -> Module:
    """That library, loaded by farcall."""
    return load_library(library)
