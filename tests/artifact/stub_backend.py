"""A backend with hand-written C, so that these tests test only the artifact room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from farcall.artifact._plan import Plan
from farcall.backends.base import Backend, RegionCode
from farcall.graph import Region, cut, load_model
from farcall.graph.dims import dims, product
from farcall.toolchain import Target

HEAD = """#include <farcall/c_api.h>
static int64_t count(const TVMFFIAny* any) {
  const DLTensor* t = any->v_ptr;
  int64_t n = 1;
  for (int i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}
#define DATA(i) ((float*)((const DLTensor*)args[i].v_ptr)->data)
"""


class Stub(Backend):
    """Elementwise Add, Mul, Neg and Abs of float32 tensors of equal shape (or a scalar on the right)."""

    def __init__(self, name: str = "stub", ops: Sequence[str] = ("Add", "Mul", "Neg", "Abs")) -> None:
        self.name = name
        self.ops = ops

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type in self.ops else f"only {', '.join(self.ops)}"

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        """Each value inside the region gets a separate part of the workspace."""
        arguments = [*region.inputs, *region.outputs]
        text = {value: f"DATA({i})" for i, value in enumerate(arguments)}
        constants: dict[str, np.ndarray] = {}
        for k, value in enumerate(region.constants):
            name = f"{region.name}_w{k}"
            constants[name] = value.const_value.numpy()
            text[value] = f"((const float*)(const void*){name})"
        inside = [value for node in region.nodes for value in node.outputs if value not in text]
        size = product(dims(region.outputs[0]))
        for k, value in enumerate(inside):
            text[value] = f"(ws + {k} * n)"
        lines = [self._line(node, text) for node in region.nodes]
        declarations = "".join(f"extern const unsigned char {name}[];\n" for name in constants)
        body = "".join(f"  for (int64_t i = 0; i < n; ++i) {line}\n" for line in lines)
        workspace = f"  float* ws = args[{len(arguments)}].v_ptr;\n" if inside else ""
        source = (
            f"{HEAD}{declarations}FARCALL_KERNEL({region.name}) {{\n"
            f"  int64_t n = count(&args[{len(region.inputs)}]);\n{workspace}{body}  return 0;\n}}\n"
        )
        return RegionCode({f"{region.name}.c": source}, constants, size * 4 * len(inside))

    def _line(self, node: ir.Node, text: Mapping[ir.Value, str]) -> str:
        out = f"{text[node.outputs[0]]}[i]"
        values = [value for value in node.inputs if value is not None]
        operands = [f"{text[value]}[{'0' if dims(value) == () else 'i'}]" for value in values]
        match node.op_type:
            case "Neg":
                return f"{out} = -{operands[0]};"
            case "Abs":
                return f"{out} = {operands[0]} < 0 ? -{operands[0]} : {operands[0]};"
            case "Add":
                return f"{out} = {operands[0]} + {operands[1]};"
        return f"{out} = {operands[0]} * {operands[1]};"


def model(
    nodes: Sequence[tuple[str, str, str]],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, np.ndarray] | None = None,
    name: str = "small",
) -> onnx.ModelProto:
    """A float32 model; a node is ``(operator, "a b", "y")``."""
    graph = helper.make_graph(
        [helper.make_node(op, ins.split(), outs.split()) for op, ins, outs in nodes],
        name,
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in outputs.items()],
        [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def plan(proto: onnx.ModelProto, *backends: Backend) -> Plan:
    """A plan of ``proto`` for stub backends, without looking at entry points."""
    from farcall.artifact._plan import _describe

    chosen = backends or (Stub(),)
    loaded = load_model(proto)
    return Plan(cut(loaded, chosen), {b.name: b for b in chosen}, _describe(proto, loaded))
