"""The rule of safe casts agrees with casting every value."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farcall.abi import FunctionAbi, Signature, TensorSpec
from farcall.abi.calls._casts import CASTINGS, can_cast, cast_number, number
from farcall.abi.calls._values import numpy_dtype

SMALL = [
    "bool",
    "int4",
    "uint4",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "float16",
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
]
ALL = [*SMALL, "int32", "int64", "uint32", "uint64", "float32", "float64", "complex64", "complex128"]


def every_value(name: str) -> np.ndarray:
    """All values of a dtype of at most 16 bits."""
    dtype = numpy_dtype(name)
    if name == "bool":
        return np.array([False, True])
    if name in ("int4", "uint4"):
        return np.arange(-8 if name == "int4" else 0, 8 if name == "int4" else 16).astype(dtype)
    bits = 4 if "float4" in name else 6 if "float6" in name else 8 * dtype.itemsize
    return np.arange(2**bits, dtype=f"u{dtype.itemsize}").view(dtype)


def survives(values: np.ndarray, name: str) -> bool:
    """Whether all values are the same after a cast, infinities, zeros with a sign and NaNs included."""
    with np.errstate(all="ignore"):
        if "int" in name and "int" in str(values.dtype):
            kind = number(name)
            return kind is not None and all(kind.low <= int(value) <= kind.high for value in values)
        cast = values.astype(np.float64).astype(numpy_dtype(name))
        before, after = values.astype(np.float64), cast.astype(np.float64)
    same = (before == after) & (np.signbit(before) == np.signbit(after))
    return bool(np.all(same | (np.isnan(before) & np.isnan(after))))


def is_number_safe(source: str, target: str) -> bool:
    a, b = number(source), number(target)
    assert a is not None
    assert b is not None
    if b.kind in ("bool", "int") and a.kind == "float":
        return False
    if b.kind == "bool":
        return a.kind == "bool"
    return survives(every_value(source), target)


@pytest.mark.parametrize("source", SMALL)
def test_safe_means_that_every_value_survives(source: str) -> None:
    for target in [*SMALL, "int32", "uint32", "int64", "float32", "float64"]:
        if source != target:
            assert can_cast(source, target, "safe") == is_number_safe(source, target), target


@pytest.mark.parametrize(
    ("source", "target", "safe"),
    [
        ("int32", "float32", False),
        ("int32", "float64", True),
        ("int64", "float64", False),
        ("uint32", "int64", True),
        ("uint64", "int64", False),
        ("float32", "float64", True),
        ("float64", "float32", False),
        ("float32", "complex64", True),
        ("float64", "complex64", False),
        ("complex64", "complex128", True),
        ("complex64", "float64", False),
        ("float32", "handle", False),
    ],
)
def test_large_dtypes(source: str, target: str, safe: bool) -> None:
    assert can_cast(source, target, "safe") is safe


def test_each_casting_allows_what_the_one_before_does() -> None:
    for pair in itertools.product(ALL, ALL):
        allowed = [can_cast(*pair, casting) for casting in CASTINGS]
        assert allowed == sorted(allowed)
        assert allowed[0] is (pair[0] == pair[1])
        assert allowed[3]


@settings(deadline=None)
@given(st.sampled_from([name for name in ALL if "int" in name]), st.integers(-(2**70), 2**70))
def test_ints_are_in_range_or_refused(name: str, value: int) -> None:
    kind = number(name)
    assert kind is not None
    if kind.low <= value <= kind.high:
        assert cast_number(value, name, "safe") == value
    else:
        with pytest.raises(ValueError, match=f"{name} holds {kind.low} to {kind.high}"):
            cast_number(value, name, "safe")


@settings(deadline=None)
@given(
    st.sampled_from(["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]),
    st.integers(-(2**70), 2**70),
)
def test_ints_are_exact_as_floats_or_refused(name: str, value: int) -> None:
    with np.errstate(all="ignore"):
        there = float(np.array(float(value)).astype(numpy_dtype(name)))
    exact = math.isfinite(there) and int(there) == value
    if exact:
        assert cast_number(value, name, "safe") == value
    else:
        with pytest.raises(ValueError, match="cannot hold this int exactly"):
            cast_number(value, name, "safe")


@settings(deadline=None)
@given(st.sampled_from(["float16", "float32", "bfloat16", "float8_e5m2"]), st.floats(allow_nan=True))
def test_floats_do_not_overflow(name: str, value: float) -> None:
    with np.errstate(all="ignore"):
        there = float(np.array(value).astype(numpy_dtype(name)))
    if math.isinf(there) and not math.isinf(value):
        with pytest.raises(ValueError, match="too large"):
            cast_number(value, name, "safe")
    else:
        given_back = cast_number(value, name, "safe")
        assert given_back == value or math.isnan(value)


@pytest.mark.parametrize(
    ("value", "name", "message"),
    [
        (True, "int8", "a bool is never made an int"),
        (True, "float32", "a bool is never made a float"),
        (1, "bool", "only True and False are bools"),
        (2.0, "int8", "a float is never made an int"),
        (1j, "float32", "a complex is never made a float"),
        (float("inf"), "float8_e4m3fn", "float8_e4m3fn has no inf"),
        (float("nan"), "float4_e2m1fn", "float4_e2m1fn has no nan"),
        (470.0, "float8_e4m3fn", "too large for float8_e4m3fn, which holds up to 448"),
        (1e39 + 1j, "complex64", "too large"),
        (1, "handle", "not a dtype of single numbers"),
    ],
)
def test_numbers_that_are_refused(value: Any, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cast_number(value, name, "safe")


def test_rounding_stays_with_the_function() -> None:
    assert cast_number(0.1, "float32", "safe") == 0.1
    assert cast_number(448.0, "float8_e4m3fn", "safe") == 448.0
    assert cast_number(2, "complex64", "safe") == 2 + 0j


def test_unsafe_casts_of_numbers() -> None:
    assert cast_number(2.9, "int8", "unsafe") == 2
    assert cast_number(3, "bool", "unsafe") is True
    assert cast_number(True, "float32", "unsafe") == 1.0
    assert cast_number(1 + 2j, "float32", "unsafe") == 1.0
    with pytest.raises(ValueError, match="int8 holds"):
        cast_number(300.0, "int8", "unsafe")
    with pytest.raises(ValueError, match="a float is never made an int"):
        cast_number(math.inf, "int8", "unsafe")


def test_dtypes_of_ml_dtypes_are_the_ones_meant() -> None:
    for name in SMALL:
        kind = number(name)
        if kind is not None and kind.kind == "float":
            found = ml_dtypes.finfo(numpy_dtype(name))
            assert kind.digits == found.nmant + 1
            assert kind.highest == float(found.max)


def test_every_cast_that_is_allowed_can_be_done() -> None:
    for source, target in itertools.product(SMALL, SMALL):
        spec = TensorSpec("x", target, ("n",))
        values = np.array([0, 1]).astype(np.float32).astype(numpy_dtype(source))
        (packed,) = FunctionAbi(Signature((spec,), ()), casting="unsafe").pack_inputs(values)
        assert str(packed.dtype) == target
        assert packed.numpy().astype(np.float32).tolist() == [0, 1]
