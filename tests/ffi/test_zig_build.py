"""The native code as wheels contain it, and as a machine without a compiler builds it: by ziglang."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOAD = "import ctypes, os, sys; [ctypes.CDLL(file, os.RTLD_NOW) for file in sys.argv[1:]]"


@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("ninja")), reason="cmake or ninja is missing")
def test_the_libraries_that_zig_builds_load(tmp_path: Path) -> None:
    ziglang = importlib.util.find_spec("ziglang")
    if ziglang is None or not ziglang.origin:
        pytest.skip("the ziglang package is missing")
    made = {
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "scripts/zig.cmake"),
        "FARCALL_ZIG": str(Path(ziglang.origin).with_name("zig")),
        "PYTHON": sys.executable,
        "FARCALL_DEST": str(tmp_path),
    }
    subprocess.run(["sh", "scripts/native.sh"], cwd=ROOT, env=os.environ | made, check=True)
    libraries = sorted(map(str, tmp_path.glob("*.so")))
    assert len(libraries) == 2
    subprocess.run([sys.executable, "-c", LOAD, *libraries], check=True)
