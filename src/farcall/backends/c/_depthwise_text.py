"""C source of depthwise convolutions over the padded copies of planes: one function for each geometry.

A *tile* is some rows of outputs, times one or more vectors of columns, whose sums stay in registers. An
element of the copy is loaded once for each column of taps, and serves all rows of the tile that it is in the
windows of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from farcall.backends._kernels import Kernels
from farcall.backends.c._gemm_text import COMPILE_FLAGS, INCLUDES, VECTORS, with_numbers

MOST_TAPS = 64  # of a column, which is unrolled
_FEW_TAPS = 7  # of a row, which are unrolled, too
_SUMS = 8  # of a tile: AVX2 has 16 vectors, and as many multiplications are under way at once
_WIDE_TAPS = 5  # of a column: a load then serves so many sums that one of two lines costs nothing
_START = 2  # what a tile costs beside its rows

Place = tuple[int, int]  # the number of a tap's phase, and its position there for output 0


@dataclass(frozen=True)
class Side:
    """The taps along one axis. Those whose elements are equal modulo the stride read the same *phase*."""

    taps: int
    stride: int
    dilation: int

    @property
    def reach(self) -> int:
        """Positions of a phase that the last tap is behind the first."""
        return (self.taps - 1) * self.dilation // self.stride

    @property
    def phases(self) -> list[int]:
        """The phases that taps read."""
        return sorted({tap * self.dilation % self.stride for tap in range(self.taps)})

    @property
    def places(self) -> list[Place]:
        """The place of each tap."""
        numbers = {phase: number for number, phase in enumerate(self.phases)}
        moves = (divmod(tap * self.dilation, self.stride) for tap in range(self.taps))
        return [(numbers[phase], move) for move, phase in moves]


@dataclass(frozen=True)
class Geometry:
    """What a function is for: the taps in a column and in a row of windows, and the rows of a tile."""

    y: Side
    x: Side
    high: int

    @property
    def name(self) -> str:
        """A part of a C identifier."""
        y, x = self.y, self.x
        return f"{y.taps}x{x.taps}_{y.stride}x{x.stride}_{y.dilation}x{x.dilation}_{self.high}"


def tile_rows(outs: int, least: int) -> int:
    """The rows of a tile for so many rows of outputs, or perhaps only ``least``."""
    most = max(1, min(_SUMS, least))
    return min(range(1, most + 1), key=lambda rows: (-(-outs // rows) * (rows + _START), -rows))


def depthwise_function(kind: str, geometry: Geometry) -> str:
    """The name of the function, which :func:`depthwise_declaration` declares."""
    return f"farcall_depthwise_{kind}_{geometry.name}"


def depthwise_declaration(kind: str, geometry: Geometry) -> str:
    """C: computes ``rows`` rows of ``width`` outputs without gaps.

    It writes no more than ``room`` elements, but perhaps some behind the last output, which are to be
    computed later. Its source is a copy with ``pitch`` elements a row and ``area`` elements a phase, of which
    it reads up to 16 elements behind the last one.
    """
    return (
        f"HIDDEN void {depthwise_function(kind, geometry)}(const KIND* w, KIND start, const KIND* source,\n"
        "    int64_t pitch, int64_t area, int64_t rows, int64_t width, KIND* to, int64_t room)"
    ).replace("KIND", kind)


@cache
def depthwise_kernels(kind: str, itemsize: int, geometry: Geometry) -> Kernels:
    """The file with the function."""
    name = depthwise_function(kind, geometry)
    text = with_numbers("".join(_text(kind, geometry)), kind, itemsize)
    return Kernels(name, text, (name,), COMPILE_FLAGS, vectors=True)


@dataclass(frozen=True)
class _Vector:
    """What C calls a vector: its type, that of one at any address, its lanes, and the functions of tiles."""

    type: str
    anywhere: str
    lanes: str
    window: str

    def load(self, place: str) -> str:
        return f"*(const {self.anywhere}*)({place})"


_HALF = _Vector("farcall_half_KIND", "farcall_half_at_KIND", "farcall_half_lanes_KIND", "farcall_window")
_WHOLE = _Vector("farcall_v_KIND", "farcall_u_KIND", "farcall_lanes_KIND", "farcall_wide_window")


def _text(kind: str, geometry: Geometry) -> Iterator[str]:
    yield f"{INCLUDES}{VECTORS}{_TYPES}"
    widths = [vectors for vectors in (8, 4, 2, 1) if vectors * geometry.high <= _SUMS]
    halves = "".join([_last_rows(_HALF), *(_tile(geometry, _HALF, vectors) for vectors in widths)])
    loops = "".join(_loop(_HALF, vectors) for vectors in widths[:-1])
    if geometry.y.taps < _WIDE_TAPS:
        yield halves
    else:
        wide = [vectors for vectors in widths if vectors <= 2]
        wholes = "".join([_last_rows(_WHOLE), *(_tile(geometry, _WHOLE, vectors) for vectors in wide)])
        yield f"#if FARCALL_VECTOR > FARCALL_HALF\n{wholes}{_last_rows(_HALF)}{_tile(geometry, _HALF, 1)}"
        yield f"#else\n{halves}#endif\n"
        whole_loops = "".join(_loop(_WHOLE, vectors) for vectors in wide) + _WHOLE_END
        loops = f"#if FARCALL_VECTOR > FARCALL_HALF\n{whole_loops}#else\n{loops}#endif\n"
    yield f"""{depthwise_declaration(kind, geometry)} {{
  for (int64_t y0 = 0; y0 < rows; y0 += {geometry.high}) {{
    const int64_t y = rows - y0 < {geometry.high} ? rows - {geometry.high} : y0;
    const KIND* const from = source + y * pitch;
    KIND* const line = to + y * width;
    const int64_t space = room - y * width;
    int64_t x = 0;
{loops}\
    for (; x < width; x += farcall_half_lanes_KIND) {{
      /* The last vector ends with the row, if the row is as long as a vector. */
      if (x && width - x < farcall_half_lanes_KIND) x = width - farcall_half_lanes_KIND;
      farcall_window1_KIND(w, start, from + x, pitch, area, width, width - x, line + x, space - x);
    }}
  }}
}}
"""


def _loop(vector: _Vector, vectors: int) -> str:
    """The columns of a row that are left, so many vectors at once."""
    step = f"{vectors} * {vector.lanes}"
    return f"""\
    for (; x + {step} <= width; x += {step})
      {vector.window}{vectors}_KIND(w, start, from + x, pitch, area, width, width - x, line + x, space - x);
"""


_WHOLE_END = """\
    if (width - x > farcall_half_lanes_KIND) {
      if (x) x = width - farcall_lanes_KIND;
      farcall_wide_window1_KIND(w, start, from + x, pitch, area, width, width - x, line + x, space - x);
      x = width;
    }
"""

_TYPES = """\
/* Most taps are not aligned: every such load of 64 bytes crosses a border of the cache's lines. */
#define FARCALL_HALF (FARCALL_VECTOR < 32 ? FARCALL_VECTOR : 32)
typedef KIND farcall_half_KIND __attribute__((vector_size(FARCALL_HALF)));
typedef KIND farcall_half_at_KIND __attribute__((vector_size(FARCALL_HALF), aligned(1), may_alias));
enum { farcall_half_lanes_KIND = FARCALL_HALF / sizeof(KIND) };

"""


def _last_rows(vector: _Vector) -> str:
    return f"""\
/* The rows of a tile, where there is no room for whole vectors. */
static __attribute__((noinline)) void {vector.window}_last_rows_KIND(int64_t rows, int64_t columns,
    const KIND* made, int64_t width, KIND* to, int64_t room) {{
  for (; rows > 0; --rows, made += {vector.lanes}, to += width, room -= width)
    if (room >= {vector.lanes})
      *({vector.anywhere}*)to = {vector.load("made")};
    else
      for (int64_t j = 0; j < columns; ++j) to[j] = made[j];
}}

"""


def _tile(geometry: Geometry, vector: _Vector, vectors: int) -> str:
    """A function for a tile of so many vectors of columns; only single ones may be longer than a row."""
    high, columns = range(geometry.high), range(vectors)
    sums = ", ".join(f"r{row}_{v} = start + ({vector.type}){{0}}" for row in high for v in columns)
    stores = " to += width;\n".join(
        " ".join(f"  *({vector.anywhere}*)(to + {v} * {vector.lanes}) = r{row}_{v};" for v in columns)
        for row in high
    )
    edge = f"""\
  if (room < {geometry.high - 1} * width + {vector.lanes}) {{
    const {vector.type} made[] = {{{", ".join(f"r{row}_0" for row in high)}}};
    {vector.window}_last_rows_KIND({geometry.high}, columns, (const KIND*)made, width, to, room);
    return;
  }}
"""
    edge = edge if vectors == 1 else ""
    return f"""\
static inline __attribute__((always_inline)) void {vector.window}{vectors}_KIND(const KIND* w, KIND start,
    const KIND* from, int64_t pitch, int64_t area, int64_t width, int64_t columns, KIND* to, int64_t room) {{
  {vector.type} {sums};
  (void)area;
  (void)columns;
  (void)room;
{_taps(geometry, vector, columns)}{edge}{stores}
}}

"""


def _taps(geometry: Geometry, vector: _Vector, columns: Sequence[int]) -> str:
    """The columns of taps, one after another: a loop if they are many."""
    taps, places = geometry.x.taps, geometry.x.places
    if taps <= _FEW_TAPS:
        return "".join(
            f"  {{\n    const KIND* at = from + {phase} * area + {move};\n"
            f"{_column(geometry, vector, str(number), columns)}  }}\n"
            for number, (phase, move) in enumerate(places)
        )
    phases, moves = (", ".join(map(str, numbers)) for numbers in zip(*places, strict=True))
    return f"""\
  static const int32_t phases[{taps}] = {{{phases}}}, moves[{taps}] = {{{moves}}};
  for (int64_t t = 0; t < {taps}; ++t) {{
    const KIND* at = from + phases[t] * area + moves[t];
{_column(geometry, vector, "t", columns)}  }}
"""


def _column(geometry: Geometry, vector: _Vector, number: str, columns: Sequence[int]) -> str:
    """All taps of one column, whose first element ``at`` points to."""
    lines = [f"const KIND w{row} = w[{row * geometry.x.taps} + {number}];" for row in range(geometry.y.taps)]
    last = (0, 0)
    for place in sorted({(p, m + row) for p, m in geometry.y.places for row in range(geometry.high)}):
        areas, rows = (place[0] - last[0]) * len(geometry.x.phases), place[1] - last[1]
        steps = [f"{count} * {name}" for count, name in ((areas, "area"), (rows, "pitch")) if count]
        lines += [f"at += {' + '.join(steps)};"] if steps else []
        lines.append(_element(geometry, vector, place, columns))
        last = place
    return "".join(f"    {line}\n" for line in lines)


def _element(geometry: Geometry, vector: _Vector, place: Place, columns: Sequence[int]) -> str:
    """What the elements at ``place``, a phase and a row of it, are for the sums of the tile."""
    loads = [f"const {vector.type} x{v} = {vector.load(f'at + {v} * {vector.lanes}')};" for v in columns]
    adds = [
        f"r{place[1] - move}_{v} += w{row} * x{v};"
        for row, (own, move) in enumerate(geometry.y.places)
        if own == place[0] and 0 <= place[1] - move < geometry.high
        for v in columns
    ]
    return f"{{ {' '.join([*loads, *adds])} }}"
