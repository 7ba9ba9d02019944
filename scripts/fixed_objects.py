"""Compiles the C that does not depend on a model (farcall's _fixed.py files) for the machine of the build.

    python fixed_objects.py FOLDER COMPILER [ARGUMENT ...]

CMake runs it when farcall is built, and installs the folder. Needs the standard library only.

Environment:
  FARCALL_ZIG_TARGET  the machine, as zig names it (aarch64-linux-gnu.2.28); this one when unset
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCES))


def hollow(name: str) -> None:
    """Import a package without its ``__init__.py``, which imports packages that a build does not have."""
    parent, _, _ = name.rpartition(".")
    importlib.import_module(parent)
    package = ModuleType(name)
    package.__path__ = [str(SOURCES.joinpath(*name.split(".")))]
    sys.modules[name] = package


def main() -> None:
    for package in ("farcall.artifact", "farcall.backends.c"):
        hollow(package)
    from farcall.artifact._fixed import fixed_sources, kernels_source
    from farcall.backends.c._fixed import fixed_kernels
    from farcall.toolchain import Target
    from farcall.toolchain._build import install_fixed
    from farcall.toolchain._compiler import compiler_of

    folder, *command = sys.argv[1:]
    target = Target(Target.host().triple)
    if named := os.environ.get("FARCALL_ZIG_TARGET"):
        target = Target(re.sub(r"\.[\d.]+$", "", named))  # without the version of the C library
        command = command[:2]  # without the target, which the compiler gets below
    compiler = compiler_of(tuple(command))
    levels = [replace(target, cpu=level) for level in target.levels or ("",)]
    kernels = [kernels_source(one, level, compiler) for one in fixed_kernels() for level in levels]
    install_fixed(compiler, target, [*fixed_sources(compiler), *kernels], Path(folder))


if __name__ == "__main__":
    main()
