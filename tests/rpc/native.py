"""The native core as a C program builds it: without Python."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "native" / "core"


def _includes(path: Path) -> set[str]:
    """All that a file of the core includes, and what that includes."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for name in re.findall(r'^#include ["<]([^">]+)[">]', waiting.pop().read_text(), re.MULTILINE):
            if name not in found and (CORE / name).exists():
                waiting.append(CORE / name)
            found.add(name)
    return found


def core_without_python() -> list[str | Path]:
    """A compiler's arguments: flags, and the sources. A program adds ``without_python.h``."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-DFARCALL_BUILDING_CORE", f"-I{CORE}", f"-I{ROOT / 'include'}"]
    return [*flags, *(path for path in sorted(CORE.glob("*.c")) if "Python.h" not in _includes(path))]
