"""Sequences and optionals that are known when the model is loaded, compared with onnxruntime."""

from __future__ import annotations

import numpy as np

import farcall as fc

from ..graph.graphs import text_model
from .test_control import compared

LISTS = """
g (float[3, 4] x, float[3, 4] y, float[n] h)
    => (float[a, b] u, float[c, d] v, float[e, f, i] w, int64 len, float[j] at, float[k, l] er, int64 len2,
        float[m] get) {
  one = Constant<value = int64 {1}> ()
  last = Constant<value = int64 {-1}> ()
  s0 = SequenceConstruct(x, y)
  s1 = SequenceInsert(s0, x, last)
  u = ConcatFromSequence<axis = 0>(s1)
  v = ConcatFromSequence<axis = -1>(s0)
  w = ConcatFromSequence<axis = 1, new_axis = 1>(s1)
  len = SequenceLength(s1)
  slices = SplitToSequence<axis = 0, keepdims = 0>(x)
  at = SequenceAt(slices, last)
  s2 = SequenceErase(s1, one)
  er = SequenceAt(s2, one)
  three = Constant<value = int64 {3}> ()
  parts = SplitToSequence<axis = 1>(x, three)
  len2 = SequenceLength(parts)
  maybe = Optional(h)
  has = OptionalHasElement(maybe)
  get = If (has) <
    then_branch = some () => (float[t] got) { got = OptionalGetElement(maybe) },
    else_branch = none () => (float[e1] zero) { zero = Constant<value = float[1] {0}> () }>
}
"""

STEPS = """
g (float[n, m] x, int64 at, int64 times)
    => (float[a1, b1, c1] st0, float[a2, b2, c2] st1, float[a3, b3] cat0, float[a4, b4] cat1,
        float[a5, b5] one, int64 len, float[a6, b6] y) {
  e = SequenceEmpty()
  yes = Constant<value = bool {1}> ()
  given = SequenceConstruct(x, x)
  first = Constant<value = int64 {0}> ()
  y, s = Loop (times, yes, x, e) <
    body = step (int64 i, bool ci, float[p, q] v, seq(float[p2, q2]) si)
        => (bool co, float[p3, q3] vo, seq(float[p4, q4]) so) {
      co = Identity(ci)
      factor = SequenceAt(given, first)
      vo = Mul(v, factor)
      so = SequenceInsert(si, vo)
    }>
  st0 = ConcatFromSequence<axis = 0, new_axis = 1>(s)
  st1 = ConcatFromSequence<axis = -1, new_axis = 1>(s)
  cat0 = ConcatFromSequence<axis = 0>(s)
  cat1 = ConcatFromSequence<axis = 1>(s)
  one = SequenceAt(s, at)
  len = SequenceLength(s)
}
"""


def test_lists_of_tensors_become_tensors() -> None:
    x, y = np.random.default_rng(0).random((2, 3, 4), np.float32)
    compared(LISTS, [(x, y, x[0])])


def test_a_loop_that_appends_stacks() -> None:
    x = np.random.default_rng(0).random((3, 4), np.float32)
    compared(STEPS, [(x, np.array(at), np.array(4)) for at in (0, 2, -1)])


UNBOUND = """
g (float[n, 3] x) => (float[] y, float[] z, float[] w) {
  one = Constant<value = int64 {1}> ()
  yes = Constant<value = bool {1}> ()
  rows = SplitToSequence<axis = 0, keepdims = 0>(x, one)
  zero = Constant<value = float[3] {0, 0, 0}> ()
  y = SequenceAt(rows, one)
  z = ConcatFromSequence<axis = 1, new_axis = 1>(rows)
  count = SequenceLength(rows)
  w = Loop (count, yes, zero) <
    body = step (int64 i, bool ci, float[] v) => (bool co, float[] vo) {
      row = SequenceAt(rows, i)
      half = Constant<value = float {0.5}> ()
      part = Mul(v, half)
      vo = Add(part, row)
      co = Identity(yes)
    }>
}
"""


def test_unbound_rows_lack_the_axis() -> None:
    """As TorchScript's exporter writes ``unbind``: the size 1 and `keepdims`, which onnxruntime heeds."""
    x = np.random.default_rng(0).random((4, 3), np.float32)
    compared(UNBOUND, [(x,), (x[:2],)])


def test_what_is_not_known_is_left_to_others() -> None:
    """Tensors of different shapes in each call, from which one is taken by an index."""
    source = """
    g (float[n] x, float[m] y, int64 at) => (float[k] z) {
      s = SequenceConstruct(x, y)
      z = SequenceAt(s, at)
    }
    """
    main = fc.partition(text_model(source), backends=["c", "reference"]).build().load()["main"]
    x, y = np.ones(2, np.float32), np.zeros(3, np.float32)
    assert main(x, y, np.array(1)).tolist() == [0, 0, 0]


UNEVEN = """
g (float[n, 4] x) => (float[a, 4] first, float[b, 4] second, float[c, 4] last, float[n, 4] same) {
  e = SequenceEmpty()
  two = Constant<value = int64 {2}> ()
  yes = Constant<value = bool {1}> ()
  given = SequenceConstruct(x)
  ends = Constant<value = int64[3] {0, 1, 3}> ()
  zero = Constant<value = int64[1] {0}> ()
  s, kept = Loop (two, yes, e, given) <
    body = step (int64 i, bool ci, seq(float[p, q]) si, seq(float[p1, q1]) ki)
        => (bool co, seq(float[p2, q2]) so, seq(float[p3, q3]) ko) {
      one = Constant<value = int64 {1}> ()
      next = Add(i, one)
      from = Gather(ends, i)
      to = Gather(ends, next)
      axes = Constant<value = int64[1] {0}> ()
      from1 = Unsqueeze(from, axes)
      to1 = Unsqueeze(to, axes)
      part = Slice(x, from1, to1, axes)
      so = SequenceInsert(si, part)
      ko = Identity(ki)
      co = Identity(yes)
    }>
  three = Constant<value = int64[1] {3}> ()
  most = Constant<value = int64[1] {1000}> ()
  rest = Slice(x, three, most, zero)
  all = SequenceInsert(s, rest)
  i0 = Constant<value = int64 {0}> ()
  i1 = Constant<value = int64 {1}> ()
  first = SequenceAt(all, i0)
  second = SequenceAt(all, i1)
  last = SequenceAt(all, two)
  same = SequenceAt(kept, i0)
}
"""


def test_a_loop_of_known_steps_may_make_tensors_of_several_shapes() -> None:
    """As TorchScript's exporter writes ``tensor_split``."""
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    compared(UNEVEN, [(x,), (x[:3],)])
