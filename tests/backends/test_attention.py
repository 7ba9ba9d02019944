"""Attention in one kernel: products with a softmax between them, and what is not one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.backends.c import CBackend
from farcall.toolchain import Target

from .harness import whole_region

PLAIN = "s = MatMul (q, k) w = Softmax <axis = -1> (s) y = MatMul (w, v)"
BODIES = {
    "plain": PLAIN,
    "scaled": "t = MatMul (q, k) s = Mul (t, scale) w = Softmax (s) y = MatMul (w, v)",
    "masked": "t = MatMul (q, k) s = Add (t, mask) w = Softmax (s) y = MatMul (w, v)",
    "capped": "t = MatMul (q, k) c = Tanh (t) s = Where (keep, c, low) w = Softmax (s) y = MatMul (w, v)",
    "guarded": "t = MatMul (q, k) s = Add (t, mask) p = Softmax (s) n = IsNaN (p) w = Where (n, zero, p)"
    " y = MatMul (w, v)",
    "weighted": "s = MatMul (q, k) p = Softmax (s) w = Mul (p, mask) y = MatMul (w, v)",
}
# Queries, keys, and how many numbers a query has: one tile, a part of one, blocks of queries, none.
SIZES = [(12, 17, 8), (5, 40, 3), (200, 700, 16), (130, 1500, 5), (0, 9, 4), (7, 0, 4)]


def model_of(body: str, dims: tuple[str, str, str], mask: str, kind: str = "float") -> onnx.ModelProto:
    """A model of two texts with three heads."""
    m, n, d = dims
    return parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g ({kind}[2, 3, {m}, {d}] q, {kind}[2, 3, {d}, {n}] k, {kind}[2, 3, {n}, 6] v, {kind}[{mask}] mask,
       bool[1, 1, {m}, {n}] keep) => ({kind}[2, 3, {m}, 6] y)
    <{kind} scale = {{0.25}}, {kind} low = {{-1e9}}, {kind} zero = {{0.0}}> {{ {body} }}""")


def feeds(
    sizes: tuple[int, int, int], mask: tuple[int, ...], dtype: type = np.float32
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    m, n, d = sizes
    shapes = {"q": (2, 3, m, d), "k": (2, 3, d, n), "v": (2, 3, n, 6), "mask": mask}
    given = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return {**given, "keep": rng.random((1, 1, m, n)) < 0.8}


def steps(model: onnx.ModelProto) -> list[str]:
    code = CBackend().compile(whole_region(model), Target.host(), {"profile": True})
    return [work.operator for work in code.work]


def compare(model: onnx.ModelProto, given: dict[str, np.ndarray], **tolerance: float) -> None:
    main = fc.partition(model).build().load()["main"]
    found = np.from_dlpack(main(*given.values()))
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(model).run(None, given)
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_it_is_one_kernel(body: str, symbolic: bool) -> None:
    for sizes in SIZES:
        m, n, d = sizes
        dims = ("m", "n", "d") if symbolic else (str(m), str(n), str(d))
        for mask in [(n,), (2, 1, 1, n), (m, 1), (1, 3, m, n)] if sizes[0] == 12 else [(m, n)]:
            text = ", ".join(map(str, mask))
            if symbolic:
                text = text.replace(str(m), "m").replace(str(n), "n")
            model = model_of(BODIES[body], dims, text)
            assert len(steps(model)) == 1 or (m == 0 and not symbolic), steps(model)
            compare(model, feeds(sizes, mask))


def test_doubles_and_queries_that_are_wholly_masked() -> None:
    model = model_of(BODIES["guarded"], ("30", "50", "8"), "30, 50", "double")
    given = feeds((30, 50, 8), (30, 50), np.float64)
    given["mask"][7] = -np.inf
    assert len(steps(model)) == 1
    compare(model, given, rtol=1e-12, atol=1e-12)


OTHERS = {
    "scores are read twice": "s = MatMul (q, k) w = Softmax (s) u = Add (w, s) y = MatMul (u, v)",
    "weights are read twice": "s = MatMul (q, k) w = Softmax (s) z = MatMul (w, v) e = ReduceSum (w)"
    " y = Add (z, e)",
    "another axis": "s = MatMul (q, k) w = Softmax <axis = 2> (s) y = MatMul (w, v)",
    "another shape": "s = MatMul (q, k) r = Identity (s) shape = Constant <value_ints = [1, 6, 12, 17]> ()"
    " f = Reshape (r, shape) w = Softmax (f) back = Constant <value_ints = [2, 3, 12, 17]> ()"
    " z = Reshape (w, back) y = MatMul (z, v)",
    "no product before": "w = Softmax (mask) y = MatMul (w, v)",
    "scores are needed behind": "t = MatMul (q, k) s = Add (mask, t) u = Softmax (s) w = Add (u, u)"
    " z = Add (w, t) y = MatMul (z, v)",
}


@pytest.mark.parametrize("body", OTHERS)
def test_others_are_left_alone(body: str) -> None:
    model = model_of(OTHERS[body], ("12", "17", "8"), "2, 3, 12, 17")
    assert len(steps(model)) > 1
    compare(model, feeds((12, 17, 8), (2, 3, 12, 17)))


def test_a_few_queries_are_left_alone() -> None:
    """The products of few rows read their operands in order, and threads share their columns."""
    assert len(steps(model_of(PLAIN, ("3", "17", "8"), "3, 17"))) == 3


def test_all_scores_are_never_in_memory() -> None:
    """They would be 2 x 3 x 1000 x 1000 floats."""
    model = model_of(PLAIN, ("1000", "1000", "8"), "1")
    code = CBackend().compile(whole_region(model), Target.host(), {})
    assert code.scratch + code.workspace < 2 << 20


def test_threads_change_no_result() -> None:
    model = model_of(BODIES["masked"], ("200", "300", "16"), "200, 300")
    given = feeds((200, 300, 16), (200, 300))
    main = fc.partition(model).build().load()["main"]
    one, two = (np.from_dlpack(main(*given.values(), threads=count)) for count in (1, 2))
    np.testing.assert_array_equal(one, two)
