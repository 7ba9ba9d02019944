"""The names of element types in IREE's compiler and in a Signature."""

from __future__ import annotations

from farcall.errors import SignatureError

# MLIR's integers have no sign; as in IREE's own bindings, they stand for numpy's signed integers.
_DTYPES = {
    "i1": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (4, 8, 16, 32, 64)},
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "f8E3M4": "float8_e3m4",
    "f8E4M3": "float8_e4m3",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f6E2M3FN": "float6_e2m3fn",
    "f6E3M2FN": "float6_e3m2fn",
    "f4E2M1FN": "float4_e2m1fn",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}
_ELEMENTS = {dtype: element for element, dtype in _DTYPES.items()}
_SYNONYMS = {f"si{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)} | {"index": "int64"}


def dtype_of(element: str) -> str | None:
    """``float32`` for ``f32``; None if the text is not an element type."""
    return _DTYPES.get(element) or _SYNONYMS.get(element)


def element_of(dtype: str) -> str:
    """``f32`` for ``float32``.

    Raises:
        SignatureError: IREE has no such type.
    """
    if dtype not in _ELEMENTS:
        raise SignatureError(f"IREE has no name for the dtype {dtype}; it has {', '.join(_ELEMENTS)}")
    return _ELEMENTS[dtype]
