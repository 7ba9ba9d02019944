"""The kit for backends that write C: everything of a region's function but the loops.

:class:`CBackendKit` is a whole backend but for two methods: which nodes, and what C::

    class Npu(CBackendKit):
        name = "npu"

        def check(self, node):
            return None if node.op_type == "Relu" else "only Relu"

        def emit(self, match, out):
            (node,) = match.nodes
            x, y = out.pointer(node.inputs[0]), out.pointer(node.outputs[0])
            with out.loop("i", product(dims(node.outputs[0]))):
                out.line(f"{y}[i] = {x}[i] > 0 ? {x}[i] : 0;")

:class:`RegionWriter` unpacks the arguments, binds the symbols of symbolic dims, names pointers, places constants and
scratch memory, and makes the :class:`~farcall.backends.base.RegionCode`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import c_array, c_expr, c_literal, c_symbol, c_type, itemsize
from farcall.backends.base import Backend, RegionCode
from farcall.graph.dims import Dim, dims, product, symbols
from farcall.graph.region import Match, Region

__all__ = ["CBackendKit", "Code", "RegionWriter", "c_expr", "c_literal", "c_symbol", "c_type", "itemsize"]

ALIGNMENT = 64  # of every buffer: a cache line, and the widest vector register in use
INLINE_ELEMENTS = 64  # a constant with more than this many elements is data of the artifact, not text

_HEADERS = """#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <farcall/c_api.h>
"""

_UNPACK = """static const DLTensor* farcall_unpack(const TVMFFIAny* arg) {
  if (arg->type_index == 7) return (const DLTensor*)arg->v_ptr;
  if (arg->type_index == 70) return (const DLTensor*)(const void*)((const char*)arg->v_ptr + 24);
  return 0;
}
static void* farcall_data(const DLTensor* tensor) { return (char*)tensor->data + tensor->byte_offset; }
"""

_FLOORDIV = """static inline int64_t farcall_floordiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t farcall_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t farcall_max(int64_t a, int64_t b) { return a > b ? a : b; }
"""

_RAISE = """__attribute__((weak, visibility("default"))) const struct FarcallRuntime* __farcall_runtime;
#pragma weak TVMFFIErrorSetRaisedFromCStr
static int farcall_raise(const char* kind, const char* message) {
  if (__farcall_runtime) __farcall_runtime->error_set_raised_from_cstr(kind, message);
  else if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}
"""


def align(size: Dim, to: int = ALIGNMENT) -> Dim:
    """``size`` rounded up to a multiple of ``to``."""
    from farcall.graph.dims import ceildiv, fold

    return fold(ceildiv(size, to) * to)


class Code:
    """C text under construction: lines, indented by blocks."""

    def __init__(self, indent: int = 1) -> None:
        self.lines: list[str] = []
        self._indent = indent

    def line(self, text: str) -> None:
        """Add one line, or several that are separated by newlines."""
        pad = "  " * self._indent
        self.lines.extend(pad + part if part else part for part in text.split("\n"))

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """``head {`` ... ``}`` around what is written inside."""
        self.line(f"{head} {{" if head else "{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    @contextmanager
    def loop(self, var: str, count: Dim | str, start: Dim | str = 0, step: int | str = 1) -> Iterator[None]:
        """A loop of ``var`` from ``start`` up to, not including, ``count``."""
        bump = f"++{var}" if step == 1 else f"{var} += {step}"
        head = f"for (int64_t {var} = {self._extent(start)}; {var} < {self._extent(count)}; {bump})"
        with self.block(head):
            yield

    def _extent(self, value: Dim | str) -> str:
        return value if isinstance(value, str) else c_expr(value)

    def text(self) -> str:
        """All lines, each with its newline."""
        return "".join(f"{line}\n" for line in self.lines)


class RegionWriter(Code):
    """Writes the body of ``__tvm_ffi_<region>`` and what belongs around it.

    Args:
        region: The region whose function is written.
        places: Where a value that is neither an input, an output nor a constant is in the workspace, as a byte offset.
            A value without a place gets scratch memory of its own when :meth:`pointer` is asked for it.
        workspace: The bytes that ``places`` takes up.
        compile_flags: What the code needs beyond the toolchain's own flags.
    """

    def __init__(
        self,
        region: Region,
        places: Mapping[ir.Value, Dim] | None = None,
        workspace: Dim = 0,
        compile_flags: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self.region = region
        self._arguments = {value: i for i, value in enumerate((*region.inputs, *region.outputs))}
        self._places = dict(places or {})
        self._workspace = workspace
        self._pointers: dict[ir.Value, str] = {}
        self._declared: list[str] = []  # pointers, in the order of their first use
        self._dims: dict[Dim, str] = {}
        self._file_scope: dict[str, None] = {}  # constants and static functions, each text once
        self._constants: dict[str, np.ndarray] = {}
        self._compile_flags = tuple(compile_flags)
        self._constant_names: dict[int, str] = {}

    def pointer(self, value: ir.Value) -> str:
        """The name of a ``restrict`` pointer to the elements of ``value``, row-major; const where it is an input."""
        if value not in self._pointers:
            self._pointers[value] = self._declare(value)
        return self._pointers[value]

    def dim(self, dim: Dim) -> str:
        """C text for the value of ``dim``: a number, or the name of a variable that is computed once."""
        if isinstance(dim, int):
            return c_expr(dim)
        if dim not in self._dims:
            self._dims[dim] = c_symbol(str(dim)) if dim.is_Symbol else f"d{len(self._dims)}"
        return self._dims[dim]

    def constant(self, data: np.ndarray, c_name: str = "") -> str:
        """The name of an array that holds ``data``: text when it is small, data of the artifact when it is large."""
        name = c_name or f"{self.region.name}_k{len(self._constant_names)}"
        self._constant_names[len(self._constant_names)] = name
        kind = c_type(ir.DataType.from_numpy(data.dtype))
        if data.size <= INLINE_ELEMENTS:
            self.file_scope(f"static const {kind} {name}[{max(data.size, 1)}] = {c_array(data)};")
            return name
        self._constants[name] = np.ascontiguousarray(data)
        self.file_scope(f"extern const unsigned char {name}[];")
        return f"((const {kind}*)(const void*){name})"

    def scratch(self, dtype: ir.DataType, count: Dim) -> str:
        """A pointer expression to ``count`` uninitialized elements in the workspace, that nothing else uses."""
        offset = self._reserve(count * itemsize(dtype))
        return f"({c_type(dtype)}*)(void*)(ws + {self.dim(offset)})"

    def file_scope(self, text: str) -> None:
        """Put ``text`` (a static function, a table) before the function; the same text is written once."""
        self._file_scope[text.rstrip("\n")] = None

    def fail(self, kind: str, message: str) -> str:
        """A C statement that ends the call with an error of ``kind`` ("ValueError", ...)."""
        quoted = message.replace("\\", "\\\\").replace('"', '\\"')
        return f'return farcall_raise("{kind}", "{quoted}");'

    def _extent(self, value: Dim | str) -> str:
        return value if isinstance(value, str) else self.dim(value)

    def finish(self) -> RegionCode:
        """The code of the region."""
        header, unbound = self._prologue()
        text = "\n".join(
            [
                f"/* Generated by farcall: region {self.region.name}. */",
                _HEADERS,
                _UNPACK,
                *([_FLOORDIV] if "farcall_floordiv(" in header or "farcall_m" in header else []),
                _RAISE,
                *self._file_scope,
                "",
                header + "".join(f"{line}\n" for line in self.lines) + "  return 0;\n}\n",
            ]
        )
        return RegionCode(
            {f"{self.region.name}.c": text}, self._constants, self._workspace, unbound, self._compile_flags
        )

    def _reserve(self, size: Dim) -> Dim:
        offset = self._workspace
        self._workspace = offset + align(size)
        return offset

    def _declare(self, value: ir.Value) -> str:
        kind = c_type(value.dtype)
        if value in self._arguments:
            index = self._arguments[value]
            const = "const " if index < len(self.region.inputs) else ""
            self._declared.append(
                f"{const}{kind}* restrict a{index} = ({const}{kind}*)farcall_data(t{index});"
            )
            return f"a{index}"
        if value.const_value is not None:
            return self.constant(
                value.const_value.numpy(), f"{self.region.name}_k{len(self._constant_names)}"
            )
        qualifier = ""  # planned buffers may share memory
        if value not in self._places:
            qualifier = "restrict "
            self._places[value] = self._reserve(product(dims(value)) * itemsize(value.dtype))
        name = f"v{len(self._pointers)}"
        offset = self.dim(self._places[value])
        self._declared.append(f"{kind}* {qualifier}{name} = ({kind}*)(void*)(ws + {offset});")
        return name

    def _prologue(self) -> tuple[str, list[str]]:
        """The head of the function up to its body, and the symbols that no argument's shape shows."""
        out = Code(0)
        name, count = self.region.name, len(self._arguments)
        out.line('__attribute__((visibility("default")))')
        out.line(
            f"int __tvm_ffi_{name}(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {{"
        )
        out._indent = 1
        needed = self._needed_symbols()
        bound = self._symbol_sources()
        unbound = [item for item in needed if item not in bound]
        wanted = count + (self._workspace != 0) + len(unbound)
        refusal = self.fail("TypeError", f"{name}: expected {wanted} arguments, tensors first")
        out.line(f"(void)self;\nif (num_args != {wanted}) {refusal}")
        shaped = {bound[item][0] for item in needed if item in bound}
        for value, i in self._arguments.items():
            if value in self._pointers or i in shaped:
                out.line(f"const DLTensor* t{i} = farcall_unpack(&args[{i}]);\nif (!t{i}) {refusal}")
        if self._workspace != 0:
            out.line(f"char* ws = (char*)args[{count}].v_ptr;")
            out.line("(void)ws;")
        elif any("(ws +" in text for text in (*self._declared, *self.lines)):
            out.line(f"_Alignas({ALIGNMENT}) char ws[{ALIGNMENT}]; /* for buffers without elements */")
        for item in needed:
            source = (
                "t{}->shape[{}]".format(*bound[item])
                if item in bound
                else f"args[{wanted - len(unbound) + unbound.index(item)}].v_int64"
            )
            out.line(f"const int64_t {c_symbol(item)} = {source};")
        for dim, variable in self._dims.items():
            if not isinstance(dim, int) and not dim.is_Symbol:
                out.line(f"const int64_t {variable} = {c_expr(dim)};")
        for text in self._declared:
            out.line(text)
        out.line("result->type_index = 0;\nresult->zero_padding = 0;\nresult->v_int64 = 0;")
        return out.text(), unbound

    def _needed_symbols(self) -> list[str]:
        """Symbols of the dims that were asked for, and those that a body names by :func:`c_symbol`."""
        needed = dict.fromkeys(symbols(*self._dims))
        named = set(re.findall(rf"\b{c_symbol('')}(\w+)", "\n".join(self.lines)))
        shapes = (dims(value) for node in self.region.nodes for value in used((*node.inputs, *node.outputs)))
        for shape in shapes if named else ():
            needed.update(dict.fromkeys(name for name in symbols(*shape) if name in named))
        return list(needed)

    def _symbol_sources(self) -> dict[str, tuple[int, int]]:
        """Symbol name -> the argument and the axis that shows it."""
        sources: dict[str, tuple[int, int]] = {}
        for value, i in self._arguments.items():
            for axis, dim in enumerate(dims(value)):
                if not isinstance(dim, int) and dim.is_Symbol:
                    sources.setdefault(dim.name, (i, axis))
        return sources


class CBackendKit(Backend):
    """A backend that writes C, one match at a time. A subclass says which nodes (``patterns`` or ``check``), and :meth:`emit`."""

    @abstractmethod
    def emit(self, match: Match, out: RegionWriter) -> None:
        """Write the C of one match: read its inputs and write its outputs by ``out.pointer(value)``."""

    def compile(self, region: Region) -> RegionCode:
        out = RegionWriter(region)
        for match in region.matches:
            with out.block():
                self.emit(match, out)
        return out.finish()


def used(values: Iterable[ir.Value | None]) -> list[ir.Value]:
    """The values that are there: an optional input or output that is left out is None, or has no name."""
    return [value for value in values if value is not None and value.name]
