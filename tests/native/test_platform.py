"""The two ports of native/platform keep what port.h promises."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ..wire.conftest import compiler
from .rooms import NATIVE, files_of


@pytest.mark.parametrize("flags", [["-pthread"], ["-DFARCALL_BARE"]], ids=["POSIX", "without a system"])
def test_a_port(flags: list[str], tmp_path: Path) -> None:
    checks = Path(__file__).with_name("platform_checks.c")
    program = tmp_path / "checks"
    common = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}"]
    command = [*compiler(), *common, *flags, checks, *files_of("platform", ".c"), "-o", program]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "done\n"
