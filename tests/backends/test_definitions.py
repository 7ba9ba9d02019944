"""ONNX's definitions of operators, in partitioned models, give what ONNX's tests of the operators expect.

A backend refuses the operator of a test and takes all others; ONNX's reference evaluator runs what comes out.
So every dtype and opset of those tests is covered, also where the backend ``c`` has the operator itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.backend.test.case.test_case import TestCase
from onnx.reference import ReferenceEvaluator

from farcall.backends.c import CBackend
from farcall.errors import ModelError
from farcall.graph import cut

from ..graph.graphs import OpBackend
from .harness import compile_regions, whole_region
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


ATTENTION = {
    "keys and values of earlier calls": """
        (float[b,4,s,8] q, float[b,4,s,8] k, float[b,4,s,8] v, float[b,4,p,8] before, float[b,4,p,8] past)
        => (float[b,4,s,8] y, float[b,4,u,8] keys, float[b,4,u,8] values) {
            y, keys, values = Attention<is_causal=1>(q, k, v, , before, past) }""",
    "fewer heads of keys": """
        (float[b,s,32] q, float[b,t,16] k, float[b,t,16] v, float[s,t] mask) => (float[b,s,32] y) {
            y = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v, mask) }""",
    "rotated": """
        (float[b,4,s,8] x, float[b,s,4] c, float[b,s,4] n) => (float[b,4,s,8] y) {
            y = RotaryEmbedding(x, c, n) }""",
    "normalized groups": """
        (float[b,8,s,t] x, float[8] w, float[8] bias) => (float[b,8,s,t] y) {
            y = GroupNormalization<num_groups=4>(x, w, bias) }""",
}


class CWithout(CBackend):
    def __init__(self, operator: str) -> None:
        super().__init__()
        self._without = operator

    def check(self, node: ir.Node) -> str | None:
        return "is left out" if node.op_type == self._without else super().check(node)


def test_definitions_over_symbols() -> None:
    head = '<ir_version: 10, opset_import: ["": 23]> g'
    models = [onnx.parser.parse_model(f"{head} {text}") for text in ATTENTION.values()]
    regions = [
        whole_region(model, CWithout(model.graph.node[0].op_type), f"c_{index}")
        for index, model in enumerate(models)
    ]
    rng = np.random.default_rng(3)
    for model, compiled in zip(models, compile_regions(regions, flags=["-O0"]), strict=True):
        assert len(compiled.region.nodes) > 1
        for sizes in ({"b": 2, "s": 3, "t": 5, "p": 4}, {"b": 1, "s": 1, "t": 1, "p": 0}):
            feeds = {
                info.name: rng.standard_normal(
                    [dim.dim_value or sizes[dim.dim_param] for dim in dims], np.float32
                )
                for info in model.graph.input
                for dims in [info.type.tensor_type.shape.dim]
            }
            expected = ReferenceEvaluator(model).run(None, feeds)
            found = compiled(*(feeds[str(value.name)] for value in compiled.region.inputs))
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
