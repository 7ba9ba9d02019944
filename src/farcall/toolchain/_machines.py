"""Machines that farcall knows: how the compiler names them, and which emulator runs their programs.

The rows are those of ``native/server``'s tests: each was built by ziglang and run by QEMU's user-mode
emulators.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from farcall._suggest import did_you_mean
from farcall.errors import ToolchainError
from farcall.toolchain._target import STATIC_TRIPLES, Target


@dataclass(frozen=True)
class Machine:
    """An instruction set that programs without a dynamic loader are built for.

    Attributes:
        name: for people: ``armv7``.
        target: of its compiler, with the CPU that the emulator knows.
        emulator: the program that runs its programs elsewhere.
        emulator_flags: arguments of the emulator, before the program.
        elf: its number in ELF files (``e_machine``).
    """

    name: str
    target: Target
    emulator: str
    emulator_flags: tuple[str, ...] = ()
    elf: int = 0

    def emulate(self) -> list[str] | None:
        """The words before a program of this machine that run it here; None when the emulator is missing."""
        program = shutil.which(self.emulator) or shutil.which(f"{self.emulator}-static")
        return None if program is None else [program, *self.emulator_flags]


MACHINES = (
    Machine("x86_64", Target(STATIC_TRIPLES["x86_64"]), "qemu-x86_64", elf=62),
    Machine("aarch64", Target(STATIC_TRIPLES["aarch64"]), "qemu-aarch64", elf=183),
    Machine("armv7", Target(STATIC_TRIPLES["armv7"]), "qemu-arm", elf=40),
    Machine("riscv64", Target(STATIC_TRIPLES["riscv64"]), "qemu-riscv64", elf=243),
    Machine("s390x", Target(STATIC_TRIPLES["s390x"]), "qemu-s390x", elf=22),
    # QEMU refuses files for other CPUs, or for none. -cpu v67 runs them if they use no newer instruction.
    Machine(
        "hexagon", Target(STATIC_TRIPLES["hexagon"], "hexagonv67"), "qemu-hexagon", ("-cpu", "v67"), elf=164
    ),
)


def machine_of(target: Target) -> Machine | None:
    """The row of a target's instruction set; None: farcall does not know it."""
    return next((machine for machine in MACHINES if machine.target.arch == target.arch), None)


def static_target(text: str | Target | None) -> Target:
    """The target of a program that needs no loader: a static one, on musl.

    Args:
        text: the name of a machine (``"armv7"``), a target (``"aarch64-linux-musl"``), or None: this machine.

    Raises:
        ToolchainError: there is no such machine or target.
    """
    if isinstance(text, str) and "-" not in text and text not in ("host", "native"):
        for machine in MACHINES:
            if text in (machine.name, machine.target.arch):
                return machine.target
        names = [machine.name for machine in MACHINES]
        raise ToolchainError(
            f"target {text!r}: no such machine{did_you_mean(text, names)}; the machines are "
            f"{', '.join(names)}, and any arch-linux-abi of ziglang works"
        )
    target = Target.parse(text)
    known = machine_of(target)
    if known is None:
        return target
    triple = known.target.triple if target.abi.startswith("gnu") else target.triple
    # A level of the host's CPU would tie the program to it; the server computes nothing itself.
    cpu = known.target.cpu if target.is_host or not target.cpu else target.cpu
    return Target(triple, cpu)
