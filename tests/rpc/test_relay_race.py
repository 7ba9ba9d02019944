"""The two threads of a relay under ThreadSanitizer, with the native core and no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .native import core_without_python

COMPILER = next((c for c in (os.environ.get("CC", ""), "gcc", "clang") if c and shutil.which(c)), None)


@pytest.mark.long
def test_no_races(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("needs gcc or clang")
    program = tmp_path / "relay_race"
    flags = ["-g", "-O1", "-fsanitize=thread", "-w"]
    source = Path(__file__).with_name("relay_race.c")
    command = [COMPILER, *flags, *core_without_python(), source, "-o", program, "-ldl", "-lpthread", "-lm"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no ThreadSanitizer")
    assert built.returncode == 0, built.stderr[-3000:]
    done = subprocess.run([program], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
