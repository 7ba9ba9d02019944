"""The bytes of ``__tvm_ffi__library_bin``: the modules that a library embeds, and which imports which.

The layout is TVM FFI's, whose own loader reads it; farcall's reader is native/runtime/modulebin.c.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from farcall.errors import UsageError
from farcall.library._blob import ALIGNMENT, Blob

SYMBOL = "__tvm_ffi__library_bin"
LIBRARY = "_lib"  # the kind that stands for the library itself


def module_bin(modules: Sequence[Blob | tuple[str, bytes] | None], imports: Sequence[Sequence[int]]) -> bytes:
    """Lay out the modules of a library.

    Args:
        modules: the first is the root, which a load returns. A :class:`Blob` is stored in its frame; a pair
            of kind and bytes as it is, for loaders that know no frames; None is the library itself, and is
            there at most once.
        imports: for each module, the indices of those that it imports, in the order of the search.

    Returns:
        The content of the symbol. The data of each blob is aligned to 64 bytes where the symbol is.

    Raises:
        UsageError: there is no module, two of them are the library, or an import is not one of the modules.
    """
    _check(modules, imports)
    begins = [0, *accumulate(map(len, imports))]
    children = [child for each in imports for child in each]
    body = bytearray(8)  # the size, which is known at the end
    for numbers in (begins, children):
        body += struct.pack(f"<{len(numbers) + 1}Q", len(numbers), *numbers)
    for module in modules:
        kind = LIBRARY if module is None else module.kind if isinstance(module, Blob) else module[0]
        body += _sized(kind.encode())
        if module is not None:
            body += _sized(module.frame(len(body) + 8) if isinstance(module, Blob) else module[1])
    body[:8] = struct.pack("<Q", len(body) - 8)
    return bytes(body)


def embed_modules(modules: Sequence[Blob]) -> str:
    """The C source of modules that a library embeds: compile it into the library.

    Args:
        modules: what the library imports, in this order. When the library is loaded, so are they.

    Returns:
        The definition of ``__tvm_ffi__library_bin``, with the data of each module aligned to 64 bytes.
    """
    children = list(range(1, len(modules) + 1))
    data = module_bin([None, *modules], [children, *([] for _ in modules)])
    rows = ",\n".join(",".join(map(str, data[at : at + 32])) for at in range(0, len(data), 32))
    return (
        f'__attribute__((aligned({ALIGNMENT}), visibility("default")))\n'
        f"const unsigned char {SYMBOL}[{len(data)}] = {{\n{rows}}};\n"
    )


def _check(modules: Sequence[object], imports: Sequence[Sequence[int]]) -> None:
    if not modules or len(modules) != len(imports):
        raise UsageError(
            f"expected imports for each of at least one module, got {len(imports)} for {len(modules)}"
        )
    if sum(module is None for module in modules) > 1:
        raise UsageError("more than one of the modules is None, which stands for the library itself")
    if wrong := [child for each in imports for child in each if not 0 <= child < len(modules)]:
        raise UsageError(f"module {wrong[0]} is imported, expected an index below {len(modules)}")


def _sized(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data
