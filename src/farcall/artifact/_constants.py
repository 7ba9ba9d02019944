"""The constants of an artifact: each stored once, aligned, and included in the library by the assembler.

Large data never passes through C source: a compiler reads a few megabytes of it per second, an assembler
copies gigabytes. A shared library gets it after it was linked, so that it is written once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from farcall.backends._ctext import Content, stored
from farcall.errors import BackendError
from farcall.graph.dims import is_object
from farcall.library._manifest import (
    CHECKSUM_SECTION,
    CHECKSUM_SIZE,
    DIGEST_SECTION,
    DIGEST_SIZE,
    LIBRARIES_SECTION,
    MANIFEST_SECTION,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.graph import Partition

ALIGNMENT = 64  # bytes; backends may rely on it
LIBRARY_BIN = "__tvm_ffi__library_bin"
CONSTANTS = "__farcall_constants"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Constants:
    """Named arrays; equal arrays are stored once, even if they come from several regions."""

    def __init__(self, big_endian: bool) -> None:
        self._big_endian = big_endian
        self._owners: dict[str, str] = {}  # name -> region
        self._data: dict[Content, np.ndarray[Any, Any]] = {}  # row-major, in the target's byte order
        self._names: dict[Content, list[str]] = {}

    def add_region(self, region: str, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Add the constants that the code of ``region`` refers to.

        Raises:
            BackendError: a name is not a C identifier, or another region uses it.
        """
        for name, data in constants.items():
            if not _IDENTIFIER.fullmatch(name):
                raise BackendError(f"region `{region}`: constant {name!r} is not a C identifier")
            if name in self._owners:
                raise BackendError(
                    f"regions `{self._owners[name]}` and `{region}` both have a constant `{name}`; "
                    "put the region's name into it"
                )
            self._owners[name] = region
            self._add(name, data)

    def add_outputs(self, partition: Partition) -> dict[ir.Value, str]:
        """Add the initializers that are outputs of graphs, and return their C names."""
        found: dict[ir.Value, str] = {}
        models = [partition.model, *(body.partition.model for body in partition.bodies())]
        for value in [value for model in models for value in model.graph.outputs]:
            if is_object(value):
                continue  # of which only regions make any
            if value.const_value is not None and value.producer() is None and value not in found:
                found[value] = f"farcall_output_{len(found)}"
                self._add(found[value], stored(value.const_value.numpy()))
        return found

    def _add(self, name: str, data: np.ndarray[Any, Any]) -> None:
        array = np.ascontiguousarray(data)
        if self._big_endian != (sys.byteorder == "big"):
            array = array.byteswap()
        key = Content(array)
        self._data.setdefault(key, array)
        self._names.setdefault(key, []).append(name)

    def totals(self) -> tuple[int, int]:
        """The number of constants, and their total size in bytes."""
        return len(self._data), sum(data.nbytes for data in self._data.values())

    def write(self, path: Path) -> None:
        """Write all data to one file, in the order and with the offsets of :meth:`places`."""
        with path.open("wb") as file:
            self.write_at(file, 0)

    def write_at(self, file: BinaryIO, start: int) -> None:
        """Write all data to an open file, from ``start`` on. Bytes between constants stay as they are."""
        for (_, offset, _), data in zip(self.places(), self._data.values(), strict=True):
            file.seek(start + offset)
            file.write(_bytes(data))

    def places(self) -> list[tuple[list[str], int, int]]:
        """Names, offset and size of each constant in the file that :meth:`write` makes."""
        found, offset = [], 0
        for key, data in self._data.items():
            found.append((self._names[key], offset, data.nbytes))
            offset += data.nbytes + -data.nbytes % ALIGNMENT
        return found

    @property
    def room(self) -> int:
        """The bytes that all of them take, with those between them."""
        return max((offset + size for _, offset, size in self.places()), default=0)


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def data_assembly(
    constants: Constants,
    *,
    hollow: bool = False,
    modules: int = 0,
    libraries: bool = False,
    in_memory: bool = False,
) -> str:
    """The assembly source that includes ``constants.bin``, ``manifest.json`` and ``modules.bin``.

    Args:
        constants: what ``constants.bin`` holds.
        hollow: the object has room for the constants only, and exports :data:`CONSTANTS` as its place.
        modules: the size of ``modules.bin``, the modules that the library embeds; 0: there is none.
        libraries: whether there is ``libraries.bin``, the libraries that the artifact brings.
        in_memory: a program finds the manifest and the digest in its memory, by symbols.

    It says ``%progbits``, because ``@`` starts a comment in the assembly of some machines.
    """
    lines = [f'.section .rodata.farcall,"a",%{"nobits" if hollow else "progbits"}']
    if hollow:
        lines += [
            f".balign {ALIGNMENT}",
            f".globl {CONSTANTS}",
            f".type {CONSTANTS}, %object",
            f"{CONSTANTS}:",
        ]
    for names, offset, size in constants.places():
        lines.append(f".balign {ALIGNMENT}")
        for name in names:
            lines += _label(name)
        if size:
            lines.append(f".skip {size}" if hollow else f'.incbin "constants.bin",{offset},{size}')
    if modules:
        lines += [
            '.section .rodata.farcall_modules,"a",%progbits',
            f".balign {ALIGNMENT}",
            f".globl {LIBRARY_BIN}",
            f".type {LIBRARY_BIN}, %object",
            f".size {LIBRARY_BIN}, {modules}",
            f"{LIBRARY_BIN}:",
            '.incbin "modules.bin"',
        ]
    if libraries:
        lines += [f'.section {LIBRARIES_SECTION},"",%progbits', '.incbin "libraries.bin"']
    flags = "a" if in_memory else ""
    lines += [
        f'.section {MANIFEST_SECTION},"{flags}",%progbits',
        *(_label("farcall_manifest") if in_memory else ()),
        '.incbin "manifest.json"',
        f'.section {DIGEST_SECTION},"{flags}",%progbits',
        *(_label("farcall_digest") if in_memory else ()),
        f".fill {DIGEST_SIZE},1,0",
        f'.section {CHECKSUM_SECTION},"{flags}",%progbits',
        f".fill {CHECKSUM_SIZE},1,0",
        '.section .note.GNU-stack,"",%progbits',
    ]
    return "\n".join(f"\t{line}" if line[0] == "." else line for line in lines) + "\n"


def _label(name: str) -> list[str]:
    return [f".globl {name}", f".hidden {name}", f"{name}:"]
