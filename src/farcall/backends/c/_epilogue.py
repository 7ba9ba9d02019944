"""Elementwise nodes that a kernel computes from its own results, while these are in the caches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends.c._elementwise import emit_element, has_functions, loaded
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._packed import is_packed
from farcall.graph.dims import Dim, dims


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
        for value, view in loaded(nodes, root):
            is_row = value is not source and _is_row(view, shape)
            if is_packed(value) or not (view == shape or is_row):
                return None
        return Epilogue(source, output, nodes, root)

    @property
    def reads_rows(self) -> bool:
        """Whether it reads an operand that is the same for each row of the source."""
        shape = dims(self.source)
        return any(view != shape for _, view in loaded(self.nodes, self.root))

    @property
    def is_costly(self) -> bool:
        """Whether an element costs an exponential or more."""
        return has_functions(self.nodes)

    def added_row(self) -> tuple[ir.Value, Epilogue | None] | None:
        """A row that is added to each row of the source before all else, and the rest of the epilogue."""
        readers = [node for node in self.nodes if self.source in self._operands(node)]
        if len(readers) != 1 or readers[0].op_type != "Add":
            return None
        (add,) = readers
        shape = dims(self.source)
        rows = [(value, view) for value, view in loaded([add], self.root) if view != shape]
        rest = [node for node in self.nodes if node is not add]
        if len(rows) != 1 or (rest and add.outputs[0] is self.output):
            return None
        ((row, view),) = rows
        if view[-1:] != shape[-1:]:
            return None
        left = Epilogue(add.outputs[0], self.output, rest, self.root) if rest else None
        return row, left

    def _operands(self, node: ir.Node) -> list[ir.Value]:
        return [self.root.get(value, value) for value in node.inputs if value is not None]

    def write(self, kernel: Kernel, first: str, count: str, column: str = "0") -> None:
        """Write the loop over ``count`` elements of the output, in which those of the source are.

        ``first`` is the place of the first of them, and ``column`` its place in its row.
        """
        with kernel.loop("s", count):
            kernel.line(f"const int64_t at = {first} + s;")
            if self.reads_rows:
                kernel.line(f"const int64_t column = {column} + s;")
            self.element(kernel, "at", f"{kernel.write(self.output)}[at]", "column")

    def element(self, kernel: Kernel, at: str, value: str, column: str = "0") -> None:
        """Write element ``at`` of the output, which is ``value`` in the source."""
        shape = dims(self.source)

        def place(view: tuple[Dim, ...]) -> str:
            in_row = column if view[-1:] == shape[-1:] else "0"
            return at if view == shape else in_row

        made = emit_element(kernel, self.nodes, self.root, (self.source, value), self.output, place)
        kernel.line(f"{kernel.write(self.output)}[{at}] = {made};")


def _is_row(view: tuple[Dim, ...], shape: tuple[Dim, ...]) -> bool:
    """Whether an operand is the same for each row."""
    return all(dim == 1 for dim in view[:-1]) and view[-1:] in ((), (1,), shape[-1:])
