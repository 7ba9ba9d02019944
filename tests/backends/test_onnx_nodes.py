"""ONNX's backend tests, for every model whose operators the C backend implements.

A model passes, or is listed with a reason in ``tests/onnx_node_xfails.txt``. A listed model that passes,
and a refused model that is not listed, is a failure: the list only shrinks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from farcall.backends.c._families import OPERATORS
from farcall.errors import ModelError

from .harness import NATIVE, Compiled, compile_regions, whole_region

XFAILS = Path(__file__).resolve().parents[1] / "onnx_node_xfails.txt"
DATA = Path(onnx.__file__).parent
FOREIGN = {"Constant"}  # becomes an initializer


@dataclass
class Outcome:
    """The outcomes of the cases of one kind."""

    passed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def listed() -> dict[str, str]:
    """Case -> reason."""
    lines = (line.partition("#")[::2] for line in XFAILS.read_text().splitlines() if line and line[0] != "#")
    return {name.strip(): reason.strip() for name, reason in lines}


def model_of(case: TestCase) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    if case.model_dir is not None:
        return onnx.load(Path(case.model_dir) / "model.onnx")
    return onnx.load(DATA.parent / str(case.url))


def claimed(model: onnx.ModelProto) -> bool:
    kinds = {(node.domain, node.op_type) for node in model.graph.node}
    return all(domain in ("", "ai.onnx") and op in {*OPERATORS, *FOREIGN} for domain, op in kinds)


def tensor(item: object) -> np.ndarray:
    if isinstance(item, Path):
        proto = onnx.TensorProto()
        proto.ParseFromString(item.read_bytes())
        return numpy_helper.to_array(proto)
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else np.asarray(item)


def data_of(case: TestCase) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Inputs and outputs."""
    if case.data_sets:
        for inputs, outputs in case.data_sets:
            yield [tensor(item) for item in inputs], [tensor(item) for item in outputs]
    elif case.model_dir is not None:
        for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
            yield tuple([tensor(p) for p in sorted(folder.glob(f"{w}_*.pb"))] for w in ("input", "output"))  # type: ignore[misc]
    else:  # the light models: a ramp, as onnx's own runner feeds them
        path = DATA.parent / str(case.url)
        ramp = np.arange(3 * 224 * 224).reshape(1, 3, 224, 224) / (3 * 224 * 224)
        yield [ramp.astype(np.float32)], [tensor(path.with_name(path.stem + "_output_0.pb"))]


def run_case(case: TestCase, model: onnx.ModelProto, region: Compiled) -> None:
    weights = {item.name for item in model.graph.initializer}
    names = [item.name for item in model.graph.input if item.name not in weights]
    known = {value.name: value.const_value.numpy() for value in region.folded}
    for inputs, outputs in data_of(case):
        feeds = dict(zip(names, inputs, strict=True))
        got = region(*(feeds[str(value.name)] for value in region.region.inputs))
        found = {**known, **dict(zip([value.name for value in region.region.outputs], got, strict=True))}
        for value, expected in zip(model.graph.output, outputs, strict=True):
            result = found[value.name]
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype), value.name
            np.testing.assert_allclose(result, expected, rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-6))


def run_all(cases: Sequence[TestCase], flags: Sequence[str] = ("-O1",)) -> Outcome:
    outcome = Outcome()
    taken = []
    for case in cases:
        model = model_of(case)
        if not claimed(model):
            continue
        try:
            taken.append((case, model, whole_region(model, name=f"c_{len(taken)}")))
        except ModelError as error:
            outcome.refused[case.name] = " | ".join(str(error).splitlines())
    compiled = compile_regions([region for _, _, region in taken], flags=flags)
    for (case, model, _), region in zip(taken, compiled, strict=True):
        try:
            run_case(case, model, region)
        except (AssertionError, RuntimeError) as error:
            outcome.failed[case.name] = str(error)
        else:
            outcome.passed.append(case.name)
    return outcome


@pytest.fixture(scope="module")
def node_outcome() -> Outcome:
    with warnings.catch_warnings(action="ignore"):  # onnx makes its cases with numpy's warnings
        cases = load_model_tests(kind="node")
    return run_all(cases, ["-O0"])  # a thousand files: the time goes into the compiler


def test_nodes_pass_or_are_listed(node_outcome: Outcome) -> None:
    known = listed()
    failed = {name: text for name, text in node_outcome.failed.items() if name not in known}
    assert not failed
    unlisted = {name: why for name, why in node_outcome.refused.items() if name not in known}
    assert not unlisted


def test_the_list_only_shrinks(node_outcome: Outcome) -> None:
    known = listed()
    assert sorted(known.keys() & set(node_outcome.passed)) == [], "take these off the list"
    gone = known.keys() - set(node_outcome.passed) - node_outcome.refused.keys() - node_outcome.failed.keys()
    assert not gone, "these are no cases of this version of onnx"
    assert all(known.values()), "each has a reason"


def test_a_refusal_gives_the_reason(node_outcome: Outcome) -> None:
    assert all("c: " in why for why in node_outcome.refused.values())


def test_nodes_that_must_pass(node_outcome: Outcome) -> None:
    """A guard against a harness that runs nothing."""
    assert len(node_outcome.passed) >= 774


@pytest.mark.parametrize(
    ("kind", "least"), [("simple", 6), ("pytorch-converted", 78), ("pytorch-operator", 30)]
)
def test_models(kind: str, least: int) -> None:
    outcome = run_all(load_model_tests(kind=kind))
    assert not outcome.failed
    assert len(outcome.passed) >= least


def test_light_models() -> None:
    """Whole networks; their weights are fills, their outputs come with onnx."""
    cases = [
        case
        for case in load_model_tests(kind="real")
        if case.model_name in ("squeezenet", "shufflenet", "densenet121")
    ]
    outcome = run_all(cases, ["-O2", *NATIVE])
    assert not outcome.failed
    assert len(outcome.passed) == 3
