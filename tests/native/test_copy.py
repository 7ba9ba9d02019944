"""The small server's own memcpy, memmove and memset, compiled here by other names, in both of their forms."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..wire.conftest import compiler
from .small_server import NATIVE

SIZE = 256
places = st.integers(0, SIZE - 100)
sizes = st.integers(0, 100)


@pytest.fixture(scope="module", params=["anywhere", "aligned"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """With words at any address, and with aligned words only."""
    file = tmp_path_factory.mktemp("copy") / f"{request.param}.so"
    flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-DFC_COPY_NAME(name)=fc_##name"]
    flags += ["-DFC_COPY_ALIGNED"] if request.param == "aligned" else []
    subprocess.run([*compiler(), *flags, NATIVE / "server/copy.c", "-o", file], check=True)
    loaded = ctypes.CDLL(str(file))
    for name in ("fc_memcpy", "fc_memmove"):
        getattr(loaded, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        getattr(loaded, name).restype = ctypes.c_void_p
    loaded.fc_memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    loaded.fc_memset.restype = ctypes.c_void_p
    return loaded


DATA = bytes(range(SIZE))


def after(function: str, library: ctypes.CDLL, to: int, source: int, size: int) -> bytes:
    """Memory that held DATA, after a call with two places in it (for memset: a place and a byte)."""
    memory = ctypes.create_string_buffer(DATA, SIZE)
    start = ctypes.addressof(memory)
    second = source if function == "fc_memset" else start + source
    assert getattr(library, function)(start + to, second, size) == start + to
    return memory.raw


def expected(to: int, data: bytes) -> bytes:
    return DATA[:to] + data + DATA[to + len(data) :]


@given(to=places, source=places, size=sizes)
def test_memmove_bears_any_overlap(library: ctypes.CDLL, to: int, source: int, size: int) -> None:
    assert after("fc_memmove", library, to, source, size) == expected(to, DATA[source : source + size])


@given(to=st.integers(0, 28), source=st.integers(128, 156), size=sizes)
def test_memcpy(library: ctypes.CDLL, to: int, source: int, size: int) -> None:
    assert after("fc_memcpy", library, to, source, size) == expected(to, DATA[source : source + size])


@given(to=places, value=st.integers(-300, 300), size=sizes)
def test_memset_writes_the_low_byte(library: ctypes.CDLL, to: int, value: int, size: int) -> None:
    assert after("fc_memset", library, to, value, size) == expected(to, bytes([value & 255]) * size)


def test_a_large_copy_is_whole(library: ctypes.CDLL) -> None:
    source = ctypes.create_string_buffer(DATA * 4096 + b"odd", 4096 * SIZE + 3)
    for shift in range(9):
        target = ctypes.create_string_buffer(len(source) + 16)
        library.fc_memcpy(ctypes.addressof(target) + shift, source, len(source))
        assert target.raw[shift : shift + len(source)] == source.raw
