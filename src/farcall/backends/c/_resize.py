"""Resize and Upsample: one pass over each axis that changes, by tables of source elements and their weights.

The tables are made once a call, in double precision. Axes that keep their size cost nothing: those before the
first one that changes are a loop around all passes, and the others are part of the rows that a pass adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c._kernel import Step
from farcall.backends.c._node import label, operand
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.backends.c._resize_place import CROP, Axis, Places, check
from farcall.backends.c._resize_text import pass_source, rounded
from farcall.graph.dims import Dim, product, same

_REPEATS = 8  # an integer scale up to this is written out


@loops("Resize", "Upsample", check=check)
def _resize(node: ir.Node) -> Iterator[Step]:
    yield _Resize(node).write()


class _Resize(Places):
    """Writes the kernel of one node."""

    p: str
    q: str

    def write(self) -> Step:
        kernel = self.kernel
        self.verify()
        self.p, self.q = kernel.read(operand(self.node, 0)), kernel.write(self.node.outputs[0])
        if all(item.is_kept for item in self.axes):
            kernel.line(f"memcpy({self.q}, {self.p}, (size_t){kernel.dim(self.made)} * sizeof *{self.q});")
            return kernel.step()
        with kernel.block(f"if ({kernel.dim(product((self.planes, self.made)))})"):
            if self.way.mode == "nearest":
                self._choose()
            else:
                self._mix()
        return kernel.step()

    # -- nearest: elements are copied

    def _choose(self) -> None:
        kernel, kind = self.kernel, c_type(self.dtype)
        tables = [None if item.is_kept else self._indices(item) for item in self.axes[:-1]]
        last = self.axes[-1]
        repeats = 0 if last.is_kept else self._repeats(last)
        tables.append(None if last.is_kept or repeats else self._indices(last))
        if self.way.place == CROP:
            kernel.line(f"const {kind} outside = {self.outside(self.dtype)};")
        with ExitStack() as stack:
            stack.enter_context(kernel.parallel("n", self.planes, ELEMENT * self.made))
            kernel.line(f"const {kind}* in0 = {self.p} + n * {kernel.dim(self.place)};")
            kernel.line(f"{kind}* out0 = {self.q} + n * {kernel.dim(self.made)};")
            for number, table in enumerate(tables[:-1]):
                self._choose_row(stack, number, table)
            self._choose_run(len(tables) - 1, tables[-1], repeats)

    def _indices(self, item: Axis) -> str:
        """A table with the element of the input for each one of the output; -1 is outside of the input."""
        kernel = self.kernel
        table = kernel.scratch(ir.DataType.INT64, item.count)
        with self.places(item), kernel.loop("o", "count"):
            self.find()
            self.choose(f"{table}[o]")
        return table

    def _repeats(self, item: Axis) -> int:
        """How often each element stands in the output, one copy behind the other; 0 if there is no rule."""
        scale = item.scale or 0
        way = self.way
        even = way.place.startswith("half_pixel") and way.nearest.startswith("round")
        if not (even or (way.place == "asymmetric" and way.nearest in ("floor", "simple"))):
            return 0
        times = int(scale) if scale == int(scale) <= _REPEATS else 0
        return times if times and same(item.count, times * item.size) else 0

    def _choose_row(self, stack: ExitStack, number: int, table: str | None) -> None:
        """Open the loop over an axis before the last one. Equal rows are copied as a whole."""
        kernel, kind, o = self.kernel, c_type(self.dtype), f"o{number}"
        item = self.axes[number]
        behind = kernel.dim(product(item.count for item in self.axes[number + 1 :]))
        step = kernel.dim(product(item.size for item in self.axes[number + 1 :]))
        stack.enter_context(kernel.loop(o, item.count))
        kernel.line(f"{kind}* out{number + 1} = out{number} + {o} * {behind};")
        source = o
        if table is not None:
            source = f"{table}[{o}]"
            to = f"out{number + 1}"
            if self.way.place == CROP:
                fill = f"for (int64_t i = 0; i < {behind}; ++i) {to}[i] = outside;"
                kernel.line(f"if ({source} < 0) {{ {fill} continue; }}")
            copy = f"memcpy({to}, {to} - {behind}, (size_t){behind} * sizeof *{to});"
            kernel.line(f"if ({o} && {source} == {table}[{o} - 1]) {{ {copy} continue; }}")
        kernel.line(f"const {kind}* in{number + 1} = in{number} + {source} * {step};")

    def _choose_run(self, number: int, table: str | None, repeats: int) -> None:
        """Copy along the last axis."""
        kernel, item = self.kernel, self.axes[number]
        to, origin, count = f"out{number}", f"in{number}", kernel.dim(item.count)
        if item.is_kept:
            kernel.line(f"memcpy({to}, {origin}, (size_t){count} * sizeof *{to});")
        elif repeats:
            with kernel.loop("i", item.size):
                for k in range(repeats):
                    kernel.line(f"{to}[i * {repeats} + {k}] = {origin}[i];")
        else:
            with kernel.loop("i", count):
                at = f"{table}[i]"
                inside = f"{origin}[{at}]"
                is_crop = self.way.place == CROP
                kernel.line(f"{to}[i] = {f'{at} < 0 ? outside : {inside}' if is_crop else inside};")

    # -- linear and cubic: one pass for each axis

    def _mix(self) -> None:
        kernel = self.kernel
        wide, kind = self.wide, c_type(self.wide)
        kernel.file_scope(pass_source(kind))
        tables = {i: self._weights(item) for i, item in enumerate(self.axes) if not item.is_kept}
        shape = [item.size for item in self.axes]
        order = sorted(tables, key=lambda i: (not self.axes[i].shrinks, i if self.axes[i].shrinks else -i))
        with kernel.parallel("n", self.planes, product((self.made, ELEMENT, len(tables)))):
            source = self._load()
            for i in order:
                last = i == order[-1]
                before, size, behind = shape[:i], shape[i], shape[i + 1 :]
                shape[i] = self.axes[i].count
                place = f"({self.q} + n * {kernel.dim(self.made)})"
                target = place if last and wide == self.dtype else kernel.scratch(wide, product(shape))
                sizes = [kernel.dim(d) for d in (product(before), size, shape[i], product(behind))]
                fill = self.outside(wide)
                kernel.line(
                    f"farcall_resize_{kind}({source}, {target}, {', '.join(sizes)}, {tables[i]}, {fill});"
                )
                source = target
            if wide != self.dtype:
                self._store(source)

    def _load(self) -> str:
        """The plane ``n`` of the input, as numbers that are mixed."""
        kernel, wide = self.kernel, self.wide
        plane = f"({self.p} + n * {kernel.dim(self.place)})"
        if wide == self.dtype:
            return plane
        copy = kernel.scratch(wide, self.place)
        with kernel.loop("i", self.place):
            kernel.line(f"{copy}[i] = ({c_type(wide)}){plane}[i];")
        return copy

    def _store(self, source: str) -> None:
        with self.kernel.loop("i", self.made):
            to = f"{self.q}[n * {self.kernel.dim(self.made)} + i]"
            self.kernel.line(f"{to} = {rounded(self.dtype, f'{source}[i]')};")

    def _weights(self, item: Axis) -> str:
        """Make the tables of an axis; returns the arguments that pass them: ``taps, first, weights``."""
        kernel, way = self.kernel, self.way
        number = self.axes.index(item)
        taps, first = f"taps{number}", kernel.scratch(ir.DataType.INT64, item.count)
        kernel.line(f"int64_t {taps};")
        with self.places(item):
            most = self._most_weights(item)
            table = kernel.scratch(self.wide, most)
            self.filter()
            kernel.line(f"{taps} = size <= half || size - half <= half ? size : 2 * half;")
            if way.antialias and item.scale is None:
                wrong = kernel.fail("ValueError", f"{label(self.node)}: sizes that its scales do not make")
                kernel.line(f"if ({taps} > {kernel.dim(most)} / count) {wrong}")
            with kernel.loop("o", "count"):
                self.find()
                self.weigh(taps, f"{first}[o]", f"&{table}[o * {taps}]")
        if isinstance(item.size, int) and not way.antialias:
            taps = str(min(item.size, way.taps))
        return f"{taps}, {first}, {table}"

    def _most_weights(self, item: Axis) -> Dim:
        """At least as many weights as there are: antialiased, no more than all elements for each output."""
        reach = self.way.taps // 2
        if not self.way.antialias:
            return item.count * self.way.taps
        if item.scale is None:
            return 4 * reach * (item.size + item.count)
        return item.count * 2 * math.ceil(reach / min(item.scale, 1))
