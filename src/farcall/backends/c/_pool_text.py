"""C source for pools: rows of elements are joined one by one, by vectors of what the target has.

Vector types are an extension of gcc and clang, which lower them to other targets. Compilers do not turn the
maximum that keeps NaN into vector code by themselves. The end of a row is done by shorter vectors, and then
by elements: a row of 28 floats by three vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type, itemsize
from farcall.backends.c import _scalar as scalar

_WIDTHS = {64: "defined(__AVX512F__)", 32: "defined(__AVX__)", 16: "1"}  # bytes -> where it is one register


@dataclass(frozen=True)
class Join:
    """How elements of a window become one: C expressions of x, or of a and b; for vectors, for elements."""

    name: str
    dtype: ir.DataType | None
    start: str  # of no elements
    both: tuple[str, str]
    load: tuple[str, str] = ("x", "x")

    def source(self) -> str:
        """``farcall_join_NAME``: rows to ``out``, which may be the first; ``loaded`` of them are loaded."""
        kind, size = c_type(self.dtype), itemsize(self.dtype)
        types = "\n".join(
            f"typedef {kind} farcall_{kind}_{width}\n"
            f"    __attribute__((vector_size({width}), aligned({size}), may_alias));"
            for width in _WIDTHS
        )
        functions = "\n".join(
            [self._functions(f"farcall_{kind}_{width}", f"{self.name}_{width}", 0) for width in _WIDTHS]
            + [self._functions(kind, f"{self.name}_1", 1)]
        )
        loops = "\n".join(
            f"#if {where}\n{self._loop(f'farcall_{kind}_{width}', str(width), width // size)}\n#endif"
            for width, where in _WIDTHS.items()
        )
        return f"""{types}
{functions}
static inline __attribute__((always_inline)) void farcall_join_{self.name}(
    const {kind}* const* rows, int64_t count, int64_t loaded, int64_t width, {kind}* out) {{
  int64_t x = 0;
{loops}
{self._loop(kind, "1", 1)}
}}"""

    def _functions(self, kind: str, name: str, which: int) -> str:
        return f"""static inline {kind} farcall_load_{name}({kind} x) {{
  return {self.load[which]};
}}
static inline {kind} farcall_both_{name}({kind} a, {kind} b) {{
  return {self.both[which]};
}}"""

    def _loop(self, kind: str, width: str, lanes: int) -> str:
        load, both = f"farcall_load_{self.name}_{width}", f"farcall_both_{self.name}_{width}"
        return f"""  for (; x + {lanes} <= width; x += {lanes}) {{
    const {kind} first = *(const {kind}*)(rows[0] + x);
    {kind} all = loaded > 0 ? first : {load}(first);
    for (int64_t i = 1; i < count; ++i) {{
      const {kind} next = *(const {kind}*)(rows[i] + x);
      all = {both}(all, loaded > i ? next : {load}(next));
    }}
    *({kind}*)(out + x) = all;
  }}"""


def _choose(mask: str, kind: str, yes: str, no: str) -> str:
    """Vectors for ``mask ? yes : no``, which C lacks. ``kind`` is an expression of the mask's type."""
    bits = f"__typeof__({kind})"
    return f"(({mask}) & ({bits})({yes})) | (~({mask}) & ({bits})({no}))"


def largest(dtype: ir.DataType | None) -> Join:
    """The maximum; NaN if there is one."""
    mask = "(a > b) | (a != a)" if dtype in FLOATS else "a > b"
    vector = f"(__typeof__(a))({_choose(mask, 'a > b', 'a', 'b')})"
    return Join(f"max_{c_type(dtype)}", dtype, scalar.lowest(dtype), (vector, scalar.larger(dtype, "a", "b")))


def total(dtype: ir.DataType | None) -> Join:
    """The sum."""
    return Join(f"sum_{c_type(dtype)}", dtype, "0", ("a + b", "a + b"))


def power_sum(dtype: ir.DataType | None, p: int) -> Join:
    """The sum of absolute values raised to the power ``p``."""
    size = f"(__typeof__(x))({_choose('x < 0', 'x < 0', '-x', 'x')})", "(x < 0 ? -x : x)"
    loads = [" * ".join([*([absolute] if p % 2 else []), *["x"] * (p // 2 * 2)]) for absolute in size]
    return Join(f"power{p}_{c_type(dtype)}", dtype, "0", ("a + b", "a + b"), (loads[0], loads[1]))
