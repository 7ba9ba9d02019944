"""Views, Transpose, Concat, Slice, Gather and the like against the reference evaluator."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import parser

import farcall as fc

from .cases import Case, check, refusal
from .harness import compile_model

DTYPES = [np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_transposes_beside_products_of_transposed_operands() -> None:
    """Both have functions for the dtype in one file of C."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[m, k] a, float[n, k] b) => (float[m, n] c, float[k, n] d) {
      c = Gemm <transB = 1> (a, b) d = Transpose (b)
    }""")
    a, b = normal(5, 33), normal(40, 33)
    c, d = fc.partition(model).build().load()["main"](a, b)
    np.testing.assert_allclose(np.from_dlpack(c), a @ b.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.from_dlpack(d), b.T)


def test_transpose() -> None:
    x = normal(2, 3, 17, 19)
    cases = [Case("Transpose", [x], {"perm": list(p)}) for p in itertools.permutations(range(4))]
    cases += [Case("Transpose", [(normal(5, 33) * 9).astype(dtype)]) for dtype in DTYPES]
    cases += [
        Case("Transpose", [normal(0, 3)]),
        Case("Transpose", [normal()]),
        Case("Transpose", [normal(1, 4, 1)]),
    ]
    check(cases)


def test_views() -> None:
    x = normal(2, 3, 4)
    axes = np.array([0, -1], np.int64)
    check(
        [
            Case("Reshape", [x, np.array([0, -1], np.int64)], constants=[1]),
            Case("Reshape", [x, np.array([4, 6], np.int64)], shapes={0: (4, 6)}),
            Case("Flatten", [x], {"axis": 2}),
            Case("Flatten", [x], {"axis": 0}),
            Case("Flatten", [x], {"axis": -1}),
            Case("Squeeze", [normal(1, 3, 1), axes], constants=[1]),
            Case("Squeeze", [normal(1, 3, 1), axes], shapes={0: (3,)}),
            Case("Squeeze", [normal(1, 3, 1)], {"axes": [0]}, opset=11),
            Case("Unsqueeze", [x, axes], constants=[1]),
            Case("Unsqueeze", [x, axes], shapes={0: (1, 2, 3, 4, 1)}),
            Case("Unsqueeze", [x], {"axes": [1]}, opset=11),
            Case("Identity", [np.array([True, False])]),
            Case("Dropout", [x]),
            Case("Dropout", [x], outputs=2),
            Case("Reshape", [normal(0, 3), np.array([3, 0], np.int64)], {"allowzero": 1}, constants=[1]),
        ]
    )


def test_depth_and_space() -> None:
    """Both ways, with symbolic batches, rows and columns, and without elements."""
    x, images = normal(2, 12, 3, 5), normal(2, 3, 6, 9)
    names = {0: ["n", 12, "h", "w"]}
    cases = [
        Case("DepthToSpace", [item], {"blocksize": 2, "mode": mode}, symbolic=dims)
        for mode in ("DCR", "CRD")
        for dims in ({}, names)
        for item in (x, normal(0, 12, 3, 5), normal(1, 12, 1, 1))
    ]
    cases += [Case("SpaceToDepth", [images], {"blocksize": 3}), Case("SpaceToDepth", [x], {"blocksize": 1})]
    check(cases)
    (symbolic,) = check([Case("SpaceToDepth", [images], {"blocksize": 3}, symbolic={0: ["n", 3, "h", "w"]})])
    assert symbolic(normal(1, 3, 9, 3))[0].shape == (1, 27, 3, 1)


def test_dims_that_are_one_in_some_calls_broadcast() -> None:
    """As numpy does it, also without elements; sizes that do not fit end the call."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
    g (float[a,b,c] x, float[d,b] z, float[3] w, float[e,c,4] m)
    => (float[?,?,?] s, float[?,?,?] t, float[?,?,?] u) {
        s = Add(x, z)  p = Greater(x, w)  t = Where(p, x, w)  u = MatMul(x, m) }""")
    compiled = compile_model(model)
    for a, b, c, d, e in itertools.product((1, 2, 0), (1, 3), (1, 3), (1, 3), (1, 2)):
        x, z, w, m = normal(a, b, c), normal(d, b, seed=1), normal(3, seed=2), normal(e, c, 4, seed=3)
        try:
            expected = x + z, np.where(x > w, x, w), x @ m
        except ValueError:
            with pytest.raises(RuntimeError):
                compiled(x, z, w, m)
            continue
        for one, other in zip(compiled(x, z, w, m), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_late_shapes_are_checked() -> None:
    reshape = Case(
        "Reshape",
        [normal(2, 6), np.array([6, 2], np.int64)],
        symbolic={0: ["a", "b"]},
        shapes={0: ("b", "a")},
    )
    squeeze = Case("Squeeze", [normal(1, 3, 1), np.array([0], np.int64)], shapes={0: (3, 1)})
    first, second = check([reshape, squeeze])
    assert first(normal(2, 6), np.array([-1, 2], np.int64))[0].shape == (6, 2)
    for wrong in ([2, 6], [12, 1], [6, 3]):
        with pytest.raises(RuntimeError):
            first(normal(2, 6), np.array(wrong, np.int64))
    for axes in ([1], [2], [7]):
        with pytest.raises(RuntimeError):
            second(normal(1, 3, 1), np.array(axes, np.int64))


def test_concat_and_split() -> None:
    a, b, c = normal(2, 3, 4), normal(2, 1, 4), normal(2, 0, 4)
    check(
        [
            Case("Concat", [a, b, c], {"axis": 1}),
            Case("Concat", [a, a], {"axis": -1}),
            Case("Concat", [a, a], {"axis": 0}),
            Case("Concat", [normal(3).astype(np.int64)], {"axis": 0}),
            Case("Split", [a, np.array([1, 2], np.int64)], {"axis": 1}, [1], outputs=2),
            Case("Split", [a], {"axis": 2, "num_outputs": 3}, outputs=3),
        ]
    )


def test_concat_symbolic() -> None:
    case = Case("Concat", [normal(2, 3), normal(2, 3)], {"axis": 0}, symbolic={0: ["a", 3], 1: ["b", 3]})
    (region,) = check([case])
    for m, n in [(1, 5), (0, 2), (3, 0)]:
        x, y = normal(m, 3), normal(n, 3)
        np.testing.assert_array_equal(region(x, y)[0], np.concatenate([x, y]))


@st.composite
def slices(draw: st.DrawFn) -> Case:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    bound = st.integers(-8, 8)
    starts, ends = [draw(bound) for _ in axes], [draw(bound | st.just(2**62)) for _ in axes]
    steps = [draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in axes]
    for i, axis in enumerate(axes):  # numpy, and the reference with it, has another rule for such starts
        starts[i] = max(starts[i], -shape[axis]) if steps[i] < 0 else starts[i]
    operands = [normal(*shape), *(np.array(v, np.int64) for v in (starts, ends, axes, steps))]
    return Case("Slice", operands, constants=[1, 2, 3, 4])


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(slices(), min_size=20, max_size=20))
def test_slice(cases: list[Case]) -> None:
    check(cases)


def test_a_slice_backwards_from_before_the_first_element() -> None:
    """ONNX moves the start to the first element; numpy, and the reference with it, take none."""
    given = (np.array([n], np.int64) for n in (-4, -9, 1, -2))
    case = Case("Slice", [normal(2, 3, 4), *given], constants=[1, 2, 3, 4])
    region = compile_model(case.model())
    np.testing.assert_array_equal(region(case.operands[0])[0], case.operands[0][:, :1])


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(-1, -(2**62), -1), (2**62, 0, -1), (-2, -(2**31), -2), (3, -4, -1), (1, -9, -3)],
)
def test_a_slice_backwards_along_a_symbolic_dim(start: int, end: int, step: int) -> None:
    bounds = (np.array([n], np.int64) for n in (start, end, 1, step))
    case = Case("Slice", [normal(2, 5), *bounds], constants=[1, 2, 3, 4], symbolic={0: [2, "n"]})
    region = compile_model(case.model())
    for n in (5, 4, 2, 1, 0, 17):
        x = normal(2, n)
        expected = x[:, max(start, -n) : end if end >= -n else None : step]
        np.testing.assert_array_equal(region(x)[0], expected)


def test_indexing() -> None:
    x = normal(4, 5, 6)
    index = np.array([[0, -1], [2, 3]], np.int64)
    shape = np.array([2, 1, 3], np.int64)
    check(
        [
            Case("Gather", [x, index], {"axis": 1}),
            Case("Gather", [x, index.astype(np.int32)], {"axis": -1}),
            Case("Gather", [x, np.array(2, np.int64)], {"axis": 0}),
            Case("Expand", [normal(1, 3), np.array([2, 4, 1], np.int64)], constants=[1]),
            Case("ConstantOfShape", [shape], shapes={0: (2, 1, 3)}),
            Case("Pad", [x, np.array([1, 0, 2, 0, 3, 1], np.int64), np.float32(7)], constants=[1]),
            Case("Pad", [normal(3), np.array([1, 1], np.int64)], constants=[1]),
        ]
    )


def test_gather_outside_is_an_error() -> None:
    case = Case("Gather", [normal(3, 2), np.array([0], np.int64)])
    (region,) = check([case])
    for wrong in (3, -4, 2**62):
        with pytest.raises(RuntimeError):
            region(normal(3, 2), np.array([wrong], np.int64))


def test_refusals_say_why() -> None:
    mask = Case("Dropout", [normal(3), np.float32(0.5).reshape(()), np.array(True)])
    assert "training_mode" in refusal(mask)
    assert (
        refusal(Case("Pad", [normal(3)], {"mode": "circular", "pads": [1, 1]}, opset=10)) == "mode=circular"
    )


def test_triangles() -> None:
    x = np.arange(2 * 4 * 7).reshape(2, 4, 7)
    cases = [
        Case("Trilu", [x, np.int64(k).reshape(())], {"upper": upper}, [1] if k % 2 else [])
        for k in (-9, -4, -1, 0, 2, 6, 50)
        for upper in (0, 1)
    ]
    cases += [Case("Trilu", [x > 9]), Case("Trilu", [x[:, :0].astype(np.float32)])]
    check(cases)
    (region,) = check([Case("Trilu", [x, np.int64([9])], symbolic={0: ["b", "m", "n"]})])
    for far, kept in ((2**63 - 1, False), (-(2**63), True)):
        np.testing.assert_array_equal(region(x, np.int64([far]))[0], x * kept)
