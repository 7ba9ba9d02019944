"""The two threads of a relay under ThreadSanitizer, with the native core and no Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "native" / "core"
COMPILER = next((c for c in (os.environ.get("CC", ""), "gcc", "clang") if c and shutil.which(c)), None)


def includes(path: Path) -> set[str]:
    """All that a file of the core includes, and what that includes."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for name in re.findall(r'^#include ["<]([^">]+)[">]', waiting.pop().read_text(), re.MULTILINE):
            if name not in found and (CORE / name).exists():
                waiting.append(CORE / name)
            found.add(name)
    return found


def test_no_races(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("needs gcc or clang")
    sources = [path for path in CORE.glob("*.c") if "Python.h" not in includes(path)]
    program = tmp_path / "relay_race"
    flags = ["-std=gnu11", "-g", "-O1", "-fsanitize=thread", "-w", "-D_GNU_SOURCE", "-DFARCALL_BUILDING_CORE"]
    command = [COMPILER, *flags, f"-I{CORE}", f"-I{ROOT / 'include'}"]
    files = [*sources, Path(__file__).with_name("relay_race.c")]
    built = subprocess.run(
        [*command, *files, "-o", program, "-ldl", "-lpthread", "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no ThreadSanitizer")
    assert built.returncode == 0, built.stderr[-3000:]
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
