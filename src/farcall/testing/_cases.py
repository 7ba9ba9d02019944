"""Models with inputs and expected outputs: ONNX's node tests, and variants of them.

The node tests are in the onnx package, and are generated in memory. Variants get their expected outputs from
onnx's reference evaluator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from farcall.graph import load_model
from farcall.graph.dims import dims

if TYPE_CHECKING:
    from farcall.backends.base import Backend
    from farcall.graph import Pattern
    from farcall.graph._pattern_text import Operator

Arrays = Sequence["np.ndarray[Any, Any]"]
_STEPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # from 1 to the next one
# Operands tell sizes or indices of others, or have their dims: with other sizes, they would be wrong.
_TIED = {"AffineGrid", "GatherElements", "ReverseSequence", "ScatterND", "TensorScatter"}
_LEAST = 1e-6  # absolute tolerance: the reference itself rounds


@dataclass(frozen=True)
class Case:
    """A model, and one or more runs of it: inputs in the order of the graph, and the outputs they give.

    ``operator`` is what the case is counted under: an operator, or a pattern of the backend.
    """

    name: str
    operator: str
    model: onnx.ModelProto = field(repr=False)
    runs: Sequence[tuple[Arrays, Arrays]] = field(repr=False)
    rtol: float = 1e-3
    atol: float = 1e-6

    @property
    def kinds(self) -> set[str]:
        """The operators of the model."""
        return {node.op_type for node in self.model.graph.node}

    def compare(self, run: int, got: Arrays) -> None:
        """Assert that outputs have the expected shapes, dtypes and, within the tolerances, values."""
        expected = self.runs[run][1]
        assert len(got) == len(expected), f"{len(got)} outputs, expected {len(expected)}"
        for i, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), (
                f"output {i} is {ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
            )
            step = _STEPS.get(theirs.dtype.name)
            if step is not None:  # numpy has no tolerance for bfloat16
                wide, other = (one.astype(np.float32) for one in (ours, theirs))
                rounded = 1 if len(self.model.graph.node) < 2 else 2  # each node rounds what it gives
                rtol = max(self.rtol, rounded * step)
                np.testing.assert_allclose(wide, other, rtol, self.atol, err_msg=f"output {i}")
            elif theirs.dtype.kind in "fc":
                np.testing.assert_allclose(ours, theirs, self.rtol, self.atol, err_msg=f"output {i}")
            elif theirs.dtype.kind == "V":  # float8 and the like, whose NaNs numpy does not know
                wide, other = (one.astype(np.float32) for one in (ours, theirs))
                np.testing.assert_array_equal(wide, other, err_msg=f"output {i}")
            else:
                np.testing.assert_array_equal(ours, theirs, err_msg=f"output {i}")


@cache
def node_cases() -> tuple[Case, ...]:
    """ONNX's node tests whose inputs and outputs are all tensors; made once in a process, in seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(action="ignore"):  # onnx makes its cases with numpy's warnings
        tests = load_model_tests(kind="node")
    return tuple(case for test in tests if (case := _node_case(test)) is not None)


def _node_case(test: Any) -> Case | None:
    nodes = test.model.graph.node
    operator = nodes[0].op_type if len(nodes) == 1 else ""
    try:
        runs = [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in test.data_sets]
    except TypeError:
        return None
    return Case(test.name, operator, test.model, runs, test.rtol, max(test.atol, _LEAST))


def _arrays(values: Sequence[object]) -> list[np.ndarray[Any, Any]]:
    if any(value is None or isinstance(value, list) for value in values):
        raise TypeError("a sequence or an optional value")
    return [
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
        for value in values
    ]


def evaluated(model: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """The outputs by onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in _fed(model)]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        found = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    return [np.asarray(value) for value in found]


def _fed(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    weights = {item.name for item in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


# ---- variants: each gives a case like another one, or None where that is impossible


def _edited(case: Case) -> onnx.ModelProto:
    """A copy of the model, whose outputs state no shapes: shape inference finds those of the variant."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = max(model.ir_version, 4)  # before, each initializer had to be an input, too
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _with_runs(case: Case, variant: str, model: onnx.ModelProto, feeds: Sequence[Arrays]) -> Case | None:
    """The case with another model and the runs that the reference can evaluate."""
    runs = []
    for inputs in feeds:
        try:
            runs.append((inputs, evaluated(model, inputs)))
        except Exception:  # noqa: S112 - the reference raises whatever its numpy code raises
            continue
    return replace(case, name=f"{case.name}, {variant}", model=model, runs=runs) if runs else None


def with_weights(case: Case) -> Case | None:
    """All inputs but the first are constants of the model."""
    fed, (inputs, outputs) = _fed(case.model), case.runs[0]
    if len(fed) < 2:
        return None
    model = _edited(case)
    model.graph.initializer.extend(
        numpy_helper.from_array(array, value.name) for value, array in zip(fed[1:], inputs[1:], strict=True)
    )
    names = {value.name for value in fed[1:]}
    kept = [value for value in model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return replace(case, name=f"{case.name}, weights", model=model, runs=[(inputs[:1], outputs)])


def varied(case: Case) -> Case:
    """A further run with other data: the float inputs, back to front.

    There is none if results then have other shapes, which the model may state: if scales change places, or if
    the reference makes results of other ranks than ONNX says, as of some definitions.
    """
    inputs = case.runs[0][0]
    other = [np.ascontiguousarray(np.flip(one)) if one.dtype.kind == "f" else one for one in inputs]
    feeds = [one.reshape(old.shape) for one, old in zip(other, inputs, strict=True)]  # numpy makes 0 dims 1
    further = _with_runs(case, "", case.model, [feeds])
    if further is None or _shapes(further) != _shapes(case):
        return case
    return replace(case, runs=[*case.runs[:1], *further.runs])


def _shapes(case: Case) -> list[tuple[int, ...]]:
    """The shape of each output in the first run."""
    return [np.shape(one) for one in case.runs[0][1]]


def symbolic(case: Case) -> Case | None:
    """The first dim is a symbol; runs at the size of the case, at twice that, and at 1."""
    return _if_open(_batches(case, "symbolic", lambda n: (n, 2 * n, 1), _symbol))


def empty(case: Case) -> Case | None:
    """The first dim is a symbol, and 0 when the model runs."""
    return _if_open(_batches(case, "empty", lambda n: (0,), _symbol))


def empty_static(case: Case) -> Case | None:
    """The first dim is 0 in the model."""
    return _batches(case, "empty, fixed size", lambda n: (0,), lambda dim: setattr(dim, "dim_value", 0))


def symbolic_with_weights(case: Case) -> Case | None:
    """The same, where the other inputs are constants."""
    return None if (constant := with_weights(case)) is None else symbolic(constant)


def empty_with_weights(case: Case) -> Case | None:
    """The same, where the other inputs are constants."""
    return None if (constant := with_weights(case)) is None else empty(constant)


def _if_open(case: Case | None) -> Case | None:
    """The case, unless another operand fixes the size: Add(x[batch, 5], w[3, 5]) makes the batch 3."""
    if case is None:
        return case
    inputs = load_model(case.model).graph.inputs
    return case if any(not isinstance(dim, int) for value in inputs for dim in dims(value)[:1]) else None


def _symbol(dim: Any) -> None:
    dim.dim_param = "batch"


def _batches(
    case: Case, variant: str, sizes: Callable[[int], Sequence[int]], declare: Callable[[Any], None]
) -> Case | None:
    """Inputs whose rank and first dim are those of the first input are cut or repeated along it."""
    inputs = case.runs[0][0]
    if not inputs or not inputs[0].shape or inputs[0].shape[0] == 0 or case.kinds & _TIED:
        return None
    batched = [one.ndim == inputs[0].ndim and one.shape[0] == inputs[0].shape[0] for one in inputs]
    model = _edited(case)
    for value, is_batched in zip(_fed(model), batched, strict=True):
        if is_batched:
            declare(value.type.tensor_type.shape.dim[0])
    feeds = [
        [np.resize(x, (n, *x.shape[1:])) if cut else x for x, cut in zip(inputs, batched, strict=True)]
        for n in sizes(inputs[0].shape[0])
    ]
    return _with_runs(case, variant, model, feeds)


def twice(case: Case) -> Case | None:
    """The nodes are there twice, and read the same constants and the same inputs."""
    constant = with_weights(case) or case
    model = _edited(constant)
    made = {name for node in model.graph.node for name in node.output if name}
    copies = [_renamed(node, made) for node in model.graph.node]
    model.graph.node.extend(copies)
    for value in list(model.graph.output):
        again = model.graph.output.add()
        again.CopyFrom(value)
        again.name = f"{value.name}_again"
    inputs, outputs = constant.runs[0]
    return replace(
        constant, name=f"{case.name}, constants twice", model=model, runs=[(inputs, [*outputs, *outputs])]
    )


def _renamed(node: onnx.NodeProto, made: set[str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = f"{node.name}_again" if node.name else ""
    copy.input[:] = [f"{name}_again" if name in made else name for name in node.input]
    copy.output[:] = [f"{name}_again" if name else "" for name in node.output]
    return copy


def chained(case: Case) -> Case | None:
    """The nodes are applied to their own result; both results are outputs."""
    (inputs, outputs), fed = case.runs[0], _fed(case.model)
    if not fed or (inputs[0].shape, inputs[0].dtype) != (outputs[0].shape, outputs[0].dtype):
        return None
    model = _edited(case)
    made = {name for node in model.graph.node for name in node.output if name}
    copies = [_renamed(node, made) for node in model.graph.node]
    for node in copies:
        node.input[:] = [model.graph.output[0].name if name == fed[0].name else name for name in node.input]
    model.graph.node.extend(copies)
    last = model.graph.output.add()
    last.CopyFrom(model.graph.output[0])
    last.name = f"{last.name}_again"
    return _with_runs(case, "chained", model, [inputs])


# ---- patterns


def pattern_cases(backend: Backend) -> Iterator[Case]:
    """Cases for the patterns of a backend: node tests of the innermost operator, with the others around it.

    Operands beside the chain of operators are constants of the shape that the chain has there. An operator
    with two operators as operands gets no case.
    """
    for pattern in backend.patterns():
        for root in pattern.roots:
            chain = _chain(root)
            if len(chain) == 1:
                continue  # the node tests themselves
            for domain, kind in sorted(chain[-1].kinds):
                if domain in ("", "ai.onnx"):
                    bases = (case for case in node_cases() if case.operator == kind)
                    yield from filter(None, (_wrapped(case, pattern, chain) for case in bases))


def _chain(root: Operator) -> list[Operator]:
    """The operators from the outermost to the innermost, each an operand of the one before."""
    from farcall.graph._pattern_text import Operator

    chain = [root]
    while inner := [one for one in chain[-1].operands if isinstance(one, Operator)]:
        chain.append(inner[0])
    return chain


def _wrapped(case: Case, pattern: Pattern, chain: Sequence[Operator]) -> Case | None:
    model = _edited(case)
    names = _names(chain[-1], model)
    for i, operator in enumerate(reversed(chain[:-1])):  # from the inside out
        if not _wrap(model, operator, names, case.runs[0][0], i):
            return None
    named = replace(case, name=f"{pattern.name} of {case.name}", operator=pattern.name)
    return _with_runs(named, "pattern", model, [case.runs[0][0]])


def _names(innermost: Operator, model: onnx.ModelProto) -> dict[str, str]:
    """The pattern's names for the inputs of the base."""
    from farcall.graph._pattern_text import Operand

    pairs = zip(innermost.operands, model.graph.node[0].input, strict=False)
    return {part.name: name for part, name in pairs if isinstance(part, Operand) and part.name != "_"}


def _wrap(
    model: onnx.ModelProto, operator: Operator, names: Mapping[str, str], inputs: Arrays, depth: int
) -> bool:
    """Apply an operator to the first output of the model; False: the reference cannot compute it so far."""
    from farcall.graph._pattern_text import Number, Operand, Operator

    try:
        value = evaluated(model, inputs)[0]
    except Exception:
        return False
    last, operands = model.graph.output[0].name, []
    for i, part in enumerate(operator.operands):
        if isinstance(part, Operator):
            operands.append(last)
        elif isinstance(part, Operand) and part.name in names:
            operands.append(names[part.name])
        elif isinstance(part, Number) or not (part.optional or part.rest):
            data = np.full(value.shape, 0.5) if isinstance(part, Operand) else np.array(part.value)
            operands.append(f"weight_{depth}_{i}")
            model.graph.initializer.append(numpy_helper.from_array(data.astype(value.dtype), operands[-1]))
    _, kind = min(operator.kinds)
    settings = dict(operator.attributes)
    model.graph.node.append(helper.make_node(kind, operands, [f"outer_{depth}"], **settings))
    del model.graph.output[1:]
    model.graph.output[0].name = f"outer_{depth}"
    return True
