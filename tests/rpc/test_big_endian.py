"""Sessions with a big-endian machine: payloads are little-endian on the line, and numbers stay what they are.

The small server, and a client in C, run for s390x under QEMU. zig first compiles
a C library for that machine, half a minute: slow tests. ``tests/wire/test_payload.py`` has the heart.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import EventServer, Session, connect

from ..native.small_server import named, small_server
from ..waiting import SECONDS
from .native import core_without_python
from .peers import device, integer, message, packet, sequence

pytestmark = pytest.mark.slow
S390X = named("s390x")

# By type, the bytes of its numbers: what a machine loads at once.
WIDTHS = {
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "complex64": 4,
    "int64": 8,
    "float64": 8,
    "complex128": 8,
    "float8_e4m3fn": 1,
    "int16x2": 2,
    "float16x4": 2,
    "float32x4": 4,
    "int4": 1,
    "int4x8": 1,
    "uint1": 1,
    "float6_e2m3fn": 1,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How the small server is started."""
    return [*small_server(S390X, tmp_path_factory), "--stdio"]


@pytest.fixture(scope="module")
def client(server: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How the client is started."""
    program = tmp_path_factory.mktemp("s390x") / "any_host"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", S390X.target.triple, "-static"]
    source = Path(__file__).with_name("any_host.c")
    command = [*zig, "-w", "-fno-sanitize=undefined", *core_without_python(), source, "-o", program]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    return [server[0], str(program)]


@pytest.fixture(scope="module")
def far(server: list[str]) -> Iterator[Session]:
    with connect(f"pipe:{' '.join(server)}", timeout=SECONDS) as session:
        yield session


def filled(dtype: str, data: bytes, shape: tuple[int, ...]) -> fc.Tensor:
    """A tensor of this process that holds these bytes."""
    tensor = fc.ffi.empty(shape, dtype)
    ctypes.memmove(tensor.data_ptr(), data, len(data))
    return tensor


def bytes_of(tensor: fc.Tensor) -> bytes:
    bits = tensor.dtype.bits * tensor.dtype.lanes * tensor.numel()
    return ctypes.string_at(tensor.data_ptr(), (bits + 7) // 8)


def numbers(data: bytes, dtype: str) -> list[int]:
    """The numbers in the memory of a little-endian machine."""
    return [int(n) for n in np.frombuffer(data, f"<u{WIDTHS[dtype]}")]


def patterned(dtype: str, size: int) -> bytes:
    """Bytes of the numbers that the program fills tensors with."""
    width = WIDTHS[dtype]
    values = ((i + 1) * 0x0102030405060708 % 256**width for i in range(size // width))
    return b"".join(value.to_bytes(width, "little") for value in values)


def size_of(dtype: str, elements: int) -> int:
    type_ = fc.dtype(dtype)
    return (type_.bits * type_.lanes * elements + 7) // 8


@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_server(far: Session, dtype: str) -> None:
    data = bytes(range(1, size_of(dtype, 8) + 1))
    there = far.tensor(filled(dtype, data, (2, 4)))
    seen = [int(word, 16) for word in far.get_function("test.numbers")(there).split()]
    assert seen == numbers(data, dtype)
    assert bytes_of(fc._core.fetch_remote(there)) == data
    far.get_function("test.fill")(there)
    assert bytes_of(fc._core.fetch_remote(there)) == patterned(dtype, len(data))


def test_parts_of_a_tensor_at_a_server(far: Session) -> None:
    x = np.arange(24, dtype="float32").reshape(4, 6)
    there = far.tensor(x)
    np.testing.assert_array_equal(far.view(there, np.s_[1:3, ::-2]).numpy(), x[1:3, ::-2])
    far.copy(np.full((2, 3), -1, "float32"), far.view(there, np.s_[1:3, ::2]))
    x[1:3, ::2] = -1
    np.testing.assert_array_equal(there.numpy(), x)
    other = far.empty((4, 6))
    far.copy(there, other)
    np.testing.assert_array_equal(other.numpy(), x)


def test_values_at_a_server(far: Session) -> None:
    echo = far.get_function("test.echo")
    for value in (
        None,
        True,
        -(2**40),
        2.5,
        "",
        "short",
        "long " * 50,
        b"\1\2",
        b"x" * 100,
        fc.dtype("bfloat16x2"),
    ):
        assert echo(value) == value
    assert echo([1, 2.5, "text", ["inner", b"b"]]) == (1, 2.5, "text", ("inner", b"b"))
    with pytest.raises(TypeError, match="expected a tensor"):
        far.get_function("test.fill")(7)


def test_a_piece_that_ends_inside_a_number(server: list[str]) -> None:
    """Such a server could not know where the rest of it goes."""
    init = packet(2, struct.pack("<Q", 5) + b"0.8.0" + sequence())
    float32 = struct.pack("<iBBHi", 5, 2, 32, 1, 0)
    alloc = packet(13, sequence(device(), integer(16), integer(64), float32))
    with subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(request: bytes) -> tuple[int, bytes]:
            process.stdin.write(request)
            process.stdin.flush()
            size, code = struct.unpack("<Qi", process.stdout.read(12))
            return code, process.stdout.read(size - 4)

        ask(init)
        (handle,) = struct.unpack("<Q", ask(alloc)[1][-8:])
        tensor = struct.pack("<QiiiBBHqQ", handle, 1, 0, 1, 2, 32, 1, 4, 0)
        for code, payload in ((7, b"abcdef"), (6, b"")):
            refused = ask(packet(code, tensor + struct.pack("<Q", 6) + payload))
            assert "ends inside a number" in message(refused)
        assert ask(packet(7, tensor + struct.pack("<Q", 8) + b"abcdefgh"))[0] == 4
        assert ask(packet(6, tensor + struct.pack("<Q", 8))) == (8, b"abcdefgh")
        process.stdin.close()
    assert process.returncode == 0


def test_a_client(client: list[str]) -> None:
    """The server on this machine gets the values that the client copies and passes."""
    fc.register_global_func("test.hex", lambda x: bytes_of(x).hex(), override=True)
    types = [fc.dtype(name) for name in WIDTHS]
    words = [f"{type_.code},{type_.bits},{type_.lanes}" for type_ in types]
    with (
        EventServer() as server,
        subprocess.Popen(
            [*client, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        while data := os.read(process.stdout.fileno(), 65536):
            if answer := server.feed(data):
                os.write(process.stdin.fileno(), answer)
        said = process.stderr.read().decode()
    assert process.returncode == 0, said
    lines = iter(said.splitlines())
    for name in WIDTHS:
        data = patterned(name, size_of(name, 8))
        assert next(lines) == f"copied {data.hex()}", name
        assert next(lines) == f"passed {data.hex()}", name
        itemsize, rest = divmod(fc.dtype(name).bits * fc.dtype(name).lanes, 8)
        if not rest:
            columns = np.frombuffer(data, f"V{itemsize}").reshape(4, 2).T.tobytes()
            assert next(lines) == f"strided {columns.hex()}", name
    assert next(lines, None) is None
