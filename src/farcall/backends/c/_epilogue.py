"""Elementwise nodes that a kernel computes from its own results, while these are in the caches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends.c._elementwise import emit_element, has_functions, loaded
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._packed import is_packed
from farcall.graph.dims import dims


@dataclass(frozen=True)
class Epilogue:
    """``nodes`` make ``output`` of ``source``, element by element, in place."""

    source: ir.Value
    output: ir.Value
    nodes: Sequence[ir.Node]
    root: Mapping[ir.Value, ir.Value]

    @staticmethod
    def of(
        source: ir.Value,
        nodes: Sequence[ir.Node],
        root: Mapping[ir.Value, ir.Value],
        needed: Collection[ir.Value],
    ) -> Epilogue | None:
        """The epilogue of the kernel that makes ``source``, if the nodes can be one."""
        if len(needed) != 1:
            return None
        (output,) = needed
        shape = dims(source)
        if output.dtype != source.dtype or dims(output) != shape or is_packed(source):
            return None
        if any(view != shape or is_packed(value) for value, view in loaded(nodes, root)):
            return None
        return Epilogue(source, output, nodes, root)

    @property
    def is_costly(self) -> bool:
        """Whether an element costs an exponential or more."""
        return has_functions(self.nodes)

    def write(self, kernel: Kernel, first: str, count: str) -> None:
        """Write the loop over ``count`` elements of the output, in which those of the source are."""
        with kernel.loop("s", count):
            kernel.line(f"const int64_t at = {first} + s;")
            self.element(kernel, "at", f"{kernel.write(self.output)}[at]")

    def element(self, kernel: Kernel, at: str, value: str) -> None:
        """Write element ``at`` of the output, which is ``value`` in the source."""
        emit_element(kernel, self.nodes, self.root, (self.source, value), self.output, at)
