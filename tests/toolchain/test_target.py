"""Targets by name, and what CPU levels need."""

from __future__ import annotations

import platform

import pytest

from farcall.errors import ToolchainError
from farcall.toolchain import Compiler, Target
from farcall.toolchain._target import cpu_flags, cpu_level, missing_features

V2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("aarch64-linux-musl", Target("aarch64-linux-musl")),
        ("x86_64-linux-gnu:x86-64-v3", Target("x86_64-linux-gnu", "x86-64-v3")),
        ("x86_64-pc-linux-gnu", Target("x86_64-linux-gnu")),
        ("AMD64-linux-gnu", Target("x86_64-linux-gnu")),
        ("arm64-linux-musl", Target("aarch64-linux-musl")),
        ("hexagon-linux-musl:hexagonv67", Target("hexagon-linux-musl", "hexagonv67")),
    ],
)
def test_names(text: str, target: Target) -> None:
    assert Target.parse(text) == target
    assert Target.parse(str(target)) == target
    assert Target.parse(target) is target


@pytest.mark.parametrize(
    "text", ["", "aarch64", "x86_64-windows-gnu", "a b-linux-gnu", "x86_64-linux-", "-a-b"]
)
def test_wrong_names_say_what_was_expected(text: str) -> None:
    with pytest.raises(ToolchainError, match="expected arch-linux-abi"):
        Target.parse(text)


def test_this_machine() -> None:
    assert Target.parse(None) == Target.parse("host") == Target.host()
    assert Target.host().is_host
    assert not Target.parse("s390x-linux-musl").is_host
    if platform.machine() == "x86_64":
        assert Target.host().arch == "x86_64"


def test_byte_order() -> None:
    assert Target.parse("s390x-linux-musl").big_endian
    assert not Target.parse("aarch64-linux-musl").big_endian


def test_levels() -> None:
    assert cpu_level(frozenset(V3.split())) == "x86-64-v3"
    assert cpu_level(frozenset(V3.replace("fma", "").split())) == "x86-64-v2"
    assert cpu_level(frozenset(["avx2", "fma"])) == ""  # a level needs all below it
    wide = [*V3.split(), "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
    assert cpu_level(frozenset(wide)) == "x86-64-v3"  # v4 would lower the clock
    assert cpu_level(frozenset([*wide, "avx512_vbmi2"])) == "x86-64-v4"


def test_what_a_cpu_lacks() -> None:
    assert missing_features("x86-64-v3", frozenset(V2.split()) | {"avx", "avx2"}) == {
        *["bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]
    }
    assert missing_features("x86-64-v2", frozenset(V3.split())) == frozenset()
    assert missing_features("cortex-a76", frozenset()) == frozenset()  # not known by features


def test_features_are_those_of_every_core() -> None:
    text = "processor : 0\nflags\t\t: fpu avx avx2\n\nprocessor : 1\nflags\t\t: fpu avx\n"
    assert cpu_flags(text) == {"fpu", "avx"}
    assert cpu_flags("Features\t: fp asimd\n") == {"fp", "asimd"}
    assert cpu_flags("") == frozenset()


def test_flags_by_family() -> None:
    v3, arm = Target("x86_64-linux-gnu", "x86-64-v3"), Target("aarch64-linux-musl", "cortex-a76")
    zig = Compiler(("zig", "cc"), "zig", "1")
    assert zig.target_flags(v3) == ["-target", "x86_64-linux-gnu", "-mcpu=x86_64_v3"]
    assert zig.target_flags(arm) == ["-target", "aarch64-linux-musl", "-mcpu=cortex_a76"]
    dots = Target("aarch64-linux-musl", "armv8.2-a+dotprod")
    assert zig.cpu_flags(dots) == ["-mcpu=generic+v8_2a+dotprod"]
    assert zig.cpu_flags(Target("aarch64-linux-musl", "armv8-a")) == ["-mcpu=generic"]
    hvx = Target("hexagon-linux-musl", "hexagonv67+hvx")
    assert zig.link_flags(hvx) == ["-target", "hexagon-linux-musl", "-mcpu=hexagonv67"]
    assert zig.link_flags(arm) == ["-target", "aarch64-linux-musl"]
    assert Compiler(("gcc",), "gcc", "1").target_flags(v3) == ["-march=x86-64-v3"]
    assert Compiler(("clang",), "clang", "1").target_flags(Target("riscv64-linux-gnu")) == [
        "--target=riscv64-linux-gnu"
    ]
