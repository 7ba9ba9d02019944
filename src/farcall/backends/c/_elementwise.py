"""Fused elementwise loops: one loop for a group of nodes, whose intermediate values stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._narrow_text import NARROW_FLOATS
from farcall.backends.c._nest import Nest, coalesce
from farcall.backends.c._node import constant
from farcall.backends.c._packed import element, is_packed
from farcall.backends.c._parallel import ELEMENT, FUNCTION
from farcall.backends.c._registry import Elementwise, operator
from farcall.backends.c_backend_kit import c_literal, c_type, itemsize
from farcall.graph.dims import Dim, dims, factor, product

_FUNCTIONS = frozenset(
    {
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu",
        "Log", "Mish", "Mod", "Pow", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Swish", "Tan", "Tanh",
    }
)  # fmt: skip

_PAGE = 4096  # bytes
_CACHED = 1 << 20  # bytes of operands that stay in the L2 cache, and need no prefetch

Operand = tuple[ir.Value, tuple[Dim, ...]]


def emit_group(
    nodes: Sequence[ir.Node], root: Mapping[ir.Value, ir.Value], needed: Collection[ir.Value]
) -> Step:
    """One kernel for elementwise nodes over the same dims. It stores only the values in ``needed``."""
    return _GroupWriter(nodes, root, needed).write()


def loaded(nodes: Sequence[ir.Node], root: Mapping[ir.Value, ir.Value]) -> list[Operand]:
    """What a group of elementwise nodes reads from memory, with the dims by which it broadcasts."""
    writer = _GroupWriter(nodes, root, ())
    writer.find_loads()
    return list(writer.loads)


def has_functions(nodes: Sequence[ir.Node]) -> bool:
    """Whether an element costs an exponential or more."""
    return any(node.op_type in _FUNCTIONS for node in nodes)


def emit_element(
    kernel: Kernel,
    nodes: Sequence[ir.Node],
    root: Mapping[ir.Value, ir.Value],
    given: tuple[ir.Value, str],
    out: ir.Value,
    place: Callable[[tuple[Dim, ...]], str],
) -> str:
    """Write what ``nodes`` compute for one element of ``out`` into ``kernel``; C of the element.

    ``given`` is an operand, and C of its element. ``place`` gives C of the place of the element of another
    operand, by the dims by which it broadcasts.
    """
    return _GroupWriter(nodes, root, (), kernel).write_element(given, out, place)


class _GroupWriter:
    def __init__(
        self,
        nodes: Sequence[ir.Node],
        root: Mapping[ir.Value, ir.Value],
        needed: Collection[ir.Value],
        kernel: Kernel | None = None,
    ) -> None:
        self.nodes = nodes
        self.root = root
        self.needed = needed
        self.kernel = kernel or Kernel()
        self.domain = dims(nodes[0].outputs[0])
        self.registers: dict[Operand, str] = {}
        self.loads: dict[Operand, None] = {}  # operands that the loop reads from memory

    def write(self) -> Step:
        operands = self.find_loads()
        views = [view for _, view in self.loads]
        nest = coalesce(self.domain, [*views, self.domain])
        with ExitStack() as stack:
            self._open_loops(nest, stack)
            offsets = self._offsets(nest)
            for number, (value, view) in enumerate(self.loads):
                self._load(value, view, offsets[number], number)
            for node, inputs in zip(self.nodes, operands, strict=True):
                self._compute(node, inputs, offsets[-1])
        return self.kernel.step()

    def write_element(
        self, given: tuple[ir.Value, str], out: ir.Value, place: Callable[[tuple[Dim, ...]], str]
    ) -> str:
        source, text = given
        self.kernel.line(f"const {c_type(source.dtype)} made = {text};")
        self.registers[source, self.domain] = "made"
        operands = self.find_loads()
        for number, (value, view) in enumerate(self.loads):
            self._load(value, view, place(view), number)
        for node, inputs in zip(self.nodes, operands, strict=True):
            self._compute(node, inputs, "")
        return self.registers[out, self.domain]

    def _operands(self, node: ir.Node) -> list[Operand]:
        entry = operator(node)
        assert isinstance(entry, Elementwise)  # noqa: S101 - groups are made of these
        return [(self.root.get(value, value), view) for value, view in entry.operands(node)]

    def find_loads(self) -> list[list[Operand]]:
        """Find what the loop reads from memory; returns the operands of each node."""
        operands = [self._operands(node) for node in self.nodes]
        made: set[Operand] = set()
        for node, inputs in zip(self.nodes, operands, strict=True):
            for item in inputs:
                if item in made or item in self.loads or item in self.registers:
                    continue
                if (literal := _literal(item[0])) is not None:
                    self.registers[item] = literal
                else:
                    self.loads[item] = None
            made.add((node.outputs[0], self.domain))
        return operands

    def _open_loops(self, nest: Nest, stack: ExitStack) -> None:
        if self._is_long(nest):
            self._open_pages(nest, stack)
            return
        for axis, dim in enumerate(nest.dims):
            loop = self.kernel.loop(f"i{axis}", dim)
            if axis == 0 and not any(is_packed(node.outputs[0]) for node in self.nodes):
                loop = self.kernel.parallel("i0", dim, product((self._cost(), *nest.dims[1:])))
            stack.enter_context(loop)
            if axis == len(nest.dims) - 2:
                self._declare_offsets(nest)

    def _is_long(self, nest: Nest) -> bool:
        """Whether it is one loop over more memory than the L2 cache holds, which takes its time."""
        if len(nest.dims) != 1 or has_functions(self.nodes):
            return False
        streams = self._streams(nest)
        each = sum(itemsize(value.dtype) for value in streams)
        return not any(map(is_packed, streams)) and factor(nest.dims[0]) * each > _CACHED

    def _streams(self, nest: Nest) -> list[ir.Value]:
        """The operands that the loop goes through."""
        loads = [value for (value, _), moves in zip(self.loads, nest.moves, strict=False) if any(moves)]
        return loads + [node.outputs[0] for node in self.nodes if node.outputs[0] in self.needed]

    def _open_pages(self, nest: Nest, stack: ExitStack) -> None:
        """One loop, in blocks of a page: the next page of each operand is asked for before it is used.

        The hardware's prefetch ends with a page. So each new one waits for its translation, and again for its
        first lines, if nobody asks.
        """
        kernel, streams = self.kernel, self._streams(nest)
        step = _PAGE // max(itemsize(value.dtype) for value in streams)
        stack.enter_context(kernel.parallel("page", nest.dims[0], self._cost() * step, step=step))
        for value in streams:
            pointer = kernel.write(value) if value in self.needed else kernel.read(value)
            ahead = _PAGE // itemsize(value.dtype)
            kernel.line(
                f"__builtin_prefetch({pointer} + page + {ahead}{', 1' if value in self.needed else ''});"
            )
        kernel.line(f"const int64_t stop = page + {step} < page_end ? page + {step} : page_end;")
        stack.enter_context(kernel.loop("i0", "stop", start="page"))

    def _cost(self) -> int:
        """What one element costs."""
        return ELEMENT + sum(FUNCTION if node.op_type in _FUNCTIONS else 1 for node in self.nodes)

    def _declare_offsets(self, nest: Nest) -> None:
        """The offset of each operand's row, computed outside of the innermost loop."""
        for number in range(len(nest.moves)):
            terms = [
                f"i{axis} * {self.kernel.dim(nest.stride(number, axis))}"
                for axis in range(len(nest.dims) - 1)
                if nest.moves[number][axis]
            ]
            if terms:
                self.kernel.line(f"const int64_t o{number} = {' + '.join(terms)};")

    def _offsets(self, nest: Nest) -> list[str]:
        inner = len(nest.dims) - 1
        texts: list[str] = []
        for number, moves in enumerate(nest.moves):
            parts = [f"o{number}"] if any(moves[:inner]) else []
            parts += [f"i{inner}"] if moves and moves[inner] else []
            texts.append(" + ".join(parts) or "0")
        return texts

    def _load(self, value: ir.Value, view: tuple[Dim, ...], offset: str, number: int) -> None:
        pointer = self.kernel.read(value)
        text = element(value.dtype, pointer, offset) if is_packed(value) else f"{pointer}[{offset}]"  # type: ignore[arg-type]
        self.kernel.line(f"const {c_type(value.dtype)} x{number} = {text};")
        self.registers[value, view] = f"x{number}"

    def _compute(self, node: ir.Node, inputs: Sequence[Operand], offset: str) -> None:
        entry = operator(node)
        assert isinstance(entry, Elementwise)  # noqa: S101
        out = node.outputs[0]
        name = f"v{len(self.registers)}"
        text = entry.expression(node, *(self.registers[item] for item in inputs))
        self.kernel.line(f"const {c_type(out.dtype)} {name} = {text};")
        self.registers[out, self.domain] = name
        if out in self.needed:
            self.kernel.line(f"{self.kernel.write(out)}[{offset}] = {name};")


def _literal(value: ir.Value) -> str | None:
    """The C literal of a constant with one element, else None."""
    data = constant(value)
    if data is None or data.size != 1:
        return None
    one = data.reshape(())
    if value.dtype in NARROW_FLOATS or value.dtype == ir.DataType.FLOAT4E2M1:  # C has their codes
        one = one.view(f"u{one.itemsize}")
    return f"(({c_type(value.dtype)}){c_literal(one.item(), value.dtype)})"
