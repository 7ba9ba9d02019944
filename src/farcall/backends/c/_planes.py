"""A padded copy of a plane, in which every tap of a window moves by one step: for depthwise convolutions.

The windows of one row read elements ``stride`` apart. The copy has each *phase* of the plane, the rows and
columns that are equal modulo the strides, as a plane of its own. In a phase, the element of a tap is at a
fixed distance from the output's position: whole rows of outputs, padding included, are one loop over
contiguous memory, however short a row is. What it computes between two rows is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product as pairs

from farcall.backends.c._kernel import Kernel
from farcall.backends.c._window import Axis

_ELEMENTS = 8192  # of a copy: 32 KB of floats stay in the L1 cache
_SLACK = 128  # elements behind the copy that the last vectors read, and behind the outputs that they write


@dataclass(frozen=True)
class _Axis:
    """An axis whose sizes are numbers."""

    size: int
    out: int
    taps: int
    stride: int
    dilation: int
    begin: int

    @property
    def reach(self) -> int:
        """Positions of a phase that the last tap is behind the first."""
        return (self.taps - 1) * self.dilation // self.stride

    @property
    def phases(self) -> list[int]:
        """The phases that taps read."""
        return sorted({tap * self.dilation % self.stride for tap in range(self.taps)})

    def place(self, tap: int) -> tuple[int, int]:
        """The number of the tap's phase among those in use, and its position there for output 0."""
        move, phase = divmod(tap * self.dilation, self.stride)
        return self.phases.index(phase), move

    def inside(self, phase: int) -> tuple[int, int]:
        """The first position of a phase that is not before the plane, and the first that is behind it."""
        first = -(-(self.begin - phase) // self.stride)
        return first, (self.size - 1 - phase + self.begin) // self.stride + 1


_ONE = Axis(1, 1, 1, 1, 1, 0, 0)


class Planes:
    """The loops over copies. ``rows`` output rows at a time, with ``pitch`` elements from row to row."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.y, self.x = (_fixed(axis) for axis in (axes if len(axes) == 2 else (_ONE, *axes)))
        self.pitch = self.x.out + self.x.reach
        self.planes = len(self.y.phases) * len(self.x.phases)
        most = max(1, _ELEMENTS // (self.planes * self.pitch) - self.y.reach)
        blocks = -(-self.y.out // most)
        self.rows = -(-self.y.out // blocks)
        self.area = (self.rows + self.y.reach) * self.pitch  # elements of a phase
        self.elements = self.planes * self.area + _SLACK
        self.outputs = self.rows * self.pitch + _SLACK

    @staticmethod
    def possible(axes: Sequence[Axis]) -> bool:
        """Whether the sizes are known: copies of planes need no other condition."""
        numbers = all(isinstance(n, int) for axis in axes for n in (axis.size, axis.out, axis.begin))
        return len(axes) <= 2 and numbers and all(axis.out != 0 for axis in axes)

    def offsets(self) -> list[int]:
        """For each tap, the distance of its element from the output's position."""
        found: list[int] = []
        for ky, kx in pairs(range(self.y.taps), range(self.x.taps)):
            (py, my), (px, mx) = self.y.place(ky), self.x.place(kx)
            found.append((py * len(self.x.phases) + px) * self.area + my * self.pitch + mx)
        return found

    @contextmanager
    def blocks(self, kernel: Kernel) -> Iterator[None]:
        """Open the loop over blocks of output rows, ``r0`` to ``r0 + count - 1``."""
        with kernel.loop("r0", str(self.y.out), step=self.rows):
            kernel.line(
                f"const int64_t count = {self.y.out} - r0 < {self.rows} ? {self.y.out} - r0 : {self.rows};"
            )
            kernel.line(f"const int64_t length = (count - 1) * {self.pitch} + {self.x.out};")
            yield

    def fill(self, kernel: Kernel, kind: str, copy: str, source: str, outside: str) -> None:
        """Copy what the block reads of the plane that ``source`` points to; ``outside`` is the padding.

        The rows inside of the plane have a loop of their own. With a condition in the loop over rows, gcc 12
        at -O3 vectorizes that loop, and writes the padding over rows that are inside.
        """
        for number, (py, px) in enumerate(pairs(self.y.phases, self.x.phases)):
            phase = f"{copy} + {number * self.area}"
            with kernel.block():
                self._declare_rows(kernel, py)
                self._pad(kernel, phase, "0", "top", outside)
                kernel.line("for (int64_t q = top; q < bottom; ++q) {")
                kernel.line(f"const int64_t y = (r0 + q) * {self.y.stride} + {py - self.y.begin};")
                kernel.line(f"{kind}* restrict to = {phase} + q * {self.pitch};")
                kernel.line(f"const {kind}* restrict from = {source} + y * {self.x.size};")
                self._row(kernel, px, outside)
                kernel.line("}")
                self._pad(kernel, phase, "bottom", "rows", outside)

    def _declare_rows(self, kernel: Kernel, phase: int) -> None:
        """Declare ``rows``, those of the block's copy: from ``top`` to ``bottom`` they are in the plane."""
        first, last = self.y.inside(phase)
        kernel.line(f"const int64_t rows = count + {self.y.reach};")
        kernel.line(f"int64_t top = {first} - r0, bottom = {last} - r0;")
        kernel.line("top = top < 0 ? 0 : top > rows ? rows : top;")
        kernel.line("bottom = bottom < top ? top : bottom > rows ? rows : bottom;")

    def _pad(self, kernel: Kernel, phase: str, first: str, last: str, outside: str) -> None:
        with kernel.loop("x", f"({last} - {first}) * {self.pitch}"):
            kernel.line(f"({phase} + {first} * {self.pitch})[x] = {outside};")

    def _row(self, kernel: Kernel, phase: int, outside: str) -> None:
        first, last = self.x.inside(phase)
        first = min(max(first, 0), self.pitch)
        last = max(first, min(last, self.pitch))
        step = "" if self.x.stride == 1 else f" * {self.x.stride}"
        for start, end, value in (
            (0, first, outside),
            (first, last, f"from[x{step} + {phase - self.x.begin}]"),
            (last, self.pitch, outside),
        ):
            if start < end:
                kernel.line(f"for (int64_t x = {start}; x < {end}; ++x) to[x] = {value};")

    def store(self, kernel: Kernel, outputs: str, target: str) -> None:
        """Copy the rows of the block to ``target``, without gaps."""
        with kernel.loop("r", "count"):
            row = f"{target} + r * {self.x.out}, {outputs} + r * {self.pitch}"
            kernel.line(f"memcpy({row}, {self.x.out} * sizeof *{outputs});")


def _fixed(axis: Axis) -> _Axis:
    return _Axis(*map(int, (axis.size, axis.out, axis.taps, axis.stride, axis.dilation, axis.begin)))
