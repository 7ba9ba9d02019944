"""A padded copy of a plane, in which every tap of a window moves by one step: for depthwise convolutions.

The windows of one row read elements ``stride`` apart. The copy has each *phase* of the plane, the rows and
columns that are equal modulo the strides, as a plane of its own. In a phase, the element of a tap is at a
fixed distance from the output's position, and elements of one tap are contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from farcall.backends.c._depthwise_text import MOST_TAPS, Geometry, Side, tile_rows
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._window import Axis

_ELEMENTS = 4096  # of a copy: it stays in the L1 cache, beside the outputs
_VECTOR = 8  # elements: rows that begin at whole vectors are faster
_SLACK = 16  # elements behind the copy that the last vectors read


@dataclass(frozen=True)
class _Axis(Side):
    """An axis whose sizes are numbers."""

    size: int
    out: int
    begin: int

    @property
    def side(self) -> Side:
        """Its taps alone."""
        return Side(self.taps, self.stride, self.dilation)

    def inside(self, phase: int) -> tuple[int, int]:
        """The first position of a phase that is not before the plane, and the first that is behind it."""
        first = -(-(self.begin - phase) // self.stride)
        return first, (self.size - 1 - phase + self.begin) // self.stride + 1


_ONE = Axis(1, 1, 1, 1, 1, 0, 0)


class Planes:
    """The loops over copies. ``rows`` output rows at a time, with ``pitch`` elements from row to row."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.y, self.x = (_fixed(axis) for axis in (axes if len(axes) == 2 else (_ONE, *axes)))
        self.pitch = -(-(self.x.out + self.x.reach) // _VECTOR) * _VECTOR
        self.planes = len(self.y.phases) * len(self.x.phases)
        most = max(1, _ELEMENTS // (self.planes * self.pitch) - self.y.reach)
        blocks = -(-self.y.out // most)
        self.rows = -(-self.y.out // blocks)
        self.area = (self.rows + self.y.reach) * self.pitch  # elements of a phase
        self.elements = self.planes * self.area + _SLACK
        rest = self.y.out - (self.y.out - 1) // self.rows * self.rows
        self.geometry = Geometry(self.y.side, self.x.side, tile_rows(self.rows, rest))

    @staticmethod
    def possible(axes: Sequence[Axis]) -> bool:
        """Whether the sizes are known: copies of planes need no other condition."""
        numbers = all(isinstance(n, int) for axis in axes for n in (axis.size, axis.out, axis.begin))
        few = len(axes) <= 2 and (len(axes) == 1 or axes[0].taps <= MOST_TAPS)
        return few and numbers and all(axis.out != 0 for axis in axes)

    @contextmanager
    def blocks(self, kernel: Kernel) -> Iterator[None]:
        """Open the loop over blocks of output rows, ``r0`` to ``r0 + count - 1``."""
        with kernel.loop("r0", str(self.y.out), step=self.rows):
            kernel.line(
                f"const int64_t count = {self.y.out} - r0 < {self.rows} ? {self.y.out} - r0 : {self.rows};"
            )
            yield

    @property
    def is_whole(self) -> bool:
        """Whether one block is all rows. Its padding is the same for each plane."""
        return self.rows == self.y.out

    def clear(self, kernel: Kernel, copies: str, count: int) -> None:
        """Write the padding that blocks have in common, once for all planes."""
        kernel.line(f"memset({copies}, 0, {count * self.elements} * sizeof *{copies});")

    def fill(self, kernel: Kernel, kind: str, copy: str, source: str) -> None:
        """Copy what the block reads of the plane that ``source`` points to.

        The rows inside of the plane have a loop of their own. With a condition in the loop over rows, gcc 12
        at -O3 vectorizes that loop, and writes the padding over rows that are inside.
        """
        for number, phase in enumerate(self.y.phases):
            first = number * len(self.x.phases)
            with kernel.block():
                self._declare_rows(kernel, phase)
                self._pad(kernel, copy, first, "0", "top")
                with kernel.block("for (int64_t q = top; q < bottom; ++q)"):
                    kernel.line(f"const int64_t y = (r0 + q) * {self.y.stride} + {phase - self.y.begin};")
                    kernel.line(f"const {kind}* restrict from = {source} + y * {self.x.size};")
                    for i in range(len(self.x.phases)):
                        place = f"{copy} + {(first + i) * self.area} + q * {self.pitch}"
                        kernel.line(f"{kind}* restrict to{i} = {place};")
                    self._row(kernel)
                self._pad(kernel, copy, first, "bottom", "rows")

    def _declare_rows(self, kernel: Kernel, phase: int) -> None:
        """Declare ``rows``, those of the block's copy: from ``top`` to ``bottom`` they are in the plane."""
        first, last = self.y.inside(phase)
        kernel.line(f"const int64_t rows = count + {self.y.reach};")
        kernel.line(f"int64_t top = {first} - r0, bottom = {last} - r0;")
        kernel.line("top = top < 0 ? 0 : top > rows ? rows : top;")
        kernel.line("bottom = bottom < top ? top : bottom > rows ? rows : bottom;")

    def _pad(self, kernel: Kernel, copy: str, phase: int, first: str, last: str) -> None:
        """Clear rows in which another block has elements."""
        for number in () if self.is_whole else range(phase, phase + len(self.x.phases)):
            row = f"{copy} + {number * self.area} + {first} * {self.pitch}"
            kernel.line(f"memset({row}, 0, (size_t)(({last} - {first}) * {self.pitch}) * sizeof *{copy});")

    def _row(self, kernel: Kernel) -> None:
        """Copy a row to all phases of its columns in one loop, and what only some of them have after it."""
        ranges = [self._columns(phase) for phase in self.x.phases]
        common = max(0, min(last - first for first, last in ranges))
        step = "" if self.x.stride == 1 else f" * {self.x.stride}"
        moves = [
            f"to{i}[x + {first}] = from[(x + {first}){step} + {phase - self.x.begin}];"
            for i, (phase, (first, _)) in enumerate(zip(self.x.phases, ranges, strict=True))
        ]
        with kernel.loop("x", str(common)):
            for move in moves:
                kernel.line(move)
        for move, (first, last) in zip(moves, ranges, strict=True):
            if first + common < last:
                with kernel.loop("x", str(last - first), start=str(common)):
                    kernel.line(move)

    def _columns(self, phase: int) -> tuple[int, int]:
        """The columns of a phase that are in the plane: the first, and the end."""
        first, last = self.x.inside(phase)
        first = min(max(first, 0), self.pitch)
        return first, max(first, min(last, self.pitch))


def _fixed(axis: Axis) -> _Axis:
    return _Axis(*map(int, (axis.taps, axis.stride, axis.dilation, axis.size, axis.out, axis.begin)))
