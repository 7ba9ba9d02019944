"""The C files that do not depend on the model: what every artifact has, and kernels that many have.

An installation brings their objects for its own machine, so that a first build has less to compile. When
farcall is built, ``scripts/fixed_objects.py`` makes them, without the packages that the rest of this room
needs: this file imports nothing but the toolchain, and what kernels are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from farcall.backends._kernels import Kernels
from farcall.toolchain import Compiler, Source, Target

_SUPPORT = ("errors", "memory", "state", "device", "region")


def support_text(name: str) -> str:
    """The C text in a file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def call_source() -> str:
    """The C text of what every call goes through."""
    return "\n".join([support_text("entry.h"), support_text("entry_call.c")])


def support_source() -> str:
    """The C text of the rest that all entries share."""
    return "\n".join([support_text("entry.h"), *(support_text(f"entry_{part}.c") for part in _SUPPORT)])


def fixed_sources(compiler: Compiler) -> list[Source]:
    """The sources that are the same in every artifact."""
    return [
        Source("farcall_entry.c", support_source(), compiler.flags_for_cold_code, fixed=True),
        Source("farcall_call.c", call_source(), ("-O2",), fixed=True),
    ]


def kernels_source(kernels: Kernels, target: Target, compiler: Compiler) -> Source:
    """The file of ``kernels`` for the CPU level of ``target``, after which its functions are named.

    An artifact may have the file for several levels.
    """
    vectors = compiler.flags_for_vectors(target) if kernels.vectors else ()
    names = renaming(kernels.functions, target.cpu)
    flags = (*compiler.cpu_flags(target), *kernels.compile_flags, *vectors, *names)
    level = f"{target.cpu}." if target.cpu else ""
    return Source(f"{level}{kernels.name}.c", kernels.text, flags, fixed=True)


def renaming(functions: Iterable[str], level: str) -> list[str]:
    """Flags that name ``functions`` after a CPU level; no flags if it is empty, which is the baseline."""
    return [f"-D{name}={at_level(name, level)}" for name in functions] if level else []


def at_level(name: str, level: str) -> str:
    """The name of a function that is compiled for ``level``."""
    return f"{name}__{re.sub('[^a-z0-9]', '_', level)}"
