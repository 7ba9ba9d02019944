"""Targets: the machine that a library is compiled for.

The names are those of compilers: a triple ``arch-os-abi``, and a CPU level. For x86-64 the levels are those
of the psABI (x86-64-v2, -v3, -v4). Compilers know them by ``-march``, and each level defines exactly the
features that a CPU must have. More precise names (``znver4``) would tie a library to one manufacturer.
"""

from __future__ import annotations

import functools
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from farcall.errors import ToolchainError

_PART = re.compile(r"[a-z0-9_.]+")

# Other names of the same instruction sets, which kernels, compilers and people use.
_ARCH_NAMES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64", "i686": "x86", "i386": "x86"}

_BIG_ENDIAN = {"s390x", "powerpc64", "powerpc", "mips", "mips64", "sparc64", "armeb", "aarch64_be", "m68k"}

# Targets of programs that need no loader, by the names of machines.
STATIC_TRIPLES = {
    "x86_64": "x86_64-linux-musl",
    "aarch64": "aarch64-linux-musl",
    "armv7": "arm-linux-musleabihf",
    "riscv64": "riscv64-linux-musl",
    "s390x": "s390x-linux-musl",
    "hexagon": "hexagon-linux-musl",
}

# Machines whose programs are static: only farcall's server loads libraries there (docs/spec/image.md).
_WITHOUT_LOADER = {"hexagon"}
# The CPU of a target that names none: compilers would take one that no emulator knows.
_DEFAULT_CPU = {"hexagon": "hexagonv67"}

# Flags of /proc/cpuinfo that a level needs beyond the level before it (x86-64 psABI, 3.1.1, table 3.1;
# Linux spells LZCNT `abm`, and SSE3 `pni`).
_X86_LEVELS = (
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)
# The levels for which hot code of a portable target is compiled, the lowest first. Between the first two of
# x86-64 there is x86-64-v2, which has no wider vectors.
_PORTABLE = {
    "x86_64": ("x86-64", "x86-64-v3", "x86-64-v4"),
    "aarch64": ("armv8-a", "armv8.2-a+dotprod"),
}
# CPUs of v4 without this feature (Skylake, Cascade Lake) lower their clock for wide registers; later ones,
# from Ice Lake and Zen 4 on, do not.
_WIDE_AT_FULL_CLOCK = "avx512_vbmi2"


@dataclass(frozen=True)
class Target:
    """A machine: ``triple`` (``x86_64-linux-gnu``) and CPU level (``x86-64-v3``; empty: the baseline)."""

    triple: str
    cpu: str = ""

    def __str__(self) -> str:
        return f"{self.triple}:{self.cpu}" if self.cpu else self.triple

    @property
    def arch(self) -> str:
        """The first part of the triple."""
        return self.triple.split("-")[0]

    @property
    def abi(self) -> str:
        """The last part of the triple: the C library, ``gnu`` or ``musl``."""
        return self.triple.split("-")[2]

    @property
    def baseline(self) -> Target:
        """The same machine without a CPU level of its own."""
        return Target(self.triple, _DEFAULT_CPU.get(self.arch, ""))

    @property
    def levels(self) -> tuple[str, ...]:
        """The CPU levels for which hot code is compiled, the lowest first; empty: once, for the target."""
        return () if self.cpu else _PORTABLE.get(self.arch, ())

    @property
    def big_endian(self) -> bool:
        """Whether the most significant byte of a number comes first."""
        return self.arch in _BIG_ENDIAN

    @property
    def has_loader(self) -> bool:
        """Whether a dynamic linker may load libraries there."""
        return self.arch not in _WITHOUT_LOADER

    @property
    def is_host(self) -> bool:
        """Whether a process on this machine can run code for this target."""
        return self.triple == host_triple()

    @classmethod
    def host(cls) -> Target:
        """This machine, with the highest CPU level that it supports, and runs at full clock."""
        return cls(host_triple(), cpu_level(host_cpu_flags()) if host_triple().startswith("x86_64-") else "")

    @classmethod
    def parse(cls, text: str | Target | None) -> Target:
        """The target that ``text`` names: ``arch-os-abi``, ``arch-os-abi:cpu``, or ``host`` (also None).

        Raises:
            ToolchainError: ``text`` has another form, or names an operating system other than Linux.
        """
        if isinstance(text, Target):
            return text
        if text is None or text in ("host", "native"):
            return cls.host()
        triple, _, cpu = text.strip().lower().partition(":")
        parts = triple.split("-")
        if len(parts) == 4:  # arch-vendor-os-abi, as GNU tools write it
            del parts[1]
        if len(parts) != 3 or not all(map(_PART.fullmatch, parts)) or parts[1] != "linux":
            raise ToolchainError(
                f"target {text!r}: expected arch-linux-abi or arch-linux-abi:cpu; {_proposed(text)}"
            )
        arch = _ARCH_NAMES.get(parts[0], parts[0])
        return cls("-".join([arch, *parts[1:]]), cpu or _DEFAULT_CPU.get(arch, ""))


def _proposed(text: str) -> str:
    """Which targets to try instead: for the name of a machine alone, that of its full name."""
    if text in STATIC_TRIPLES:
        return f"did you mean `{STATIC_TRIPLES[text]}`?"
    return 'try "aarch64-linux-musl", "x86_64-linux-gnu:x86-64-v3" or "host"'


@functools.cache
def host_triple() -> str:
    """This process's ``arch-os-abi``."""
    machine = platform.machine().lower()
    abi = "gnu" if platform.libc_ver()[0] == "glibc" else "musl"
    return f"{_ARCH_NAMES.get(machine, machine)}-{platform.system().lower()}-{abi}"


@functools.cache
def host_cpu_flags() -> frozenset[str]:
    """The CPU features of this machine, as ``/proc/cpuinfo`` names them; empty if they are not known."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    return cpu_flags(text)


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """The features that all CPUs in ``cpuinfo`` share, since big and little cores may differ."""
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    if not lines:
        return frozenset()
    return frozenset.intersection(*(frozenset(line.split()) for line in set(lines)))


def cpu_level(flags: frozenset[str]) -> str:
    """The highest x86-64 level that the CPU with ``flags`` runs at full clock; empty for the baseline."""
    level = ""
    for name, needed in _X86_LEVELS:
        if not needed <= flags or (name == "x86-64-v4" and _WIDE_AT_FULL_CLOCK not in flags):
            break
        level = name
    return level


def missing_features(cpu: str, flags: frozenset[str]) -> frozenset[str]:
    """The features that the x86-64 level ``cpu`` needs and ``flags`` lacks; empty for other CPU names."""
    needed: set[str] = set()
    for name, more in _X86_LEVELS:
        needed |= more
        if name == cpu:
            return frozenset(needed - flags)
    return frozenset()
