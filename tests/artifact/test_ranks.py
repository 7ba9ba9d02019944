"""An If whose branches give tensors of different ranks: what follows tells the rank, or a declaration."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest

import farcall as fc
from farcall.errors import UnsupportedOperatorError

from ..graph.graphs import text_model

X = np.float32([1, 2, -3])

# `one` has the dims [] or [1], and `sum`, too. `mark` is between the If and a reader; `y` has the same
# dims in both branches, and `z` behind an If that moves into them.
READERS = """
g (float[n] x, bool c, bool d) => (float[n] y, float[n] z, float top, float[a, b] w) {
  one, top = If (c) <
    then_branch = scalar () => (float o, float t) {
      o = ReduceMax<keepdims = 0>(x)
      t = ReduceSum<keepdims = 0>(x)
    },
    else_branch = vector () => (float[1] p, float u) {
      p = ReduceMin(x)
      u = ReduceMean<keepdims = 0>(x)
    }>
  sum = Add(one, one)
  mark = Neg(top)
  more = Mul(sum, mark)
  y = Sub(x, more)
  other = If (d) <
    then_branch = same () => (float e) { e = Identity(one) },
    else_branch = square () => (float q) { q = Mul(sum, sum) }>
  z = Add(other, x)
  shape = Constant<value = int64[2] {1, -1}> ()
  w = Reshape(other, shape)
}
"""


def reference(c: bool, d: bool) -> list[np.ndarray]:
    one = X.max() if c else X.min()
    top = X.sum() if c else X.mean()
    other = one if d else 4 * one * one
    return [X + 2 * one * top, X + other, np.array(top), np.array([[other]])]


def test_readers_move_into_the_branches_until_the_rank_is_known() -> None:
    main = fc.partition(text_model(READERS), backends=["c"]).build().load()["main"]
    for c, d in product((True, False), repeat=2):
        for ours, expected in zip(main(X, np.array(c), np.array(d)), reference(c, d), strict=True):
            assert ours.shape == expected.shape
            np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_so_do_readers_in_the_graph_of_a_loop() -> None:
    source = """
    g (float[n] x, int64 m, bool go, bool c) => (float[n] y) {
      y = Loop (m, go, x) <
        body = step (int64 i, bool ci, float[n] v) => (bool co, float[n] vo) {
          co = Identity(ci)
          one = If (c) <
            then_branch = scalar () => (float o) { o = ReduceMax<keepdims = 0>(v) },
            else_branch = vector () => (float[1] p) { p = ReduceMin(v) }>
          vo = Sub(v, one)
        }>
    }
    """
    main = fc.partition(text_model(source), backends=["c"]).build().load()["main"]
    np.testing.assert_array_equal(main(X, np.array(1), np.array(True), np.array(True)), X - 2)
    np.testing.assert_array_equal(main(X, np.array(1), np.array(True), np.array(False)), X + 3)


SQUEEZED = """
g (float[b, n] x) => (float[b] y) {
  one = Constant<value_int = 1> ()
  axes = Constant<value_ints = [1]> ()
  shape = Shape(x)
  n = Gather(shape, one)
  c = Equal(n, one)
  y = If (c) <
    then_branch = squeezed () => (float[b] a) { a = Squeeze(x, axes) },
    else_branch = same () => (float[b, n] d) { d = Identity(x) }>
}
"""


def test_a_declared_rank_refuses_calls_that_take_the_other_branch() -> None:
    main = fc.partition(text_model(SQUEEZED), backends=["c"]).build().load()["main"]
    np.testing.assert_array_equal(main(X.reshape(3, 1)), X)
    with pytest.raises(
        ValueError, match=r"`y` has another shape than .*expected float32\[3\], got .*\[3, 2\]"
    ):
        main(np.ones((3, 2), np.float32))


def test_without_one_the_error_names_the_ranks() -> None:
    model = text_model(SQUEEZED)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None))
    with pytest.raises(
        UnsupportedOperatorError, match=r"`y` is .* \(1 in `then_branch`, 2 in `else_branch`\); d"
    ):
        fc.partition(model, backends=["c"])
