"""NegativeLogLikelihoodLoss. ONNX defines SoftmaxCrossEntropyLoss as LogSoftmax and this operator."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    has_input,
    int_attr,
    operand,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._registry import loops
from farcall.graph.dims import dims, product

_D = ir.DataType


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS, 0, 2)
    want_dtypes(node, {_D.INT32, _D.INT64}, 1)
    if rank(operand(node, 0)) < 2 or rank(operand(node, 1)) != rank(operand(node, 0)) - 1:
        raise Unsupported(f"ranks {rank(operand(node, 0))} and {rank(operand(node, 1))}")
    if str_attr(node, "reduction", "mean") not in ("none", "sum", "mean"):
        raise Unsupported(f"reduction `{str_attr(node, 'reduction', 'mean')}`")


@loops("NegativeLogLikelihoodLoss", check=_check)
def _loss(node: ir.Node) -> Iterator[Step]:
    x, target, out = operand(node, 0), operand(node, 1), node.outputs[0]
    batch, classes, *rest = dims(x)
    reduction = str_attr(node, "reduction", "mean")
    kernel = Kernel()
    p, y, q = kernel.read(x), kernel.read(target), kernel.write(out)
    weight = f"(double){kernel.read(operand(node, 2))}[c]" if has_input(node, 2) else "1"
    count, plane = kernel.dim(classes), kernel.dim(product(rest))
    kernel.line("double total = 0, weights = 0;")
    with kernel.loop("n", kernel.dim(batch)), kernel.loop("s", plane):
        kernel.line(f"const int64_t c = {y}[n * {plane} + s];")
        kernel.line("double w = 0, loss = 0;")
        with kernel.block(f"if ({_counts(node)})"):
            kernel.line(f"if (c < 0 || c >= {count}) {_refusal(kernel, node)}")
            kernel.line(f"w = {weight};")
            kernel.line(f"loss = -{p}[(n * {count} + c) * {plane} + s] * w;")
        if reduction == "none":
            kernel.line(f"{q}[n * {plane} + s] = ({c_type(out.dtype)})loss;")
        kernel.line("total += loss;\nweights += w;")
    if reduction == "none":
        kernel.line("(void)total;\n(void)weights;")
    else:
        result = "total / weights" if reduction == "mean" else "total"
        kernel.line(f"{q}[0] = ({c_type(out.dtype)})({result});")
    yield kernel.step()


def _counts(node: ir.Node) -> str:
    """The condition under which class ``c`` is not the one to ignore."""
    ignored = c_literal(int_attr(node, "ignore_index", 0), _D.INT64)
    return f"c != {ignored}" if "ignore_index" in node.attributes else "1"


def _refusal(kernel: Kernel, node: ir.Node) -> str:
    name = node.name or node.outputs[0].name
    return kernel.fail("IndexError", f"{node.op_type} `{name}`: a target is not one of the classes")
