"""The core as a machine without a compiler builds it: ziglang does not link a compiler runtime by default."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("ninja")), reason="cmake or ninja is missing")
def test_the_core_that_zig_builds_loads(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="the ziglang package is missing")
    made = {"CC": f"{sys.executable} -m ziglang cc", "PYTHON": sys.executable, "FARCALL_DEST": str(tmp_path)}
    subprocess.run(["sh", "scripts/native.sh"], cwd=ROOT, env=os.environ | made, check=True)
    (core,) = tmp_path.glob("_core*.so")
    load = f"import ctypes, os; ctypes.CDLL({str(core)!r}, os.RTLD_NOW)"
    subprocess.run([sys.executable, "-c", load], check=True)
