"""The backend ``control``: the code of If, Loop and Scan, which calls drivers of the graphs inside of them.

It takes part in every plan whose model has such nodes. The code is a table; what does not depend on the model
is in ``entry_control.c``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from farcall.artifact._checked import CheckedText
from farcall.artifact._dtypes import dlpack, is_packed
from farcall.artifact._fixed import support_text
from farcall.backends._ctext import c_string, stored
from farcall.backends.base import Backend, RegionCode
from farcall.graph._control import fails, scan_axes
from farcall.graph._inside import Inside
from farcall.graph._objects import leaf_of
from farcall.graph.dims import Dim, dims, late, symbols
from farcall.library._why import CONTROL

if TYPE_CHECKING:
    from farcall.graph import Partition, Region
    from farcall.graph._partition import Body
    from farcall.toolchain import Target

_ABSENT = "FC_ABSENT"
_BATCHED = 8  # the opset whose Scan has a batch axis


def with_control(backends: Sequence[Backend]) -> list[Backend]:
    """The backends of a plan, with this one before those that compute where the artifact is loaded."""
    result = list(backends)
    at = next((index for index, one in enumerate(result) if index and one.in_process), len(result))
    result.insert(at, ControlBackend(lambda: result))
    return result


def control_of(backends: Sequence[Backend]) -> ControlBackend:
    """This backend, among those of a plan."""
    return next(one for one in backends if isinstance(one, ControlBackend))


class ControlBackend(Backend):
    """Takes the nodes whose inner graphs the backends of the plan take.

    Args:
        backends: gives them, in order of priority.
    """

    name = CONTROL
    color = "#9a8f6b"
    allocates = True
    ends_at_late = True

    def __init__(self, backends: Any) -> None:
        self.inside = Inside(backends)
        self._bodies: Mapping[str, Sequence[Body]] = {}

    def of(self, partition: Partition) -> ControlBackend:
        """The same for the nodes of one partition, whose graphs are cut."""
        parts = [partition, *(body.partition for body in partition.bodies())]
        result = copy.copy(self)
        result._bodies = {name: bodies for part in parts for name, bodies in part.inside.items()}
        return result

    def check(self, node: ir.Node) -> str | None:
        packed = next((v for v in (*node.inputs, *node.outputs) if v is not None and is_packed(v)), None)
        if packed is not None:
            return f"`{packed.name}` has elements of less than a byte, of which its steps cannot take slices"
        reason = self.inside.reason(node)
        if reason is None and _is_batched(node) and any(map(late, node.outputs)):
            return "the shapes of its outputs are known only when it has run, and it has a batch axis"
        return reason

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        if fails(region.nodes[0]):
            return _failing(region)
        return _Step(region, self._bodies[region.name]).code()


def _is_batched(node: ir.Node) -> bool:
    graph = node.graph
    return node.op_type == "Scan" and graph is not None and graph.opset_imports.get("", 0) <= _BATCHED


def _failing(region: Region) -> RegionCode:
    """The code of a branch that fails."""
    (node,) = region.nodes
    message = c_string(node.attributes["message"].as_string())
    text = (
        f"FARCALL_KERNEL({region.name}) {{\n  (void)self; (void)args; (void)num_args; (void)result;\n"
        f"  return farcall_fail({message});\n}}\n"
    )
    preamble = [support_text("entry.h"), support_text("control.h")]
    return RegionCode(sources={f"{region.name}.c": text}, preamble=preamble, bounded=True)


class _Step:
    """Writes the code of one node."""

    def __init__(self, region: Region, parts: Sequence[Body]) -> None:
        (self._node,) = region.nodes
        self._region, self._parts = region, parts
        self._constants: dict[ir.Value, int] = {}
        made = [value for value in region.outputs if value not in region.allocated]
        self._into = {value: len(region.inputs) + k for k, value in enumerate(made)}
        sizes = [name for part in parts for name in part.sizes]
        known = [dim for value in self._node.outputs for dim in _known(value)]
        self._symbols = list(dict.fromkeys([*sizes, *symbols(*known)]))
        self._first_size = len(region.inputs) + len(made)

    def code(self) -> RegionCode:
        name, node = self._region.name, self._node
        bodies = "".join(self._body(part) for part in self._parts)
        rows = ", ".join(self._row(part) for part in self._parts)
        operands = self._numbers("operands", self._operands(node.inputs))
        places = self._numbers("places", map(self._place, node.outputs))
        fields = {
            "place": c_string(f"{node.op_type} `{node.name}`"),
            "bodies": f"{name}_bodies",
            "operands": f"{name}_operands",
            "num_operands": len(self._operands(node.inputs)),
            "outputs": f"{name}_outputs",
            "places": f"{name}_places",
            "num_outputs": len(node.outputs),
            "num_late": len(self._region.allocated),
        }
        more = ""
        if node.op_type != "If":
            more, loop = self._loop() if node.op_type == "Loop" else self._scan()
            fields |= loop
        constants, data = self._constant_tables()
        if data:
            fields["constants"] = f"{name}_constants"
        table = "".join(f"  .{key} = {text},\n" for key, text in fields.items())
        text = (
            f"{bodies}{operands}{places}{more}{constants}"
            f"static const struct fc_body {name}_bodies[] = {{{rows}}};\n"
            f"{self._outputs()}"
            f"static const struct fc_control {name}_control = {{\n{table}}};\n{self._function()}"
        )
        return RegionCode(
            sources={f"{name}.c": text},
            constants=data,
            symbols=self._symbols,
            preamble=[support_text("entry.h"), support_text("control.h")],
            bounded=True,
        )

    def _numbers(self, what: str, items: Any) -> str:
        return _array("int32_t", f"{self._region.name}_{what}", items)

    def _operands(self, values: Sequence[ir.Value | None]) -> list[str]:
        """Where values come from."""
        return [self._operand(value) for value in values]

    def _operand(self, value: ir.Value | None) -> str:
        if value is None:
            return _ABSENT
        if value.const_value is not None:
            return f"~{self._constants.setdefault(value, len(self._constants))}"
        return str(self._region.inputs.index(value))

    def _place(self, value: ir.Value) -> str:
        if value in self._region.allocated:
            return f"~{self._region.allocated.index(value)}"
        return str(self._into.get(value, _ABSENT))

    def _body(self, part: Body) -> str:
        name = f"{self._region.name}_{part.attribute}"
        sizes = [self._first_size + self._symbols.index(size) for size in part.sizes]
        return (
            f"FC_HIDDEN fc_kernel farcall_body_{name};\n"
            f"{_array('int32_t', f'{name}_captured', self._operands(part.captured))}"
            f"{_array('int32_t', f'{name}_sizes', sizes)}"
        )

    def _row(self, part: Body) -> str:
        name = f"{self._region.name}_{part.attribute}"
        outputs = len(part.partition.model.graph.outputs)
        return (
            f"{{farcall_body_{name}, {name}_captured, {len(part.captured)}, {name}_sizes, {len(part.sizes)}, "
            f"{outputs}}}"
        )

    def _outputs(self) -> str:
        rows = []
        for value in self._node.outputs:
            code, bits = dlpack(value)
            spec = leaf_of(value)
            kind = f"{{{code}, {bits}, 1}}, {len(dims(value))}"
            rows.append(f"  {{{c_string(spec.name)}, {c_string(spec.type)}, {kind}, NULL, 0}},\n")
        return f"static const struct fc_parameter {self._region.name}_outputs[] = {{\n{''.join(rows)}}};\n"

    def _loop(self) -> tuple[str, dict[str, object]]:
        counter, condition = self._parts[0].partition.model.graph.inputs[:2]
        return "", {
            "num_states": len(self._node.inputs) - 2,
            "counter_ndim": len(dims(counter)),
            "condition_ndim": len(dims(condition)),
        }

    def _scan(self) -> tuple[str, dict[str, object]]:
        node, batched = self._node, _is_batched(self._node)
        scanned = node.attributes["num_scan_inputs"].as_int()
        states = len(node.inputs) - batched - scanned
        stacks = len(node.outputs) - states
        inner = self._parts[0].partition.model.graph
        ranks = [len(dims(value)) + 1 for value in inner.inputs[states : states + scanned]]
        ranks += [len(dims(value)) + 1 for value in inner.outputs[states:]]
        axes = [*scan_axes(node, batched, scanned), *self._given("scan_output_axes", stacks)]
        directions = self._given("directions" if batched else "scan_input_directions", scanned)
        reverse = [*directions, *self._given("scan_output_directions", stacks)]
        text = self._numbers("axes", (axis % rank for axis, rank in zip(axes, ranks, strict=True)))
        name = self._region.name
        return text + self._numbers("reversed", reverse), {
            "num_states": states,
            "axes": f"{name}_axes",
            "reversed": f"{name}_reversed",
            "batched": int(batched),
        }

    def _given(self, name: str, count: int) -> list[int]:
        found = self._node.attributes.get(name)
        return [0] * count if found is None else list(found.as_ints())

    def _constant_tables(self) -> tuple[str, dict[str, np.ndarray[Any, Any]]]:
        name, text, rows = self._region.name, "", []
        data = {}
        for value, k in self._constants.items():
            tensor = value.const_value
            array = tensor.numpy() if tensor is not None else np.zeros(0)
            code, bits = dlpack(value)
            data[f"{name}_k{k}"] = stored(array)
            text += f"extern const unsigned char {name}_k{k}[];\n"
            text += _array("int64_t", f"{name}_k{k}_dims", array.shape)
            shape = f"(int64_t*){name}_k{k}_dims"
            kind = f"{array.ndim}, {{{code}, {bits}, 1}}, {shape}, NULL, 0"
            rows.append(f"  {{(void*){name}_k{k}, {{kDLCPU, 0}}, {kind}}},\n")
        if rows:
            text += f"static const DLTensor {name}_constants[] = {{\n{''.join(rows)}}};\n"
        return text, data

    def _function(self) -> str:
        """The function, which computes the known dims of the outputs."""
        name = self._region.name
        size = CheckedText({s: f"args[{self._first_size + k}].v_int64" for k, s in enumerate(self._symbols)})
        shapes = []
        for value in self._node.outputs:
            unknown = set(late(value))
            shapes += [size(dim) if unknown.isdisjoint(symbols(dim)) else "0" for dim in dims(value)]
        return (
            f"FARCALL_KERNEL({name}) {{\n"
            f"  (void)self;\n  bool bad = false;\n"
            f"  const int64_t shapes[] = {{{', '.join(shapes) or '0'}}};\n  (void)bad;\n"
            f"  return farcall_{self._node.op_type.lower()}(&{name}_control, args, shapes, "
            "args[num_args - 1].v_int64, result);\n}\n"
        )


def _known(value: ir.Value) -> list[Dim]:
    unknown = set(late(value))
    return [dim for dim in dims(value) if unknown.isdisjoint(symbols(dim))]


def _array(kind: str, name: str, items: Any) -> str:
    return f"static const {kind} {name}[] = {{{', '.join(map(str, items)) or '0'}}};\n"
