"""Checks libraries for machines without a dynamic loader, where the small server loads them as images.

The server exports a list of functions to images, and nothing else: ``native/runtime/image/exports.inc``, from
which its table is compiled. The rules of the loader are in docs/spec/image.md.
"""

from __future__ import annotations

import functools
import re

from farcall.errors import ToolchainError
from farcall.library._elf import Buffer, Elf
from farcall.toolchain import Target, native_dir

_LISTED = 8
_EXPORT = re.compile(r"^FC_IMAGE_EXPORT\((\w+)\)$", re.MULTILINE)
_CONDITIONAL = re.compile(r"^#if .*?^#endif$", re.MULTILINE | re.DOTALL)  # what some machines lack
_THREAD_LOCAL = {".tdata", ".tbss"}


@functools.cache
def image_exports() -> frozenset[str]:
    """The functions that a loader of images exports to them."""
    text = (native_dir() / "runtime" / "image" / "exports.inc").read_text(encoding="utf-8")
    return frozenset(_EXPORT.findall(_CONDITIONAL.sub("", text)))


def missing_exports(elf: Elf) -> list[str]:
    """The functions that a library imports and no loader of images exports, sorted."""
    wanted = {symbol.name for symbol in elf.dynamic_symbols() if not symbol.defined and not symbol.weak}
    return sorted(wanted - image_exports())


def check_image(data: Buffer, what: str, target: Target) -> None:
    """Refuse, when it is built, a library that the loader on ``target`` would refuse.

    Args:
        data: the whole library.
        what: its name in errors.
        target: the machine that it is built for.

    Raises:
        ToolchainError: the target has no dynamic loader, and the library needs one.
    """
    if target.has_loader:
        return
    elf = Elf(data, what)
    if any(section.name in _THREAD_LOCAL for section in elf.sections):
        raise ToolchainError(
            f"{elf.what} for {target.triple} has thread-local storage, which needs a dynamic loader; C++ "
            "exceptions use it, and so do kernels with farcall/kernel.hpp: write the kernel in C, with "
            "FARCALL_KERNEL of farcall/c_api.h, or in C++ with -fno-exceptions and without thread_local"
        )
    if missing := missing_exports(elf):
        more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
        raise ToolchainError(
            f"{elf.what} for {target.triple} imports {', '.join(missing[:_LISTED])}{more}, which the server "
            "there does not export; link them statically, or do without: docs/spec/image.md lists the exports"
        )
