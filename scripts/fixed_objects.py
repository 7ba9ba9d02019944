"""Compiles the C that every artifact has (src/farcall/artifact/_fixed.py) for the machine of the build.

    python fixed_objects.py FOLDER COMPILER [ARGUMENT ...]

CMake runs it when farcall is built, and installs the folder. Needs the standard library only.

Environment:
  FARCALL_ZIG_TARGET  the machine, as zig names it (aarch64-linux-gnu.2.28); this one when unset
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCES))


def main() -> None:
    from farcall.toolchain import Target
    from farcall.toolchain._build import install_fixed
    from farcall.toolchain._compiler import compiler_of

    spec = importlib.util.spec_from_file_location("fixed", SOURCES / "farcall" / "artifact" / "_fixed.py")
    assert spec and spec.loader  # noqa: S101 - it is a file of Python
    fixed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fixed)

    folder, *command = sys.argv[1:]
    target = Target(Target.host().triple)
    if named := os.environ.get("FARCALL_ZIG_TARGET"):
        target = Target(re.sub(r"\.[\d.]+$", "", named))  # without the version of the C library
        command = command[:2]  # without the target, which the compiler gets below
    compiler = compiler_of(tuple(command))
    install_fixed(compiler, target, fixed.fixed_sources(compiler), Path(folder))


if __name__ == "__main__":
    main()
