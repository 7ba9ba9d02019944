"""The wheel `farcall-devices`: servers for devices on a machine without a compiler."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ..tree import ROOT

PROGRAM = """
import sys
sys.modules["ziglang"] = None  # not installed
import farcall as fc
from farcall.launch import build_server
with fc.launch("local:small") as device, device.connect() as session:
    print(sorted(session.features & {"files", "promises"}))
print(build_server("armv7").read_bytes()[:4])
for options in ({"target": "riscv64"}, {"target": "x86_64", "sources": ["f.c"]}):
    try:
        build_server(**options)
    except fc.errors.ToolchainError as error:
        print("ziglang" in str(error))
"""


@pytest.mark.long
def test_a_machine_without_a_compiler_launches_a_server(tmp_path: Path, run_folder: Path) -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the package ziglang, to make the wheel")
    script = [sys.executable, ROOT / "scripts/devices.py", "--machine", "x86_64", "armv7"]
    for folder in ("dist", "again"):
        subprocess.run([*script, "--dest", tmp_path / folder], check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.read_bytes() == (tmp_path / "again" / wheel.name).read_bytes()
    with zipfile.ZipFile(wheel) as content:
        assert sum("farcall-server" in name for name in content.namelist()) == 2
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target"]
    subprocess.run([*install, tmp_path / "site", wheel], check=True, capture_output=True)
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path / "site"),
        "FARCALL_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ["['files', 'promises']", "b'\\x7fELF'", "True", "True"]
    assert done.stdout.splitlines() == lines, done.stderr
