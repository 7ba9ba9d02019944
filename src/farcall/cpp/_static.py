"""Kernels that are linked into a program: a static library, and a header with its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from farcall import __version__
from farcall.errors import ToolchainError
from farcall.library._static import (
    Contents,
    exported_functions,
    header,
    identifier,
    static_library,
    table_source,
)
from farcall.toolchain import Target, compile_sources, find_compiler


def archive_kernels(name: str, objects: Sequence[Path], target: Target) -> tuple[bytes, str]:
    """The static library of the objects, and its header.

    Raises:
        ToolchainError: they export no function, or need what a firmware lacks.
    """
    functions = exported_functions(objects)
    if not functions:
        raise ToolchainError(
            f"the static library {name!r} exports no function; begin its kernels with FARCALL_KERNEL(name)"
        )
    contents = Contents(
        identifier(name), str(target), f"farcall {__version__}", dict.fromkeys(functions, ""), functions, None
    )
    table = compile_sources(find_compiler(target), target, [table_source(contents)])
    return static_library(contents.name, [*objects, *table], target, sealed=False), header(contents)
