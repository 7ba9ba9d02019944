"""wire.h, compiled into a small library and driven through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from .building import HERE, Wire, compile_c, compiler


@pytest.fixture(scope="session")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Wire:
    output = tmp_path_factory.mktemp("wire") / "libwire.so"
    return Wire(ctypes.CDLL(str(compile_c(compiler(), "driver.c", output, "-shared", "-fPIC"))))


@pytest.fixture(scope="session")
def captured() -> dict[str, bytes]:
    """Real packets by name (without the handshakes, which are not packets)."""
    lines = (HERE.parent / "data/tvm_rpc/packets.txt").read_text().splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return {name: bytes.fromhex(text) for name, text in pairs if not name.endswith("handshake")}


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    def run(command: list[str], source: str, *flags: str) -> Path:
        return compile_c(command, source, tmp_path / Path(source).stem, *flags)

    return run
