"""The kit for backends that generate C. It writes a region's function; the backend writes the loops.

A backend subclasses :class:`CBackendKit` and defines two methods: which nodes it takes, and their C::

    class Npu(CBackendKit):
        name = "npu"

        def check(self, node):
            return None if node.op_type == "Relu" else "only Relu"

        def emit(self, match, out):
            (node,) = match.nodes
            x, y = out.pointer(node.inputs[0]), out.pointer(node.outputs[0])
            with out.loop("i", product(dims(node.outputs[0]))):
                out.line(f"{y}[i] = {x}[i] > 0 ? {x}[i] : 0;")

:class:`RegionWriter` unpacks the arguments, binds the symbols of symbolic dims, names pointers, places
constants and scratch memory, and makes the :class:`~farcall.backends.base.RegionCode`. It searches the C that
:meth:`CBackendKit.emit` writes for the names of its variables, so these names are reserved: those that begin
with ``farcall_``, ``s_`` or the region's name; ``a``, ``d``, ``t`` or ``v`` followed by a number; ``args``,
``num_args``, ``result`` and ``ws``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from farcall._extras import require_compile

require_compile()  # before the imports of numpy and onnx_ir

import numpy as np
import onnx_ir as ir
import sympy

from farcall import _core
from farcall._blame import blame
from farcall.backends._ctext import c_array, c_expr, c_literal, c_symbol, c_type, itemsize, stored
from farcall.backends._function import FLOORDIV, LATE, RAISE, UNPACK, Function, Pointer, raise_statement
from farcall.backends.base import Backend, Kernels, Library, RegionCode
from farcall.graph import Match, Region
from farcall.graph.dims import Dim, dims, product, symbols

if TYPE_CHECKING:
    from farcall.toolchain import Target

__all__ = [
    "CBackendKit",
    "Code",
    "RegionWriter",
    "c_expr",
    "c_literal",
    "c_symbol",
    "c_type",
    "dims",
    "itemsize",
    "product",
]
__dir__ = __all__.copy

ALIGNMENT = 64  # bytes, of every buffer: a cache line, and the widest vector register in use
PART = 128  # matches or calls in one function: compile time grows faster than the length of a function
INLINE_ELEMENTS = 64  # a table with more elements is data of the artifact, not C source

_HEADERS = """#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <farcall/c_api.h>
"""


def align(size: Dim, to: int = ALIGNMENT) -> Dim:
    """``size`` rounded up to a multiple of ``to``."""
    from farcall.graph._alive import maximum_of
    from farcall.graph.dims import ceildiv, fold

    if isinstance(size, sympy.Max):
        return maximum_of([align(part, to) for part in size.args])
    return fold(ceildiv(size, to) * to)


class Code:
    """C source under construction: lines, indented by blocks."""

    def __init__(self, indent: int = 1) -> None:
        self.lines: list[str] = []
        self._indent = indent

    def line(self, text: str) -> None:
        """Add ``text``: one line, or several that are separated by newlines."""
        pad = "  " * self._indent
        self.lines.extend(pad + part if part else part for part in text.split("\n"))

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Put ``head {`` and ``}`` around the lines that the ``with`` block writes."""
        self.line(f"{head} {{" if head else "{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    def text(self) -> str:
        """All lines, each with its newline."""
        return "".join(f"{line}\n" for line in self.lines)


class FunctionWriter(Code, ABC):
    """Writes the body of one C function, and the definitions that it needs at file scope."""

    def __init__(self) -> None:
        super().__init__()
        self._file_scope: dict[str, None] = {}
        self._kernels: dict[str, Kernels] = {}

    @abstractmethod
    def dim(self, dim: Dim) -> str:
        """A C expression for ``dim``: a number, or the name of a variable."""

    @abstractmethod
    def scratch(self, dtype: ir.DataType, count: Dim) -> str:
        """The name of a pointer to ``count`` uninitialized, aligned elements that nothing else uses."""

    @contextmanager
    def loop(self, var: str, count: Dim | str, start: Dim | str = 0, step: int | str = 1) -> Iterator[None]:
        """A loop of ``var`` from ``start`` up to ``count``, exclusive."""
        bump = f"++{var}" if step == 1 else f"{var} += {step}"
        head = f"for (int64_t {var} = {self._extent(start)}; {var} < {self._extent(count)}; {bump})"
        with self.block(head):
            yield

    def file_scope(self, text: str) -> None:
        """Put ``text`` (a static function, a table) before the function; the same text is written once."""
        self._file_scope[text.rstrip("\n")] = None

    def uses(self, kernels: Kernels) -> None:
        """Let the function call those of ``kernels``, which :meth:`file_scope` declares."""
        self._kernels[kernels.name] = kernels

    def fail(self, kind: str, message: str) -> str:
        """A C statement that ends the call with an error of ``kind`` ("ValueError", ...)."""
        return raise_statement(kind, message)

    def _extent(self, value: Dim | str) -> str:
        return value if isinstance(value, str) else self.dim(value)


class RegionWriter(FunctionWriter):
    """Writes the source file of one region: ``__tvm_ffi_<region>`` and the definitions that it needs.

    Args:
        region: The region whose function is written.
        places: Byte offsets in the workspace of values that are not inputs, outputs or constants, which a
            call rounds down to multiples of 64. For a value without an offset, the first call of
            :meth:`pointer` allocates separate memory.
        workspace: The size in bytes of the memory that ``places`` uses.
        compile_flags: Compiler flags that the code needs in addition to the toolchain's.
        libraries: The libraries that the code calls.
    """

    def __init__(
        self,
        region: Region,
        places: Mapping[ir.Value, Dim] | None = None,
        workspace: Dim = 0,
        compile_flags: Iterable[str] = (),
        libraries: Iterable[Library] = (),
    ) -> None:
        super().__init__()
        self.region = region
        self._late: dict[ir.Value, int] = {value: i for i, value in enumerate(region.allocated)}
        crossing = (value for value in (*region.inputs, *region.outputs) if value not in self._late)
        self._arguments = {value: i for i, value in enumerate(crossing)}
        self._places = dict(places or {})
        self._workspace = workspace
        self._compile_flags = tuple(compile_flags)
        self._libraries = tuple(libraries)
        self._names: dict[ir.Value, str] = {}
        self._pointers: dict[str, Pointer] = {}
        self._planned: dict[Dim, str] = {}
        self._dims: dict[Dim, str] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._constant_count = 0
        self._parts: list[list[str]] = []

    def pointer(self, value: ir.Value) -> str:
        """The name of a pointer to the elements of ``value``, row-major; const if it is an input."""
        if value not in self._names:
            self._names[value] = self._declare(value)
        return self._names[value]

    def late(self, value: ir.Value) -> str:
        """A ``const struct farcall_late*``, with which ``farcall_allocate`` allocates an output.

        A successful call has allocated each of these outputs.

        Args:
            value: one of ``region.allocated``.
        """
        return f"&farcall_lates[{self._late[value]}]"

    def dim(self, dim: Dim) -> str:
        """A C expression for ``dim``: a number, or the name of a variable that is computed once."""
        if isinstance(dim, int):
            return c_expr(dim)
        if dim not in self._dims:
            self._dims[dim] = c_symbol(str(dim)) if dim.is_Symbol else f"d{len(self._dims)}"
        return self._dims[dim]

    def constant(self, data: np.ndarray) -> str:
        """An array that holds ``data``: C source if it is small, data of the artifact if it is large."""
        data = stored(data)
        if data.size > INLINE_ELEMENTS:
            return self._stored(data)
        name = f"{self.region.name}_k{self._constant_count}"
        self._constant_count += 1
        kind = c_type(ir.DataType.from_numpy(data.dtype))
        self.file_scope(f"static const {kind} {name}[{max(data.size, 1)}] = {c_array(data)};")
        return name

    def _stored(self, data: np.ndarray) -> str:
        """A pointer to data of the artifact. Regions with other weights share the text."""
        number, data = len(self._constants), stored(data)
        self._constants[f"{self.region.name}_w{number}"] = np.ascontiguousarray(data)
        name = f"farcall_k{number}"
        kind = c_type(ir.DataType.from_numpy(data.dtype))
        self._pointers[name] = Pointer(f"const {kind}*", constant=number)
        return name

    def scratch(self, dtype: ir.DataType, count: Dim) -> str:
        """The name of a pointer to ``count`` uninitialized elements of ``dtype`` that nothing else uses."""
        return self._workspace_pointer(f"{c_type(dtype)}* restrict", self._reserve(count * itemsize(dtype)))

    def place(self, offset: Dim) -> str:
        """The name of a ``void*`` into the workspace, for callers with their own plan.

        Args:
            offset: Bytes, which a call rounds down to a multiple of 64.
        """
        if offset not in self._planned:
            self._planned[offset] = self._workspace_pointer("void*", offset)
        return self._planned[offset]

    def split(self) -> None:
        """Allow a new C function to start here; variables that :meth:`line` declared go out of scope."""
        self._parts.append(self.lines)
        self.lines = []

    def finish(self) -> RegionCode:
        """The code of the region."""
        parts = [part for part in (*self._parts, self.lines) if part] or [[]]
        needed, shown = self._needed_symbols(parts), self._symbol_sources()
        unbound = [name for name in needed if name not in shown]
        function = Function(
            name=self.region.name,
            count=len(self._arguments),
            workspace=self._workspace != 0,
            shaped={name: shown[name] for name in needed if name in shown},
            unbound=unbound,
            sizes={
                name: c_expr(dim)
                for dim, name in self._dims.items()
                if not isinstance(dim, int) and not dim.is_Symbol
            },
            pointers=self._pointers,
            symbol={name: c_symbol(name) for name in needed},
            parts=parts,
            late=[_late_row(value) for value in self._late],
        ).text()
        name = self.region.name
        own = [item for item in self._file_scope if name in item]
        text = "\n".join([f"/* Generated by farcall: region {name}. */", *own, "", function])
        return RegionCode(
            {f"{name}.c": text},
            self._constants,
            self._workspace,
            unbound,
            self._compile_flags,
            libraries=self._libraries,
            table=True,
            preamble=[
                *(_HEADERS, UNPACK, FLOORDIV, RAISE),
                *([LATE] if self._late else []),
                *(item for item in self._file_scope if name not in item),
            ],
            kernels=list(self._kernels.values()),
            bounded=bool(self._late),
        )

    def _reserve(self, size: Dim) -> Dim:
        offset = self._workspace
        self._workspace = offset + align(size)
        return offset

    def _workspace_pointer(self, kind: str, offset: Dim) -> str:
        name = f"v{len(self._pointers)}"
        place = self.dim(offset)
        if not isinstance(offset, int):
            place = f"({place} & ~INT64_C({ALIGNMENT - 1}))"
        self._pointers[name] = Pointer(kind, offset=place)
        return name

    def _declare(self, value: ir.Value) -> str:
        kind = c_type(value.dtype)
        if value in self._arguments:
            index = self._arguments[value]
            const = "const " if index < len(self.region.inputs) else ""
            self._pointers[f"a{index}"] = Pointer(f"{const}{kind}* restrict", argument=index)
            return f"a{index}"
        if value.const_value is not None:
            data = value.const_value.numpy()
            return self.constant(data) if data.size == 1 else self._stored(data)
        if value in self._places:  # planned buffers may share memory, so no `restrict`
            return self._workspace_pointer(f"{kind}*", self._places[value])
        size = product(dims(value)) * itemsize(value.dtype)
        return self._workspace_pointer(f"{kind}* restrict", self._reserve(size))

    def _needed_symbols(self, parts: Iterable[Iterable[str]]) -> list[str]:
        """The symbols of the dims that :meth:`dim` got, and those that a body names by :func:`c_symbol`."""
        needed = dict.fromkeys(symbols(*self._dims))
        body = "\n".join(line for part in parts for line in part)
        named = set(re.findall(rf"\b{c_symbol('')}(\w+)", body))
        shapes = (dims(value) for node in self.region.nodes for value in used((*node.inputs, *node.outputs)))
        for shape in shapes if named - needed.keys() else ():
            needed.update(dict.fromkeys(name for name in symbols(*shape) if name in named))
        if early := self.region.late & needed.keys():
            raise ValueError(f"`{min(early)}` is the size of an output that the region has not yet allocated")
        return list(needed)

    def _symbol_sources(self) -> dict[str, tuple[int, int]]:
        """Symbol name -> the argument and the axis that give its size."""
        sources: dict[str, tuple[int, int]] = {}
        for value, i in self._arguments.items():
            for axis, dim in enumerate(dims(value)):
                if not isinstance(dim, int) and dim.is_Symbol:
                    sources.setdefault(dim.name, (i, axis))
        return sources


def _late_row(value: ir.Value) -> tuple[str, str, int]:
    """The node, the C of the dtype, and the rank of an output that a region allocates."""
    node = value.producer()
    label = f"{node.op_type} `{node.name or value.name}`" if node is not None else f"`{value.name}`"
    kind = _core.dtype(value.dtype.numpy())  # type: ignore[union-attr]
    return label, f"{{{kind.code}, {kind.bits}, 1}}", len(dims(value))


class CBackendKit(Backend):
    """Base of backends that generate C, one match at a time.

    A subclass says which nodes it takes (``patterns`` or ``check``), and defines :meth:`emit`. Its
    ``compile_flags`` are the compiler flags that its code needs in addition to the toolchain's, and its
    ``libraries`` those that its code calls.
    """

    compile_flags: Sequence[str] = ()

    @property
    def libraries(self) -> Sequence[Library]:
        """Empty by default."""
        return ()

    @abstractmethod
    def emit(self, match: Match, out: RegionWriter) -> None:
        """Write the C of one match. ``out.pointer(value)`` names the pointers to its inputs and outputs."""

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        out = RegionWriter(region, compile_flags=self.compile_flags, libraries=self.libraries)
        for number, match in enumerate(region.matches):
            if number and number % PART == 0:
                out.split()
            with out.block():
                self._emit(match, out)
        return out.finish()

    def _emit(self, match: Match, out: RegionWriter) -> None:
        node = match.root
        where = f"backend `{self.name}`, region `{out.region.name}`, node `{node.name}` ({node.op_type})"
        with blame(lambda: f"{where}: its emit()"):
            self.emit(match, out)


def used(values: Iterable[ir.Value | None]) -> list[ir.Value]:
    """The values without the omitted optional ones, which are None or have no name."""
    return [value for value in values if value is not None and value.name]
