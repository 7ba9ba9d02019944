"""Compiles generated files, as a user would."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..tree import ROOT

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
HERE = Path(__file__).parent


def compiler() -> list[str]:
    """A C compiler for this machine."""
    if found := shutil.which("cc") or shutil.which("gcc"):
        return [found]
    return zig()


def zig(*flags: str) -> list[str]:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the ziglang package")
    return [sys.executable, "-m", "ziglang", "cc", *flags]


def run_compiler(command: list[str], *arguments: str | Path, folder: Path, standard: str = "c11") -> None:
    done = subprocess.run(
        [*command, f"-std={standard}", *STRICT, f"-I{ROOT / 'include'}", f"-I{folder}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def shared_library(output: Path, *sources: Path, flags: tuple[str, ...] = ()) -> Path:
    """A shared library for this machine."""
    run_compiler(
        compiler(),
        "-O1",
        "-fPIC",
        "-shared",
        "-fvisibility=default",
        *flags,
        *sources,
        "-o",
        output,
        folder=output.parent,
    )
    return output
