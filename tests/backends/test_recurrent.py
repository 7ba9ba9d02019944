"""LSTM, GRU and RNN against onnxruntime; what it lacks (layout 1), against the reference evaluator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import farcall as fc

from .cases import Case, check, compare
from .harness import Compiled, compile_regions, whole_region

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUT, HIDDEN = 7, 3, 5, 19


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def case(
    op: str,
    attributes: dict[str, object] | None = None,
    *,
    lengths: Sequence[int] = (),
    states: bool = False,
    peepholes: bool = False,
    bias: bool = True,
    constants: Sequence[int] = (1, 2),
    layout: int = 0,
) -> Case:
    attributes = {"hidden_size": HIDDEN, **(attributes or {})}
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    width = GATES[op] * HIDDEN
    x = normal(BATCH, STEPS, INPUT) if layout else normal(STEPS, BATCH, INPUT)
    state = (BATCH, count, HIDDEN) if layout else (count, BATCH, HIDDEN)
    operands: list[np.ndarray | None] = [
        x,
        normal(count, width, INPUT, seed=1) / 2,
        normal(count, width, HIDDEN, seed=2) / 4,
        normal(count, 2 * width, seed=3) / 2 if bias else None,
        np.int32(lengths) if lengths else None,
        normal(*state, seed=4) if states else None,
    ]
    if op == "LSTM":
        operands.append(normal(*state, seed=5) if states else None)
        operands.append(normal(count, 3 * HIDDEN, seed=6) if peepholes else None)
    while operands[-1] is None:
        operands.pop()
    if layout:
        attributes["layout"] = 1
    outputs = 3 if op == "LSTM" else 2
    return Case(op, operands, attributes, constants, outputs=outputs, rtol=1e-4, atol=1e-5)


def by_onnxruntime(one: Case, operands: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        one.model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = zip(one.names(), one.feeds(operands), strict=True)
    return [np.asarray(item) for item in session.run(None, dict(feeds))]


def run(one: Case, item: Compiled, operands: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    named = dict(zip(one.names(), one.feeds(operands), strict=True))
    return item(*(named[str(value.name)] for value in item.region.inputs))


def compiled(cases: Sequence[Case]) -> list[Compiled]:
    return compile_regions([whole_region(one.model(), name=f"c_{i}") for i, one in enumerate(cases)])


def test_directions_states_lengths_and_clips() -> None:
    cases = []
    for op in GATES:
        cases += [
            case(op),
            case(op, {"direction": "reverse"}, states=True, constants=()),
            case(op, {"direction": "bidirectional", "clip": 0.3}, states=True),
            case(op, {"direction": "bidirectional"}, lengths=[7, 2, 5], states=True),
            case(op, bias=False),
        ]
    cases += [
        case("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}, lengths=[3, 7, 1]),
        case("GRU", {"linear_before_reset": 1}, bias=False),
        case("LSTM", peepholes=True, states=True),
        case("LSTM", {"input_forget": 1, "direction": "bidirectional", "clip": 0.7}, peepholes=True),
    ]
    for one, item in zip(cases, compiled(cases), strict=True):
        compare(one, run(one, item, one.operands), by_onnxruntime(one, one.operands))


def test_activations() -> None:
    cases = []
    for name in ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "Affine", "LeakyRelu", "ThresholdedRelu",
                 "ScaledTanh", "HardSigmoid", "Elu"):  # fmt: skip
        parameters = {"activation_alpha": [0.4], "activation_beta": [0.3]}
        cases.append(case("RNN", {"activations": [name], **parameters}))
    lists = {"activations": ["HardSigmoid", "Tanh", "LeakyRelu"], "activation_alpha": [0.1, 0.2]}
    cases.append(case("LSTM", {**lists, "activation_beta": [0.6]}))
    for one, item in zip(cases, compiled(cases), strict=True):
        compare(one, run(one, item, one.operands), by_onnxruntime(one, one.operands))


def test_layout_1() -> None:
    check([case(op, {"direction": "bidirectional"}, states=True, layout=1) for op in GATES])


def test_symbolic_steps_and_batch() -> None:
    cases = [
        dataclasses.replace(case(op, {"direction": "bidirectional"}), symbolic={0: ["steps", "batch", INPUT]})
        for op in GATES
    ]
    for one, item in zip(cases, compiled(cases), strict=True):
        for steps, batch in ((1, 1), (13, 2), (2, 9)):
            operands = [normal(steps, batch, INPUT, seed=8), *one.operands[1:]]
            compare(one, run(one, item, operands), by_onnxruntime(one, operands))
        y, *states = run(one, item, [normal(0, 2, INPUT), *one.operands[1:]])
        assert y.size == 0 and not any(state.any() for state in states)


def test_lengths_are_checked() -> None:
    one = case("GRU", lengths=[7, 0, 5])
    (item,) = compiled([one])
    y, last = run(one, item, one.operands)
    assert not y[:, 0, 1].any() and not last[0, 1].any() and y[:5, 0, 2].all()
    for wrong in (-1, STEPS + 1):
        with pytest.raises(RuntimeError):
            run(one, item, [*one.operands[:4], np.int32([1, wrong, 1])])


def test_a_width_that_only_the_call_knows_is_that_of_the_weights() -> None:
    """The data is as wide as every second element of an axis."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[2, 1, n] x, float[1, 4, 3] w, float[1, 4, 4] r) => (float[?, ?, ?, ?] y)
    <int64[1] first = {0}, int64[1] last = {1000}, int64[1] axis = {2}, int64[1] step = {2}> {
      every = Slice (x, first, last, axis, step)
      y = RNN <hidden_size = 4> (every, w, r)
    }""")
    rng = np.random.default_rng(3)
    x, w, r = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 1, 5), (1, 4, 3), (1, 4, 4)))
    main = fc.partition(model).build().load()["main"]
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x, "w": w, "r": r})
    np.testing.assert_allclose(np.from_dlpack(main(x, w, r)), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="pass arguments of other sizes"):
        main(np.zeros((2, 1, 9), np.float32), w, r)
