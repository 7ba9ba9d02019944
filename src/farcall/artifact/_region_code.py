"""Checks the RegionCode that a backend returns against the contract, before it is compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import sympy

from farcall.backends.base import RegionCode
from farcall.errors import BackendError

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.c")


def check_code(code: object, where: str) -> None:
    """Refuse a value that is not a valid RegionCode.

    Args:
        code: The return value of a backend's ``compile``.
        where: The backend and the region, for messages.

    Raises:
        BackendError: The message names the field that is wrong and the value that it expects.
    """
    if not isinstance(code, RegionCode):
        raise BackendError(f"{where}: its compile() gave {type(code).__name__}; expected a RegionCode")
    _check_sources(code.sources, where)
    _check_constants(code.constants, where)
    _check_workspace(code.workspace, where)
    for name in ("symbols", "compile_flags", "link_flags"):
        _check_texts(getattr(code, name), f"{where}: {name}")


def _check_sources(sources: object, where: str) -> None:
    if not isinstance(sources, Mapping) or not sources:
        raise BackendError(f"{where}: sources: expected file names with their C text, got {sources!r}")
    for name, text in sources.items():
        if not (isinstance(name, str) and _FILE_NAME.fullmatch(name)):
            raise BackendError(
                f"{where}: source file name {name!r}: expected letters, digits, _ . and -, ending in .c"
            )
        if not isinstance(text, str):
            raise BackendError(
                f"{where}: source file {name!r}: expected C as text, got {type(text).__name__}"
            )


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
