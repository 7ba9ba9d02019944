"""What only training needs: the optimizers Momentum, Adagrad and Adam, and Dropout that drops elements."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    float_attr,
    has_input,
    int_attr,
    known_dims,
    operand,
    opset,
    output_used,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._registry import loops, variant
from farcall.graph.dims import dims, product

_DOMAIN = "ai.onnx.preview.training"
_GROUPS = {"Momentum": 3, "Adagrad": 3, "Adam": 4}  # of operands, behind the rate and the step
_DOUBLE = ir.DataType.DOUBLE


def _groups(node: ir.Node) -> list[list[ir.Value]]:
    """For each tensor that is trained: the tensor, its gradient, and what the optimizer keeps of it."""
    kinds = _GROUPS[node.op_type]
    if len(node.inputs) < 2 + kinds or (len(node.inputs) - 2) % kinds:
        raise Unsupported(f"{len(node.inputs)} operands; expected 2, and {kinds} for each tensor")
    count = (len(node.inputs) - 2) // kinds
    return [[operand(node, 2 + i + kind * count) for kind in range(kinds)] for i in range(count)]


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS, 0, *range(2, len(node.inputs)))
    want_dtypes(node, {ir.DataType.INT64}, 1)
    for index, name in enumerate(("rate", "step")):
        if known_dims(operand(node, index)) not in ((), (1,)):
            raise Unsupported(f"a {name} of dims {known_dims(operand(node, index))}; expected a scalar")
    if str_attr(node, "mode", "standard") not in ("standard", "nesterov"):
        raise Unsupported(f"mode={str_attr(node, 'mode', '')}; expected standard or nesterov")
    for x, *others in _groups(node):
        for other in others:
            want_same(f"`{other.name}`", dims(other), dims(x))


@loops(*(f"{_DOMAIN}::{name}" for name in _GROUPS), check=_check)
def _optimizer(node: ir.Node) -> Iterator[Step]:
    """One loop for each tensor. Elements are computed in double, and rounded once."""
    groups = _groups(node)
    for number, values in enumerate(groups):
        outs = [
            node.outputs[i] if output_used(node, i) else None
            for i in range(number, len(node.outputs), len(groups))
        ]
        kernel = Kernel()
        for other in values[1:]:
            verify_same(kernel, node, f"`{other.name}`", dims(other), dims(values[0]))
        _declare_rate(kernel, node)
        with kernel.loop("i", product(dims(values[0]))):
            for name, value in zip("xgvh" if len(values) == 4 else "xgv", values, strict=True):
                kernel.line(f"const double {name} = (double){kernel.read(value)}[i];")
            kernel.line(f"const double slope = {_attr(node, 'norm_coefficient')} * x + g;")
            for out, result in zip(outs, _UPDATES[node.op_type](kernel, node), strict=False):
                if out is not None:
                    kernel.line(f"{kernel.write(out)}[i] = ({c_type(out.dtype)})({result});")
        yield kernel.step()


def _attr(node: ir.Node, name: str, default: float = 0.0) -> str:
    return c_literal(float_attr(node, name, default), _DOUBLE)


def _declare_rate(kernel: Kernel, node: ir.Node) -> None:
    """Declare ``rate``: Adagrad lowers it with each step, and Adam corrects by it the bias of its means."""
    kernel.line(f"const double r = (double){kernel.read(operand(node, 0))}[0];")
    kernel.line(f"const int64_t step = {kernel.read(operand(node, 1))}[0];")
    rate = "r"
    if node.op_type == "Adagrad":
        rate = f"r / (1 + (double)step * {_attr(node, 'decay_factor')})"
    elif node.op_type == "Adam":
        alpha, beta = _attr(node, "alpha", 0.9), _attr(node, "beta", 0.999)
        bias = f"sqrt(1 - pow({beta}, (double)step)) / (1 - pow({alpha}, (double)step))"
        rate = f"step > 0 ? r * {bias} : r"
    kernel.line(f"const double rate = {rate};")


def _momentum(kernel: Kernel, node: ir.Node) -> tuple[str, ...]:
    alpha = _attr(node, "alpha")
    kernel.line(f"const double kept = {alpha} * v + (step > 0 ? {_attr(node, 'beta')} : 1) * slope;")
    change = f"(slope + {alpha} * kept)" if str_attr(node, "mode", "standard") == "nesterov" else "kept"
    return f"x - rate * {change}", "kept"


def _adagrad(kernel: Kernel, node: ir.Node) -> tuple[str, ...]:
    kernel.line("const double kept = v + slope * slope;")
    return f"x - rate * slope / (sqrt(kept) + {_attr(node, 'epsilon', 1e-6)})", "kept"


def _adam(kernel: Kernel, node: ir.Node) -> tuple[str, ...]:
    alpha, beta = _attr(node, "alpha", 0.9), _attr(node, "beta", 0.999)
    kernel.line(f"const double mean = {alpha} * v + (1 - {alpha}) * slope;")
    kernel.line(f"const double square = {beta} * h + (1 - {beta}) * (slope * slope);")
    change = f"rate * (mean / (sqrt(square) + {_attr(node, 'epsilon', 1e-6)}))"
    return f"(1 - {_attr(node, 'norm_coefficient_post')}) * (x - {change})", "mean", "square"


_UPDATES = {"Momentum": _momentum, "Adagrad": _adagrad, "Adam": _adam}


def may_drop(node: ir.Node) -> bool:
    """Whether a Dropout may have to drop elements."""
    if opset(node) < 12 or not has_input(node, 2):
        return False
    return not (_is_zero(node, 2) or (has_input(node, 1) and _is_zero(node, 1)))


def _is_zero(node: ir.Node, index: int) -> bool:
    data = constant(operand(node, index))
    return data is not None and not data.any()


def _check_dropout(node: ir.Node) -> None:
    want_dtypes(node, FLOATS, 0, 1)
    want_dtypes(node, {ir.DataType.BOOL}, 2)
    if output_used(node, 1) and node.outputs[1].dtype != ir.DataType.BOOL:
        raise Unsupported("the mask is not bool")
    if "seed" not in node.attributes:
        raise Unsupported(
            "training_mode is not a constant false, and there is no seed: give it the attribute `seed` to "
            "drop the same elements in each call, or add the backend `onnxruntime`, which drops random ones"
        )
    if not 0 <= int_attr(node, "seed", 0) < 2**32:
        raise Unsupported(f"seed={int_attr(node, 'seed', 0)}; expected a number of 32 bits")
    for index in (1, 2):
        if has_input(node, index) and known_dims(operand(node, index)) not in ((), (1,)):
            raise Unsupported(
                f"input {index} has the dims {known_dims(operand(node, index))}; expected a scalar"
            )


# The Mersenne Twister of 32 bits (Matsumoto and Nishimura 1998); two of its numbers make a double of 53 bits.
_TWISTER = """struct farcall_twister {
  uint32_t state[624];
  int at;
};
static void farcall_seed(struct farcall_twister* t, uint32_t seed) {
  for (int i = 0; i < 624; ++i) {
    t->state[i] = seed;
    seed = 1812433253u * (seed ^ (seed >> 30)) + (uint32_t)i + 1u;
  }
  t->at = 624;
}
static uint32_t farcall_random_bits(struct farcall_twister* t) {
  if (t->at == 624) {
    for (int i = 0; i < 624; ++i) {
      const uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % 624] & 0x7fffffffu);
      t->state[i] = t->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1u ? 0x9908b0dfu : 0u);
    }
    t->at = 0;
  }
  uint32_t y = t->state[t->at++];
  y ^= y >> 11, y ^= (y << 7) & 0x9d2c5680u, y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}
static double farcall_random(struct farcall_twister* t) {
  const uint32_t high = farcall_random_bits(t) >> 5, low = farcall_random_bits(t) >> 6;
  return ((double)high * 67108864.0 + (double)low) / 9007199254740992.0;
}"""


@variant("Dropout", check=_check_dropout, when=may_drop)
def _dropout(node: ir.Node) -> Iterator[Step]:
    """Drop the elements for which numpy's ``RandomState(seed)`` gives a number below the ratio.

    ONNX's reference evaluator does so, too.
    """
    x, out = operand(node, 0), node.outputs[0]
    kernel = Kernel()
    kernel.file_scope(_TWISTER)
    p, q = kernel.read(x), kernel.write(out)
    mask = kernel.write(node.outputs[1]) if output_used(node, 1) else ""
    ratio = f"(double){kernel.read(operand(node, 1))}[0]" if has_input(node, 1) else "0.5"
    kernel.line(f"const double ratio = {kernel.read(operand(node, 2))}[0] ? {ratio} : 0;")
    kind = c_type(x.dtype)
    kernel.line(f"const {kind} scale = ({kind})(1 / (1 - ratio));")
    kernel.line("struct farcall_twister twister;")
    kernel.line(f"farcall_seed(&twister, {int_attr(node, 'seed', 0)}u);")
    with kernel.loop("i", product(dims(x))):
        kernel.line("const _Bool kept = ratio == 0 || farcall_random(&twister) >= ratio;")
        kernel.line(f"{q}[i] = kept ? {p}[i] * scale : 0;")
        if mask:
            kernel.line(f"{mask}[i] = kept;")
    yield kernel.step()
