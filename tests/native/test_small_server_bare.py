"""The small server without an operating system: compiled freestanding, and driven through bytes in memory.

The program (bare_program.c) has no C library; an emulator carries out its three system calls.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall.launch._server_build import native_dir
from farcall.rpc import Session, connect
from farcall.toolchain import Machine, include_dir

from ..tree import ROOT
from ..waiting import SECONDS
from .small_server import HERE, named

FLAGS = (
    "-DFARCALL_BARE",
    "-D_GNU_SOURCE",
    "-DFARCALL_BUILDING_CORE",
    "-std=gnu11",
    "-ffreestanding",
    "-fno-builtin",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-missing-field-initializers",
)


@dataclass(frozen=True)
class Bare:
    """A target without an operating system."""

    target: str
    cpu: str
    headers: str  # of the C library that zig brings for that instruction set; only the headers are used
    machine: Machine  # whose emulator runs its instructions
    flags: tuple[str, ...] = ()


BARE = (
    # zig's library lacks the functions that save registers for Hexagon code of that size.
    Bare(
        "hexagon-freestanding",
        "hexagonv67",
        "hexagon-linux-musl",
        named("hexagon"),
        ("-mllvm", "-spill-func-threshold=2000", "-mllvm", "-spill-func-threshold-Os=2000"),
    ),
    # One thread needs no atomic counters of 64 bits, which this instruction set lacks.
    Bare(
        "thumb-freestanding-eabi", "cortex_m4", "arm-linux-musl", named("armv7"), ("-Wno-atomic-alignment",)
    ),
)
KIB = 1024
LARGEST = 128 * KIB


@functools.cache
def built(bare: Bare, shared: Path, model: Path | None = None) -> Path:
    """The program, built once by the workers that share a folder; with a ``model``, a static library."""
    import ziglang

    libc = Path(ziglang.__file__).parent / "lib/libc/include"
    program = shared / f"bare-{bare.target}{'-model' * (model is not None)}"
    lines = (native_dir() / "server/bare/sources.txt").read_text().splitlines()
    files = [native_dir() / line for line in lines if not line.startswith("#")]
    places = [f"-I{native_dir()}", f"-I{include_dir()}"]
    for folder in (libc / bare.headers, libc / "generic-musl"):
        places += ["-isystem", str(folder)]
    command = [sys.executable, "-m", "ziglang", "build-exe", "-target", bare.target, f"-mcpu={bare.cpu}"]
    command += ["-O", "ReleaseSmall", "-fstrip", "-fcompiler-rt", "-fno-stack-protector", "-fno-sanitize-c"]
    command += ["-static", "--gc-sections", "--name", "bare", f"-femit-bin={program}", *places]
    with_model = [] if model is None else ["-DBARE_MODEL", "-DBARE_MEMORY=1048576", f"-I{model.parent}"]
    command += ["-cflags", *bare.flags, *FLAGS, *with_model, "--", *map(str, files)]
    command += [str(HERE / "bare_program.c"), *([] if model is None else [str(model)])]
    with (shared / f"{program.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=shared)
            assert done.returncode == 0, done.stderr[-3000:]
    return program


@pytest.fixture(scope="module", params=BARE, ids=lambda bare: bare.target)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that start the program."""
    bare: Bare = request.param
    emulator = bare.machine.emulate()
    if emulator is None or importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs {bare.machine.emulator} and the ziglang package")
    base = tmp_path_factory.getbasetemp()
    return [*emulator, str(built(bare, base.parent if base.name.startswith("popen-") else base))]


@pytest.fixture
def session(command: list[str]) -> Iterator[Session]:
    with connect(f"pipe:{' '.join(command)}", timeout=SECONDS) as session:
        yield session


def test_it_is_small(command: list[str]) -> None:
    assert Path(command[-1]).stat().st_size <= LARGEST


def test_calls_and_copies(session: Session) -> None:
    assert session.features == {"promises", "trace", "packets"}
    assert session.get_function("test.add")(20, 22) == 42
    x = np.random.default_rng(0).random(20_000, dtype="float32")  # more than one packet
    there = session.tensor(x)
    session.get_function("test.twice")(there)
    np.testing.assert_array_equal(there.numpy(), 2 * x)
    with pytest.raises(TypeError, match="expected two numbers, got 1 values"):
        session.get_function("test.add")(1)


def test_memory_is_what_it_was_given(session: Session) -> None:
    counts = []
    for _ in range(3):
        held = []
        with pytest.raises(MemoryError):
            while True:
                held.append(session.empty((4096,), "uint8"))
        counts.append(len(held))
        del held
    assert counts[0] > 20
    assert counts[1] == counts[2]  # all of it came back, in one piece; tables grew in the first round
    assert session.get_function("test.add")(1, 2) == 3


def test_times(session: Session) -> None:
    assert session.get_function("farcall.rpc.clock")() > 0
    assert set(session.function_names()) == {"test.add", "test.twice"}


@pytest.mark.slow  # compiles the program once more
def test_a_model(tmp_path: Path) -> None:
    """The quantised digits on a DSP without an operating system: bytes in, logits out."""
    bare = BARE[0]
    emulator = bare.machine.emulate()
    if emulator is None or importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs {bare.machine.emulator} and the ziglang package")
    plan = fc.partition(ROOT / "examples/digits/digits_int8.onnx")
    library = plan.build(bare.machine.target, link="static", name="model").save(tmp_path / "model.a")
    program = built(bare, tmp_path, library)
    images = np.load(ROOT / "examples/digits/test.npz")["images"][:4].astype("float32")
    expected = plan.build().load()["main"](images)
    with connect(f"pipe:{' '.join([*emulator, str(program)])}", timeout=SECONDS) as session:
        logits = session.system_lib("model_")["main"](images).numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-3)


def test_bytes_in_any_pieces(command: list[str]) -> None:
    """A session of raw bytes, one at a time; then the last words."""
    from ..rpc.peers import packet, sequence, text

    bytes_ = packet(2, b"\5\0\0\0\0\0\0\0" + b"0.8.0" + sequence()) + packet(9, sequence(text("test.add")))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for byte in bytes_ + b"\xff" * 12:
            process.stdin.write(bytes([byte]))
        process.stdin.close()
        said = process.stdout.read()
    assert b"ProtocolError" in said
    assert process.returncode == 1
