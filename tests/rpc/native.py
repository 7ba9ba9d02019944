"""The native rooms without Python, as a C program builds them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"


def core_without_python() -> list[str | Path]:
    """A compiler's arguments: flags, and the sources of the port, the runtime and sessions."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-DFARCALL_BUILDING_CORE", f"-I{NATIVE}", f"-I{ROOT / 'include'}"]
    rooms = (NATIVE / "platform", NATIVE / "runtime", NATIVE / "session")
    return [*flags, *(path for room in rooms for path in sorted(room.rglob("*.c")))]
