"""The C functions of Resize: the weights of one axis, and the passes over one axis."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c import _scalar as scalar


def weights_source(kind: str) -> str:
    """``farcall_weigh_float``: which elements of an axis make the one at ``x``, and their weights.

    There are always ``taps`` neighbours from ``first`` on, all inside of the axis: what lies outside adds its
    weight to the element at that end, or is left out.
    """
    return f"""static void farcall_weigh_{kind}(double x, int64_t size, int64_t half, double shrink,
    int is_cubic, double a, int exclude, int64_t taps, int64_t* restrict first, {kind}* restrict weights) {{
  const double near = x > -0x1p50 && x < 0x1p50 ? x : 0, below = floor(near);
  const int64_t start = (int64_t)below - half + 1;
  const int64_t begin = start < 0 ? 0 : start < size - taps ? start : size - taps;
  double total = 0;
  for (int64_t t = 0; t < taps; ++t) weights[t] = 0;
  for (int64_t t = 0; t < 2 * half; ++t) {{
    const int64_t at = start + t;
    if (exclude && (at < 0 || at >= size)) continue;
    const double far = fabs(((double)(t - half + 1) - (near - below)) * shrink);
    const double line = far < 1 ? 1 - far : 0;
    const double inner = ((a + 2) * far - (a + 3)) * far * far + 1;
    const double outer = far < 2 ? ((a * far - 5 * a) * far + 8 * a) * far - 4 * a : 0;
    const double weight = is_cubic ? (far <= 1 ? inner : outer) : line;
    total += weight;
    weights[(at < 0 ? 0 : at < size ? at : size - 1) - begin] += ({kind})weight;
  }}
  for (int64_t t = 0; t < taps; ++t) weights[t] = ({kind})(weights[t] / (total != 0 ? total : 1));
  *first = begin;
}}"""


def pass_source(kind: str) -> str:
    """``farcall_resize_float``: from ``outer`` x ``size`` x ``inner`` elements to ``count`` of them.

    A negative ``first`` stands for a place outside of the input.
    """
    return f"""static inline void farcall_mix_{kind}(const {kind}* restrict in, {kind}* restrict out,
    int64_t inner, int64_t taps, const {kind}* restrict w) {{
  const {kind} w0 = w[0], w1 = taps > 1 ? w[1] : 0, w2 = taps > 2 ? w[2] : 0, w3 = taps > 3 ? w[3] : 0;
  if (taps == 1)
    for (int64_t i = 0; i < inner; ++i) out[i] = w0 * in[i];
  else if (taps == 2)
    for (int64_t i = 0; i < inner; ++i) out[i] = w0 * in[i] + w1 * in[i + inner];
  else if (taps == 3)
    for (int64_t i = 0; i < inner; ++i) out[i] = w0 * in[i] + w1 * in[i + inner] + w2 * in[i + 2 * inner];
  else
    for (int64_t i = 0; i < inner; ++i)
      out[i] = w0 * in[i] + w1 * in[i + inner] + w2 * in[i + 2 * inner] + w3 * in[i + 3 * inner];
  for (int64_t t = 4; t < taps; ++t) {{
    const {kind} factor = w[t];
    for (int64_t i = 0; i < inner; ++i) out[i] += factor * in[i + t * inner];
  }}
}}
static inline void farcall_mix_line_{kind}(const {kind}* restrict in, {kind}* restrict out, int64_t count,
    int64_t taps, const int64_t* restrict first, const {kind}* restrict w, {kind} outside) {{
  for (int64_t o = 0; o < count; ++o) {{
    const int64_t at = first[o] < 0 ? 0 : first[o];
    {kind} sum = w[o * taps] * in[at];
    for (int64_t t = 1; t < taps; ++t) sum += w[o * taps + t] * in[at + t];
    out[o] = first[o] < 0 ? outside : sum;
  }}
}}
static void farcall_resize_{kind}(const {kind}* restrict in, {kind}* restrict out, int64_t outer,
    int64_t size, int64_t count, int64_t inner, int64_t taps, const int64_t* restrict first,
    const {kind}* restrict w, {kind} outside) {{
  for (int64_t n = 0; n < outer; ++n, in += size * inner, out += count * inner) {{
    if (inner == 1) {{
      if (taps == 2)
        farcall_mix_line_{kind}(in, out, count, 2, first, w, outside);
      else if (taps == 4)
        farcall_mix_line_{kind}(in, out, count, 4, first, w, outside);
      else
        farcall_mix_line_{kind}(in, out, count, taps, first, w, outside);
      continue;
    }}
    for (int64_t o = 0; o < count; ++o) {{
      {kind}* restrict to = out + o * inner;
      if (first[o] < 0)
        for (int64_t i = 0; i < inner; ++i) to[i] = outside;
      else
        farcall_mix_{kind}(in + first[o] * inner, to, inner, taps, w + o * taps);
    }}
  }}
}}"""


def rounded(dtype: ir.DataType | None, x: str) -> str:
    """A C expression: the number ``x`` as an element of ``dtype``, the nearest one that there is."""
    if dtype in FLOATS:
        return x
    low, high = scalar.lowest(dtype), scalar.highest(dtype)
    return f"rint({x}) <= {low} ? {low} : rint({x}) >= {high} ? {high} : ({c_type(dtype)})rint({x})"
