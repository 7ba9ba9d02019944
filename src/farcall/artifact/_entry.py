"""Generates the entry of an artifact, ``__tvm_ffi_main`` in C, from a partition: the driver of the model.

The graphs inside of If, Loop and Scan have drivers, too: hidden functions that the steps of these nodes call
(:mod:`farcall.artifact._control`).

The entry checks the arguments, binds the symbols of symbolic dims, allocates the results and working memory,
and calls the regions in order. The parts that do not depend on the model are in ``entry.h`` and the C files
beside it. Each region has an entry of its own: :mod:`farcall.artifact._region_entry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from farcall.artifact._c_tables import Tables
from farcall.artifact._checked import integer
from farcall.artifact._dtypes import dlpack, itemsize, nbytes
from farcall.artifact._entry_parameters import NO_DTYPE, Parameters, negative_dims, tensor_table
from farcall.artifact._fixed import support_text
from farcall.artifact._kept import Kept
from farcall.artifact._memory import Buffer, plan_slots
from farcall.artifact._region_entry import regions_text
from farcall.artifact._stages import Shapes, Stage, stages_of
from farcall.artifact._states import CPU, KERNEL, Place, code_places, declarations, device
from farcall.backends._ctext import c_string
from farcall.backends._function import LATE
from farcall.backends._kernels import HIDDEN
from farcall.backends.base import RegionCode, RegionModule
from farcall.backends.c_backend_kit import align
from farcall.errors import ModelError
from farcall.graph import Region
from farcall.graph._alive import maximum_of, most_alive
from farcall.graph._objects import own_dims
from farcall.graph.dims import Dim, dims, fold, is_object, symbol, symbols

if TYPE_CHECKING:
    from farcall.backends.base import Code
    from farcall.graph import Partition
    from farcall.graph._partition import Body


class MainSource(NamedTuple):
    """The entry, and what a call of it takes, where the data decides no size: bytes, as dims.

    These are the working memory, the lower bound of every plan for it, what is allocated for the caller, and
    what each thread beyond the first one keeps. What bodies of If, Loop and Scan take in their steps is not
    in them.
    """

    text: str
    memory: tuple[Dim, Dim, Dim, Dim]


LATE_BYTES = 4 << 30  # default of a call's limit for tensors whose sizes are known only in the call


def main_source(
    partition: Partition,
    codes: Mapping[str, Code],
    constants: Mapping[ir.Value, str],
    late_bytes: int = LATE_BYTES,
) -> MainSource:
    """The C source of the entry, and the memory that a call takes.

    Args:
        partition: the regions, in the order in which they run.
        codes: the code of each region, by its name.
        constants: the C identifier of each initializer that is a graph output.
        late_bytes: how many bytes a call may allocate for tensors whose sizes are known only in the call.

    Raises:
        ModelError: a size cannot be computed from the inputs.
    """
    places = code_places(partition.all_regions)
    main = _Driver(partition, codes, constants, places)
    drivers = [_Driver(body.partition, codes, constants, places, body).text() for body in partition.bodies()]
    drivers.append(main.text())
    if not has_late(partition, codes):
        drivers.append(_NO_LATE)
    limit = f"const int64_t farcall_late_bytes = {integer(late_bytes)};\n"
    declared = declarations(partition.all_regions, codes)
    return MainSource("\n".join([support_text("entry.h"), declared, limit, *drivers]), main.memory())


def regions_source(partition: Partition, codes: Mapping[str, Code]) -> str:
    """The C source of the entries of the regions.

    Raises:
        ModelError: a dtype cannot cross a region's border.
    """
    return "\n".join([support_text("entry.h"), support_text("entry_names.h"), regions_text(partition, codes)])


def late_source() -> str:
    """The C text of outputs that regions allocate or keep, for artifacts that have some: :func:`has_late`."""
    return "\n".join([support_text("entry.h"), LATE, support_text("entry_late.c")])


def has_late(partition: Partition, codes: Mapping[str, Code]) -> bool:
    """Whether regions allocate outputs, or modules keep some, or there are other graphs, which may do so."""
    return (
        any(region.allocated for region in partition.all_regions)
        or any(isinstance(code, RegionModule) and code.keeps for code in codes.values())
        or any(partition.bodies())
    )


def control_source() -> str:
    """The C text of If, Loop and Scan, which is the same for every artifact that has some."""
    return "\n".join(
        [support_text("entry.h"), LATE, support_text("control.h"), support_text("entry_control.c")]
    )


# What the other files refer to, where no output is late.
_NO_LATE = """
int farcall_take_late(const char* place, TVMFFIAny* result, const struct fc_parameter* want, int32_t count,
                      int64_t* symbols, int64_t* left, struct fc_late* out) {
  (void)place, (void)result, (void)want, (void)count, (void)symbols, (void)left, (void)out;
  return -1;
}

int farcall_take_kept(const struct fc_step* step, TVMFFIAny* result, const struct fc_frame* f) {
  (void)step, (void)result, (void)f;
  return -1;
}
"""


class _Driver:
    """The function that runs a model, or a body: the graph inside of a node."""

    def __init__(
        self,
        partition: Partition,
        codes: Mapping[str, Code],
        constants: Mapping[ir.Value, str],
        code_places: Mapping[str, str],
        body: Body | None = None,
    ) -> None:
        graph = partition.model.graph
        self._body = body
        self._name = body.name if body else "main"
        self._prefix = f"{body.name}_" if body else ""
        self._code_places, self._tables = code_places, Tables(self._prefix)
        self.inputs, self.outputs = list(graph.inputs), list(graph.outputs)
        self.regions: Sequence[Region] = partition.regions
        self.needs = partition.needs
        self.codes, self.constants = codes, constants
        self.stages = stages_of(self.regions)
        self._most = 1  # arguments of a step
        self._on_device: dict[tuple[ir.Value, Place], int] = {}  # tensors on devices
        self.late = [value for stage in self.stages for value in stage.told]
        self._given_objects = list(filter(is_object, self.inputs))
        self._in_module = Kept(self.regions, codes, self.outputs)
        sizes = map(symbol, body.sizes if body else ())
        title = graph.name or "" if body else ""
        self.parameters = Parameters(self._name, self.inputs, "f->s", sizes, self.late, title)
        self._known_at = {
            str(dim): stage.number
            for stage in reversed(self.stages)
            for value in stage.told
            for dim in own_dims(value)
            if dim in self.parameters.late
        }
        self.size = self.parameters.size
        self.shapes = Shapes(self._prefix, self.size, self._stage_of)
        # The index in the frame's `data` of the elements of each tensor: inputs, results, late ones, slots.
        self.places: dict[ir.Value, int] = {value: i for i, value in enumerate(self.inputs)}
        self._first_out = len(self.inputs)
        self._first_late = self._first_out + len(self.outputs)
        self._first_slot = self._first_late + len(self.late)
        self.places |= {value: self._first_late + i for i, value in enumerate(self.late)}
        self._place_outputs()
        self._place_slots()

    def text(self) -> str:
        """The generated source of the entry alone."""
        function = self.parameters.function(self._tables)
        self._late_table = tensor_table(self._tables, self.late, self.parameters.names)
        steps = self._steps()
        runs = [self._run(stage) for stage in self.stages]
        copies = [*map(self._copy, self._copied), *map(self._share, self._shared)]
        copies += map(self._give, self._given)  # these leave the frame
        derives = [self._derive(stage) for stage in self.stages]
        tables = [*self.shapes.tables, self._tables.text(), function, *self._constant_declarations()]
        return "\n".join([*tables, self._frame(), *derives, steps, self._main(runs, copies)])

    @property
    def _kept(self) -> int:
        """The number of objects that the frame owns."""
        return self._first_made + len(self._on_device)

    @property
    def _first_made(self) -> int:
        """The index of the first tensor that `main` makes on a device, among those that the frame owns."""
        return self._first_object + len(self._given_objects)

    @property
    def _first_object(self) -> int:
        """The index of the first input that is no tensor of numbers, among those that the frame owns."""
        return len(self.late) + len(self._in_module.makers)

    def _held(self, value: ir.Value) -> int:
        """The index of an object among those that the frame owns.

        Raises:
            ModelError: no region makes it, and it is no input.
        """
        if value in self.late:
            return self.late.index(value)
        if value in self._given_objects:
            return self._first_object + self._given_objects.index(value)
        raise ModelError(
            f"the output `{value.name}` is a constant that is no tensor of numbers; expected that a node "
            "makes it, such as Identity"
        )

    def _stage_of(self, shape: Iterable[Dim]) -> int:
        """The stage from which on all sizes of a shape are known."""
        return max((self._known_at.get(name, 0) for name in symbols(*shape)), default=0)

    def _place_outputs(self) -> None:
        """Regions write results in place, or allocate them; one that is an input or a constant is copied."""
        stage_of = {out: stage for stage in self.stages for region in stage.regions for out in region.outputs}
        self._copied: dict[int, str] = {}  # output -> C expression of the source of its copy
        self._given: dict[int, int] = {}  # output -> the index of the tensor that a region allocated for it
        self._shared: dict[int, int] = {}  # output -> the index of an object that others read, too
        for j, value in enumerate(self.outputs):
            if value in stage_of and value not in self.places:
                self.places[value] = self._first_out + j
                stage_of[value].outputs.append(j)
            elif value in self.late and self.late.index(value) not in self._given.values():
                self._given[j] = self.late.index(value)
            elif is_object(value):
                self._shared[j] = self._held(value)
            else:
                known = value in self.places
                self._copied[j] = f"f->data[{self.places[value]}]" if known else self.constants[value]
                self.stages[self._stage_of(dims(value))].outputs.append(j)

    def _place_slots(self) -> None:
        last: dict[ir.Value, int] = {}
        for step, region in enumerate(self.regions):
            last.update(dict.fromkeys(region.inputs, step))
        self._alive: list[tuple[Dim, int, int]] = []  # bytes, first and last step
        step = slots = 0
        stays = self._stays()
        for stage in self.stages:
            buffers = []
            for region in stage.regions:
                buffers += [
                    Buffer(value, nbytes(value), step, last.get(value, step))
                    for value in region.outputs
                    if value not in self.places and value not in stays and value not in self._in_module.alone
                ]
                self._alive.append((_least(self.codes[region.name]), step, step))
                step += 1
            stage.slots, stage.first_slot = plan_slots(buffers), slots
            self._alive += [(align(buffer.size), buffer.first, buffer.last) for buffer in buffers]
            self.places |= {
                buffer.key: self._first_slot + slots + stage.slots.of[buffer.key]  # type: ignore[misc]
                for buffer in buffers
            }
            slots += len(stage.slots.sizes)
        self._slots = slots
        self._first_device = self._first_slot + slots

    def memory(self) -> tuple[Dim, Dim, Dim, Dim]:
        """The memory of :class:`MainSource`, without what the data decides."""
        workspace: Dim = 0
        for stage in self.stages:
            own = dict.fromkeys(self.codes[region.name].workspace for region in stage.regions)
            workspace += self._sum(map(align, stage.slots.sizes))
            workspace += maximum_of([align(size) for size in own if self._is_early(size)])
        least = most_alive(item for item in self._alive if self._is_early(item[0]))
        results = (nbytes(self.outputs[j]) for stage in self.stages for j in sorted(stage.outputs))
        codes = (self.codes[region.name] for region in self.regions)
        needs = dict.fromkeys(code.scratch for code in codes if isinstance(code, RegionCode))
        scratch = [size for size in needs if size != 0 and self._is_early(size)]
        return fold(workspace), least, self._sum(results), maximum_of(scratch)

    def _sum(self, sizes: Iterable[Dim]) -> Dim:
        return fold(sum((size for size in sizes if self._is_early(size)), start=0))

    def _is_early(self, size: Dim) -> bool:
        """Whether a size is known before the model runs."""
        return self._known_at.keys().isdisjoint(symbols(size))

    def _stays(self) -> set[ir.Value]:
        """The tensors between regions on devices, which the CPU never reads."""
        on_device = {
            value
            for region in self.regions
            if device(self.codes[region.name]) != CPU
            for value in region.outputs
        }
        read = {v for r in self.regions if device(self.codes[r.name]) == CPU for v in r.inputs}
        return on_device - read

    def _constant_declarations(self) -> list[str]:
        names = dict.fromkeys(self.constants[value] for value in self.outputs if value in self.constants)
        return [f"extern const unsigned char {name}[];" for name in names]

    def _frame(self) -> str:
        fields = [
            ("int64_t", "s", len(self.parameters.names), "sizes of the symbols"),
            ("int64_t", "dims", self.shapes.words, "shapes and strides of tensors with symbolic dims"),
            ("int64_t", "offset", self._slots + 1, "of the slots, and of the region's own memory"),
            ("int64_t", "bytes", len(self.outputs), "of the results"),
            ("void*", "data", self._first_device + len(self._on_device), "elements of all tensors"),
            (
                "struct fc_late",
                "late",
                self._kept,
                "tensors that regions allocated, modules keep, or on devices",
            ),
        ]
        lines = "".join(f"  {kind} {name}[{max(n, 1)}]; /* {what} */\n" for kind, name, n, what in fields)
        return (
            f"\nstruct {self._prefix}frame {{\n{lines}  int64_t need; /* bytes of working memory */\n"
            f"  int64_t left; /* bytes that the call may still allocate for late tensors */\n}};\n"
        )

    def _derive(self, stage: Stage) -> str:
        """The function that computes the sizes known from this stage on, and raises on impossible ones."""
        lines = ["bool bad = false;", *self.shapes.steps(stage.number), "int64_t end = 0, own = 0;"]
        for j in sorted(stage.outputs):
            lines.append(f"f->bytes[{j}] = {self.size(nbytes(self.outputs[j]))};")
        for k, size in enumerate(stage.slots.sizes, stage.first_slot):
            lines.append(f"f->offset[{k}] = end;")
            lines.append(f"end = fc_add(&bad, end, fc_align(&bad, {self.size(size)}));")
        own = dict.fromkeys(self.codes[region.name].workspace for region in stage.regions)
        lines += [f"own = fc_max(own, {self.size(size)});" for size in own if size != 0]
        lines.append(f"f->offset[{self._slots}] = end;")
        lines.append("f->need = fc_add(&bad, end, fc_align(&bad, own));")
        lines += self.parameters.refusals([*self.parameters.late_checks(stage.told), *self._checks(stage)])
        lines += self._spend(stage) if stage.number or self._body else ["return 0;"]
        head = f"static int {self._prefix}derive_{stage.number}(struct {self._prefix}frame* f)"
        return _function(head, lines)

    def _spend(self, stage: Stage) -> list[str]:
        """The statements that count the memory of a stage, which depends on sizes from the data."""
        sizes = ["f->need", *(f"f->bytes[{j}]" for j in sorted(stage.outputs))]
        nodes = dict.fromkeys(value.producer() for value in stage.told)
        after = (
            ", ".join(f"{node.op_type} `{node.name}`" for node in nodes if node is not None) or "its inputs"
        )
        return [
            "int64_t sum = 0;",
            *(f"sum = fc_add(&bad, sum, {size});" for size in sizes),
            "if (bad) sum = INT64_MAX;",
            f"return farcall_spend(&{self._name}_function, {c_string(after)}, sum, &f->left, f->s);",
        ]

    def _checks(self, stage: Stage) -> list[tuple[str, str]]:
        own = (
            self.codes[region.name].workspace for region in self.regions
        )  # `codes` has other drivers', too
        negative = negative_dims(self.regions, own)
        checks = self.parameters.checks() if stage.number == 0 else []
        checks += [
            (f"{self.size(dim)} < 0", "a size would be negative")
            for dim in negative
            if self._stage_of((dim,)) == stage.number
        ]
        return checks + [
            (f"{self.size(a)} != {self.size(b)}", text)
            for (a, b), text in self.needs.items()
            if self._stage_of((a, b)) == stage.number and self.parameters.learns(a, b)
        ]

    def _place(self, value: ir.Value, where: Place = CPU, kept: int | None = None) -> str:
        """The C initializer of the ``fc_place`` of ``value`` on a device, or as what a module keeps."""
        if is_object(value):
            return f"{{{self._held(value)}, 0, fc_no_dims, {NO_DTYPE}, 0, {{0, FC_OBJECT}}}}"
        code, bits = dlpack(value)
        shape = self.shapes.of(dims(value))[0]
        offset = shape.removeprefix("f->dims + ") if shape.startswith("f->") else None
        table = f"{offset}, NULL" if offset else f"0, {'fc_no_dims' if shape == 'NULL' else shape}"
        about = f"{table}, {{{code}, {bits}, 1}}, {len(dims(value))}"
        if kept is not None:
            also = 0 if value in self._in_module.alone else self.places[value] + 1
            return f"{{{len(self.late) + kept}, {about}, {{0, {also}}}}}"
        place = self.places[value] if where == CPU else self._first_device + self._on_device[value, where]
        return f"{{{place}, {about}, {{{where[0]}, {where[1]}}}}}"

    def _steps(self) -> str:
        """The table of all steps, in order."""
        self._rows = list[str]()
        self._first_step: list[int] = []  # of each stage
        for stage in self.stages:
            self._first_step.append(len(self._rows))
            for region in stage.regions:
                self._step(region)
        self._first_step.append(len(self._rows))
        rows = "".join(f"  {{{row}}},\n" for row in self._rows) or "  {0},"
        return f"static const struct fc_step {self._prefix}steps[] = {{\n{rows}}};\n"

    def _step(self, region: Region) -> None:
        """The steps of one region: copies to its device, its call, and copies from there."""
        code = self.codes[region.name]
        where = device(code)
        made = [value for value in region.outputs if value not in region.allocated]
        if where != CPU:
            for value in (*region.inputs, *made):
                self._bring(value, where, copied=value in region.inputs)
        names = [str(self._symbol(item)) for item in code.symbols]
        kept = [self._in_module.number(value, region) for value in (*region.inputs, *made)]
        places = zip((*region.inputs, *made), kept, strict=True)
        tensors = self._tensors([self._place(value, where, number) for value, number in places])
        fields = [
            *(self._code_places[region.name], *tensors, int(code.workspace != 0)),
            *(self._tables.add("int32_t", names), len(names)),
        ]
        if region.allocated:
            first, count = self.late.index(region.allocated[0]), len(region.allocated)
            fields += [f"{self._late_table} + {first}", count, first, self._first_late + first]
        else:
            fields += ["NULL", 0, 0, 0]
        fields.append(sum(number is not None for number in kept[len(region.inputs) :]))
        self._most = max(self._most, len(region.inputs) + len(made) + 2 + len(names))
        self._rows.append(", ".join(map(str, fields)))
        for value in made if where != CPU else ():
            if value in self.places:
                self._copy_step(self._place(value, where), self._place(value))

    def _tensors(self, places: Sequence[str]) -> tuple[str, int]:
        """The C name of a table of places, and their number."""
        return self._tables.add("struct fc_place", places), len(places)

    def _bring(self, value: ir.Value, where: Place, *, copied: bool) -> None:
        """Make a tensor on a device, once, and copy the elements of ``value`` to it."""
        if (value, where) in self._on_device:
            return
        source = next((place for known, place in self._on_device if known is value), CPU)
        number = self._on_device[value, where] = len(self._on_device)
        tensors = self._tensors([self._place(value, where)])
        self._rows.append(f"NULL, {tensors[0]}, 1, 0, NULL, 0, NULL, 0, {self._first_made + number}, 0")
        if copied:
            known = CPU if value in self.places else source
            self._copy_step(self._place(value, known), self._place(value, where))

    def _copy_step(self, source: str, target: str) -> None:
        self._rows.append(f"NULL, {self._tensors([source, target])[0]}, 2, 0, NULL, 0, NULL, 0, 0, 0, 0")
        self._most = max(self._most, 2)

    def _symbol(self, name: str) -> int:
        """The place of a symbol's size in the frame."""
        self.size(symbol(name))  # an error if it cannot be computed
        return self.parameters.names.index(name)

    def _allocate(self, j: int) -> str:
        value = self.outputs[j]
        code, bits = dlpack(value)
        shape, strides = self.shapes.of(dims(value))
        lines = [
            f"DLTensor like = {{NULL, {{kDLCPU, 0}}, {len(dims(value))}, {{{code}, {bits}, 1}}, "
            f"{shape}, {strides}, 0}};",
            f"void** data = &f->data[{self._first_out + j}];",
            f"if (!farcall_output(about, &like, (size_t)f->bytes[{j}], &results[{j}], data)) goto done;",
        ]
        return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"

    def _copy(self, j: int) -> str:
        to = f"f->data[{self._first_out + j}]"
        return f"  if (f->bytes[{j}] > 0) memcpy({to}, {self._copied[j]}, (size_t)f->bytes[{j}]);\n"

    def _give(self, j: int) -> str:
        tensor = f"f->late[{self._given[j]}].tensor"
        return f"  results[{j}] = {tensor};\n  {tensor}.type_index = kTVMFFINone;\n"

    def _share(self, j: int) -> str:
        source = f"f->late[{self._shared[j]}].tensor"
        return f"  if (farcall_share(about, &{source}, &results[{j}]) != 0) goto done;\n"

    def _run(self, stage: Stage) -> str:
        """The statements of a stage: memory, then calls."""
        k = stage.number
        start, end = stage.first_slot, stage.first_slot + len(stage.slots.sizes)
        derive = f"  if ({self._prefix}derive_{k}(f) != 0) goto done;\n" if k else ""
        allocations = "".join(self._allocate(j) for j in sorted(stage.outputs))
        first, last = self._first_step[k : k + 2]
        place = self._first_slot
        # An empty tensor needs no memory, but an aligned address: regions get the pointer.
        needed = "true" if end > start else "f->need > 0"
        return f"""{derive}{allocations}  if ({needed}) {{
    block[{k}] = farcall_take_block(about, (size_t)f->need);
    if (!block[{k}]) goto done;
    char* memory = fc_block_data(block[{k}]);
    for (int32_t k = {start}; k < {end}; ++k) f->data[{place} + k] = memory + f->offset[k];
    at.workspace = memory + f->offset[{self._slots}];
  }}
  if (farcall_run({self._prefix}steps + {first}, {last - first}, {self._most}, &at) != 0) goto done;
"""

    def _main(self, runs: Sequence[str], copies: Sequence[str]) -> str:
        ins, outs, late = len(self.inputs), len(self.outputs), self._kept
        items = ", ".join("1" if is_object(value) else str(itemsize(value)) for value in self.inputs) or "1"
        is_tensor = "given[i] && " if self._given_objects else ""
        objects = "".join(
            f"  f->late[{self._held(value)}].tensor = fc_share(&args[{self.inputs.index(value)}]);\n"
            for value in self._given_objects
        )
        stages = len(self.stages)
        result = "  *result = results[0];\n  results[0].type_index = kTVMFFINone;\n"
        if outs != 1:
            result = f"  if (farcall_results(about, results, {outs}, result) != 0) goto done;\n"
        begin = "  memset(f->late, 0, sizeof f->late);\n" if late else ""
        end = f"  for (int32_t i = 0; i < {late}; ++i) fc_release(&f->late[i].tensor);\n" if late else ""
        head, left = "FARCALL_KERNEL(main)", "farcall_late_bytes"
        if self._body:
            head, left = f"{HIDDEN} int {self._body.function}({KERNEL})", "*(const int64_t*)self"
        taken, sizes = ins + len(self.parameters.sizes), self.parameters.first_size
        begin += "".join(
            f"  f->s[{sizes + k}] = fc_size(given[{ins + k}]);\n" for k in range(len(self.parameters.sizes))
        )
        return f"""
{head} {{
  static const int64_t items[] = {{{items}}};
  const struct fc_function* const about = &{self._name}_function;
  struct {self._prefix}frame frame, *const f = &frame;
  struct fc_frame at = {{f->s, f->dims, f->data, f->late, NULL, &f->left}};
  const DLTensor* given[{max(taken, 1)}] = {{NULL}};
  void* owned[{max(ins, 1)}] = {{NULL}};
  struct fc_scalar numbers[{max(taken, 1)}];
  TVMFFIAny results[{max(outs, 1)}] = {{{{.type_index = kTVMFFINone}}}};
  struct fc_block* block[{stages}] = {{NULL}};
  int status = -1;
  f->left = {left};
  if (farcall_take(about, args, num_args, f->s, given, numbers) != 0) return -1;
{begin}  if ({self._prefix}derive_0(f) != 0) return -1;
{objects}  for (int32_t i = 0; i < {ins}; ++i) {{
    if ({is_tensor}!farcall_input(about, given[i], items[i], &f->data[i], &owned[i])) goto done;
  }}
{"".join(runs)}{"".join(copies)}{result}  status = 0;
done:
  for (int32_t k = 0; k < {stages}; ++k) {{
    if (block[k]) farcall_give_block(block[k]);
  }}
{end}  for (int32_t i = 0; i < {ins}; ++i) {{
    if (__builtin_expect(owned[i] != NULL, 0)) free(owned[i]);
  }}
  for (int32_t j = 0; j < {outs}; ++j) fc_release(&results[j]);
  return status;
}}
"""


def _least(code: Code) -> Dim:
    """The lower bound of a region's own workspace, as far as its backend tells."""
    least: Dim | None = getattr(code, "least", None)
    return code.workspace if least is None else least


def _function(head: str, lines: Iterable[str]) -> str:
    return f"\n{head} {{\n" + "".join(f"  {line}\n" for line in lines) + "}"


def _rows(items: Sequence[str]) -> str:
    return ",\n    ".join(items)
