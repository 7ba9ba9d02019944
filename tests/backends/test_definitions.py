"""ONNX's definitions of operators, in partitioned models, give what ONNX's tests of the operators expect.

A backend refuses the operator of a test and takes all others; ONNX's reference evaluator runs what comes out.
So every dtype and opset of those tests is covered, also where the backend ``c`` has the operator itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import onnx
import onnx_ir as ir
import pytest
from onnx.backend.test.case.test_case import TestCase
from onnx.reference import ReferenceEvaluator

from farcall.errors import ModelError
from farcall.graph import cut

from ..graph.graphs import OpBackend
from .onnx_nodes import Call, cases_of, check_case, model_of

# The reference evaluator gives the scalars that a Loop collects a dim of 1 more; it does so in ONNX's own
# expanded tests of Range, too.
WRONG_IN_THE_REFERENCE = {"Range"}


class Without(OpBackend):
    """Takes all operators but one."""

    allocates = True

    def __init__(self, operator: str) -> None:
        super().__init__("most")
        self._without = operator

    def check(self, node: ir.Node) -> str | None:
        return "is left out" if node.op_type == self._without else None


def definitions() -> Iterator[tuple[TestCase, onnx.ModelProto, onnx.ModelProto]]:
    """Cases of one node; the model, and the partitioned model, in which its definition replaced the node."""
    for case in cases_of("node"):
        model = model_of(case)
        operator = model.graph.node[0].op_type
        if len(model.graph.node) > 1 or operator in WRONG_IN_THE_REFERENCE or not is_defined(model):
            continue
        try:
            partition = cut(model, [Without(operator)])
        except ModelError:
            continue
        if partition.expansions:
            yield case, model, ir.to_proto(partition.to_model())


def is_defined(model: onnx.ModelProto) -> bool:
    (node,) = model.graph.node
    versions = {item.domain: item.version for item in model.opset_import}
    schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
    return schema.has_function or schema.has_context_dependent_function


def called(model: onnx.ModelProto) -> Call:
    evaluator = ReferenceEvaluator(model)

    def call(*inputs: object) -> list[object]:
        return list(evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True))))

    return call


def is_right(case: TestCase, model: onnx.ModelProto) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):  # of numpy, about NaN
            check_case(case, called(model))
    except (AssertionError, RuntimeError, TypeError, ValueError):
        return False
    return True


def check(cases: list[tuple[TestCase, onnx.ModelProto, onnx.ModelProto]], least: int) -> None:
    wrong = [
        case.name
        for case, model, partitioned in cases
        if not is_right(case, partitioned) and is_right(case, model)
    ]
    assert not wrong
    for _, _, partitioned in cases:
        onnx.checker.check_model(partitioned)
    assert len(cases) >= least


def test_one_case_of_each_operator() -> None:
    first = {}
    for item in definitions():
        first.setdefault(item[1].graph.node[0].op_type, item)
    check(list(first.values()), 38)


@pytest.mark.slow
def test_all_cases() -> None:
    check(list(definitions()), 400)
