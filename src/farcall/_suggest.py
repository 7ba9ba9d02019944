"""Texts that many messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
    *("float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn"),
)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``; did you mean `main`?`` if the name resembles an existing one; otherwise empty."""
    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean `{close[0]}`?" if close else ""


def dtype_meant(name: str) -> str:
    """The same for the name of a dtype. The native core calls it."""
    return did_you_mean(name, _DTYPES)
