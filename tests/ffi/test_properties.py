"""Any argument comes back equal, or a Python exception names the argument that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from farcall import ffi

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.binary()
)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=5).map(tuple), max_leaves=12)

arrays = hnp.arrays(
    dtype=hnp.scalar_dtypes() | hnp.datetime64_dtypes() | hnp.unicode_string_dtypes(max_len=4),
    shape=hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
)

odd = (
    st.sampled_from(
        [print, int, object(), {1}, {"a": 1}, 1j, range(3), np.float16(2), np.dtype("f8"), np.int8]
    )
    | st.sampled_from(
        [ffi.dtype("int8"), ffi.Device("cpu"), ffi.Function(print), ffi.empty((2, 2)), slice(3)]
    )
    | arrays
    | values
)


def fits(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(fits, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


@given(value=values)
def test_values_come_back(kernels: ffi.Module, value: Any) -> None:
    try:
        back = kernels["echo"](value)
    except OverflowError:
        assert not fits(value)
    else:
        assert back == value
        assert type(back) is type(value)


@given(x=arrays, data=st.data())
def test_arrays_come_back_through_any_view(
    kernels: ffi.Module, x: np.ndarray[Any, Any], data: st.DataObject
) -> None:
    view = x[data.draw(hnp.basic_indices(x.shape, allow_newaxis=True, allow_ellipsis=True))]
    if not isinstance(view, np.ndarray):
        return
    try:
        y = kernels["copy"](view)
    except TypeError:
        assert view.dtype.kind in "mMUg" or not view.dtype.isnative or view.dtype.itemsize > 16
    else:
        assert (y.dtype, y.shape) == (view.dtype, view.shape)
        assert y.tobytes() == view.tobytes()


@settings(max_examples=300)
@given(args=st.lists(odd, max_size=12), name=st.sampled_from(["count", "add", "copy", "echo", "call"]))
def test_wrong_arguments_are_python_exceptions(kernels: ffi.Module, args: list[Any], name: str) -> None:
    try:
        kernels[name](*args)
    except (TypeError, ValueError, OverflowError) as error:
        assert str(error)
