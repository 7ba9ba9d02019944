"""Writes the source of a region: the texts in C, its tables, and its three functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from farcall.backends.base import Library, RegionCode
from farcall.backends.c_backend_kit import RegionWriter
from farcall.backends.onednn._fusion import operators
from farcall.backends.onednn._table import Operand, Operator
from farcall.graph import Region
from farcall.graph.dims import Dim, dims, product

_RUNTIME = ("onednn.h", "build.c", "operators.c", "winograd.c", "tiles.c", "row.c", "calls.c")
_ALWAYS = 1 << 30  # the last use of a result of the region


@cache
def _runtime() -> str:
    folder = Path(__file__).parent
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in _RUNTIME)


def called(prefix: str) -> list[str]:
    """The functions of a library, whose names begin with ``prefix``, that the code calls."""
    return sorted(
        set(re.findall(rf"^(?:int|void|size_t|const void\*) ({prefix}\w+)\(", _runtime(), re.MULTILINE))
    )


class _Tables:
    """The values, operands, operators and sizes of a region."""

    def __init__(self, region: Region, has_tiles: bool) -> None:
        self.sizes: list[Dim] = []
        self.values: list[list[str]] = []
        self.operands: list[str] = []
        self.afters: list[str] = []
        self.operators: list[str] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self._numbers: dict[ir.Value, int] = {}
        self._region = region
        self._arguments = {value: i for i, value in enumerate((*region.inputs, *region.outputs))}
        for value in region.inputs:
            self._number(value)
        for place, (made, _) in enumerate(operators(region.nodes, set(region.outputs), has_tiles)):
            self._add(made, place)

    def _sizes(self, sizes: Sequence[Dim]) -> int:
        """Where these sizes are among all."""
        self.sizes += sizes
        return len(self.sizes) - len(sizes)

    def _number(self, value: ir.Value | np.ndarray[Any, Any], use: int = 0) -> int:
        if isinstance(value, np.ndarray):
            return self._constant(value)
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            is_output = value in self._region.outputs
            shape = dims(value) or (1,)
            fields = [str(len(shape)), str(self._sizes(shape)), "NULL"]
            fields += [str(self._arguments.get(value, -1)), str(int(is_output)), "0"]
            self.values.append(fields)
        fields = self.values[self._numbers[value]]
        fields[-1] = str(_ALWAYS if value in self._region.outputs else max(int(fields[-1]), use))
        return self._numbers[value]

    def _constant(self, data: np.ndarray[Any, Any]) -> int:
        name = f"{self._region.name}_w{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(data, np.float32)
        text = f"(const float*)(const void*){name}"
        self.values.append([str(data.ndim), str(self._sizes(data.shape)), text, "-1", "0", "0"])
        return len(self.values) - 1

    def _operand(self, operand: Operand, place: int) -> None:
        at = self._sizes((*operand.sizes, *operand.strides))
        numbers: list[str | float] = [
            operand.what,
            self._number(operand.value, place),
            operand.layout,
            int(operand.viewed),
        ]
        self.operands.append(_row(*numbers, len(operand.sizes), at))

    def _add(self, made: Operator, place: int) -> None:
        first, first_after = len(self.operands), len(self.afters)
        for operand in made.operands:
            self._operand(operand, place)
        self._operand(made.target, 0)
        for after in made.afters:
            own = [i for i, operand in enumerate(made.operands) if operand is after.operand]
            self.afters.append(_row(after.algorithm, after.alpha, after.beta, *(own or [-1])))
        numbers: list[str | float] = [made.kind, first, len(made.operands) + 1, first_after, len(made.afters)]
        numbers += [made.algorithm, made.axis, self._sizes(made.window), len(made.window) // 5]
        self.operators.append(_row(*numbers, float(made.alpha), float(made.beta)))


def _row(*fields: str | float) -> str:
    """The initializer of a struct."""
    texts = (
        np.format_float_scientific(np.float32(one)) + "f" if isinstance(one, float) else str(one)
        for one in fields
    )
    return "{" + ", ".join(texts) + "}"


def generate(region: Region, threads: int, libraries: Sequence[Library], has_tiles: bool) -> RegionCode:
    """The code of a region, which runs its operators in their order.

    Args:
        region: the region.
        threads: the number of threads of a call.
        libraries: those that the code calls.
        has_tiles: whether Winograd's method may be used.
    """
    out = RegionWriter(region, libraries=libraries)
    tables = _Tables(region, has_tiles)
    name = region.name
    arguments = [out.pointer(value) for value in (*region.inputs, *region.outputs)]
    sizes = ", ".join(map(out.dim, tables.sizes))
    empty = " && ".join(f"{out.dim(product(dims(value)))} == 0" for value in region.outputs)
    out.line(f"if ({empty}) return 0;")
    out.line(f"const int64_t sizes[] = {{{sizes}}};")
    out.line(f"void* const data[] = {{{', '.join(f'(void*){pointer}' for pointer in arguments)}}};")
    failure = out.fail("RuntimeError", "oneDNN refused an operator, or there is no memory for it")
    out.line(f"if (run_region(self, &{name}_region, sizes, data) != 0) {failure}")
    code = out.finish()
    ((file, text),) = code.sources.items()
    at = text.index(f"FARCALL_KERNEL({name})")
    fixed = sizes if all(isinstance(size, int) for size in tables.sizes) else ""
    text = text[:at] + _tables_text(name, tables, threads) + text[at:] + _life(name, fixed)
    return replace(
        code,
        sources={file: text},
        constants=tables.constants,
        preamble=[*code.preamble, _runtime()],
        state=True,
        table=False,
    )


def _tables_text(name: str, tables: _Tables, threads: int) -> str:
    constants = "".join(f"extern const unsigned char {constant}[];\n" for constant in tables.constants)
    values = ["{" + ", ".join(fields) + "}" for fields in tables.values]
    rows = {"values": values, "operands": tables.operands, "afters": tables.afters or ["{0}"]}
    rows["operators"] = tables.operators
    kinds = {"values": "value", "operands": "operand", "afters": "after", "operators": "operator"}
    arrays = "".join(
        f"static const struct {kinds[part]} {name}_{part}[] = {{\n  {text}\n}};\n"
        for part, text in ((part, ",\n  ".join(lines)) for part, lines in rows.items())
    )
    counts = [len(tables.values), len(tables.operands), len(tables.operators), len(tables.sizes), threads]
    pointers = [f"{name}_{part}" for part in rows]
    return f"{constants}{arrays}static const struct region {name}_region = {_row(*pointers, *counts)};\n\n"


def _life(name: str, fixed: str) -> str:
    """``init`` and ``destroy``. For ``fixed`` sizes, ``init`` makes the plan, and so reorders the weights."""
    prepare = ""
    if fixed:
        prepare = f"""  static const int64_t sizes[] = {{{fixed}}};
  if (prepare(state, &{name}_region, sizes) != 0) {{
    drop_state(state, &{name}_region);
    return farcall_raise("RuntimeError", "oneDNN refused an operator, or there is no memory for it");
  }}
"""
    return f"""
FARCALL_KERNEL({name}_init) {{
  (void)self, (void)args, (void)num_args;
  struct state* state = make_state();
  if (!state) return farcall_raise("RuntimeError", "oneDNN makes no engine for this CPU");
{prepare}  result->type_index = kTVMFFIOpaquePtr;
  result->zero_padding = 0;
  result->v_ptr = state;
  return 0;
}}
FARCALL_KERNEL({name}_destroy) {{
  (void)args, (void)num_args, (void)result;
  drop_state(self, &{name}_region);
  return 0;
}}
"""
