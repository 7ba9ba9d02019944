"""What a region's tables hold: operators, each one primitive of oneDNN, with operands and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from farcall.graph.dims import Dim, dims, product, same

SOURCE, SECOND, TARGET, WEIGHTS, BIAS = 1, 2, 17, 33, 41  # arguments of primitives, as oneDNN numbers them
MEAN, VARIANCE, SCALE, SHIFT = 49, 50, 51, 52
_AFTER = 32768
SUM = 0  # the algorithm that adds a tensor in the layout of the result
MOST_AFTERS = 4  # operations behind a primitive


@dataclass
class Operand:
    """An operand of a primitive, or its result: the fields of ``struct operand`` in onednn.h.

    ``sizes`` are the dims that the primitive sees. If those are not the dims of the value, ``viewed`` is set:
    the primitive sees the same elements in the same order. ``strides`` are those of the layout ``STRIDED``.
    """

    what: int
    value: ir.Value | np.ndarray[Any, Any]
    layout: str
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...] = ()
    viewed: bool = False


@dataclass
class After:
    """What is computed on each element of the result: ``struct after``."""

    algorithm: int
    alpha: float = 0
    beta: float = 0
    operand: Operand | None = None


@dataclass
class Operator:
    """One primitive: the fields of ``struct operator``. ``window`` has five numbers for each spatial axis."""

    kind: str
    operands: list[Operand]
    target: Operand
    algorithm: int = 0
    axis: int = 0
    window: Sequence[Dim] = ()
    alpha: float = 0
    beta: float = 0
    afters: list[After] = field(default_factory=list)

    def append(self, after: After) -> None:
        """Compute ``after`` on the result, too."""
        self.afters.append(after)
        if after.operand is not None:
            after.operand.what = _AFTER * len(self.afters) | SECOND
            self.operands.append(after.operand)


def whole(what: int, value: ir.Value, layout: str) -> Operand:
    """An operand with the dims of its value. A constant that the primitive does not reorder is row-major."""
    if value.const_value is not None:
        return fixed(what, value.const_value.numpy(), layout)
    return Operand(what, value, layout, dims(value), _rows(dims(value)) if layout == "STRIDED" else ())


def fixed(what: int, data: np.ndarray[Any, Any], layout: str = "STRIDED") -> Operand:
    """A constant operand."""
    data = np.ascontiguousarray(data, np.float32)
    return Operand(what, data, layout, data.shape, _rows(data.shape) if layout == "STRIDED" else ())


def viewed(
    what: int, value: ir.Value, sizes: Sequence[Dim], order: Sequence[int] = (), layout: str = "STRIDED"
) -> Operand:
    """The elements of a value as a row-major tensor of ``sizes``, whose axes are then put into ``order``."""
    sizes = tuple(sizes)
    order = tuple(order) or tuple(range(len(sizes)))
    seen = tuple(sizes[axis] for axis in order)
    if value.const_value is not None:
        shape = [int(size) for size in sizes]
        return fixed(what, value.const_value.numpy().reshape(shape).transpose(order), layout)
    own = dims(value)
    is_other = order != tuple(sorted(order)) or len(own) != len(seen) or not all(map(same, own, seen))
    strides = _rows(sizes)
    if layout != "STRIDED" and order != tuple(sorted(order)):
        raise ValueError("a turned view keeps its strides")
    turned = tuple(strides[axis] for axis in order) if layout == "STRIDED" else ()
    return Operand(what, value, layout, seen, turned, is_other)


def _rows(sizes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The strides of a row-major tensor."""
    return tuple(product(sizes[axis + 1 :]) for axis in range(len(sizes)))
