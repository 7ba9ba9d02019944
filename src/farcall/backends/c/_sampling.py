"""Samples of an image at positions between its elements, which GridSample and DeformConv share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends.c._kernel import Kernel

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}  # elements along an axis of which a sample is made
TILE = 32  # samples whose elements and weights are kept while a loop runs over the channels

_TYPES = {"float": ir.DataType.FLOAT, "double": ir.DataType.DOUBLE}


def _position_text(kind: str) -> str:
    """C functions on positions. A NaN is before all elements.

    ``fmod`` has no rounding error, so that far positions are reflected exactly.
    """
    suffix = "f" if kind == "float" else ""
    return f"""static inline {kind} farcall_bounded_{kind}({kind} x) {{
  return x > -0x1p100{suffix} ? (x < 0x1p100{suffix} ? x : 0x1p100{suffix}) : -0x1p100{suffix};
}}
static inline {kind} farcall_reflected_{kind}({kind} x, {kind} low, {kind} high) {{
  if (x >= low && x <= high) return x;
  const {kind} range = high - low, rest = fmod{suffix}(x < low ? low - x : x - high, 2 * range);
  if (!(range > 0)) return 0;
  const {kind} inside = rest < range ? rest : 2 * range - rest;
  return x < low ? low + inside : high - inside;
}}
static inline int64_t farcall_index_{kind}({kind} x, int64_t size) {{
  return (int64_t)(x < -8 ? -8 : x > ({kind})(size + 8) ? ({kind})(size + 8) : x);
}}"""


# The element that is read for index i; -1: none, the value is 0.
_ELEMENTS = {
    "zeros": """static inline int64_t farcall_zeros(int64_t i, int64_t size) {
  return i >= 0 && i < size ? i : -1;
}""",
    "border": """static inline int64_t farcall_border(int64_t i, int64_t size) {
  return i < 0 && size ? 0 : i < size ? i : size - 1;
}""",
    "reflection": """static inline int64_t farcall_reflection(int64_t i, int64_t size, int64_t aligned) {
  if (size < 2) return size - 1;
  const int64_t period = 2 * (size - aligned), rest = (i % period + period) % period;
  return rest < size ? rest : period - rest - !aligned;
}""",
}


class Sample:
    """How positions become elements and weights, and the C for it.

    Args:
        kernel: The function in which it is used.
        mode: A key of ``TAPS``.
        padding: What is outside: ``zeros``, ``border`` or ``reflection``.
        aligned: Whether the image is reflected at the middles of its outer elements, not at their edges.
        kind: The C type of positions.
        weight: The C type of the image's elements. If the mode is not ``nearest``, float or double.
        sizes: C expressions for the sizes of the image's axes.
    """

    def __init__(
        self,
        kernel: Kernel,
        mode: str,
        padding: str,
        aligned: bool,
        kind: str,
        weight: str,
        sizes: Sequence[str],
    ) -> None:
        self._kernel, self._mode, self._padding, self._is_aligned = kernel, mode, padding, aligned
        self._kind, self._weight, self._sizes = kind, weight, sizes
        self._count = TAPS[mode] ** len(sizes)
        self._places = self._weights = ""
        kernel.file_scope(_position_text(kind))
        kernel.file_scope(_ELEMENTS[padding])

    def keep(self, tile: int) -> None:
        """Allocate memory for the elements and weights of ``tile`` samples."""
        self._places = self._kernel.scratch(ir.DataType.INT64, tile * self._count)
        if self._count > 1:
            self._weights = self._kernel.scratch(_TYPES[self._weight], tile * self._count)

    def find(self, positions: Sequence[str]) -> None:
        """Keep the elements and weights of sample ``o``. ``positions`` has an expression for each axis."""
        kernel, taps = self._kernel, TAPS[self._mode]
        for axis, position in enumerate(positions):
            self._declare(axis, position)
        kernel.line(f"int64_t k = o * {self._count};")
        with ExitStack() as stack:
            place, missing = "0", []
            for axis, size in enumerate(self._sizes):
                stack.enter_context(kernel.loop(f"k{axis}", str(taps)))
                at = f"at{axis}[k{axis}]"
                place = at if axis == 0 else f"({place}) * {size} + {at}"
                missing.append(f"{at} < 0")
            kernel.line(f"{self._places}[k] = {' || '.join(missing)} ? -1 : {place};")
            if self._weights:
                factors = " * ".join(f"weight{axis}[k{axis}]" for axis in range(len(positions)))
                kernel.line(f"{self._weights}[k] = {factors};")
            kernel.line("++k;")

    def value(self) -> str:
        """An expression for sample ``o`` of the plane ``image``; lines before it may make it."""

        def element(k: str) -> str:
            return f"({self._places}[{k}] < 0 ? 0 : image[{self._places}[{k}]])"

        if not self._weights:
            return element("o")
        self._kernel.line(f"{self._weight} sum = 0;")
        with self._kernel.loop("k", str(self._count)):
            at = f"o * {self._count} + k"
            self._kernel.line(f"sum += {self._weights}[{at}] * {element(at)};")
        return "sum"

    def _declare(self, axis: int, position: str) -> None:
        """Declare ``at<axis>``, the elements on an axis, and ``weight<axis>``, their weights."""
        kernel, kind, size = self._kernel, self._kind, self._sizes[axis]
        suffix = "f" if kind == "float" else ""
        x, first = f"x{axis}", f"first{axis}"
        kernel.line(f"{kind} {x} = farcall_bounded_{kind}({position});")
        if self._mode == "nearest":  # halves to even, as numpy does
            kernel.line(f"{x} = rint{suffix}({x});")
        if self._padding == "reflection":
            half = f"0.5{suffix}"
            bounds = f"0, ({kind})({size} - 1)" if self._is_aligned else f"-{half}, ({kind}){size} - {half}"
            kernel.line(f"{x} = farcall_reflected_{kind}({x}, {bounds});")
        kernel.line(f"const int64_t {first} = farcall_index_{kind}(floor{suffix}({x}), {size});")
        before = 1 if self._mode == "cubic" else 0
        at = [self._element(f"{first} + {tap - before}", size) for tap in range(TAPS[self._mode])]
        kernel.line(f"const int64_t at{axis}[] = {{{', '.join(at)}}};")
        if self._weights:
            kernel.line(f"const {self._weight} part{axis} = ({self._weight})({x} - floor{suffix}({x}));")
            weights = ", ".join(_weights(self._mode, f"part{axis}"))
            kernel.line(f"const {self._weight} weight{axis}[] = {{{weights}}};")

    def _element(self, index: str, size: str) -> str:
        extra = f", {int(self._is_aligned)}" if self._padding == "reflection" else ""
        return f"farcall_{self._padding}({index}, {size}{extra})"


def _weights(mode: str, t: str) -> list[str]:
    """Linear weights, or those of cubic convolution with a = -3/4 (Keys 1981, equation 5)."""
    if mode == "linear":
        return [f"1 - {t}", t]

    def near(x: str) -> str:
        return f"(5 * ({x}) - 9) * ({x}) * ({x}) / 4 + 1"

    def far(x: str) -> str:
        return f"((15 - 3 * ({x})) * ({x}) - 24) * ({x}) / 4 + 3"

    return [far(f"{t} + 1"), near(t), near(f"1 - {t}"), far(f"2 - {t}")]
