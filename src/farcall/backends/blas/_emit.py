"""The C of each operator, around calls of the helpers in ``blas.c``."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir

from farcall.backends.c._node import float_attr, has_input, int_attr
from farcall.backends.c._window import axes_of
from farcall.backends.c_backend_kit import RegionWriter, c_literal, dims, product
from farcall.graph.dims import Dim

_COLUMNS = 1 << 17  # elements of the matrix of columns: 512 KiB of float32, part of a second-level cache
_FEWEST = 256  # columns


@cache
def _template() -> str:
    return Path(__file__).with_name("blas.c").read_text(encoding="utf-8")


def support(prefix: str, kind: str) -> str:
    """The helpers for one dtype, which call the library whose symbols begin with ``prefix``."""
    shared, _, typed = _template().partition("/* For each dtype. */\n")
    text = typed.replace("TYPE", "float" if kind == "s" else "double").replace("KIND", kind)
    guard = f"FARCALL_BLAS_{kind}"
    once = f"#ifndef FARCALL_BLAS\n#define FARCALL_BLAS\n{shared}#endif\n"
    return f"{once}#ifndef {guard}\n#define {guard}\n{text}#endif".replace("PREFIX", prefix)


def _gemm(out: RegionWriter, kind: str, *arguments: str) -> None:
    failure = out.fail("ValueError", "a size is larger than the 32-bit ints of the BLAS library")
    out.line(f"if (blas_{kind}gemm({', '.join(arguments)}) != 0) {failure}")


def _matmul(node: ir.Node, out: RegionWriter, kind: str) -> None:
    left, right, result = node.inputs[0], node.inputs[1], node.outputs[0]
    a, b = list(dims(left)), list(dims(right))  # type: ignore[arg-type]
    a = [1, *a] if len(a) == 1 else a
    b = [*b, 1] if len(b) == 1 else b
    rows, inner, columns = a[-2], a[-1], b[-1]
    batches = [a[:-2], b[:-2]]
    if product(b[:-2]) == 1:  # one product of all rows
        rows, batches = product(a[:-1]), [[], []]
    rank = max(map(len, batches))
    outer = [[1] * (rank - len(batch)) + batch for batch in batches]
    each = [x if x != 1 else y for x, y in zip(*outer, strict=True)]
    offsets = [
        _offset(out, batch, size) for batch, size in zip(outer, (rows * inner, inner * columns), strict=True)
    ]
    target = _offset(out, each, rows * columns)
    x, w, y = out.pointer(left), out.pointer(right), out.pointer(result)  # type: ignore[arg-type]
    m, n, k = out.dim(rows), out.dim(columns), out.dim(inner)
    with ExitStack() as stack:
        for axis, size in enumerate(each):
            stack.enter_context(out.loop(f"i{axis}", size))
        parts = [f"{x} + {offsets[0]}", k, f"{w} + {offsets[1]}", n, "0", f"{y} + {target}", n]
        _gemm(out, kind, "0", "0", m, n, k, "1", *parts)


def _offset(out: RegionWriter, batch: list[Dim], size: Dim) -> str:
    """Where the matrix of the current loop variables is; axes of size 1 are broadcast."""
    terms = ["0"]
    for axis, extent in enumerate(batch):
        if extent != 1:
            terms.append(f"i{axis} * {out.dim(product((*batch[axis + 1 :], size)))}")
    return " + ".join(terms)


def _product(node: ir.Node, out: RegionWriter, kind: str) -> None:
    left, right, result = node.inputs[0], node.inputs[1], node.outputs[0]
    flip_a, flip_b = int_attr(node, "transA", 0) != 0, int_attr(node, "transB", 0) != 0
    rows, columns = dims(result)
    a = dims(left)  # type: ignore[arg-type]
    m, n, k = out.dim(rows), out.dim(columns), out.dim(a[0] if flip_a else a[1])
    alpha, beta = float_attr(node, "alpha", 1.0), float_attr(node, "beta", 1.0)
    y = out.pointer(result)
    adds = has_input(node, 2) and beta != 0
    if adds:
        value = node.inputs[2]
        shape = dims(value)  # type: ignore[arg-type]
        height, width = ([1, 1, *shape])[-2:]
        row = "0" if height == 1 else f"i * {out.dim(width)}"
        place = f"{out.pointer(value)}[{row} + {'0' if width == 1 else 'j'}]"  # type: ignore[arg-type]
        with out.loop("i", rows), out.loop("j", columns):
            out.line(f"{y}[i * {n} + j] = {c_literal(beta, result.dtype)} * {place};")
    x, w = out.pointer(left), out.pointer(right)  # type: ignore[arg-type]
    flips = [str(int(flip_a)), str(int(flip_b))]
    parts = [x, m if flip_a else k, w, k if flip_b else n, str(int(adds)), y, n]
    _gemm(out, kind, *flips, m, n, k, c_literal(alpha, result.dtype), *parts)


def _conv(node: ir.Node, out: RegionWriter, kind: str) -> None:
    image, weight, result = node.inputs[0], node.inputs[1], node.outputs[0]
    filters, channels, *taps = (int(dim) for dim in dims(weight))  # type: ignore[arg-type]
    group = int_attr(node, "group", 1)
    axes = axes_of(node, taps)
    each, inner = filters // group, channels * int(np.prod(taps))
    pixels = out.dim(product(axis.out for axis in axes))
    size = out.dim(product(axis.size for axis in axes))
    x, w, y = out.pointer(image), out.pointer(weight), out.pointer(result)  # type: ignore[arg-type]
    direct = all(axis.plain for axis in axes)
    block = max(_FEWEST, _COLUMNS // max(inner, 1) // 64 * 64)
    columns = "" if direct else out.scratch(result.dtype, inner * block)  # type: ignore[arg-type]
    if not direct:
        fields = [[1, 1, 1, 1, 1, 0]] * (3 - len(axes))
        fields += [[a.size, a.out, a.taps, a.stride, a.dilation, a.begin] for a in axes]
        rows = ", ".join("{" + ", ".join(map(out.dim, axis)) + "}" for axis in fields)
        out.line(f"const struct blas_axis axes[3] = {{{rows}}};")
    with out.loop("b", dims(image)[0]), out.loop("g", group):  # type: ignore[arg-type]
        out.line(f"const int64_t f = g * {each};")
        source = f"{x} + (b * {group * channels} + g * {channels}) * {size}"
        target = f"{y} + (b * {filters} + f) * {pixels}"
        adds = has_input(node, 2)
        if adds:
            bias = out.pointer(node.inputs[2])  # type: ignore[arg-type]
            out.line(f"blas_{kind}bias({bias} + f, {each}, {pixels}, {target});")
        weights = f"{w} + f * {inner}"
        if direct:
            parts = [weights, str(inner), source, pixels, str(int(adds)), target, pixels]
            _gemm(out, kind, "0", "0", str(each), pixels, str(inner), "1", *parts)
            return
        with out.loop("p", pixels, step=block):
            out.line(f"const int64_t n = {pixels} - p < {block} ? {pixels} - p : {block};")
            out.line(f"blas_{kind}columns({source}, {channels}, axes, p, n, {columns});")
            parts = [weights, str(inner), columns, "n", str(int(adds)), f"{target} + p", pixels]
            _gemm(out, kind, "0", "0", str(each), "n", str(inner), "1", *parts)


EMITTERS = {"MatMul": _matmul, "Gemm": _product, "Conv": _conv}
