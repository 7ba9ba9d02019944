"""The build backend: scikit-build-core, with the compilers of the ziglang package if the machine has none."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403 - the hooks that need no compiler

_TOOLCHAIN = Path(__file__).with_name("zig.cmake")


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*_build.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*_build.get_requires_for_build_editable(config_settings), *_compiler()]


def prepare_metadata_for_build_wheel(*arguments: Any, **named: Any) -> str:
    _name_platform()
    return _build.prepare_metadata_for_build_wheel(*arguments, **named)


def build_wheel(*arguments: Any, **named: Any) -> str:
    _name_platform()
    _use_compiler()
    return _build.build_wheel(*arguments, **named)


def build_editable(*arguments: Any, **named: Any) -> str:
    _use_compiler()
    return _build.build_editable(*arguments, **named)


def _compiler() -> list[str]:
    """What to install for a C compiler."""
    chosen = os.environ.get("CC") or os.environ.get("CMAKE_TOOLCHAIN_FILE")
    return [] if chosen or any(map(shutil.which, ("cc", "gcc", "clang"))) else ["ziglang>=0.15"]


def _use_compiler() -> None:
    if not _compiler():
        return
    package = importlib.util.find_spec("ziglang")
    if (
        package is None or not package.origin
    ):  # the build is not isolated, so that nobody installed the requirements
        raise SystemExit(
            "farcall: no C compiler found (CC, cc, gcc, clang); install one, or run: pip install ziglang"
        )
    os.environ["FARCALL_ZIG"] = str(Path(package.origin).with_name("zig"))
    os.environ["CMAKE_TOOLCHAIN_FILE"] = str(_TOOLCHAIN)


def _name_platform() -> None:
    """The wheel is for the machine that the compiler compiles for.

    pip itself must not see the variable: it would install the build's requirements for that machine, too.
    """
    if target := os.environ.get("FARCALL_ZIG_TARGET"):
        os.environ["_PYTHON_HOST_PLATFORM"] = f"linux-{target.partition('-')[0]}"
