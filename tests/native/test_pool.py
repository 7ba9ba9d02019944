"""The threads that the libraries of a process share, also under ThreadSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ..wire.conftest import compiler
from .rooms import NATIVE, files_of

COMMON = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-pthread",
    f"-I{NATIVE}",
    f"-I{NATIVE.parent}/include",
]


def program(tmp_path: Path, *flags: str) -> Path:
    checks = Path(__file__).with_name("pool_checks.c")
    sources = [checks, NATIVE / "runtime/pool.c", *files_of("platform", ".c")]
    done = subprocess.run(
        [*compiler(), *COMMON, *flags, *sources, "-o", tmp_path / "checks"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "-fsanitize=thread" in flags and done.returncode:
        pytest.skip("the compiler has no ThreadSanitizer")
    assert done.returncode == 0, done.stderr
    return tmp_path / "checks"


def test_the_pool(tmp_path: Path) -> None:
    checks = program(tmp_path, "-O1", "-Werror")
    done = subprocess.run([checks], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "done\n", done.stderr


def test_the_pool_has_no_races(tmp_path: Path) -> None:
    checks = program(tmp_path, "-O1", "-g", "-fsanitize=thread")
    done = subprocess.run([checks, "no fork"], capture_output=True, text=True, check=False, timeout=100)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel")
    assert done.stdout == "done\n", done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr
