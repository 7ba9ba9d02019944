"""Generates the entry of an artifact, ``__tvm_ffi_main`` in C, from a partition.

The entry checks the arguments, binds the symbols of symbolic dims, allocates the results and working memory,
and calls the regions in order. The parts that do not depend on the model are in ``entry.h`` and the C files
beside it. Each region has an entry of its own: :mod:`farcall.artifact._region_entry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.artifact._dtypes import dlpack, itemsize
from farcall.artifact._entry_parameters import Parameters, negative_dims
from farcall.artifact._memory import Buffer, plan_slots
from farcall.artifact._region_entry import RegionEntry
from farcall.artifact._states import declarations, has_state, place, region_function
from farcall.graph import Region
from farcall.graph.dims import Dim, dims, product, symbol

if TYPE_CHECKING:
    from farcall.backends.base import Code
    from farcall.graph import Partition

Dims = tuple[Dim, ...]

_SUPPORT = ("entry_errors.c", "entry_memory.c", "entry_state.c", "entry_region.c")


def main_source(partition: Partition, codes: Mapping[str, Code], constants: Mapping[ir.Value, str]) -> str:
    """The C source of the entry, and of the entries of the regions.

    Args:
        partition: the regions, in the order in which they run.
        codes: the code of each region, by its name.
        constants: the C identifier of each initializer that is a graph output.

    Raises:
        ModelError: a size cannot be computed from the inputs, or a dtype cannot cross a region's border.
    """
    regions = [RegionEntry(r, codes[r.name], partition.constraints).text() for r in partition.regions]
    main = _Driver(partition, codes, constants).text()
    return "\n".join([_support("entry.h"), declarations(partition.regions, codes), main, *regions])


def support_source() -> str:
    """The C text that all entries share; it is the same for every artifact."""
    return "\n".join(map(_support, ("entry.h", *_SUPPORT)))


def _support(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


class _Shapes:
    """Shapes and strides of the tensors: constant tables if static, else arrays in the call's frame."""

    def __init__(self, size: Callable[[Dim], str]) -> None:
        self._size = size
        self._texts: dict[Dims, tuple[str, str]] = {}  # C expressions of shape and strides
        self.tables: list[str] = []
        self.steps: list[str] = []  # C statements that compute the arrays in the frame
        self.words = 0  # that the arrays in the frame take

    def of(self, shape: Dims) -> tuple[str, str]:
        """C expressions (``int64_t*``) of the shape and its row-major strides, where ``f`` is the frame."""
        if shape not in self._texts:
            static = all(isinstance(dim, int) for dim in shape)
            self._texts[shape] = self._table(shape) if static else self._place(shape)
        return self._texts[shape]

    def _table(self, shape: Dims) -> tuple[str, str]:
        if not shape:
            return "NULL", "NULL"
        strides: list[Dim] = [product(shape[i + 1 :]) for i in range(len(shape))]
        k = len(self.tables)
        values = ", ".join(map(self._size, (*shape, *strides)))
        self.tables.append(f"static const int64_t table_{k}[] = {{{values}}};")
        return f"(int64_t*)table_{k}", f"(int64_t*)table_{k} + {len(shape)}"

    def _place(self, shape: Dims) -> tuple[str, str]:
        start, rank = self.words, len(shape)
        self.words += 2 * rank
        for i, dim in enumerate(shape):
            self.steps.append(f"f->dims[{start + i}] = {self._size(dim)};")
        self.steps.append(f"(void)fc_strides(&bad, {rank}, f->dims + {start}, f->dims + {start + rank}, 1);")
        return f"f->dims + {start}", f"f->dims + {start + rank}"


class _Driver:
    def __init__(
        self, partition: Partition, codes: Mapping[str, Code], constants: Mapping[ir.Value, str]
    ) -> None:
        graph = partition.model.graph
        self.inputs, self.outputs = list(graph.inputs), list(graph.outputs)
        self.regions: Sequence[Region] = partition.regions
        self.constraints = partition.constraints
        self.codes, self.constants = codes, constants
        self.parameters = Parameters("main", self.inputs, "f->s")
        self.size = self.parameters.size
        self.shapes = _Shapes(self.size)
        self.places: dict[ir.Value, str] = {value: f"f->in[{i}]" for i, value in enumerate(self.inputs)}
        self._place_outputs()
        self.slots = plan_slots(self._buffers())
        self.places |= {value: f"f->slot[{slot}]" for value, slot in self.slots.of.items()}  # type: ignore[misc]

    def text(self) -> str:
        """The generated source of the entry alone."""
        parts = [self.parameters.tables(), *self._constant_declarations()]
        calls = [self._call(region) for region in self.regions]
        allocations = [self._allocate(j) for j in range(len(self.outputs))]
        copies = [self._copy(j) for j in self._copied]
        parts += [*self.shapes.tables, self._frame(), self._derive(), *calls]
        return "\n".join([*parts, self._main(allocations, copies)])

    def _place_outputs(self) -> None:
        """Regions write results in place; a result that is an input or a constant is copied."""
        made = {value for region in self.regions for value in region.outputs}
        self._copied: dict[int, str] = {}  # output -> C expression of the source of its copy
        for j, value in enumerate(self.outputs):
            if value in made and value not in self.places:
                self.places[value] = f"f->out[{j}]"
            else:
                self._copied[j] = self.places[value] if value in self.places else self.constants[value]

    def _buffers(self) -> list[Buffer]:
        last: dict[ir.Value, int] = {}
        for step, region in enumerate(self.regions):
            last.update(dict.fromkeys(region.inputs, step))
        return [
            Buffer(value, self._bytes(value), step, last.get(value, step))
            for step, region in enumerate(self.regions)
            for value in region.outputs
            if value not in self.places
        ]

    @staticmethod
    def _bytes(value: ir.Value) -> Dim:
        return product((*dims(value), itemsize(value)))

    def _constant_declarations(self) -> list[str]:
        names = dict.fromkeys(self.constants[value] for value in self.outputs if value in self.constants)
        return [f"extern const unsigned char {name}[];" for name in names]

    def _frame(self) -> str:
        fields = [
            ("int64_t", "s", len(self.parameters.names), "sizes of the symbols"),
            ("int64_t", "dims", self.shapes.words, "shapes and strides of tensors with symbolic dims"),
            ("int64_t", "offset", len(self.slots.sizes) + 1, "of the slots, and of the region's own memory"),
            ("int64_t", "bytes", len(self.outputs), "of the results"),
            ("void*", "in", len(self.inputs), "elements of the arguments"),
            ("void*", "out", len(self.outputs), "elements of the results"),
            ("char*", "slot", len(self.slots.sizes), "tensors between regions"),
        ]
        lines = "".join(f"  {kind} {name}[{max(n, 1)}]; /* {what} */\n" for kind, name, n, what in fields)
        return (
            f"\nstruct frame {{\n{lines}"
            "  char* workspace; /* memory of the region that runs */\n"
            "  int64_t need; /* bytes of working memory */\n};\n"
        )

    def _derive(self) -> str:
        """The function that computes every size of the call, and raises on impossible ones."""
        lines = ["bool bad = false;", *self.shapes.steps, "int64_t end = 0, own = 0;"]
        for j, value in enumerate(self.outputs):
            lines.append(f"f->bytes[{j}] = {self.size(self._bytes(value))};")
        for k, size in enumerate(self.slots.sizes):
            lines.append(f"f->offset[{k}] = end;")
            lines.append(f"end = fc_add(&bad, end, fc_align(&bad, {self.size(size)}));")
        own = dict.fromkeys(code.workspace for code in self.codes.values())
        lines += [f"own = fc_max(own, {self.size(size)});" for size in own if size != 0]
        lines.append(f"f->offset[{len(self.slots.sizes)}] = end;")
        lines.append("f->need = fc_add(&bad, end, fc_align(&bad, own));")
        negative = negative_dims(self.regions, [code.workspace for code in self.codes.values()])
        checks = [(f"{self.size(dim)} < 0", "a size would be negative") for dim in negative]
        checks += [(f"{self.size(a)} != {self.size(b)}", f"expected {a} == {b}") for a, b in self.constraints]
        lines += self.parameters.refusals(checks)
        lines.append("return 0;")
        return _function("static int derive(struct frame* f)", lines)

    def _tensor(self, value: ir.Value) -> str:
        """The C initializer of a DLTensor for ``value``."""
        code, bits = dlpack(value)
        shape, strides = self.shapes.of(dims(value))
        place = self.places[value]
        return f"{{{place}, {{kDLCPU, 0}}, {len(dims(value))}, {{{code}, {bits}, 1}}, {shape}, {strides}, 0}}"

    def _call(self, region: Region) -> str:
        """The function that calls one region."""
        code = self.codes[region.name]
        tensors = [self._tensor(value) for value in (*region.inputs, *region.outputs)]
        values = [f"{{.type_index = kTVMFFIDLTensorPtr, .v_ptr = &t[{k}]}}" for k in range(len(tensors))]
        if code.workspace != 0:
            values.append("{.type_index = kTVMFFIOpaquePtr, .v_ptr = f->workspace}")
        for name in code.symbols:
            size = self.size(symbol(name))
            values.append(f"{{.type_index = kTVMFFIInt, .v_int64 = {size}}}")
        state = f"state_{region.name}" if has_state(code) else None
        own = f"{state}.self" if state else "NULL"
        own = f"{state}.self" if state else "NULL"
        lines = [f"if (!fc_ready(&{state})) return -1;"] if state else []
        lines += [
            f"DLTensor t[] = {{\n    {_rows(tensors)}\n  }};",
            f"const TVMFFIAny args[] = {{\n    {_rows(values)}\n  }};",
            "TVMFFIAny none = {.type_index = kTVMFFINone};",
            "const int64_t began = fc_trace_begin();",
            f"const int status = {region_function(region, code)}({own}, args, {len(values)}, &none);",
            f'fc_trace_end("{region.name}", args, {len(region.inputs) + len(region.outputs)}, began);',
            f"if (__builtin_expect(status != 0, 0)) return farcall_region_failed({place(region)});",
            *(["fc_release(&none);"] if state else []),
            "return 0;",
        ]
        return _function(f"static int call_{region.name}(struct frame* f)", lines)

    def _allocate(self, j: int) -> str:
        value = self.outputs[j]
        code, bits = dlpack(value)
        shape, strides = self.shapes.of(dims(value))
        lines = [
            f"DLTensor like = {{NULL, {{kDLCPU, 0}}, {len(dims(value))}, {{{code}, {bits}, 1}}, "
            f"{shape}, {strides}, 0}};",
            f"if (!fc_output(about, &like, (size_t)f->bytes[{j}], &results[{j}], &f->out[{j}])) goto done;",
        ]
        return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"

    def _copy(self, j: int) -> str:
        return f"  if (f->bytes[{j}] > 0) memcpy(f->out[{j}], {self._copied[j]}, (size_t)f->bytes[{j}]);\n"

    def _main(self, allocations: Sequence[str], copies: Sequence[str]) -> str:
        ins, outs = len(self.inputs), len(self.outputs)
        items = ", ".join(str(itemsize(value)) for value in self.inputs) or "1"
        slots = len(self.slots.sizes)
        runs = "".join(f"  if (call_{region.name}(f) != 0) goto done;\n" for region in self.regions)
        result = "  *result = results[0];\n  results[0].type_index = kTVMFFINone;\n"
        if outs != 1:
            result = f"  if (farcall_results(about, results, {outs}, result) != 0) goto done;\n"
        return f"""
FARCALL_KERNEL(main) {{
  static const int64_t items[] = {{{items}}};
  const struct fc_function* const about = &main_function;
  struct frame frame, *const f = &frame;
  const DLTensor* given[{max(ins, 1)}] = {{NULL}};
  void* owned[{max(ins, 1)}] = {{NULL}};
  struct fc_scalar numbers[{max(ins, 1)}];
  TVMFFIAny results[{max(outs, 1)}] = {{{{.type_index = kTVMFFINone}}}};
  struct fc_block* block = NULL;
  int status = -1;
  if (fc_take(about, args, num_args, f->s, given, numbers) != 0) return -1;
  if (derive(f) != 0) return -1;
  for (int32_t i = 0; i < {ins}; ++i) {{
    if (!fc_input(about, given[i], items[i], &f->in[i], &owned[i])) goto done;
  }}
{"".join(allocations)}  if (f->need > 0) {{
    block = fc_take_block(about, (size_t)f->need);
    if (!block) goto done;
    for (int32_t k = 0; k < {slots}; ++k) f->slot[k] = fc_block_data(block) + f->offset[k];
    f->workspace = fc_block_data(block) + f->offset[{slots}];
  }}
{runs}{"".join(copies)}{result}  status = 0;
done:
  if (block) fc_give_block(block);
  for (int32_t i = 0; i < {ins}; ++i) {{
    if (__builtin_expect(owned[i] != NULL, 0)) free(owned[i]);
  }}
  for (int32_t j = 0; j < {outs}; ++j) fc_release(&results[j]);
  return status;
}}
"""


def _function(head: str, lines: Iterable[str]) -> str:
    return f"\n{head} {{\n" + "".join(f"  {line}\n" for line in lines) + "}"


def _rows(items: Sequence[str]) -> str:
    return ",\n    ".join(items)
