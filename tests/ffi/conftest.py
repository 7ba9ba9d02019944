"""The kernel library that these tests call, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farcall import ffi
from farcall.cpp import build
from farcall.toolchain import find_compiler

Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compile_kernels(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """(name, C source, flags...) -> a shared library, built by the compiler that farcall would use."""
    folder = tmp_path_factory.mktemp("kernels")
    compiler = find_compiler()

    def compile_source(name: str, source: str, *more: str) -> Path:
        (folder / f"{name}.c").write_text(source)
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        flags += [f"-I{ffi.include_dir()}", "-fvisibility=hidden"]
        compiler.run([*flags, *more, f"{name}.c", "-o", f"{name}.so"], folder, "test kernels")
        return folder / f"{name}.so"

    return compile_source


@pytest.fixture(scope="session")
def kernels_path(compile_kernels: Compile) -> Path:
    return compile_kernels("kernels", (Path(__file__).parent / "kernels.c").read_text())


@pytest.fixture(scope="session")
def torch_kernels() -> Path:
    """tests/ffi/torch_kernels.cpp as a library."""
    source = Path(__file__).with_name("torch_kernels.cpp")
    return Path(build("torch_kernels", sources=str(source), extra_cflags=["-O0"]))


@pytest.fixture(scope="session")
def kernels(kernels_path: Path) -> ffi.Module:
    return ffi.load_library(kernels_path)


@pytest.fixture
def borrowing_call(kernels: ffi.Module) -> Iterator[ffi.Function]:
    """``call``, whose tensors are passed as borrowed views."""
    function = kernels["call"]
    function.views = True
    yield function
    function.views = False
