"""Resize and Upsample to sizes that are known only when the node runs: nothing sets memory aside for tables.

The last axis has tables for a few elements at a time, the other axes for one element. Each element of the
output is the sum over the neighbours on all axes. Neighbours without weight are left out, so that an axis
that keeps its size costs nothing here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c._kernel import Step
from farcall.backends.c._node import operand
from farcall.backends.c._registry import allocating
from farcall.backends.c._resize_place import CROP, Axis, Places, check
from farcall.backends.c._resize_text import rounded
from farcall.graph.dims import Dim, product

_RUN = 512  # most elements of the last axis that are made at once


@allocating("Resize", "Upsample", check=check)
def _resize(node: ir.Node) -> Iterator[Step]:
    yield _Resize(node).write()


class _Resize(Places):
    """Writes the kernel of one node."""

    p: str
    q: str
    mixes: bool
    first: str  # tables of the last axis
    table: str = ""
    sums: str = ""

    def write(self) -> Step:
        kernel, last = self.kernel, self.axes[-1]
        self.verify()
        self.p, self.q = kernel.read(operand(self.node, 0)), kernel.write(self.node.outputs[0])
        with kernel.block(f"if ({kernel.dim(product((self.planes, self.made)))})"):
            self.mixes = self.way.mode != "nearest"
            self.first = kernel.scratch(ir.DataType.INT64, _RUN)
            if self.mixes:
                self.table = kernel.scratch(self.wide, _RUN * self.way.taps + self._most_taps(last))
                self.sums = kernel.scratch(self.wide, _RUN)
            kernel.line(f"const {c_type(self.dtype)} outside = {self.outside(self.dtype)};\n(void)outside;")
            kernel.line(f"int64_t run = {_RUN}, taps = 1;\n(void)taps;")
            with kernel.loop("b", last.count, step="run"):
                self._make_run(last)
                self._rows()
        return kernel.step()

    def _most_taps(self, item: Axis) -> Dim:
        """The most neighbours that an element has."""
        return item.size if self.way.antialias else self.way.taps

    def _make_run(self, last: Axis) -> None:
        """Tables for ``run`` elements from ``b`` on: as many as there are, and as have room."""
        kernel = self.kernel
        with self._places_of(last):
            if self.mixes and not last.is_kept:
                self.filter()
                kernel.line("taps = size <= half || size - half <= half ? size : 2 * half;")
                kernel.line(f"const int64_t room = ({_RUN * self.way.taps} + taps - 1) / taps;")
                kernel.line(f"run = room < {_RUN} ? room : {_RUN};")
            kernel.line("run = count - b < run ? count - b : run;")
            with kernel.loop("i", "run"):
                kernel.line("const int64_t o = b + i;")
                self._find(last, f"{self.first}[i]", "taps", f"&{self.table}[i * taps]")

    def _places_of(self, item: Axis) -> ExitStack:
        """As :meth:`places`, also for an axis that is kept."""
        if not item.is_kept:
            return self.places(item)
        stack = ExitStack()
        stack.enter_context(self.kernel.block())
        size = self.kernel.dim(item.size)
        self.kernel.line(f"const int64_t size = {size}, count = size;\nconst double scale = 1;\n(void)scale;")
        return stack

    def _find(self, item: Axis, index: str, taps: str, weights: str) -> None:
        """Find the neighbours of element ``o``, and their weights."""
        if item.is_kept:
            self.kernel.line(f"{index} = o;")
            if self.mixes:
                self.kernel.line(f"for (int64_t t = 0; t < {taps}; ++t) ({weights})[t] = t == 0;")
            return
        self.find()
        if self.mixes:
            self.weigh(taps, index, weights)
        else:
            self.choose(index)

    def _rows(self) -> None:
        """Loops over the rows of the output, of which the run is a part."""
        kernel, kind = self.kernel, c_type(self.dtype)
        with ExitStack() as stack:
            stack.enter_context(kernel.loop("n", self.planes))
            row, inside = "n", []
            for i, item in enumerate(self.axes[:-1]):
                stack.enter_context(kernel.loop(f"o{i}", item.count))
                row = f"({row}) * {kernel.dim(item.count)} + o{i}"
                self._one(i, item)
                inside.append(f"first{i} >= 0")
            kernel.line(f"{kind}* const to = {self.q} + ({row}) * {kernel.dim(self.axes[-1].count)} + b;")
            if self.way.place == CROP:
                kernel.line(f"if (!({' && '.join(inside) or '1'}))")
                kernel.line("{ for (int64_t i = 0; i < run; ++i) to[i] = outside; continue; }")
            if self.mixes:
                self._mix()
            else:
                self._choose()

    def _one(self, i: int, item: Axis) -> None:
        """The neighbours of element ``o{i}`` of an axis: ``first{i}``, ``taps{i}`` and ``weights{i}``."""
        kernel = self.kernel
        kernel.line(f"int64_t first{i}, taps{i} = 1;\n(void)taps{i};")
        weights = kernel.scratch(self.wide, self._most_taps(item)) if self.mixes else ""
        if self.mixes:
            kernel.line(f"{c_type(self.wide)}* weights{i} = {weights};")
        with self._places_of(item):
            kernel.line(f"const int64_t o = o{i};")
            if self.mixes and not item.is_kept:
                self.filter()
                kernel.line(f"taps{i} = size <= half || size - half <= half ? size : 2 * half;")
            self._find(item, f"first{i}", f"taps{i}", weights)
            if self.mixes:
                kernel.line(f"while (taps{i} > 1 && weights{i}[taps{i} - 1] == 0) --taps{i};")
                skip = f"--taps{i}, ++weights{i}, first{i} += first{i} >= 0"
                kernel.line(f"while (taps{i} > 1 && weights{i}[0] == 0) {skip};")

    def _choose(self) -> None:
        source = self._source([f"first{i}" for i in range(len(self.axes) - 1)])
        at = f"{self.first}[i]"
        inside = f"{self.p}[({source}) * {self.kernel.dim(self.axes[-1].size)} + {at}]"
        with self.kernel.loop("i", "run"):
            self.kernel.line(
                f"to[i] = {f'{at} < 0 ? outside : {inside}' if self.way.place == CROP else inside};"
            )

    def _mix(self) -> None:
        kernel, kind, count = self.kernel, c_type(self.wide), len(self.axes) - 1
        with kernel.loop("i", "run"):
            kernel.line(f"{self.sums}[i] = 0;")
        with ExitStack() as stack:
            for i in range(count):
                stack.enter_context(kernel.loop(f"t{i}", f"taps{i}"))
            factor = " * ".join(f"weights{i}[t{i}]" for i in range(count)) or "1"
            source = self._source([f"(first{i} + t{i})" for i in range(count)])
            kernel.line(f"const {kind} factor = {factor};")
            row = f"{self.p} + ({source}) * {kernel.dim(self.axes[-1].size)}"
            kernel.line(f"const {c_type(self.dtype)}* const from = {row};")
            stack.enter_context(kernel.loop("i", "run"))
            kernel.line(f"const int64_t at = {self.first}[i] < 0 ? 0 : {self.first}[i];\n{kind} sum = 0;")
            with kernel.loop("t", "taps"):
                kernel.line(f"sum += {self.table}[i * taps + t] * ({kind})from[at + t];")
            kernel.line(f"{self.sums}[i] += factor * sum;")
        with kernel.loop("i", "run"):
            result = rounded(self.dtype, f"{self.sums}[i]")
            kernel.line(f"to[i] = {self.first}[i] < 0 ? outside : ({result});")

    def _source(self, indices: list[str]) -> str:
        """The row of the input."""
        text = "n"
        for item, index in zip(self.axes, indices, strict=False):
            text = f"({text}) * {self.kernel.dim(item.size)} + {index}"
        return text
