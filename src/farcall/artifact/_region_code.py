"""Checks the code that a backend returns against the contract, before it is compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from farcall.backends.base import Code, Kernels, Library, RegionCode, RegionModule
from farcall.errors import BackendError, UsageError
from farcall.ffi import Device
from farcall.graph import Region
from farcall.graph._objects import own_dims
from farcall.graph.dims import symbols
from farcall.library._blob import Blob

_SOURCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.c")
_OBJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.[oa]")
_SONAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PATH_FLAG = re.compile(r"rpath|^-R|^-Wl,-R|^-L|^-l:?/|^/")
_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")


def check_code(code: object, region: Region, where: str) -> Code:
    """Refuse a value that is not the code of a region.

    Args:
        code: what a method of a backend returned.
        region: the region that it computes.
        where: the backend and the region, for messages.

    Raises:
        BackendError: the message names the field that is wrong and the value that it expects.
    """
    if isinstance(code, RegionCode):
        _check_files(code, where)
        _check_texts(code.compile_flags, f"{where}: compile_flags")
        _check_texts(code.link_flags, f"{where}: link_flags")
        _check_texts(code.preamble, f"{where}: preamble")
        _check_function(code.function, where)
        _check_link_flags(code.link_flags, where)
        _check_libraries(code.libraries, where)
        _check_kernels(code.kernels, where)
    elif isinstance(code, RegionModule):
        _check_module(code, where)
    else:
        raise BackendError(f"{where}: expected a RegionCode or a RegionModule, got {type(code).__name__}")
    try:
        Device(code.device)
    except (TypeError, ValueError) as error:
        raise BackendError(f"{where}: device: {error}") from None
    _check_constants(code.constants, where)
    _check_workspace(code.workspace, where)
    _check_texts(code.symbols, f"{where}: symbols")
    _check_sizes(code, region, where)
    return code


def _check_sizes(code: Code, region: Region, where: str) -> None:
    """Refuse a size that no shape has: nobody could compute it."""
    asked = {"symbols": code.symbols, "workspace": symbols(code.workspace)}
    if not any(asked.values()):
        return
    values = [*_inputs(region), *region.inputs, *(value for node in region.nodes for value in node.outputs)]
    known = symbols(*(dim for value in values for dim in own_dims(value)))
    for field, names in asked.items():
        for name in names:
            if name not in known:
                found = ", ".join(f"`{one}`" for one in known) or "none"
                raise BackendError(
                    f"{where}: {field}: no dim in this region, or of the model's inputs, is called `{name}`; "
                    f"expected one of these dims: {found}"
                )


def _inputs(region: Region) -> Sequence[ir.Value]:
    graph = region.nodes[0].graph
    return graph.inputs if isinstance(graph, ir.Graph) else ()


def _check_files(code: RegionCode, where: str) -> None:
    for kind, files, pattern, content, ending in (
        ("source", code.sources, _SOURCE, str, "ending in .c"),
        ("object", code.objects, _OBJECT, bytes, "ending in .o or .a"),
    ):
        if not isinstance(files, Mapping):
            raise BackendError(f"{where}: {kind}s: expected file names with their contents, got {files!r}")
        for name, data in files.items():
            if not (isinstance(name, str) and pattern.fullmatch(name)):
                raise BackendError(
                    f"{where}: {kind} file name {name!r}: expected letters, digits, _ . and -, {ending}"
                )
            if not isinstance(data, content):
                wanted = "C as text" if content is str else "bytes"
                raise BackendError(
                    f"{where}: {kind} file {name!r}: expected {wanted}, got {type(data).__name__}"
                )
    if not code.sources and not code.objects:
        raise BackendError(f"{where}: expected sources (names with C text) or objects, got none")


def _check_module(code: RegionModule, where: str) -> None:
    if not (isinstance(code.kind, str) and _KIND.fullmatch(code.kind)):
        raise BackendError(f"{where}: kind: expected letters, digits, _ and ., got {code.kind!r}")
    if type(code.version) is not int or not 0 <= code.version < 1 << 32:
        raise BackendError(f"{where}: version: expected a number from 0 to 2**32 - 1, got {code.version!r}")
    if not isinstance(code.data, bytes):
        raise BackendError(f"{where}: data: expected bytes, got {type(code.data).__name__}")
    _check_function(code.function, where)
    _check_texts(code.features, f"{where}: features")
    _check_texts([code.loader], f"{where}: loader")
    if not isinstance(code.source, str):
        raise BackendError(f"{where}: source: expected a text, got {type(code.source).__name__}")
    try:
        Blob(code.kind, code.version, b"", tuple(code.features))
    except UsageError as error:
        raise BackendError(f"{where}: {error}") from None


def _check_link_flags(flags: Sequence[str], where: str) -> None:
    for flag in flags:
        if _PATH_FLAG.search(flag):
            raise BackendError(
                f"{where}: link_flags: {flag!r} puts a path of this machine into the artifact; "
                "declare the library instead: libraries=[Library(soname, symbols)]"
            )


def _check_libraries(libraries: object, where: str) -> None:
    if not isinstance(libraries, Sequence) or not all(isinstance(one, Library) for one in libraries):
        raise BackendError(f"{where}: libraries: expected a list of Library, got {libraries!r}")
    for library in libraries:
        if not (isinstance(library.soname, str) and _SONAME.fullmatch(library.soname)):
            raise BackendError(
                f"{where}: libraries: expected a soname, such as 'libacme.so.1', got {library.soname!r}"
            )
        at = f"{where}: library `{library.soname}`"
        _check_texts(library.symbols, f"{at}: symbols")
        for symbol in library.symbols:
            if not _SYMBOL.fullmatch(symbol):
                raise BackendError(f"{at}: symbols: expected C identifiers, got {symbol!r}")
        for name in ("package", "version", "cure"):
            if not isinstance(getattr(library, name), str):
                raise BackendError(f"{at}: {name}: expected a text, got {getattr(library, name)!r}")
        if not isinstance(library.data, bytes):
            raise BackendError(f"{at}: data: expected bytes, got {type(library.data).__name__}")


def _check_kernels(kernels: object, where: str) -> None:
    if not isinstance(kernels, Sequence) or not all(isinstance(one, Kernels) for one in kernels):
        raise BackendError(f"{where}: kernels: expected a list of Kernels, got {kernels!r}")
    for one in kernels:
        at = f"{where}: kernels"
        for name in (one.name, *one.functions):
            if not (isinstance(name, str) and _SYMBOL.fullmatch(name) and name.startswith("farcall_")):
                raise BackendError(f"{at}: expected C identifiers that begin with `farcall_`, got {name!r}")
        _check_texts([one.text], f"{at} `{one.name}`: text")
        _check_texts(one.compile_flags, f"{at} `{one.name}`: compile_flags")


def _check_function(name: object, where: str) -> None:
    if not (isinstance(name, str) and re.fullmatch(r"[\w.]{0,200}", name, re.ASCII)):
        raise BackendError(f"{where}: function: expected letters, digits, _ and ., got {name!r}")


def _check_constants(constants: object, where: str) -> None:
    if not isinstance(constants, Mapping):
        raise BackendError(f"{where}: constants: expected names with arrays, got {type(constants).__name__}")
    for name, data in constants.items():
        if not isinstance(data, np.ndarray) or data.dtype.hasobject:
            kind = f"array of {data.dtype}" if isinstance(data, np.ndarray) else type(data).__name__
            raise BackendError(f"{where}: constant {name!r}: expected an array of numbers, got {kind}")


def _check_workspace(workspace: object, where: str) -> None:
    if isinstance(workspace, sympy.Expr):
        is_size = not workspace.is_negative
    else:
        is_size = type(workspace) is int and workspace >= 0
    if not is_size:
        raise BackendError(
            f"{where}: workspace: expected a number of bytes, 0 or more, or a dim, got {workspace!r}"
        )


def _check_texts(texts: object, where: str) -> None:
    items = texts if isinstance(texts, Sequence) and not isinstance(texts, (str, bytes)) else (None,)
    if not all(isinstance(item, str) for item in items):
        raise BackendError(f"{where}: expected a list of texts, got {texts!r}")
