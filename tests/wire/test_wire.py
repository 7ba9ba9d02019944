"""The codec: real bytes, any chunking, any bytes."""

from __future__ import annotations

import importlib.util
import itertools
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .building import Wire, compile_c, compiler, packed

Build = Callable[..., Path]


def packet(code: int, body: bytes = b"") -> bytes:
    return struct.pack("<qi", len(body) + 4, code) + body


def sequence(*values: bytes) -> bytes:
    return struct.pack("<i", len(values)) + b"".join(values)


def text(value: bytes, tag: int = 8) -> bytes:
    inner = {11: 65, 65: 65, 12: 66, 66: 66}.get(tag)
    return struct.pack("<i", tag) + (b"" if inner is None else struct.pack("<I", inner)) + string(value)


def string(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(shape: tuple[int, ...], data: int = 5, ndim: int | None = None) -> bytes:
    head = struct.pack("<Qiii", data, 1, 0, len(shape) if ndim is None else ndim)
    return head + struct.pack(f"<BBH{len(shape)}qQ", 2, 32, 1, *shape, 0)


INT = struct.pack("<iq", 1, 7)

# ---- packets that are well formed, for the properties

values = st.one_of(
    st.just(struct.pack("<i", 0)),
    st.integers(-(2**63), 2**63 - 1).map(lambda v: struct.pack("<iq", 1, v)),
    st.booleans().map(lambda v: struct.pack("<iq", 2, v)),
    st.floats().map(lambda v: struct.pack("<id", 3, v)),
    st.tuples(st.sampled_from([4, 68, 73]), st.integers(0, 2**64 - 1)).map(lambda v: struct.pack("<iQ", *v)),
    st.integers(0, 2**64 - 1).map(lambda v: struct.pack("<iIQ", 115, 115, v)),
    st.integers(0, 2**32 - 1).map(lambda v: struct.pack("<iIi", 5, v, 0)),
    st.tuples(st.integers(-9, 99), st.integers(-9, 99)).map(lambda v: struct.pack("<iii", 6, *v)),
    st.tuples(st.binary(max_size=40), st.sampled_from([8, 9, 11, 12, 65, 66])).map(lambda v: text(*v)),
    st.lists(st.integers(0, 2**63 - 1), max_size=8).map(lambda v: struct.pack("<i", 7) + tensor(tuple(v))),
)
sequences = st.lists(values, max_size=6).map(lambda v: sequence(*v))
shapes = st.lists(st.integers(0, 2**40), max_size=8).map(tuple)
payloads = st.binary(max_size=300)
packets = st.one_of(
    st.just(packet(1)),
    st.tuples(st.binary(max_size=20), sequences).map(lambda v: packet(2, string(v[0]) + v[1])),
    st.tuples(st.integers(0, 2**64 - 1), sequences).map(lambda v: packet(3, struct.pack("<Q", v[0]) + v[1])),
    st.tuples(st.sampled_from([4, 5, *range(9, 22)]), sequences).map(lambda v: packet(*v)),
    st.tuples(shapes, st.integers(0, 2**64 - 1)).map(
        lambda v: packet(6, tensor(v[0]) + struct.pack("<Q", v[1]))
    ),
    st.tuples(shapes, payloads).map(lambda v: packet(7, tensor(v[0]) + string(v[1]))),
    payloads.map(lambda v: packet(8, v)),
)


# ---- real bytes


def test_captured_packets_are_all_there(captured: dict[str, bytes]) -> None:
    names = {name.rsplit("_", 1)[1] for name in captured}
    assert len(captured) > 370
    assert names >= {
        "kInitServer",
        "kCallFunc",
        "kReturn",
        "kException",
        "kCopyToRemote",
        "kCopyAck",
        "kShutdown",
    }


def test_every_captured_packet_decodes_and_encodes_to_the_same_bytes(
    wire: Wire, captured: dict[str, bytes]
) -> None:
    for name, data in captured.items():
        log, again = wire.run(data)
        assert again == data, name
        assert log.startswith(name.rsplit("_", 1)[1]) and log.endswith("at a boundary\n"), (name, log)
        assert "failed" not in log and "WITHOUT NUL" not in log, (name, log)


def test_a_whole_conversation_gives_the_same_events_at_any_chunking(
    wire: Wire, captured: dict[str, bytes]
) -> None:
    stream = b"".join(captured.values())
    whole = wire.run(stream)
    assert whole[1] == stream
    for chunk, in_place in itertools.product((1, 3, 1000), (False, True)):
        assert wire.run(stream, chunk, in_place) == whole


# ---- properties


@given(st.lists(packets, max_size=4), st.integers(1, 50), st.booleans())
@settings(max_examples=300, deadline=None)
def test_what_is_well_formed_round_trips_at_any_chunking(
    wire: Wire, parts: list[bytes], chunk: int, in_place: bool
) -> None:
    data = b"".join(parts)
    log, again = wire.run(data)
    assert "failed" not in log
    assert log.endswith("at a boundary\n")
    assert again == data
    assert wire.run(data, chunk, in_place) == (log, again)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(-3, 30), st.binary(max_size=120)).map(lambda v: packet(*v)),
    ),
    st.integers(1, 30),
    st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_any_bytes_parse_or_fail_the_same_way_at_any_chunking(
    wire: Wire, data: bytes, chunk: int, in_place: bool
) -> None:
    whole = wire.run(data)
    assert wire.run(data, chunk, in_place) == whole
    assert whole[0].count("failed") <= 1


@given(packets, st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_packets_give_events_or_one_typed_error(wire: Wire, good: bytes, data: st.DataObject) -> None:
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    log, _ = wire.run(bytes(damaged))
    assert log.count("failed") <= 1
    assert wire.run(bytes(damaged), 1)[0] == log


# ---- each refusal


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<Q", 3), "packet length out of bounds, 3 of 4"),
        (struct.pack("<Q", 2**62), "packet length out of bounds"),
        (struct.pack("<Q", 2**64 - 1), "packet length out of bounds"),
        (struct.pack("<Qi", 4097, 9), "packet length out of bounds, 4097 of 4096"),
        (struct.pack("<Qi", 65537, 3), "packet length out of bounds, 65537 of 65536"),
        (packet(0), "unknown packet code"),
        (packet(22), "unknown packet code"),
        (packet(-5), "unknown packet code"),
        (packet(1, b"x"), "packet has bytes behind its last field, 1"),
        (packet(9, sequence(INT) + b"xy"), "packet has bytes behind its last field, 2"),
        (packet(9, b"\1\0"), "packet ends inside a field"),
        (packet(9, sequence(INT)[:-1]), "packet ends inside a field"),
        (packet(9, struct.pack("<i", 60)), "packet ends inside a field"),
        (packet(9, struct.pack("<i", -1)), "number of values out of bounds"),
        (packet(9, struct.pack("<i", 65) + INT * 65), "number of values out of bounds, 65 of 64"),
        (packet(9, sequence(struct.pack("<i", 99))), "value type that cannot travel, 99"),
        (packet(9, sequence(struct.pack("<i", 70))), "value type that cannot travel, 70"),
        (packet(9, sequence(struct.pack("<iI", 65, 66) + string(b"a"))), "value type that cannot travel, 66"),
        (packet(9, sequence(struct.pack("<iQ", 8, 2**63))), "text or bytes too long"),
        (packet(9, sequence(struct.pack("<iQ", 8, 100))), "packet ends inside a field, 100 of 0"),
        (
            packet(3, struct.pack("<Q", 1) + sequence(text(b"x" * 4097))),
            "text or bytes too long, 4097 of 4096",
        ),
        (packet(9, sequence(struct.pack("<i", 7) + tensor((), ndim=-1))), "tensor rank out of bounds"),
        (packet(9, sequence(struct.pack("<i", 7) + tensor((), ndim=2**30))), "tensor rank out of bounds"),
        (packet(9, sequence(struct.pack("<i", 7) + tensor((1,) * 9))), "tensor rank out of bounds, 9 of 8"),
        (packet(9, sequence(struct.pack("<i", 7) + tensor((4, -1)))), "negative tensor dim"),
        (packet(7, tensor((), ndim=9) + string(b"")), "tensor rank out of bounds, 9 of 8"),
        (packet(7, tensor((), ndim=3) + string(b"")), "packet ends inside a field"),
        (packet(7, b"x" * 39), "packet ends inside a field, 40 of 39"),
        (
            packet(7, tensor((1,)) + struct.pack("<Q", 5) + b"abcd"),
            "payload size of a copy out of bounds, 5 of 4",
        ),
        (struct.pack("<Qi", 65542, 7) + tensor(()) + string(b""), "payload"),
    ],
)
def test_refusals(wire: Wire, data: bytes, reason: str) -> None:
    log, _ = wire.run(data)
    assert f"failed: {reason}" in log, log
    assert wire.run(data, 1)[0] == log


def test_an_empty_packet_means_nothing(wire: Wire) -> None:
    assert wire.run(bytes(8) + packet(1) + bytes(16))[0].splitlines() == wire.run(packet(1))[0].splitlines()


def test_a_truncated_packet_is_no_boundary(wire: Wire) -> None:
    whole = packet(7, tensor((3,)) + string(b"abc"))
    for end in range(1, len(whole)):
        assert wire.run(whole[:end])[0].endswith("inside a packet\n"), end


@pytest.mark.parametrize(
    ("shape", "bits", "lanes", "expected"),
    [
        ([], 32, 1, 4),
        ([3, 5], 32, 1, 60),
        ([3], 4, 1, 2),
        ([3], 16, 4, 24),
        ([2**62, 0], 32, 1, 0),
        ([0, 2**63 - 1, 2**63 - 1], 64, 1, 0),
        ([2**58], 32, 1, 2**60),
        ([2**60], 32, 1, None),
        ([2**32, 2**32], 8, 1, None),
        ([-1], 8, 1, None),
    ],
)
def test_bytes_of_a_tensor(wire: Wire, shape: list[int], bits: int, lanes: int, expected: int | None) -> None:
    assert wire.nbytes(shape, bits, lanes) == expected


# ---- other builds of the same header


def cases(captured: dict[str, bytes]) -> list[bytes]:
    """Real packets, and random damage to them (seeded)."""
    chance = random.Random(20260822)  # noqa: S311
    damaged = []
    for data in captured.values():
        copy = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            copy[chance.randrange(len(copy))] = chance.randrange(256)
        damaged.append(bytes(copy[: chance.randint(1, len(copy))]))
    noise = [chance.randbytes(chance.randint(0, 200)) for _ in range(500)]
    framed = [packet(chance.randint(1, 21), chance.randbytes(chance.randint(0, 90))) for _ in range(1000)]
    return [*captured.values(), *damaged, *noise, *framed]


def has_sanitizers(tmp_path: Path) -> bool:
    source = tmp_path / "empty.c"
    source.write_text("int main(void) { return 0; }")
    flags = ["-fsanitize=address,undefined", str(source), "-o", str(tmp_path / "empty")]
    built = subprocess.run([*compiler(), *flags], capture_output=True, check=False).returncode == 0
    return built and subprocess.run([tmp_path / "empty"], capture_output=True, check=False).returncode == 0


def test_no_undefined_symbol_without_a_c_library(build: Build) -> None:
    flags = ["-O2", "-ffreestanding", "-nostdlib", "-shared", "-fPIC", "-Wl,-z,defs"]
    if "ziglang" not in compiler():
        flags.append("-fno-tree-loop-distribute-patterns")  # gcc: no memcpy made out of our loops
    build(compiler(), "freestanding.c", *flags)


def test_sanitizers_find_nothing(build: Build, captured: dict[str, bytes], tmp_path: Path) -> None:
    if not has_sanitizers(tmp_path):
        pytest.skip("the C compiler has no address and undefined-behaviour sanitizers")
    program = build(
        compiler(), "driver.c", "-DWIRE_MAIN", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"
    )
    done = subprocess.run([program], input=packed(cases(captured)), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert b"failed" in done.stdout


# 64-bit and 32-bit, each of them little and big endian; and i386, which aligns 64-bit numbers to 4 bytes.
MACHINES = {
    "aarch64": ["aarch64-linux-none"],
    "arm": ["arm-linux-none"],
    "hexagon": ["hexagon-linux-none", "-mcpu=hexagonv67"],
    "i386": ["x86-linux-none"],
    "ppc": ["powerpc-linux-none"],
    "riscv64": ["riscv64-linux-none"],
    "s390x": ["s390x-linux-none"],
}


@pytest.fixture(scope="module")
def said_here(captured: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The output of this machine for all cases."""
    program = compile_c(compiler(), "driver.c", tmp_path_factory.mktemp("here") / "driver", "-DWIRE_MAIN")
    done = subprocess.run([program], input=packed(cases(captured)), capture_output=True, check=True)
    return done.stdout


@pytest.mark.parametrize("machine", MACHINES)
def test_another_machine_says_the_same(
    build: Build, captured: dict[str, bytes], said_here: bytes, machine: str
) -> None:
    qemu = shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static")
    if not qemu or importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs qemu-{machine} and the ziglang package")
    zig = [sys.executable, "-m", "ziglang", "cc"]
    alone = ["-DWIRE_BARE", "-ffreestanding", "-nostdlib", "-static"]
    there = build(zig, "driver.c", "-DWIRE_MAIN", *alone, "-target", *MACHINES[machine])
    command = [qemu, *(["-cpu", "v67"] if machine == "hexagon" else []), str(there)]
    far = subprocess.run(command, input=packed(cases(captured)), capture_output=True, check=False)
    assert far.returncode == 0, far.stderr.decode()[-2000:]
    assert far.stdout == said_here
