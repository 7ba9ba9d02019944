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
from farcall.backends.onednn._operators import Operator, operator, window
from farcall.graph import Region
from farcall.graph.dims import Dim, dims, product

_RUNTIME = ("onednn.h", "build.c", "calls.c")
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
    """The values, operators and sizes of a region."""

    def __init__(self, region: Region, out: RegionWriter) -> None:
        self.out = out
        self.sizes: list[Dim] = []
        self.values: list[list[str]] = []
        self.operators: list[str] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self._numbers: dict[ir.Value, int] = {}
        self._region = region
        self._arguments = {value: i for i, value in enumerate((*region.inputs, *region.outputs))}
        for value in region.inputs:
            self._number(value)
        for place, match in enumerate(region.matches):
            self._add(operator(match), place)

    def _sizes(self, sizes: Sequence[Dim]) -> int:
        """Where these sizes are among all."""
        self.sizes += sizes
        return len(self.sizes) - len(sizes)

    def _number(self, value: ir.Value, use: int = 0) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            is_output = value in self._region.outputs
            fields = [str(len(dims(value))), str(self._sizes(dims(value))), "NULL"]
            fields += [str(self._arguments.get(value, -1)), str(int(is_output)), "0"]
            self.values.append(fields)
        fields = self.values[self._numbers[value]]
        fields[-1] = str(_ALWAYS if value in self._region.outputs else max(int(fields[-1]), use))
        return self._numbers[value]

    def _constant(self, data: np.ndarray[Any, Any] | None) -> tuple[int, int]:
        """The number of a constant, and where its sizes are."""
        if data is None:
            return -1, 0
        name = f"{self._region.name}_w{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(data, np.float32)
        at = self._sizes(data.shape)
        text = f"(const float*)(const void*){name}"
        self.values.append([str(data.ndim), str(at), text, "-1", "0", "0"])
        return len(self.values) - 1, at

    def _add(self, made: Operator, place: int) -> None:
        source = self._number(made.source, place)
        weights, weights_at = self._constant(made.weights)
        bias, _ = self._constant(made.bias)
        residual = -1 if made.residual is None else self._number(made.residual, place)
        target = self._number(made.target)
        rank = made.weights.ndim if made.weights is not None else 0
        numbers = [source, weights, bias, residual, target, weights_at, rank, made.algorithm, made.axis]
        numbers += [self._sizes(window(made.axes)), len(made.axes), made.activation]
        parameters = [np.format_float_scientific(np.float32(x)) + "f" for x in (made.alpha, made.beta)]
        self.operators.append("{" + ", ".join([made.kind, *map(str, numbers), *parameters]) + "}")


def generate(region: Region, threads: int, libraries: Sequence[Library]) -> RegionCode:
    """The code of a region, which runs its matches in their order."""
    out = RegionWriter(region, libraries=libraries)
    tables = _Tables(region, out)
    name = region.name
    arguments = [out.pointer(value) for value in (*region.inputs, *region.outputs)]
    sizes = ", ".join(map(out.dim, tables.sizes))
    empty = " || ".join(f"{out.dim(product(dims(value)))} == 0" for value in region.outputs)
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
    values = "".join(f"  {{{', '.join(fields)}}},\n" for fields in tables.values)
    operators = "".join(f"  {row},\n" for row in tables.operators)
    counts = f"{len(tables.values)}, {len(tables.operators)}, {len(tables.sizes)}, {threads}"
    return (
        f"{constants}static const struct value {name}_values[] = {{\n{values}}};\n"
        f"static const struct operator {name}_operators[] = {{\n{operators}}};\n"
        f"static const struct region {name}_region = {{{name}_values, {name}_operators, {counts}}};\n\n"
    )


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
