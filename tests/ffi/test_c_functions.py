"""The C functions that only native code calls: each check is a kernel that names the line that failed."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from farcall import _core, ffi

CHECKS = ["streams", "once", "objects", "moves", "dlpack", "backtrace", "allocator"]


@pytest.mark.parametrize("name", CHECKS)
def test_c_functions(kernels: ffi.Module, name: str) -> None:
    # In a thread of its own, which takes its streams and allocators along when it ends.
    with ThreadPoolExecutor(1) as pool:
        line = pool.submit(kernels[f"check_{name}"]).result()
    text = (Path(__file__).parent / "kernels.c").read_text().splitlines()
    assert line == 0, text[line - 1]


def test_no_check_is_forgotten(kernels: ffi.Module) -> None:
    assert {f"check_{name}" for name in CHECKS} == {
        name for name in kernels.function_names() if name.startswith("check_")
    }


def test_thread_local_variables_are_few() -> None:
    """glibc reserves 1.6 KB of static TLS for libraries that are loaded late; torch needs most of it."""
    data = Path(_core.__file__).read_bytes()
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
    assert sum(header[6] for header in headers if header[0] == 7) <= 128  # PT_TLS, bytes in memory
