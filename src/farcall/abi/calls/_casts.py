"""The rule for casts of arrays and of single numbers. No other module decides this.

**Arrays** are cast to the dtype of their parameter only if that dtype can hold every value of their own:

- a ``bool`` to any number;
- an integer to an integer whose range includes its own, or to a float with enough precision for all of its
  values (``int16`` to ``float32``, but not ``int32``);
- a float to a float of at least its precision and range;
- any of these to a complex number whose parts are such floats.

A cast array is a copy, and is counted.

**Single numbers** are judged by their value. An int must be in range, or exact as a float. A float becomes
the nearest value of a float dtype, as a literal does, and must not overflow. It never becomes an int. Only
a bool is accepted as a bool, and a bool is not accepted as a number.

``casting`` uses NumPy's terms: ``"no"`` casts no array, ``"safe"`` is the rule above, ``"same_kind"`` also
casts to a dtype of the same kind (``float64`` to ``float32``, ``int64`` to ``int8``) or of a later kind
(int, float, complex), and ``"unsafe"`` allows every cast between numbers.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from farcall._core import dtype as _dtype

Casting: TypeAlias = Literal["no", "safe", "same_kind", "unsafe"]
CASTINGS: tuple[Casting, ...] = get_args(Casting)

_KINDS = ("bool", "int", "float", "complex")
_UNSIGNED, _COMPLEX, _BOOL = (_dtype(name).code for name in ("uint8", "complex64", "bool"))
_FLOATS = {  # bits of the significand, exponents: all are < 2**largest, and multiples of 2**smallest
    "float16": (11, 16, -24),
    "bfloat16": (8, 128, -133),
    "float32": (24, 128, -149),
    "float64": (53, 1024, -1074),
    "float8_e3m4": (5, 4, -6),
    "float8_e4m3": (4, 8, -9),
    "float8_e4m3fn": (4, 9, -9),
    "float8_e4m3fnuz": (4, 8, -10),
    "float8_e4m3b11fnuz": (4, 5, -13),
    "float8_e5m2": (3, 16, -16),
    "float8_e5m2fnuz": (3, 16, -17),
    "float6_e2m3fn": (4, 3, -3),
    "float6_e3m2fn": (3, 5, -4),
    "float4_e2m1fn": (2, 3, -1),
}


class Number(NamedTuple):
    """The values that a dtype of numbers can hold."""

    kind: str
    """bool, int, float or complex."""
    low: int = 0
    high: int = 0
    """The range of an integer dtype."""
    digits: int = 0
    largest: int = 0
    smallest: int = 0
    """The format of a float, or of the parts of a complex number: see _FLOATS."""
    specials: frozenset[str] = frozenset()
    """Those of inf, nan and -0 that exist. The endings ``fn`` and ``fnuz`` of a name refer to them."""
    highest: float = 0.0

    def holds(self, other: Number) -> bool:
        """Whether this dtype can hold every value of the other."""
        if self.kind == "bool":
            return other.kind == "bool"
        if self.kind == "int":
            return other.kind in ("bool", "int") and self.low <= other.low and other.high <= self.high
        if other.kind in ("bool", "int"):
            most = max(other.high, -other.low)
            digits = most.bit_length() - (most & (most - 1) == 0)
            return digits <= self.digits and most <= self.highest
        finer = self.digits >= other.digits and self.smallest <= other.smallest
        higher = self.highest >= other.highest and self.specials >= other.specials
        return finer and higher and _KINDS.index(other.kind) <= _KINDS.index(self.kind)


@lru_cache(maxsize=256)
def is_dtype(name: str) -> bool:
    """Whether native code has the dtype."""
    try:
        return bool(_dtype(name))
    except ValueError:
        return False


@lru_cache(maxsize=256)
def number(name: str) -> Number | None:
    """The values of the dtype; None if it is not a known number (``handle``, vectors, numpy's own)."""
    if not is_dtype(name) or (dtype := _dtype(name)).lanes != 1:
        return None
    if dtype.code == _BOOL:
        return Number("bool", 0, 1)
    if dtype.code <= _UNSIGNED:
        unsigned = dtype.code == _UNSIGNED
        return Number(
            "int", 0 if unsigned else -(1 << (dtype.bits - 1)), (1 << (dtype.bits - (not unsigned))) - 1
        )
    part = f"float{dtype.bits // 2}" if dtype.code == _COMPLEX else str(dtype)
    if part not in _FLOATS:
        return None
    digits, largest, smallest = _FLOATS[part]
    highest = 448.0 if part == "float8_e4m3fn" else math.ldexp(2.0 - 2.0 ** (1 - digits), largest - 1)
    kind = "complex" if dtype.code == _COMPLEX else "float"
    return Number(kind, 0, 0, digits, largest, smallest, _specials(part, dtype.bits), highest)


def _specials(name: str, bits: int) -> frozenset[str]:
    if name.endswith("fnuz"):
        return frozenset({"nan"})
    if name.endswith("fn"):
        return frozenset({"nan", "-0"} if bits == 8 else {"-0"})
    return frozenset({"inf", "nan", "-0"})


def can_cast(source: str, target: str, casting: Casting) -> bool:
    """Whether an array may be cast from one dtype to another, both given by name."""
    if source == target:
        return True
    a, b = number(source), number(target)
    if casting == "no" or a is None or b is None:
        return False
    if casting == "unsafe":
        return True
    return b.holds(a) or (casting == "same_kind" and _KINDS.index(a.kind) <= _KINDS.index(b.kind))


def cast_number(value: Any, name: str, casting: Casting) -> Any:
    """Convert a number to a dtype.

    Args:
        value: a bool, int, float or complex.
        name: the name of the dtype.

    Returns:
        A bool, int, float or complex.

    Raises:
        ValueError: the dtype cannot hold the number; the message has the reason.
    """
    to = number(name)
    if to is None:
        raise ValueError(f"{name} is not a dtype of single numbers")
    if casting == "unsafe":
        value = _forced(value, to)
    return _CASTS[to.kind](value, to, name)


def from_register(value: int, name: str) -> int | bool:
    """The number in the low bits of a register, which has 64 bits for 64-bit dtypes and otherwise 32.

    Args:
        value: the contents of the register, read as a signed or an unsigned number.
        name: the name of the dtype.

    Returns:
        An int or a bool; the value unchanged if a register cannot hold it, or if the dtype is not an integer.
    """
    to = number(name)
    if to is None or to.kind not in ("bool", "int"):
        return value
    width = 64 if to.high - to.low >= 1 << 32 else 32
    if not -(1 << (width - 1)) <= value < 1 << width:
        return value
    low_bits = value & (to.high - to.low)
    number_of_dtype = low_bits + to.low - to.high - 1 if low_bits > to.high else low_bits
    return bool(number_of_dtype) if to.kind == "bool" else number_of_dtype


def _forced(value: Any, to: Number) -> Any:
    if to.kind == "bool":
        return bool(value)
    if isinstance(value, complex) and to.kind != "complex":
        value = value.real
    value = int(value) if isinstance(value, bool) else value
    return int(value) if to.kind == "int" and not isinstance(value, int) and math.isfinite(value) else value


def _to_bool(value: Any, to: Number, name: str) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("only True and False are bools")


def _to_int(value: Any, to: Number, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"a {type(value).__name__} is never made an int; pass int(...)")
    if not to.low <= value <= to.high:
        raise ValueError(f"{name} holds {to.low} to {to.high}")
    return int(value)


def _to_float(value: Any, to: Number, name: str) -> float:
    if isinstance(value, complex | bool):
        raise ValueError(f"a {type(value).__name__} is never made a float; pass float(...) or its .real")
    if isinstance(value, int):
        _check_exact(value, to, name)
        return float(value)
    _check_overflow(value, to, name)
    return float(value)


def _to_complex(value: Any, to: Number, name: str) -> complex:
    if isinstance(value, complex):
        _check_overflow(value.real, to, name)
        _check_overflow(value.imag, to, name)
        return complex(value)
    return complex(_to_float(value, to, name))


def _check_exact(value: int, to: Number, name: str) -> None:
    odd = abs(value) // (value & -value) if value else 0  # without its factors of two
    if odd.bit_length() > to.digits or abs(value) > to.highest:
        raise ValueError(f"{name} cannot hold this int exactly; pass float(...) to round it")


def _check_overflow(value: float, to: Number, name: str) -> None:
    if not math.isfinite(value):
        if ("nan" if math.isnan(value) else "inf") not in to.specials:
            raise ValueError(f"{name} has no {value}")
        return
    mantissa, exponent = math.frexp(abs(value))
    whole = round(math.ldexp(mantissa, to.digits))
    if exponent > to.largest or math.ldexp(whole, exponent - to.digits) > to.highest:
        raise ValueError(f"it is too large for {name}, which holds up to {to.highest:g}")


_CASTS = {"bool": _to_bool, "int": _to_int, "float": _to_float, "complex": _to_complex}
