"""The values that a module keeps between its regions, instead of giving them to `main`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.artifact._modules import keeper
from farcall.artifact._states import CPU, device

if TYPE_CHECKING:
    from farcall.backends.base import Code
    from farcall.graph import Region


class Kept:
    """The values that a module keeps between its regions.

    Attributes:
        makers: each value that a region of the module takes that makes it, and that module.
        alone: those of them that nobody else takes.
    """

    def __init__(
        self, regions: Iterable[Region], codes: Mapping[str, Code], outputs: Iterable[ir.Value]
    ) -> None:
        self._modules = {one.name: self._module(codes[one.name]) for one in regions}
        makers, takers = dict[ir.Value, object](), dict[ir.Value, set[object]]()
        for region in regions:
            module = self._modules[region.name]
            for value in region.inputs:
                takers.setdefault(value, set()).add(module)
            if module and not region.allocated:
                makers.update(dict.fromkeys(region.outputs, module))
        for value in outputs:
            takers.setdefault(value, set()).add(None)
        self.makers = {v: module for v, module in makers.items() if module in takers.get(v, ())}
        self.alone = {v for v in self.makers if len(takers[v]) == 1}
        self._numbers = {value: i for i, value in enumerate(self.makers)}

    @staticmethod
    def _module(code: Code) -> object:
        return keeper(code) if device(code) == CPU else None

    def number(self, value: ir.Value, region: Region) -> int | None:
        """The number of a value that the region's module keeps; None: it keeps it not."""
        kept = value in self.makers and self.makers[value] == self._modules[region.name]
        return self._numbers[value] if kept else None
