"""Quantized operators against the reference evaluator, whose integers are exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from .cases import Case, check, refusal
from .harness import compile_regions, whole_region

I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)


def narrow(*shape: int, dtype: np.dtype = U8, seed: int = 0) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 40).astype(np.float32)


def run(case: Case) -> list[np.ndarray]:
    """What the backend's code computes, where the reference evaluator has no answer or another one."""
    (compiled,) = compile_regions([whole_region(case.model(), name="c_run")], flags=("-O1",))
    return compiled(*case.feeds())


def test_matmul_integer() -> None:
    shapes = [((3, 4), (4, 5)), ((17, 300), (300, 33)), ((4,), (4, 3)), ((2, 3, 4), (4, 5)), ((0, 4), (4, 5))]
    cases = [
        Case("MatMulInteger", [narrow(*a, dtype=x), narrow(*b, dtype=y, seed=1), *zeros], constants=constants)
        for (a, b), x, y in itertools.product(shapes, (U8, I8), (U8, I8))
        for zeros in ([], [np.array(3, x)], [np.array([7], x), np.array(-1 % 120, y)])
        for constants in ((), (1,), tuple(range(1, 2 + len(zeros))))
    ]
    check(cases)


def test_matmul_integer_with_a_zero_point_for_each_row_and_column() -> None:
    a, b = narrow(2, 6, 9), narrow(2, 9, 5, dtype=I8, seed=1)
    rows, columns = narrow(2, 6, 1, seed=2), narrow(2, 1, 5, dtype=I8, seed=3)
    check(
        [
            Case("MatMulInteger", [a, b, rows, columns]),
            Case("MatMulInteger", [a, b, rows, columns], constants=(1, 3)),
            Case("MatMulInteger", [a[0], b[0], rows[0], columns[0]]),
            Case("MatMulInteger", [a[0], b[0], None, columns[0, 0]], constants=(1, 3)),
        ]
    )


def test_a_vector_of_zero_points_belongs_to_the_rows_of_a_matrix() -> None:
    """The specification's rule; the reference evaluator would add them along the columns."""
    a, b, rows = narrow(4, 4), narrow(4, 4, seed=1), narrow(4, seed=2)
    vector = run(Case("MatMulInteger", [a, b, rows]))
    np.testing.assert_array_equal(vector[0], Case("MatMulInteger", [a, b, rows[:, None]]).expected()[0])


def test_conv_integer() -> None:
    cases = []
    for x, w, group, attributes in [
        ((1, 1, 3, 3), (1, 1, 2, 2), 1, {}),
        ((2, 4, 9, 7), (8, 4, 3, 3), 1, {"pads": [1, 1, 1, 1]}),
        ((2, 4, 9, 7), (8, 2, 3, 3), 2, {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ((1, 6, 8, 8), (6, 1, 3, 3), 6, {"pads": [1, 1, 1, 1], "dilations": [1, 2]}),
        ((1, 5, 6, 6), (7, 5, 1, 1), 1, {}),
        ((2, 3, 20), (5, 3, 4), 1, {"auto_pad": "SAME_UPPER"}),
    ]:
        for dtype, zeros, fixed in itertools.product((U8, I8), (0, 1, 2), (False, True)):
            items = [narrow(*x, dtype=dtype), narrow(*w, dtype=I8, seed=1)]
            items += [np.array(9, dtype), np.array(-3, I8)][:zeros]
            constants = tuple(i for i in (1, 3) if i < len(items)) if fixed else ()
            cases.append(Case("ConvInteger", items, {"group": group, **attributes}, constants))
    check(cases)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantize_rounds_to_even_and_saturates(dtype: type) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e6, -1e6, 3.49, -3.51, 254.7], np.float32)
    zero = np.array(5, dtype)
    check(
        [
            Case("QuantizeLinear", [x, np.array(1, np.float32), zero]),
            Case("QuantizeLinear", [x, np.array(0.37, np.float32), zero], constants=(1, 2)),
        ]
    )


def test_quantize_and_dequantize_by_axis() -> None:
    scale = np.array([0.5, 2.0, 0.1, 7.0], np.float32)
    zero = np.array([0, 3, 128, 255], np.uint8)
    x = floats(2, 4, 5)
    cases = [
        Case("QuantizeLinear", [x, np.array(0.7, np.float32)]),
        Case("QuantizeLinear", [x, scale, zero], {"axis": 1}),
        Case("QuantizeLinear", [floats(3, 4), scale, zero], {"axis": -1}, constants=(1, 2)),
        Case("DequantizeLinear", [narrow(2, 4, 5), scale, zero], {"axis": 1}),
        Case("DequantizeLinear", [narrow(2, 5, 4, dtype=I8), scale, zero.astype(np.int8)], {"axis": 2}),
        Case("DequantizeLinear", [np.array([2**31 - 1, -5, 0], np.int32), np.array(0.25, np.float32)]),
    ]
    check(cases)


def test_infinities_saturate_and_not_a_number_becomes_the_lowest() -> None:
    """The reference evaluator casts infinities to int32, whose result is arbitrary."""
    x = np.array([np.inf, 1e30, -np.inf, np.nan], np.float32)
    (y,) = run(Case("QuantizeLinear", [x, np.array(1, np.float32), np.array(4, np.int8)]))
    assert y.tolist() == [127, 127, -128, -128]


def test_dynamic_quantize() -> None:
    check(
        [
            Case("DynamicQuantizeLinear", [x], outputs=3)
            for x in (floats(3, 7), np.abs(floats(9)) + 1, -np.abs(floats(4, 2)) - 3)
        ]
    )


def test_dynamic_quantize_of_zeros_has_scale_one() -> None:
    y, scale, zero = run(Case("DynamicQuantizeLinear", [np.zeros((2, 3), np.float32)], outputs=3))
    assert (y == 0).all() and scale == 1 and zero == 0


def test_what_is_refused_says_why() -> None:
    assert "one for each row" in refusal(Case("MatMulInteger", [narrow(2, 3), narrow(3, 4), narrow(5)]))
    assert "2 elements for axis 1 of size 4" in refusal(
        Case("QuantizeLinear", [floats(3, 4), np.ones(2, np.float32), np.zeros(2, np.uint8)])
    )
    assert "block_size" in refusal(
        Case("DequantizeLinear", [narrow(4, 4), np.ones((2, 4), np.float32)], {"block_size": 2, "axis": 0})
    )
