"""The formulas of the reductions."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, SIGNED, c_type
from farcall.backends.c import _scalar as scalar

TOTAL = "{a} + {b}"  # how sums are combined


@dataclass(frozen=True)
class Formula:
    """C expressions: the initial accumulator, one element's part, two accumulators combined, the result."""

    kind: str  # C type of the accumulator
    start: str
    element: str  # over {x}; of ReduceLogSumExp also over {m}, the maximum, as finish is
    combine: str  # over {a} and {b}, both of the accumulator's type
    finish: str  # over {a} and {n}, the number of elements


def formula_of(name: str, dtype: ir.DataType) -> Formula:
    floating = dtype in FLOATS
    kind = "double" if floating else "uint64_t"
    out = "{a}"
    match name:
        case "ReduceMax" | "ReduceMin":
            own = c_type(dtype)
            pick = scalar.larger if name == "ReduceMax" else scalar.smaller
            start = scalar.lowest(dtype) if name == "ReduceMax" else scalar.highest(dtype)
            return Formula(own, start, "{x}", pick(dtype, "{a}", "{b}"), out)
        case "ReduceProd":
            return Formula(kind, "1", "{x}", "{a} * {b}", out)
        case "ReduceMean":
            return Formula(kind, "0", "{x}", TOTAL, _mean(dtype))
        case "ReduceSumSquare" | "ReduceL2":
            finish = "sqrt({a})" if name == "ReduceL2" else out
            return Formula(kind, "0", f"({kind}){{x}} * ({kind}){{x}}", TOTAL, finish)
        case "ReduceL1":
            return Formula(kind, "0", _absolute(dtype), TOTAL, out)
        case "ReduceLogSum":
            return Formula(kind, "0", "{x}", TOTAL, "log({a})")
        case "ReduceLogSumExp":
            exp = scalar.function(dtype, "exp")
            return Formula(kind, "0", f"{exp}({{x}} - {{m}})", TOTAL, "log({a}) + {m}")
    return Formula(kind, "0", "{x}", TOTAL, out)


def _mean(dtype: ir.DataType) -> str:
    if dtype in FLOATS:
        return "{a} / (double){n}"
    word = "int64_t" if dtype in SIGNED else "uint64_t"
    return f"farcall_mean_{word}(({word}){{a}}, {{n}})"


def _absolute(dtype: ir.DataType) -> str:
    if dtype in FLOATS:
        return "fabs({x})"
    return "({x} < 0 ? 0 - (uint64_t){x} : (uint64_t){x})" if dtype in SIGNED else "{x}"
