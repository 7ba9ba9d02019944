"""Test cases: models of one operator, compared with the ONNX reference evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .harness import Compiled, compile_regions, whole_region

OPSET = 21


@dataclass
class Case:
    """A node, the data of its operands in order, and which operands are constants of the model."""

    op: str
    operands: Sequence[np.ndarray | None]
    attributes: Mapping[str, object] = field(default_factory=dict)
    constants: Sequence[int] = ()
    opset: int = OPSET
    outputs: int = 1
    symbolic: Mapping[int, Sequence[str | int | None]] = field(
        default_factory=dict
    )  # operand -> declared dims
    shapes: Mapping[int, Sequence[str | int]] = field(default_factory=dict)  # output -> declared dims
    rtol: float = 1e-5
    atol: float = 1e-6

    def model(self) -> onnx.ModelProto:
        names = [f"x{i}" if item is not None else "" for i, item in enumerate(self.operands)]
        outs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, outs, name=f"{self.op}_node", **self.attributes)
        results = [helper.make_empty_tensor_value_info(name) for name in outs]
        inputs = [
            helper.make_tensor_value_info(
                names[i], helper.np_dtype_to_tensor_dtype(item.dtype), self.symbolic.get(i, item.shape)
            )
            for i, item in enumerate(self.operands)
            if item is not None and i not in self.constants
        ]
        data = [numpy_helper.from_array(self.operands[i], names[i]) for i in self.constants]
        graph = helper.make_graph([node], "g", inputs, results, data)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model)
        for result, found in zip(model.graph.output, inferred.graph.output, strict=True):
            result.type.CopyFrom(found.type)
            shape = self.shapes.get(outs.index(result.name))
            if shape is not None:  # operands that are not constants decide it
                result.CopyFrom(helper.make_tensor_value_info(result.name, self._kind(found), shape))
        return model

    @staticmethod
    def _kind(found: onnx.ValueInfoProto) -> int:
        return found.type.tensor_type.elem_type or TensorProto.FLOAT

    def names(self) -> list[str]:
        return [
            f"x{i}" for i, item in enumerate(self.operands) if item is not None and i not in self.constants
        ]

    def feeds(self, values: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        values = self.operands if values is None else values
        return [item for i, item in enumerate(values) if item is not None and i not in self.constants]

    def expected(self, values: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        values = self.operands if values is None else values
        feeds = {f"x{i}": v for i, v in enumerate(values) if v is not None and i not in self.constants}
        with (
            np.errstate(all="ignore"),
            warnings.catch_warnings(action="ignore"),
        ):  # of the reference
            return [np.asarray(item) for item in ReferenceEvaluator(self.model()).run(None, feeds)]


def check(cases: Sequence[Case], flags: Sequence[str] = ("-O1",)) -> list[Compiled]:
    """Compile all cases into one library, and compare each with the reference."""
    regions = [whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)]
    compiled = compile_regions(regions, flags=flags)
    for case, item in zip(cases, compiled, strict=True):
        named = dict(zip(case.names(), case.feeds(), strict=True))
        compare(case, item(*(named[str(value.name)] for value in item.region.inputs)), case.expected())
    return compiled


def compare(case: Case, got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Assert equal dtypes, dims and values."""
    shapes = [getattr(item, "shape", None) for item in case.operands]
    what = f"{case.op} {dict(case.attributes)} opset {case.opset} {shapes}"
    assert len(got) == len(expected), what
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype, what
        assert ours.shape == theirs.shape, what
        np.testing.assert_allclose(ours, theirs, rtol=case.rtol, atol=case.atol, err_msg=what)


def refusal(case: Case) -> str:
    """The reason why the backend refuses the case's node."""
    from farcall.backends.c import CBackend
    from farcall.graph import load_model

    (node,) = load_model(case.model()).graph
    reason = CBackend().check(node)
    assert reason is not None, f"{case.op} is taken"
    return reason
