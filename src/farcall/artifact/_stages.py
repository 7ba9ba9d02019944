"""The stages of a driver, between points at which sizes become known; and the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from farcall.artifact._memory import Slots
from farcall.graph import Region
from farcall.graph.dims import Dim, product

Dims = tuple[Dim, ...]


class Shapes:
    """Shapes and strides of tensors: constant tables if static, else arrays in the call's frame."""

    def __init__(self, prefix: str, size: Callable[[Dim], str], stage_of: Callable[[Dims], int]) -> None:
        self._prefix, self._size, self._stage_of = prefix, size, stage_of
        self._texts: dict[Dims, tuple[str, str]] = {}  # C expressions of shape and strides
        self.tables: list[str] = []
        self._steps: dict[int, list[str]] = {}  # stage -> C statements that compute arrays in the frame
        self.words = 0  # that the arrays in the frame take

    def of(self, shape: Dims) -> tuple[str, str]:
        """C expressions (``int64_t*``) of the shape and its row-major strides, where ``f`` is the frame."""
        if shape not in self._texts:
            static = all(isinstance(dim, int) for dim in shape)
            self._texts[shape] = self._table(shape) if static else self._place(shape)
        return self._texts[shape]

    def steps(self, stage: int) -> list[str]:
        """C statements that compute the arrays whose sizes are known from this stage on."""
        return self._steps.get(stage, [])

    def _table(self, shape: Dims) -> tuple[str, str]:
        if not shape:
            return "NULL", "NULL"
        strides: list[Dim] = [product(shape[i + 1 :]) for i in range(len(shape))]
        name = f"{self._prefix}table_{len(self.tables)}"
        values = ", ".join(map(self._size, (*shape, *strides)))
        self.tables.append(f"static const int64_t {name}[] = {{{values}}};")
        return f"(int64_t*){name}", f"(int64_t*){name} + {len(shape)}"

    def _place(self, shape: Dims) -> tuple[str, str]:
        start, rank = self.words, len(shape)
        self.words += 2 * rank
        steps = self._steps.setdefault(self._stage_of(shape), [])
        for i, dim in enumerate(shape):
            steps.append(f"f->dims[{start + i}] = {self._size(dim)};")
        steps.append(f"(void)fc_strides(&bad, {rank}, f->dims + {start}, f->dims + {start + rank});")
        return f"f->dims + {start}", f"f->dims + {start + rank}"


@dataclass
class Stage:
    """Regions between two points at which sizes become known: the start, and those that allocate outputs."""

    number: int
    told: tuple[ir.Value, ...]  # tensors whose dims tell the sizes
    regions: list[Region] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)  # results of the model that it makes
    slots: Slots = field(default_factory=lambda: Slots({}, []))
    first_slot: int = 0


def stages_of(regions: Iterable[Region]) -> list[Stage]:
    stages = [Stage(0, ())]
    for region in regions:
        stages[-1].regions.append(region)
        if region.allocated:
            stages.append(Stage(len(stages), region.allocated))
    return stages
