"""If, Loop and Scan: drivers of the graphs inside of them, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import farcall as fc
from farcall.artifact import Artifact
from farcall.errors import DeadlineExceededError, ModelError, UnsupportedOperatorError
from farcall.graph._check import check_partition
from farcall.rpc import Server

from ..graph.graphs import text_model

YES, NO = np.array(True), np.array(False)
X = np.arange(6, dtype=np.float32).reshape(3, 2)

# y: the inner If reads values of all graphs around it, and its branches have different lengths.
# u, t: a branch gives a value of the graph around it, and a constant.
BRANCHES = """
g (float[n, 2] x, bool c, bool d) => (float[a, b] y, float[p, q] z, float[r, s] u, float[v, w] t) {
  w1 = Constant<value = float[2] {1, 10}> ()
  h = Mul(x, w1)
  y = If (c) <
    then_branch = outer () => (float[a1, b1] yt) {
      sum = Add(h, w1)
      yt = If (d) <
        then_branch = inner () => (float[a3, b3] o) { o = Concat<axis = 0>(x, sum, h) },
        else_branch = other () => (float[a4, b4] o2) { o2 = Identity(x) }>
    },
    else_branch = mul () => (float[a2, b2] ye) { ye = Mul(x, w1) }>
  z = Relu(y)
  u, t = If (c) <
    then_branch = same () => (float[r1, s1] u1, float[v1, w11] t1) {
      u1 = Identity(h)
      t1 = Constant<value = float[1, 2] {5, 6}> ()
    },
    else_branch = neg () => (float[r2, s2] u2, float[v2, w2] t2) {
      u2 = Neg(h)
      t2 = Constant<value = float[1, 2] {7, 8}> ()
    }>
}
"""

# The outer loop ends by its count or its condition; it carries a value that grows, and stacks what an inner
# loop gives, which reads values of both graphs around it.
LOOPS = """
g (float[n, 2] x, int64 m, int64 k, bool go)
    => (float[a, b] y, float[s] count, float[p, q, r] z, float[i1, j1, k1] zz) {
  zero = Constant<value = float[1] {0}> ()
  yes = Constant<value = bool {1}> ()
  y, count, z, zz = Loop (m, go, x, zero) <
    body = outer (int64 i, bool ci, float[p0, p1] v, float[1] steps)
        => (bool co, float[o0, o1] vo, float[1] more, float[q0, q1] sc, float[z0, z1] ss) {
      one = Constant<value = float[1] {1}> ()
      more = Add(steps, one)
      five = Constant<value = float[1] {5}> ()
      less = Less(more, five)
      co = Squeeze(less)
      last, sums = Loop (k, yes, x) <
        body = inner (int64 j, bool cj, float[g0, g1] w) => (bool cjo, float[h0, h1] wo, float[hh] so) {
          cjo = Identity(cj)
          sum = Add(w, steps)
          wo = Mul(sum, x)
          axes = Constant<value = int64[1] {1}> ()
          so = ReduceSum<keepdims = 0>(sum, axes)
        }>
      vo = Concat<axis = 0>(v, last)
      sc = Identity(last)
      ss = Identity(sums)
    }>
}
"""

SCAN = """
g (float[b, s, h] x, float[s, b, h] x2, float[b, h] init, float[h] w)
    => (float[a1, a2] fin, float[c1, c2, c3] ys, float[d1, d2, d3] zs) {
  fin, ys, zs = Scan <num_scan_inputs = 2, scan_input_axes = [1, -3], scan_input_directions = [0, 1],
                      scan_output_axes = [-1, 1], scan_output_directions = [1, 0],
    body = step (float[b1, h1] st, float[b2, h2] xi, float[b3, h3] x2i)
        => (float[b4, h4] st2, float[b5, h5] y1, float[b6, h6] z1) {
      sum = Add(st, xi)
      st2 = Mul(sum, w)
      y1 = Sub(st2, x2i)
      z1 = Identity(x2i)
    }>(init, x, x2)
}
"""

BATCHES = """
g (int64[b] lengths, float[b, h] init, float[b, s, h] x) => (float[a1, a2] fin, float[c1, c2, c3] ys) {
  fin, ys = Scan <num_scan_inputs = 1, directions = [1],
    body = step (float[h1] st, float[h2] xi) => (float[h4] st2, float[h5] y1) {
      st2 = Add(st, xi)
      y1 = Mul(st2, xi)
    }>(lengths, init, x)
}
"""


def compared(source: str, calls: Sequence[Sequence[np.ndarray]]) -> Callable[..., Any]:
    """The model's ``main``, whose results are those of onnxruntime."""
    ort = pytest.importorskip("onnxruntime")
    proto = text_model(source)
    plan = fc.partition(proto)
    check_partition(plan.partition)
    main: Callable[..., Any] = plan.build().load()["main"]
    session = ort.InferenceSession(proto.SerializeToString())
    names = [item.name for item in proto.graph.input]
    for given in calls:
        expected = session.run(None, dict(zip(names, given, strict=True)))
        for got, item in zip(main(*given), expected, strict=True):
            assert (got.shape, got.dtype) == (item.shape, item.dtype)
            np.testing.assert_allclose(got, item, rtol=1e-5)
    return main


def test_branches_read_values_around_them_and_may_differ_in_shape() -> None:
    compared(BRANCHES, [(X[:rows], c, d) for c in (YES, NO) for d in (YES, NO) for rows in (3, 1)])


def test_loops_end_by_their_count_or_condition_and_may_grow() -> None:
    main = compared(LOOPS, [(X, np.array(m), np.array(k), YES) for m in (1, 2, 7) for k in (1, 3)])
    for count, go in ((0, YES), (-3, YES), (-(2**63), YES), (7, NO)):
        y, steps, z, zz = main(X, np.array(count), np.array(2), go)
        assert (y == X).all()
        assert (steps.tolist(), z.shape, zz.shape) == ([0], (0, 3, 2), (0, 0, 3))
    assert main(X, np.array(2), np.array(0), YES)[3].shape == (2, 0, 3)


def test_scan_has_axes_and_directions() -> None:
    random = np.random.default_rng(0)

    def sizes(*shape: int) -> np.ndarray:
        return random.random(shape, np.float32)

    calls = [
        (sizes(b, s, h), sizes(s, b, h), sizes(b, h), sizes(h))
        for b, s, h in ((2, 3, 4), (1, 5, 2), (3, 1, 1))
    ]
    main = compared(SCAN, calls)
    with pytest.raises(ValueError, match="`x2`"):
        main(sizes(2, 3, 4), sizes(2, 2, 4), sizes(2, 4), sizes(4))


def test_the_first_scan_has_a_batch_of_lengths() -> None:
    """Steps after the length of a sequence make zeros (Scan of opset 8; onnxruntime has it no more)."""
    main = fc.partition(text_model(BATCHES, opset=8)).build().load()["main"]
    random = np.random.default_rng(0)
    start, x, lengths = random.random((2, 4), np.float32), random.random((2, 3, 4), np.float32), [3, 1]
    final, stacked = main(np.array(lengths), start, x)
    for sequence, length in enumerate(lengths):
        state = start[sequence]
        for step in range(length):
            item = x[sequence, length - 1 - step]
            state = state + item
            np.testing.assert_allclose(stacked[sequence, step], state * item, rtol=1e-6)
        np.testing.assert_allclose(final[sequence], state, rtol=1e-6)
        assert (stacked[sequence, length:] == 0).all()
    for length in (4, -1, 2**62):
        with pytest.raises(ValueError, match=f"sequence 1 has the length {length}; expected 0 to 3"):
            main(np.array([3, length]), start, x)


GROWS = """
g (float[n, 2] x, int64 m, bool go) => (float[a, b] y, float[p, q, r] z) {
  y, z = Loop (m, go, x) <
    body = step (int64 i, bool ci, float[p0, p1] v) => (bool co, float[o0, o1] vo, float[q0, q1] sc) {
      co = Identity(ci)
      vo = Concat<axis = 0>(v, v)
      sc = If (go) <
        then_branch = one () => (float[t0, t1] t) { t = Relu(x) },
        else_branch = other () => (float[e0, e1] e) { e = Neg(x) }>
    }>
}
"""


def test_every_runtime_runs_it(main_of: Callable[[Artifact], Callable[..., Any]]) -> None:
    main = main_of(fc.partition(text_model(GROWS)).build())
    y, z = main(X, np.array(2), YES)
    np.testing.assert_array_equal(y, np.tile(X, (4, 1)))
    np.testing.assert_array_equal(z, np.stack([X, X]))


def test_a_count_from_the_data_meets_the_limit_of_the_call() -> None:
    main = fc.partition(text_model(GROWS)).build(late_bytes=100_000).load()["main"]
    for count in (2**63 - 1, 60):
        with pytest.raises(MemoryError, match=r"`control_0` of backend.*the call may take .* of 100000"):
            main(X, np.array(count), YES)
    assert main(X, np.array(3), YES)[0].shape == (24, 2)


FOREVER = """
g (float[n] x, int64 m, bool go) => (float[n] y) {
  y = Loop (m, go, x) <
    body = step (int64 i, bool ci, float[p] v) => (bool co, float[o] vo) { co = Identity(ci)  vo = Sin(v) }>
}
"""


def test_a_session_runs_it_and_its_deadline_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    fc.partition(text_model(FOREVER)).build().save(path)
    x = np.ones(3, np.float32)
    with Server() as server, fc.connect(server.url) as session:
        main = session.load_module(path)["main"]
        far = main(session.tensor(x), 2, YES).numpy()
        np.testing.assert_allclose(far, np.sin(np.sin(x)), rtol=1e-6)
        with pytest.raises(DeadlineExceededError), fc.deadline(0.2):
            main(session.tensor(x), 2**63 - 1, YES)


def test_the_plan_shows_what_is_inside(tmp_path: Path) -> None:
    plan = fc.partition(text_model(GROWS))
    loop, inner = "Loop_0", "Loop_0/body/If"
    assert plan.why(loop).backend == "control"
    assert plan.why(f"{inner}/then_branch/Relu").backend == "c"
    names = {region.name for region in plan.regions}
    assert names >= {"control_0", "control_1", "c_0"}
    assert "control_1" in plan.svg()
    assert all(name in str(plan) for name in names)
    artifact = plan.build()
    inside = {region.name: region.inside for region in artifact.manifest.regions}
    assert (inside["control_0"], inside["control_1"]) == ("", "control_0_body")
    plan.save(tmp_path / "plan.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "plan.onnx"))


def test_what_no_backend_takes_inside_is_named() -> None:
    source = """
    g (float[n] x, bool c) => (float[n] y) {
      y = If (c) <
        then_branch = one () => (float[p] t) { t = Neg(x) },
        else_branch = other () => (float[q] e) { text = Cast<to = 8>(x)  e = Cast<to = 1>(text) }>
    }
    """
    with pytest.raises(UnsupportedOperatorError, match=r"control: its `else_branch` .*::Cast.*string"):
        fc.partition(text_model(source))


def test_a_branch_whose_operands_do_not_fit_fails_when_it_is_taken(tmp_path: Path) -> None:
    """Functions that check their arguments have such branches. The other branch tells the results' shapes."""
    source = """
    g (float[n] x, bool c, int64[k, 1] at, float[k, 3] u) => (float[p] y, float[q] z) {
      y, z = If (c) <
        then_branch = one () => (float[a] t, float[b] t2) { t = ScatterND(x, at, u) t2 = Neg(t) },
        else_branch = other () => (float[d] e, float[f] e2) { e = Neg(x) e2 = Concat<axis = 0>(x, e) }>
    }
    """
    plan = fc.partition(text_model(source), backends=["c"])
    main = plan.build().load()["main"]
    x, at, updates = X[:, 0], np.zeros((2, 1), np.int64), np.zeros((2, 3), np.float32)
    y, z = map(np.from_dlpack, main(x, NO, at, updates))
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(z, [*x, *-x])
    with pytest.raises(
        ValueError, match=r"If `If_0`: its `then_branch` .*ScatterND.*updates.*\[k\].*`u` \[k, 3\]"
    ):
        main(x, YES, at, updates)
    plan.save(tmp_path / "plan.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "plan.onnx"))
    both = source.replace("e = Neg(x)", "e = ScatterND(x, at, u)")
    with pytest.raises(UnsupportedOperatorError, match="updates must have the dims"):
        fc.partition(text_model(both), backends=["c"])


def test_a_branch_may_not_give_another_rank_than_the_model_says() -> None:
    source = """
    g (float[n, m] x, bool c) => (float[k] y) <int64[1] all = {-1}> {
      y = If (c) <
        then_branch = one () => (t) { t = Reshape(x, all) },
        else_branch = other () => (e) { e = Neg(x) }>
    }
    """
    main = fc.partition(text_model(source), backends=["c"]).build().load()["main"]
    np.testing.assert_array_equal(np.from_dlpack(main(X, YES)), X.ravel())
    with pytest.raises(ValueError, match=r"If `If_0`: its output `y` .* expected 1, got float32\[3, 2\]"):
        main(X, NO)


def test_a_graph_inside_must_fit_what_it_is_given() -> None:
    source = """
    g (float[n] x, bool c) => (float[n] y) {
      y = Loop (, c, x) < body = step (int64 i, bool ci) => (bool co) { co = Not(ci) }>
    }
    """
    with pytest.raises(ModelError, match="Loop"):
        fc.partition(text_model(source))


def test_sizes_of_regions_beside_a_loop_are_not_checked_inside_of_it() -> None:
    """The memory of the last region is an expression of m, which the loop's graph does not know."""
    graph = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 15]>
        g (float[n, 4] x, float[7, m] w) => (float[n, 4] y, float[p, q] z)
          <int64 two = {2}, bool yes = {1}, int64[4] pads = {0, -1, 1, -1}, int64 last = {-1}> {
          y = Loop(two, yes, x) <body = b (int64 i, bool go, float[n, 4] s) => (bool on, float[n, 4] t)
            { on = Identity(go) t = Tanh(s) }>
          c = Pad(w, pads)
          z = CumSum<reverse=1>(c, last)
        }
    """)
    main = fc.partition(graph, backends=["c"]).build().load()["main"]
    x, w = np.ones((3, 4), np.float32), np.ones((7, 6), np.float32)
    y, z = map(np.from_dlpack, main(x, w))
    np.testing.assert_allclose(y, np.tanh(np.tanh(x)), rtol=1e-6)
    np.testing.assert_array_equal(z[:7], np.tile(np.float32([4, 3, 2, 1]), (7, 1)))
