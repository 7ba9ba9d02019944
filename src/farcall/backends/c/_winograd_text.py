"""C source of Winograd's transforms of 3x3 convolutions, F(2x2, 3x3) and F(4x4, 3x3).

A tile of ``m x m`` outputs reads ``(m + 2) x (m + 2)`` inputs. Both, and the weights, are polynomials: their
product is computed by its values at ``m + 1`` points and at infinity, one multiplication each, in place of
``9 m^2`` multiplications for a tile.

The points decide the error. Those of F(4x4) are 0, 5/8, -5/8, 3/2, -3/2 and infinity: with them, the worst
error is a fourth, and the usual one half, of that with 0, 1, -1, 2, -2. All constants of the transforms are
exact in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from farcall.backends._kernels import HIDDEN, Kernels
from farcall.backends.c._gemm_text import COMPILE_FLAGS, panel_width, vector_source

KIND = "float"
PANEL = panel_width(4)  # tiles in a panel of the transformed inputs

A, B = 0.625, 1.5  # the points of F(4x4) are 0, A, -A, B, -B and infinity


@dataclass(frozen=True)
class Tile:
    """Tiles of ``outputs`` x ``outputs`` elements, 2 or 4."""

    outputs: int

    @property
    def inputs(self) -> int:
        """The rows, and the columns, that a tile reads."""
        return self.outputs + 2

    @property
    def products(self) -> int:
        """The products of matrices that take the place of the convolution."""
        return self.inputs**2


def _indented(lines: str) -> str:
    return "\n".join(f"      {line}" for line in lines.strip().splitlines())


def _f(number: float) -> str:
    return f"{number!r}f"


_AA, _BB = A * A, B * B

# The values `z` at the points of the polynomial with the coefficients `x`.
_IN = {
    2: """
z0 = x2 - x0; z1 = x2 + x1; z2 = x2 - x1; z3 = x3 - x1;
""",
    4: f"""
const farcall_v_float e = x4 - {_f(_BB)} * x2, o = {_f(A)} * (x3 - {_f(_BB)} * x1);
const farcall_v_float f = x4 - {_f(_AA)} * x2, q = {_f(B)} * (x3 - {_f(_AA)} * x1);
z0 = x4 - {_f(_AA + _BB)} * x2 + {_f(_AA * _BB)} * x0;
z1 = e + o; z2 = e - o; z3 = f + q; z4 = f - q;
z5 = x5 - {_f(_AA + _BB)} * x3 + {_f(_AA * _BB)} * x1;
""",
}

# The outputs `z` of the values `x` at the points.
_OUT = {
    2: """
z0 = x0 + (x1 + x2); z1 = x3 + (x1 - x2);
""",
    4: f"""
const farcall_v_float e = x1 + x2, o = x1 - x2, f = x3 + x4, q = x3 - x4;
z0 = x0 + (e + f); z1 = {_f(A)} * o + {_f(B)} * q;
z2 = {_f(_AA)} * e + {_f(_BB)} * f; z3 = x5 + ({_f(A * _AA)} * o + {_f(B * _BB)} * q);
""",
}


def _axis(count: int, results: int, load: str, store: str, lines: str) -> str:
    """The transform of one axis: ``@`` stands for an index in ``load`` and ``store``."""
    names = ", ".join(f"x{i} = {load.replace('@', str(i))}" for i in range(count))
    made = ", ".join(f"z{i}" for i in range(results))
    stores = " ".join(f"{store.replace('@', str(i))};" for i in range(results))
    return f"const farcall_v_float {names};\nfarcall_v_float {made};\n{lines.strip()}\n{stores}"


def transform_calls(tile: Tile) -> str:
    """C declarations of the functions of :func:`transform_kernels`."""
    return f"{_head_in(tile)};\n{_head_out(tile)};"


def _head_in(tile: Tile) -> str:
    return f"""{HIDDEN} void farcall_winograd{tile.outputs}_in(int64_t tiles, const float* d,
    int64_t d_row, float* v, int64_t v_step, int64_t v_panel)"""


def _head_out(tile: Tile) -> str:
    return f"""{HIDDEN} void farcall_winograd{tile.outputs}_out(int64_t tiles, const float* m,
    int64_t step, float bias, float* y, int64_t y_row)"""


def transform_kernels(tile: Tile) -> Kernels:
    """The transforms of tiles, whose elements with one index are contiguous.

    ``farcall_winogradM_in`` reads ``d[i * d_row + tile]``, where i numbers the inputs of a tile, and writes
    products of matrices ``v_step`` apart, in panels. ``farcall_winogradM_out`` reads the products of one
    output channel, ``step`` apart, and writes ``y[i * y_row + tile]``.
    """
    side, outs = tile.inputs, tile.outputs
    at = "*(const farcall_u_float*)"
    first_in = _axis(
        side, side, f"{at}(d + (@ * {side} + j) * d_row + b)", f"t[@ * {side} + j] = z@", _IN[outs]
    )
    last_in = _axis(
        side,
        side,
        f"t[i * {side} + @]",
        f"*(farcall_u_float*)(to + (i * {side} + @) * v_step) = z@",
        _IN[outs],
    )
    first_out = _axis(
        side, outs, f"{at}(m + (@ * {side} + j) * step + b)", f"t[@ * {side} + j] = z@", _OUT[outs]
    )
    last_out = _axis(
        side,
        outs,
        f"t[i * {side} + @]",
        f"*(farcall_u_float*)(y + (i * {outs} + @) * y_row + b) = z@ + bias",
        _OUT[outs],
    )
    text = f"""#include <stdint.h>

{vector_source(KIND, 4)}
{_head_in(tile)} {{
  for (int64_t b = 0; b < tiles; b += farcall_lanes_float) {{
    farcall_v_float t[{side * side}];
    float* to = v + b / {PANEL} * v_panel + b % {PANEL};
    for (int64_t j = 0; j < {side}; ++j) {{
{_indented(first_in)}
    }}
    for (int64_t i = 0; i < {side}; ++i) {{
{_indented(last_in)}
    }}
  }}
}}
{_head_out(tile)} {{
  for (int64_t b = 0; b < tiles; b += farcall_lanes_float) {{
    farcall_v_float t[{outs * side}];
    for (int64_t j = 0; j < {side}; ++j) {{
{_indented(first_out)}
    }}
    for (int64_t i = 0; i < {outs}; ++i) {{
{_indented(last_out)}
    }}
  }}
}}
"""
    name = f"farcall_winograd{outs}"
    return Kernels(name, text, (f"{name}_in", f"{name}_out"), COMPILE_FLAGS, vectors=True)
