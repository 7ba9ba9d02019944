"""Writes one function of a module of kind ``farcall.json``: its values, its nodes, and where values are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from farcall.backends.c._node import Unsupported, constant
from farcall.graph.dims import Dim, dims, dtype_name, fold, product, same, symbols

Number: TypeAlias = "int | str"  # a literal, or "s3": size 3

DTYPES = frozenset(
    {"float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"}
)
CARRIED = frozenset({"float16", "bfloat16", "uint64", "complex64"})  # only from one call to another
MOST_RANK = 8
ALIGNMENT = 64
_INLINE = 16  # elements; larger constants are data of the artifact
_LARGEST = 1 << 62
_F32_ONLY = frozenset(
    {"log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"}
)
_TELLS = frozenset({"eq", "lt", "le", "not", "isnan"})


@dataclass
class Item:
    """A value of the function. ``place`` names the member that says where it is; empty for arguments."""

    dtype: str
    dims: tuple[Dim, ...]
    place: str = ""
    at: Any = None


@dataclass
class Step:
    """A node of the function."""

    op: str
    inputs: list[int]
    outputs: list[int]
    numbers: list[Number] = field(default_factory=list)
    callee: str | int = ""  # a name, or the index of an import


class GraphFunction:
    """A function under construction. Values are known by their index.

    Args:
        inputs: the values that a call passes.
        outputs: the values that a call gets.
        carries: whether values may have dtypes that operators do not take.
    """

    def __init__(
        self, inputs: Iterable[ir.Value], outputs: Iterable[ir.Value], *, carries: bool = False
    ) -> None:
        self._carries = carries
        self.items: list[Item] = []
        self.steps: list[Step] = []
        self.constants: list[tuple[int, np.ndarray[Any, Any]]] = []
        self._sizes: list[Any] = []
        self._names: dict[str, Number] = {}
        self._expressions: dict[Any, Number] = {}
        self._scalars: dict[tuple[str, float], int] = {}
        self._of: dict[ir.Value, int] = {}
        self._inputs = [self._add(value) for value in inputs]
        self._wanted = list(outputs)
        self._outputs: dict[ir.Value, int] = {}
        self.equal: list[tuple[Number, Number]] = []
        self.used: dict[str, None] = {}  # symbols
        self.workspace: Dim = 0  # bytes; known after payload()

    # ---- sizes ----

    def number(self, dim: Dim) -> Number:
        """A dim as a number of the payload."""
        dim = fold(dim)
        if isinstance(dim, int):
            if abs(dim) >= _LARGEST:
                raise Unsupported(f"the size {dim}")
            return dim
        if dim.is_Symbol:
            self.used[dim.name] = None
            return f"<{dim.name}>"
        if dim not in self._expressions:
            self._expressions[dim] = self._size(dim)
        return self._expressions[dim]

    def _size(self, dim: sympy.Expr) -> Number:
        if dim.is_Add or dim.is_Mul:
            parts = [self.number(fold(item)) for item in dim.args]
            return self._chain("add" if dim.is_Add else "mul", parts)
        if isinstance(dim, sympy.Min | sympy.Max):
            return self._chain("min" if isinstance(dim, sympy.Min) else "max", map(self.number, dim.args))
        if isinstance(dim, sympy.Mod):
            return self._chain("mod", map(self.number, dim.args))
        if isinstance(dim, sympy.floor):
            above, below = sympy.fraction(sympy.together(dim.args[0]))
            return self._chain("div", [self.number(fold(sympy.expand(above))), self.number(fold(below))])
        if dim.is_Pow and dim.exp.is_Integer and int(dim.exp) > 0:
            return self._chain("mul", [self.number(dim.base)] * int(dim.exp))
        raise Unsupported(f"the size {dim}")

    def _chain(self, op: str, parts: Iterable[Number]) -> Number:
        first, *rest = parts
        for part in rest:
            key = (op, first, part)
            if key not in self._expressions:
                self._sizes.append([op, first, part])
                self._expressions[key] = f"#{len(self._sizes) - 1}"
            first = self._expressions[key]
        return first

    # ---- values ----

    def _add(self, value: ir.Value) -> int:
        self._of[value] = self._new(self.dtype_of(value), dims(value))
        return self._of[value]

    def dtype_of(self, value: ir.Value) -> str:
        """The dtype of a value of the model, if the function may have it."""
        return dtype_of(value, DTYPES | CARRIED if self._carries else DTYPES)

    def _new(self, dtype: str, shape: Sequence[Dim], place: str = "", at: Any = None) -> int:
        if len(shape) > MOST_RANK:
            raise Unsupported(f"rank {len(shape)}; the interpreter has at most {MOST_RANK}")
        self.items.append(Item(dtype, tuple(shape), place, at))
        return len(self.items) - 1

    def of(self, value: ir.Value) -> int:
        """The index of a value of the model; a constant is added when it is first used."""
        if value not in self._of:
            data = constant(value)
            if data is None:
                raise Unsupported(f"`{value.name}` is neither given nor computed")
            self._of[value] = self.constant(data, self.dtype_of(value))
        return self._of[value]

    def constant(self, data: np.ndarray[Any, Any], dtype: str) -> int:
        """A constant: in the payload if it is tiny, else data of the artifact."""
        if data.size <= _INLINE and dtype not in CARRIED:
            return self._new(dtype, data.shape, "data", data.ravel().tolist())
        index = self._new(dtype, data.shape, "constant")
        self.constants.append((index, data))
        return index

    def scalar(self, number: float, dtype: str) -> int:
        """A constant of rank 0."""
        key = (dtype, float(number))
        if key not in self._scalars:
            data = float(number) if dtype.startswith("float") else int(number)
            self._scalars[key] = self._new(dtype, (), "data", [data])
        return self._scalars[key]

    def view(self, index: int, shape: Sequence[Dim]) -> int:
        """The same elements with another shape."""
        item = self.items[index]
        return index if item.dims == tuple(shape) else self._new(item.dtype, shape, "of", index)

    def temporary(self, dtype: str, shape: Sequence[Dim]) -> int:
        """A value in working memory."""
        return self._new(dtype, shape, "workspace")

    def shape(self, index: int) -> tuple[Dim, ...]:
        """The dims of a value."""
        return self.items[index].dims

    def dtype(self, index: int) -> str:
        """The dtype of a value."""
        return self.items[index].dtype

    # ---- nodes ----

    def require_equal(self, a: Dim, b: Dim) -> None:
        """Refuse calls for which two dims differ."""
        self.equal.append((self.number(a), self.number(b)))

    def step(self, op: str, inputs: Sequence[int], output: int, numbers: Iterable[Dim] = ()) -> int:
        """Add a node. Returns its output."""
        self.steps.append(Step(op, list(inputs), [output], [self.number(number) for number in numbers]))
        return output

    def call(
        self, callee: str | int, inputs: Sequence[int], outputs: Sequence[int], sizes: Iterable[Dim]
    ) -> None:
        """Add a call of a function of this module, by name, or of an import, by its index."""
        numbers = [self.number(size) for size in sizes]
        self.steps.append(Step("call", list(inputs), list(outputs), numbers, callee))

    def map(self, op: str, *inputs: int) -> int:
        """Add an operator that works element by element, with broadcasting."""
        dtype = self.dtype(inputs[-1])
        if op in _F32_ONLY and dtype != "float32":
            raise Unsupported(f"{op} of {dtype}; the interpreter has it for float32")
        shape = self._broadcast([self.shape(index) for index in inputs])
        return self.step(op, inputs, self.temporary("bool" if op in _TELLS else dtype, shape))

    @staticmethod
    def _broadcast(shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
        rank = max(map(len, shapes))
        padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
        return tuple(next((dim for dim in column if dim != 1), 1) for column in zip(*padded, strict=True))

    def cast(self, index: int, dtype: str) -> int:
        """The elements in another dtype."""
        if self.dtype(index) == dtype:
            return index
        return self.step("cast", [index], self.temporary(dtype, self.shape(index)))

    def move(
        self,
        source: int,
        target: int,
        shape: Sequence[Dim],
        read: tuple[Dim, Sequence[Dim]],
        write: tuple[Dim, Sequence[Dim]],
    ) -> int:
        """Copy elements between views: each is an offset and a stride for each axis."""
        return self.step("move", [source], target, [*shape, read[0], *read[1], write[0], *write[1]])

    def define(self, value: ir.Value, index: int) -> None:
        """Say which value of the function is the model's ``value``."""
        item, wanted = self.items[index], value in self._wanted
        shape = dims(value)
        is_fresh = item.place == "workspace" and index not in self._outputs.values()
        if wanted and not (is_fresh and len(item.dims) == len(shape)):
            target = self.temporary(item.dtype, shape)
            count = product(shape)
            index = self.move(index, target, (count,), (0, (1,)), (0, (1,)))
            item = self.items[index]
        if wanted:
            item.place, item.dims = "", shape
            self._outputs[value] = index
        self._of[value] = index

    # ---- the payload ----

    def payload(self) -> dict[str, Any]:
        """The function as data for JSON."""
        places = self._place()
        for item, place in zip(self.items, places, strict=True):
            item.at = place if item.place == "workspace" else item.at
        shapes = [[self.number(dim) for dim in item.dims] for item in self.items]
        workspace = self.number(self.workspace)
        names = self.symbol_names()
        texts = {f"<{name}>": f"s{i}" for i, name in enumerate(names)}
        texts |= {f"#{i}": f"s{i + len(names)}" for i in range(len(self._sizes))}

        def final(number: Number) -> Number:
            return texts[number] if isinstance(number, str) else number

        values: list[Any] = []
        for item, shape in zip(self.items, shapes, strict=True):
            entry: list[Any] = [item.dtype, [final(number) for number in shape]]
            if item.place not in ("", "constant"):
                at = final(item.at) if item.place == "workspace" else item.at
                entry.append({item.place: at})
            values.append(entry)
        found: dict[str, Any] = {"inputs": self._inputs}
        found["outputs"] = [self._outputs[value] for value in self._wanted]
        if self.constants:
            found["constants"] = [index for index, _ in self.constants]
        if names or self._sizes:
            found["sizes"] = [*names, *([op, final(a), final(b)] for op, a, b in self._sizes)]
        if self.workspace != 0:
            found["workspace"] = final(workspace)
        if self.equal:
            found["equal"] = [[final(a), final(b)] for a, b in self.equal]
        found["values"] = values
        found["nodes"] = [self._node(step, final) for step in self.steps]
        return found

    @staticmethod
    def _node(step: Step, final: Any) -> list[Any]:
        node = [step.op, step.inputs, step.outputs, [final(number) for number in step.numbers]]
        return [*node, step.callee] if step.op == "call" else node

    def symbol_names(self) -> list[str]:
        """The symbols of the function, in order of appearance."""
        every = [dim for index in self._inputs for dim in self.items[index].dims]
        return list(dict.fromkeys([*symbols(*every), *self.used]))

    def hidden_symbols(self) -> list[str]:
        """Those whose sizes the inputs do not show as a dim of their own."""
        every = [dim for index in self._inputs for dim in self.items[index].dims]
        shown = {dim.name for dim in every if not isinstance(dim, int) and dim.is_Symbol}
        return [name for name in self.symbol_names() if name not in shown]

    # ---- working memory ----

    def _place(self) -> list[Number]:
        """The place of each value in working memory; values share one when their lives do not overlap."""
        ends = self._ends()
        slots: list[Dim] = []  # bytes
        slot_of: dict[int, int] = {}
        free: list[int] = []
        for at, step in enumerate(self.steps):
            for root in map(self._root, step.outputs):
                if self.items[root].place == "workspace" and root not in slot_of:
                    slot_of[root] = self._take(self._bytes(root), free, slots)
            free += [slot_of[root] for root in ends[at] if root in slot_of]
        offsets: list[Dim] = [0]
        for size in slots:
            offsets.append(fold(offsets[-1] + size))
        self.workspace = offsets[-1]
        return [self.number(offsets[slot_of[i]]) if i in slot_of else 0 for i in range(len(self.items))]

    def _ends(self) -> list[list[int]]:
        """The values that each step is the last to use."""
        last: dict[int, int] = {}
        for at, step in enumerate(self.steps):
            last.update((self._root(index), at) for index in (*step.inputs, *step.outputs))
        ends: list[list[int]] = [[] for _ in self.steps]
        for root, at in last.items():
            ends[at].append(root)
        return ends

    def _root(self, index: int) -> int:
        while self.items[index].place == "of":
            index = self.items[index].at
        return index

    def _bytes(self, index: int) -> Dim:
        item = self.items[index]
        size = product((*item.dims, np.dtype(item.dtype).itemsize))
        if isinstance(size, int):
            return -(-size // ALIGNMENT) * ALIGNMENT
        return fold(sympy.floor((size + (ALIGNMENT - 1)) / ALIGNMENT) * ALIGNMENT)

    @staticmethod
    def _take(size: Dim, free: list[int], slots: list[Dim]) -> int:
        """A free slot of the same size, or of at least that size in bytes; else a new one."""
        for slot in free:
            other = slots[slot]
            fits = isinstance(other, int) and isinstance(size, int) and other >= size
            if fits or same(other, size):
                free.remove(slot)
                return slot
        slots.append(size)
        return len(slots) - 1


def dtype_of(value: ir.Value, known: Collection[str] = DTYPES) -> str:
    """The dtype of a value, if it is one of those that the interpreter has."""
    name = dtype_name(value.dtype) if value.dtype is not None else "no known dtype"
    if name not in known:
        raise Unsupported(f"`{value.name}` is {name}, which the interpreter lacks")
    return name
