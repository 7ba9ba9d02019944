"""Any argument of a typed function gives a value or a Python exception, and the process survives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farcall.ffi import Device, Function, Module, dtype, empty

NAMES = (
    *("add", "narrow", "unsigned64", "mean", "flip", "join", "length", "reversed", "next_color", "kinds"),
    *("same", "half", "pointer", "count_all", "options", "asked", "axis", "doubled", "columns", "filled"),
    *("keep", "through_dlpack", "transposed", "row", "maybe", "sum", "sizes", "item", "nested", "swap"),
    *("dims", "total", "lookup", "apply_typed", "adder", "catches", "error_value"),
    *(
        "with_item",
        "without",
        "grouped",
        "extended",
        "append",
        "put",
        "which",
        "call_in",
        "about",
        "apply_std",
    ),
)
ARRAYS = (np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 2), np.int8), np.zeros((), np.float64))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=12),
    st.binary(max_size=12),
    st.sampled_from([*ARRAYS, ARRAYS[0].T, empty((2, 3)), dtype("int8"), Device("cpu"), np.float16]),
    st.sampled_from([len, Function(max), object(), 1j, ValueError("v")]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=6),
    ),
    max_leaves=6,
)


@given(name=st.sampled_from(NAMES), args=st.lists(VALUES, max_size=4))
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_value_or_an_exception(kernels: Module, name: str, args: list[Any]) -> None:
    sizes = [value for value in args if isinstance(value, int) and value > 1000]
    if name in ("columns", "filled", "dims", "extended") and sizes:
        return  # that much memory may well be there
    try:
        kernels[name](*args)
    except Exception as error:
        assert str(error)
