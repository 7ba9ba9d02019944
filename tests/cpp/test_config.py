"""farcall config and the CMake package, for other build systems."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from farcall.cli.config import command
from farcall.ffi import load_library

SOURCE = """
#include <farcall/kernel.hpp>
static int64_t add(int64_t a, int64_t b) { return a + b; }
FARCALL_EXPORT(add, add);
"""


def config(*flags: str) -> str:
    result = CliRunner().invoke(command, flags)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_a_build_by_hand(tmp_path: Path) -> None:
    (tmp_path / "add.cpp").write_text(SOURCE)
    words = ["c++", *shlex.split(config("--cflags")), "-O0", "add.cpp", *shlex.split(config("--ldflags"))]
    subprocess.run([*words, "-o", "add.so"], cwd=tmp_path, check=True)
    assert load_library(str(tmp_path / "add.so"))["add"](1, 2) == 3


def test_the_include_folder() -> None:
    assert (Path(config("--includedir")) / "farcall" / "kernel.hpp").is_file()


def test_without_a_flag_all_are_shown() -> None:
    assert [line.split(":")[0] for line in config().splitlines()] == [
        "includedir",
        "cflags",
        "ldflags",
        "cmakedir",
    ]


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("c++")), reason="cmake is not installed")
def test_a_build_by_cmake(tmp_path: Path) -> None:
    (tmp_path / "add.cpp").write_text(SOURCE)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(demo LANGUAGES CXX)\n"
        "find_package(farcall 0.1 REQUIRED)\nfarcall_add_kernels(add add.cpp)\n"
    )
    configure = ["cmake", "-S", ".", "-B", "build", f"-Dfarcall_DIR={config('--cmakedir')}"]
    subprocess.run(configure, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True, capture_output=True)
    assert load_library(str(tmp_path / "build" / "add.so"))["add"](40, 2) == 42
