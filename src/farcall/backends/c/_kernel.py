"""Kernels: static C functions, loop nests over buffers that are passed as arguments.

Two nodes of one operator with the same attributes and dims have the same source, and share one function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import Content, c_string
from farcall.backends.base import Choice, Kernels
from farcall.backends.c._helpers import MOST_CHARACTERS, RAISE_VALUES
from farcall.backends.c._parallel import HELPER, UNITS, Split
from farcall.backends.c_backend_kit import FunctionWriter, c_expr, c_symbol, c_type, itemsize
from farcall.graph.dims import Dim, ceildiv, dims, late, product, symbol, symbols


@dataclass(eq=False)
class Scratch:
    """Memory that one kernel uses while it runs."""

    size: Dim  # bytes


@dataclass(frozen=True)
class Table:
    """Constant data in the layout that a kernel needs. Kernels share it if dtype and bytes are equal."""

    data: np.ndarray = field(compare=False)
    key: tuple[str, Content] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.data.dtype.str, Content(self.data)))


@dataclass(frozen=True)
class Late:
    """An output that a kernel allocates."""

    value: ir.Value


Argument: TypeAlias = "ir.Value | Scratch | Table | Late | Dim"


@dataclass
class Step:
    """A call of a kernel: the source, whose first ``@`` stands for the function's name, and the arguments.

    ``split`` is the source of the function that splits the loop of the kernel, where there is one. The
    kernel's own name then ends with ``_loop``.
    """

    text: str
    arguments: list[Argument]
    reads: list[ir.Value]
    writes: list[ir.Value]
    scratch: list[Scratch]
    file_scope: list[str]
    can_fail: bool = False
    split: str = ""
    nodes: Sequence[ir.Node] = ()
    kernels: Sequence[Kernels] = ()
    choice: Choice | None = None  # among the ways to compute it

    @property
    def source(self) -> tuple[str, str]:
        """What steps have in common that share a function."""
        return self.text, self.split

    def function(self, name: str) -> str:
        """The source with this function name. Any further ``@`` of the kernel belongs to an error message."""
        if not self.split:
            return self.text.replace("@", name, 1)
        return self.text.replace("@", f"{name}_loop", 1) + "\n" + self.split.replace("@", name)


class Kernel(FunctionWriter):
    """A function under construction. Parameters are named in the order of first use."""

    def __init__(self) -> None:
        super().__init__()
        self._parameters: list[str] = []
        self._arguments: list[Argument] = []
        self._reads: dict[ir.Value, str] = {}
        self._writes: dict[ir.Value, str] = {}
        self._dims: dict[Dim, str] = {}
        self._scratch: list[Scratch] = []
        self._tables: list[Table] = []
        self._lates: dict[ir.Value, str] = {}
        self._found: dict[str, str] = {}  # symbols that the kernel itself finds -> their variables
        self._can_fail = False
        self._split: Split | None = None

    def split(
        self, count: Dim | str, cost: Dim | str, work: Dim | None = None, at_once: bool = False
    ) -> tuple[str, str]:
        """Let iterations 0 to ``count`` of the kernel run on several threads: C of the first and of the end.

        Iterations must write different elements, and none may read what another one writes. What the kernel
        does before them is done for each part of the loop: it may declare variables, check sizes, and fill
        memory from :meth:`scratch`, of which each thread has its own. It does nothing after them. A kernel
        can be split once; one that allocates outputs, or is too small, is not.

        Args:
            count: The number of iterations, a dim, or a C expression of parameters.
            cost: What one iteration costs, in the units of :mod:`farcall.backends.c._parallel`.
            work: What all iterations cost; None: the product of count and cost, if these are dims.
            at_once: Whether a thread takes its share of iterations in one part, since what each part begins
                with costs much.
        """
        if work is None and not isinstance(count, str) and not isinstance(cost, str):
            work = product((count, cost))
        small = isinstance(work, int) and work < 2 * UNITS
        if small or self._lates or self._split:
            return "0", self._extent(count)
        self._split = Split(self._extent(count), self._extent(cost), at_once)
        self.file_scope(HELPER)
        return "loop_begin", "loop_end"

    @contextmanager
    def parallel(
        self,
        var: str,
        count: Dim | str,
        cost: Dim | str,
        work: Dim | None = None,
        step: int = 1,
        at_once: bool = False,
    ) -> Iterator[None]:
        """A loop of ``var`` from 0 up to ``count``, which several threads may share: see :meth:`split`.

        ``cost`` is that of one iteration, in which the variable grows by ``step``.
        """
        end = self._extent(count)
        if step == 1:
            first, last = self.split(count, cost, work, at_once)
        else:
            steps = f"({end} + {step - 1}) / {step}" if isinstance(count, str) else ceildiv(count, step)
            begin, stop = self.split(steps, cost, work, at_once)
            first, last = f"{begin} * {step}", f"{var}_end"
            self.line(f"const int64_t {last} = {stop} * {step} < {end} ? {stop} * {step} : {end};")
        with self.loop(var, last, start=first, step=step):
            yield

    def read(self, value: ir.Value) -> str:
        """The parameter that points to the elements of an input."""
        if value not in self._reads:
            name = self._reads[value] = f"p{len(self._reads)}"
            self._add(f"const {c_type(value.dtype)}* restrict {name}", value)
        return self._reads[value]

    def write(self, value: ir.Value) -> str:
        """The parameter that points to the elements of an output."""
        if value in self._lates:
            return self._lates[value]
        if value not in self._writes:
            name = self._writes[value] = f"q{len(self._writes)}"
            self._add(f"{c_type(value.dtype)}* restrict {name}", value)
        return self._writes[value]

    def allocate(self, value: ir.Value, sizes: Sequence[str], node: str) -> str:
        """The parameter that points to the elements of an output whose ``sizes`` the kernel has computed.

        A size is a C expression without side effects. It becomes the dim of that axis, if that is a symbol
        which is known only now; any other dim must be equal to it. The memory of such an output is allocated
        here, which refuses negative sizes and more bytes than the call may allocate.

        Args:
            value: The output.
            sizes: A size for each axis.
            node: The name of the node, for messages.
        """
        new = late(value)
        for axis, (size, dim) in enumerate(zip(sizes, dims(value), strict=True)):
            if str(dim) in new and str(dim) not in self._found:
                name = self._found[str(dim)] = f"size{len(self._found)}"
                self.line(f"const int64_t {name} = {size};")
            elif size != (known := self.dim(dim)):
                text = f"{node}: dim {axis} of its output is "
                parts = (text, f"({size})", "; expected ", known, ", by the other sizes of the model")
                self.line(f"if ({size} != {known}) {self.fail_with('ValueError', *parts)}")
        return self._allocate(value) if new else self.write(value)

    def _allocate(self, value: ir.Value) -> str:
        name = f"o{len(self._lates)}"
        kind = f"{c_type(value.dtype)}* restrict"
        shape = ", ".join(map(self.dim, dims(value))) or "0"
        self._add(f"const struct farcall_late* {name}", Late(value))
        self.line(f"{kind} {name}_data = ({kind})farcall_allocate({name}, (const int64_t[]){{{shape}}});")
        self.line(f"if (!{name}_data) return -1;")
        self._can_fail = True
        self._lates[value] = f"{name}_data"
        return self._lates[value]

    def scratch(self, dtype: ir.DataType, count: Dim) -> str:
        """The parameter that points to ``count`` elements of uninitialized memory, aligned to 64 bytes."""
        item = Scratch(count * itemsize(dtype))
        name = f"w{len(self._scratch)}"
        self._scratch.append(item)
        self._add(f"{c_type(dtype)}* restrict {name}", item)
        return name

    def table(self, data: np.ndarray) -> str:
        """The parameter that points to constant data, in the layout that the kernel needs."""
        item, name = Table(data), f"t{len(self._tables)}"
        self._tables.append(item)
        self._add(f"const {c_type(ir.DataType.from_numpy(data.dtype))}* restrict {name}", item)
        return name

    def dim(self, dim: Dim) -> str:
        """A C expression for ``dim``: the number itself, or a parameter."""
        return c_expr(dim) if isinstance(dim, int) else self.dim_parameter(dim)

    def dim_parameter(self, dim: Dim) -> str:
        """A parameter for ``dim``, even if it is a number, so that the source serves other sizes too."""
        if not self._found.keys().isdisjoint(symbols(dim)):
            return self._expression(dim)
        if dim not in self._dims:
            name = self._dims[dim] = f"n{len(self._dims)}"
            self._add(f"int64_t {name}", dim)
        return self._dims[dim]

    def _expression(self, dim: Dim) -> str:
        """A C expression of sizes that the kernel has found, and of parameters."""
        places = {c_symbol(name): self._found.get(name) or self.dim(symbol(name)) for name in symbols(dim)}
        text = re.sub(rf"\b{c_symbol('')}\w+", lambda match: places[match[0]], c_expr(dim))
        return text if dim.is_Symbol else f"({text})"  # type: ignore[union-attr]

    def fail(self, kind: str, message: str) -> str:
        self._can_fail = True
        return super().fail(kind, message)

    def fail_with(self, kind: str, *parts: str) -> str:
        """A C statement that ends the call with an error of ``kind``.

        ``parts`` are texts, with C expressions of type int64 between them, whose values the message shows.
        """
        self._can_fail = True
        self.file_scope(RAISE_VALUES)
        # A name in a text may be long: the values come last, and have to fit in the message.
        texts = ", ".join(c_string(text[:MOST_CHARACTERS]) for text in parts[::2])
        values = ", ".join(f"(int64_t){value}" for value in parts[1::2])
        count = len(parts[1::2])
        return (
            f'return farcall_raise_values({c_string(kind)}, (const char* const[]){{{texts}, ""}}, '
            f"(const int64_t[]){{{values}}}, {count});"
        )

    def index(self, name: str, value: str, length: str, who: str, place: str) -> None:
        """Declare ``name``, the index ``value`` into ``length`` elements; negative ones count from the end.

        Any other index ends the call with an IndexError that names ``who`` (the node) and ``place``.
        """
        ends = f" is outside of {place}, which has "
        refusal = self.fail_with("IndexError", f"{who}: index ", value, ends, length, " elements")
        self.line(f"int64_t {name} = (int64_t){value};")
        self.line(f"{name} += {name} < 0 ? {length} : 0;")
        self.line(f"if ((uint64_t){name} >= (uint64_t){length}) {refusal}")

    def step(self) -> Step:
        """The finished call."""
        split = self._splitter() if self._split else ""
        parameters = [*self._parameters, *(["int64_t loop_begin", "int64_t loop_end"] if split else [])]
        result = "int" if self._can_fail else "void"
        head = f"static __attribute__((noinline)) {result} @({', '.join(parameters) or 'void'}) {{\n"
        tail = "  return 0;\n}" if self._can_fail else "}"
        return Step(
            head + self.text() + tail,
            self._arguments,
            list(self._reads),
            list(self._writes),
            self._scratch,
            list(self._file_scope),
            self._can_fail or bool(split),
            split,
            kernels=list(self._kernels.values()),
        )

    def _splitter(self) -> str:
        assert self._split is not None  # noqa: S101 - asked before
        sizes = {f"w{i}": self.dim(item.size) for i, item in enumerate(self._scratch)}
        return self._split.text(self._parameters, sizes, self._can_fail)

    def _add(self, parameter: str, argument: Argument) -> None:
        self._parameters.append(parameter)
        self._arguments.append(argument)
