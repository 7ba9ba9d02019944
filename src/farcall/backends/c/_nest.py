"""Loop nests over row-major operands that broadcast: adjacent dims that behave alike are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from farcall.backends.c._kernel import Kernel
from farcall.backends.c._parallel import ELEMENT
from farcall.graph.dims import Dim, ceildiv, factor, product

_ENOUGH = 64  # iterations that threads share
_LONG = 256 * ELEMENT  # the cost of an iteration, beside which divisions do not count


@dataclass(frozen=True)
class Nest:
    """Merged dims of a loop nest; ``moves`` tells which axes an operand has; it broadcasts over others."""

    dims: tuple[Dim, ...]
    moves: tuple[tuple[bool, ...], ...]  # [operand][axis]

    def stride(self, operand: int, axis: int) -> Dim:
        """The stride of ``operand`` along ``axis``, in elements."""
        if not self.moves[operand][axis]:
            return 0
        later = range(axis + 1, len(self.dims))
        return product(self.dims[i] for i in later if self.moves[operand][i])


def coalesce(domain: Sequence[Dim], views: Sequence[Sequence[Dim]]) -> Nest:
    """The shortest nest for operands with dims ``views``, broadcast over ``domain`` as numpy does.

    A dim of an operand that is not the int 1 equals the domain's dim (see :mod:`farcall.graph.dims`).
    """
    rank = len(domain)
    padded = [(1,) * (rank - len(view)) + tuple(view) for view in views]
    dims: list[Dim] = []
    moves: list[tuple[bool, ...]] = []
    for axis, dim in enumerate(domain):
        if dim == 1:
            continue
        pattern = tuple(view[axis] != 1 for view in padded)
        if moves and moves[-1] == pattern:
            dims[-1] = product((dims[-1], dim))
        else:
            dims.append(dim)
            moves.append(pattern)
    return Nest(tuple(dims), tuple(zip(*moves, strict=True)) if moves else tuple(() for _ in views))


@contextmanager
def shared(kernel: Kernel, loops: Sequence[tuple[str, Dim, int]], cost: Dim) -> Iterator[None]:
    """Loops in each other, whose iterations threads share as those of one: see :meth:`Kernel.split`.

    The place in that one is divided for the place in each, which takes as long as some elements: inner loops
    that the threads do not need, and that are short, remain loops.

    Args:
        kernel: The kernel.
        loops: The variable of each loop, up to which number it counts, and by which step.
        cost: That of an iteration of the innermost one.
    """
    counts = [ceildiv(count, step) for _, count, step in loops]
    depth = min(1, len(loops))
    while depth < len(loops) and _is_shared(counts, cost, depth):
        depth += 1
    begin, end = kernel.split(product(counts[:depth]), product((cost, *counts[depth:])))
    with ExitStack() as stack:
        if begin == "0":
            depth = 0
        else:
            stack.enter_context(kernel.loop("part", end, start=begin))
            place = "part"
            for number, (name, _, step) in reversed(list(enumerate(loops[:depth]))):
                size = kernel.dim(counts[number])
                index = f"({place}) % {size}" if number else place
                kernel.line(f"const int64_t {name} = {index if step == 1 else f'({index}) * {step}'};")
                place = f"({place}) / {size}"
        for name, count, step in loops[depth:]:
            stack.enter_context(kernel.loop(name, count, step=step))
        yield


def _is_shared(counts: Sequence[Dim], cost: Dim, depth: int) -> bool:
    """Whether the loop at ``depth`` is one with those around it: they are few, or its iterations are long."""
    around, each = product(counts[:depth]), product((cost, *counts[depth + 1 :]))
    return factor(around) < _ENOUGH or not isinstance(each, int) or each >= _LONG


@contextmanager
def nested(kernel: Kernel, domain: Sequence[Dim], views: Sequence[Sequence[Dim]]) -> Iterator[list[str]]:
    """Open the loops of :func:`coalesce`; yields the offset of each operand's element, as C expressions."""
    nest = coalesce(domain, views)
    with ExitStack() as stack:
        for axis, dim in enumerate(nest.dims):
            stack.enter_context(kernel.loop(f"i{axis}", kernel.dim(dim)))
        yield [_offset(kernel, nest, number) for number in range(len(views))]


def _offset(kernel: Kernel, nest: Nest, number: int) -> str:
    moving = [axis for axis in range(len(nest.dims)) if nest.moves[number][axis]]
    return " + ".join(f"i{axis} * {kernel.dim(nest.stride(number, axis))}" for axis in moving) or "0"
