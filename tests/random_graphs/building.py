"""Random ONNX graphs, node by node: each node is computed when it is added, so that every graph is valid.

onnxruntime computes the nodes one at a time, without its optimizer; ``onnx.reference`` those that it lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .guards import SKIPS, Refused, Skip, guard

FLOATS = tuple(map(np.dtype, ("float32", "float64", "float16")))
INTEGERS = tuple(map(np.dtype, ("int64", "int32", "int8", "uint8", "int16", "uint32", "uint16", "uint64")))
BOOL = np.dtype(bool)
LARGEST = 1e4  # of the elements: longer numbers lose their digits in float16
ELEMENTS = 4096  # of a tensor


@dataclass
class Step:
    """A node, and how it is computed. ``outer`` are the values that graphs inside of it read.

    ``before`` are nodes that only this one reads: all of them are computed as one, by onnxruntime's optimizer
    if the step is ``fused``.
    """

    node: onnx.NodeProto
    opset: int
    outer: tuple[str, ...] = ()
    before: tuple[onnx.NodeProto, ...] = ()
    fused: bool = False

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        return [*self.before, self.node]

    @property
    def reads(self) -> list[str]:
        made = {name for node in self.before for name in node.output}
        given = [name for node in self.nodes for name in node.input if name and name not in made]
        return list(dict.fromkeys((*given, *self.outer)))

    def model(self, arrays: Sequence[np.ndarray], shaped: bool = False) -> onnx.ModelProto:
        """The node alone, for inputs of these types, and of these shapes if it is to be ``shaped``."""
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape if shaped else None
            )
            for name, array in zip(self.reads, arrays, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.node.output if name]
        return _model(helper.make_graph(self.nodes, "node", inputs, outputs), self.opset)

    def validate(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises: Skip, if ONNX does not allow the node for these types; onnxruntime allows more."""
        if self.node.op_type in _ROUGH and arrays[0].dtype == np.float64:
            raise Skip("nothing to compare with")
        if self._is_of_microsoft():
            return  # ONNX's inference does not know it
        model = self.model(arrays, shaped=True)
        try:
            found = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except onnx.shape_inference.InferenceError as error:
            raise Skip(str(error)) from error
        kinds = [value.type.tensor_type.elem_type for value in found.graph.output]
        if not all(kinds) and self.node.domain != "ai.onnx.ml":
            raise Skip("ONNX infers no type")
        self.dtypes = [helper.tensor_dtype_to_np_dtype(kind) if kind else None for kind in kinds]

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The outputs.

        Raises:
            Skip: nothing here computes the node.
        """
        for node in self.before:
            guard(node, arrays[:1])
        given = dict(zip(self.reads, arrays, strict=True))  # each once, if the node reads it twice
        guard(self.node, arrays if self.before else [given[name] for name in self.node.input if name])
        try:
            run = self._run(arrays)
            found = run(dict(zip(self.reads, arrays, strict=True)))
        except Exception as error:  # whatever the packages raise
            limited = self.node.op_type == "Resize"  # onnxruntime lacks some forms of it
            limited |= "Computed output dimension" in str(error)  # of a ConvTranspose: 0, which it refuses
            kind = Skip if self._made is None or self._by_reference or limited else Refused
            raise kind(f"{self.node.op_type}: {error}") from error
        return self._checked(found)

    def stretched(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The outputs for operands that onnxruntime refuses, where numpy's broadcasting gives them a meaning.

        Raises:
            Refused: it does not.
        """
        try:
            if self._is_of_microsoft():
                return self(*stretch(self.node, arrays))
            feeds = dict(zip(self.reads, arrays, strict=True))
            return self._checked(ReferenceEvaluator(self.model(arrays)).run(None, feeds))
        except Exception as error:  # whatever the packages raise
            kind = Skip if "not implemented" in str(error) else Refused
            raise kind(f"{self.node.op_type}: {error}") from error

    def _is_of_microsoft(self) -> bool:
        return self.node.domain == "com.microsoft" or self.node.op_type == "SimplifiedLayerNormalization"

    def _checked(self, found: Sequence[Any]) -> list[np.ndarray]:
        if not all(isinstance(array, np.ndarray | np.generic) for array in found):
            raise Skip("a sequence, or nothing")
        if any(kind not in (None, array.dtype) for kind, array in zip(self.dtypes, found, strict=False)):
            raise Skip("of another type than ONNX infers")
        return [np.asarray(array) for array in found]

    def _run(self, arrays: Sequence[np.ndarray]) -> Callable[[dict[str, np.ndarray]], list[Any]]:
        if self._made is None:
            model = self.model(arrays)
            try:
                if self.node.op_type == "DFT":
                    raise Skip("onnxruntime loses three digits where the length is no power of two")
                session = onnxruntime.InferenceSession(
                    model.SerializeToString(), _options(self.fused), ["CPUExecutionProvider"]
                )
                self._made = lambda feeds: session.run(None, feeds)
            except Exception:  # it has not this type, or not its precision
                if _picks_nearest(self.node):
                    return self._pick(arrays)
                if _is_wrong_in_reference(self.node):
                    raise
                evaluator, self._by_reference = ReferenceEvaluator(model), True
                self._made = lambda feeds: evaluator.run(None, feeds)
        return self._made

    def _pick(self, arrays: Sequence[np.ndarray]) -> Callable[[dict[str, np.ndarray]], list[Any]]:
        """Take the elements whose numbers onnxruntime resizes: places do not depend on the elements' type.

        The reference computes them in float64, and has another neighbour where two are almost equally near.
        """
        numbers = Step(self.node, self.opset)
        data = self.node.input[0]

        def run(feeds: dict[str, np.ndarray]) -> list[Any]:
            array = feeds[data]
            at = np.arange(array.size, dtype=np.int32).reshape(array.shape)
            operands = [at if name == data else feeds[name] for name in self.reads]
            (found,) = numbers._run(operands)(dict(zip(self.reads, operands, strict=True)))
            return [array.ravel()[found]]

        return run

    dtypes: Sequence[np.dtype | None] = field(default=(), repr=False)
    _by_reference: bool = field(default=False, repr=False)
    _made: Callable[[dict[str, np.ndarray]], list[Any]] | None = field(default=None, repr=False)


@functools.cache
def _options(fused: bool) -> onnxruntime.SessionOptions:
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if fused else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return options


DOMAINS = {"ai.onnx.ml": 3, "com.microsoft": 1, "ai.onnx.preview.training": 1}


def _model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    others = {node.domain for node in graph.node if node.domain}
    imports = [helper.make_opsetid(domain, DOMAINS[domain]) for domain in sorted(others)]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *imports], ir_version=10)


@dataclass
class Graph:
    """A graph with the arrays of its inputs and constants."""

    seed: int
    opset: int
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    types: dict[str, np.dtype] = field(default_factory=dict)
    symbols: dict[str, dict[int, str]] = field(default_factory=dict)  # of inputs: axes and names of dims
    loose: bool = False  # whether each dim has a name of its own, so that inputs may come that do not fit
    fixed: set[str] = field(default_factory=set)  # inputs without symbols: weights

    def model(self) -> onnx.ModelProto:
        """The graph as ONNX."""
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype),
                [self.symbols.get(name, {}).get(axis, size) for axis, size in enumerate(array.shape)],
            )
            for name, array in self.inputs.items()
        ]  # fmt: skip
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        outputs = [  # the shapes are farcall's to infer
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(self.types[name]), None)
            for name in self.outputs
        ]
        nodes = [node for step in self.steps for node in step.nodes]
        graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
        return _model(graph, self.opset)

    def compute(
        self,
        inputs: dict[str, np.ndarray],
        blur: np.random.Generator | None = None,
        stretching: bool = False,
    ) -> dict[str, np.ndarray]:
        """All values. With ``blur``, every one is moved by a rounding error or two.

        With ``stretching``, operands that onnxruntime refuses may broadcast.

        Raises:
            Skip: a node cannot be computed, or gives what nobody defines.
        """
        values = {**inputs, **self.constants}
        if blur is not None:
            values = {name: blurred(array, blur) for name, array in values.items()}
        for step in self.steps:
            arrays = [values[name] for name in step.reads]
            if blur is not None and step.node.op_type == "GroupNormalization":
                arrays = [blurred(array, blur, np.float32) for array in arrays]  # it begins with a Cast
            try:
                found = step(*arrays)
            except Refused:
                if not stretching:
                    raise
                found = step.stretched(*arrays)
            if blur is None:
                check(step.node, arrays, found)
            else:
                if step.node.op_type == "Unique" and blur.random() < 0.5:
                    found = _joined(step, arrays, found)
                longest = np.float32 if step.node.op_type in _SINGLE else np.float64
                found = [blurred(array, blur, longest) for array in found]
                if step.node.op_type == "Sigmoid":
                    found = [_roughly(one, blur) for one in found]
                if step.node.op_type == "Equal":
                    found = [_perhaps_equal(found[0], arrays[0], arrays[-1], blur)]
                if size := _cancels(step.node, arrays):
                    found = [cancelled(one, blur, longest, size) for one in found]
            values.update(zip(filter(None, step.node.output), found, strict=True))
        return values

    def without(self, name: str, array: np.ndarray) -> Graph:
        """The graph with that value as an input."""
        made = Graph(self.seed, self.opset, {**self.inputs, name: array}, dict(self.constants))
        made.steps = [step for step in self.steps if name not in step.node.output]
        made.outputs, made.types, made.symbols = list(self.outputs), self.types, self.symbols
        return made.pruned()

    def pruned(self) -> Graph:
        """Without what no output needs."""
        needed, kept = set(self.outputs), []
        for step in reversed(self.steps):
            if needed.intersection(step.node.output):
                kept.append(step)
                needed.update(step.reads)
        self.steps = kept[::-1]
        self.inputs = {name: array for name, array in self.inputs.items() if name in needed}
        self.constants = {name: array for name, array in self.constants.items() if name in needed}
        return self


# Operators that the reference computes wrongly: global pools of fewer axes, results that loops stack, the
# softmax family before opset 13, OneHot, whose "on" value is a sum of differences there, and Unique along an
# axis, in the order of appearance.
_WRONG_IN_REFERENCE = {
    "OneHot",
    "Unique",
    "GlobalMaxPool",
    "GlobalAveragePool",
    "If",
    "Loop",
    "Hardmax",
    "Softmax",
    "LogSoftmax",
}


def _is_wrong_in_reference(node: onnx.NodeProto) -> bool:
    given = {item.name: item for item in node.attribute}
    match node.op_type:
        case "ConvTranspose":  # each group gets the first ones' weights and biases
            return "group" in given and given["group"].i > 1
        case "LSTM" | "GRU" | "RNN":  # lengths and clips do nothing
            return "clip" in given or any(node.input[4:5])
        case "AveragePool" | "LpPool":  # a half of what a last window lacks is put in front
            return "ceil_mode" in given
        case "Resize":  # to one element, from half an element before the first
            modes = given.get("coordinate_transformation_mode")
            return modes is not None and modes.s == b"pytorch_half_pixel"
        case op:
            return op in _WRONG_IN_REFERENCE


_RECURRENT = {"LSTM", "GRU", "RNN"}
_EXPONENTIAL = {"Elu", "Selu", "Celu"}  # onnxruntime computes exp(x) - 1, with few digits near zero
_LOGARITHMS = {"LogSoftmax", "SoftmaxCrossEntropyLoss", "ReduceLogSum", "ReduceLogSumExp"}  # of a sum near 1


def _roughly(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Results of a Sigmoid, all too large or all too small: onnxruntime's is right to so many digits of 1."""
    eps = np.finfo(array.dtype).eps * rng.choice([-1, 1])
    return np.maximum(array + (eps * rng.uniform(0, 1, array.shape)).astype(array.dtype), array.dtype.type(0))


def _perhaps_equal(found: np.ndarray, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whether floats are equal; either way for those that are apart by rounding errors only."""
    if a.dtype.kind != "f":
        return found
    near = np.abs(a - b) <= 32 * np.finfo(a.dtype).eps * np.maximum(np.abs(a), np.abs(b))
    return np.where(near, rng.random(found.shape) < 0.5, found)


_MOST_PARTS = 64  # of Unique, which are compared with each other


def _joined(step: Step, arrays: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The results of Unique, fewer if floats that are apart by rounding errors only are one."""
    axes = [item.i for item in step.node.attribute if item.name == "axis"]
    x = arrays[0].copy()
    parts = np.moveaxis(x, axes[0], 0) if axes else x.reshape(-1)
    if x.dtype.kind != "f" or len(parts) > _MOST_PARTS:
        return found
    near = 64 * float(max(np.finfo(x.dtype).eps, np.finfo(np.float32).eps)) * _largest(x)
    for part in range(1, len(parts)):
        for other in parts[:part]:
            if np.abs(parts[part] - other).max(initial=0) <= near:
                parts[part] = other
                break
    fewer = step(x)
    return fewer if fewer[0].shape != found[0].shape else found


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0)) if array.dtype.kind in "fiu" else 0.0


def _cancels(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> float:
    """How large the numbers are whose differences are a node's zeros: those at the ends of windows, for
    example, or of mixtures. 0 if they are no differences.
    """
    if node.op_type in _EXPONENTIAL:
        factors = [helper.get_attribute_value(item) for item in node.attribute]
        return float(np.prod([2, *np.maximum(np.abs(factors), 1)]))
    if node.op_type in _RECURRENT:  # sums of products, before a function that leaves what is near zero
        sizes = dict(zip(dict.fromkeys(filter(None, node.input)), map(_largest, inputs), strict=True))
        x, weights, recurrence = (sizes[name] for name in node.input[:3])
        return x * weights + recurrence
    if node.op_type == "Resize" and not _picks_nearest(node):
        return max(inputs[0].shape, default=1)
    return float(node.op_type in _LOGARITHMS or node.op_type.endswith(("Window", "Gelu")))


def _picks_nearest(node: onnx.NodeProto) -> bool:
    """Whether each result of a Resize is an element, rather than computed from some, or a number beside."""
    given = {item.name: item.s for item in node.attribute}
    return (
        node.op_type == "Resize"
        and given.get("mode", b"nearest") == b"nearest"
        and given.get("coordinate_transformation_mode") != b"tf_crop_and_resize"
    )


# Operators that onnxruntime or the reference computes in float32 for float64, or almost.
_ROUGH = {"Erf", "Gelu", "LRN", "Shrink"}
# Operators whose results in float64 are no better than float32. The reference has the scales of Resize in
# float32; ONNX's definitions have the variance of GroupNormalization, and factors of the others.
_SINGLE = {"Resize", "GroupNormalization", "Attention", "HardSwish"}


def blurred(
    array: np.ndarray, rng: np.random.Generator, longest: type[np.floating] = np.float64
) -> np.ndarray:
    """Floats moved by at most two units of the last place, or of that of ``longest`` if they are longer."""
    if array.dtype.kind != "f":
        return array
    eps = max(np.finfo(array.dtype).eps, np.finfo(longest).eps)
    with np.errstate(all="ignore"):
        moved = array * (1 + rng.uniform(-2, 2, array.shape) * float(eps))
        return np.asarray(moved.astype(array.dtype)).reshape(array.shape)


def cancelled(
    array: np.ndarray, rng: np.random.Generator, longest: type[np.floating], size: float = 1
) -> np.ndarray:
    """Floats moved by at most the rounding error of ``size``; of those that are no larger, some become 0."""
    eps = size * max(np.finfo(array.dtype).eps, np.finfo(longest).eps)
    moved = array + (eps * rng.uniform(-1, 1, array.shape)).astype(array.dtype)
    return np.where((np.abs(moved) < 4 * eps) & (rng.random(array.shape) < 0.5), array.dtype.type(0), moved)


_BY_LAST_AXIS = {"BiasGelu", "FastGelu", "SimplifiedLayerNormalization"}


def stretch(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The operands of an operator of ``com.microsoft``, broadcast to each other as its definition would.

    Raises:
        Refused: they do not broadcast.
    """
    x, *rest = inputs
    if node.op_type in _BY_LAST_AXIS or node.op_type in SKIPS:
        if node.op_type in SKIPS:
            x, rest[0] = (np.array(array) for array in np.broadcast_arrays(x, rest[0]))
        shape = np.broadcast_shapes(x.shape[-1:], *(array.shape[-1:] for array in rest))
        rest = [np.broadcast_to(array, (*array.shape[:-1], *shape)) for array in rest]
        return [np.array(array) for array in (np.broadcast_to(x, (*x.shape[:-1], *shape)), *rest)]
    raise Refused(f"{node.op_type}: its operands do not broadcast")


def check(node: onnx.NodeProto, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Raises: Skip, for results that ONNX leaves open, or that are too large to be compared."""
    for array in outputs:
        if array.size > ELEMENTS or array.ndim > 6:
            raise Skip("large")
        if array.dtype.kind not in "fiub":
            raise Skip("type")
        if array.dtype.kind == "f" and array.size and not np.abs(array).max() <= LARGEST:
            raise Skip("not finite, or long numbers")
    if node.op_type in ("Cast", "CastLike") and inputs[0].dtype.kind == "f":
        target = outputs[0].dtype
        if target.kind in "iu" and inputs[0].size:
            info = np.iinfo(target)
            if float(inputs[0].min()) <= info.min - 1 or float(inputs[0].max()) >= info.max:
                raise Skip("a cast that ONNX does not define")
    is_whole = inputs and inputs[0].dtype.kind in "iu"
    if node.op_type == "ReduceMean" and is_whole and _overflows(inputs[0]):
        raise Skip("a mean whose sum is no number of its type")


def _overflows(array: np.ndarray) -> bool:
    """Whether the sum of integers may be no number of their type."""
    return bool(np.abs(array.astype(np.float64)).sum() >= np.iinfo(array.dtype).max)


class Builder:
    """Makes one graph. ``new``, ``pick`` and ``emit`` are what makers of nodes use."""

    def __init__(self, seed: int, opset: int, attempt: int = 0) -> None:
        self.rng = np.random.default_rng([seed, attempt, 20261123])
        self.graph = Graph(seed, opset)
        self.values: dict[str, np.ndarray] = {}
        self.opset = opset
        self.dtype = FLOATS[int(self.rng.choice([0, 0, 0, 0, 0, 0, 1, 2]))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one(self, choices: Sequence[Any]) -> Any:
        if not len(choices):
            raise Skip("no choice")
        return choices[int(self.rng.integers(len(choices)))]

    def size(self) -> int:
        return 0 if self.chance(0.02) else int(self.one((1, 2, 2, 3, 3, 4, 5, 7, 8, 14, 16, 17)))

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        while True:
            shape = tuple(self.size() for _ in range(int(self.rng.integers(low, high + 1))))
            if np.prod(shape) <= ELEMENTS / 4:
                return shape

    def data(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        if dtype == BOOL:
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype.kind == "f":
            data = self.rng.standard_normal(shape)
            return np.asarray(np.round(data * 4) / 4 if self.chance(0.2) else data).astype(dtype)
        return self.rng.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)

    def new(self, shape: Sequence[int], dtype: np.dtype | None = None, constant: bool | None = None) -> str:
        """A new input or constant."""
        array = self.data(shape, dtype or self.dtype)
        if constant is None:
            constant = self.chance(0.4)
        alike = [
            name
            for name, other in self.graph.constants.items()
            if other.shape == array.shape and other.dtype == array.dtype and other.dtype.kind == "f"
        ]
        if constant and alike and self.chance(0.3):
            return str(self.one(alike))
        return self.const(array) if constant else self.add(self.graph.inputs, self.name("x"), array)

    def weight(self, shape: Sequence[int]) -> str:
        """A new input or constant whose dims get no symbols."""
        name = self.new(shape)
        self.graph.fixed.add(name)
        return name

    def const(self, array: Any, dtype: Any = None) -> str:
        return self.add(self.graph.constants, self.name("k"), np.asarray(array, dtype))

    def ints(self, *numbers: int) -> str:
        return self.const(np.array(numbers, np.int64))

    def name(self, kind: str, number: int = 0) -> str:
        """A name that no other graph has, which begins with ``k`` for constants."""
        return f"{kind}{len(self.values) + number}_{self.graph.seed}"

    def add(self, table: dict[str, np.ndarray], name: str, array: np.ndarray) -> str:
        table[name] = self.values[name] = array
        return name

    def pick(self, fits: Callable[[np.ndarray], bool] = lambda _: True, low: int = 0, high: int = 4) -> str:
        """A value of the graph of that many axes, or a new one."""

        def good(array: np.ndarray) -> bool:
            return low <= array.ndim <= high and fits(array)

        names = [name for name, array in self.values.items() if name[0] != "k" and good(array)]
        if names and self.chance(0.9):
            return str(names[-1] if self.chance(0.5) else self.one(names))
        for _ in range(20):
            dtypes = (self.dtype, self.dtype, *INTEGERS[:2], BOOL, self.one(INTEGERS))
            array = self.data(self.shape(low, high), self.one(dtypes))
            if good(array):
                return self.add(self.graph.inputs, self.name("x"), array)
        raise Skip("nothing fits")

    def floats(self, low: int = 0, high: int = 4) -> str:
        return self.pick(lambda array: array.dtype == self.dtype, low, high)

    def like(self, name: str, broadcasts: bool = True) -> str:
        """A second operand: of that type, and of a shape that broadcasts with that one."""
        array = self.values[name]
        if self.chance(0.4):
            fitting = [
                other
                for other, value in self.values.items()
                if value.dtype == array.dtype and other[0] != "k"
                if _broadcast(array.shape, value.shape, broadcasts)
            ]
            if fitting:
                return str(self.one(fitting))
        shape = array.shape
        if broadcasts:
            shape = tuple(1 if self.chance(0.3) else size for size in shape)
            shape = shape[int(self.rng.integers(0, len(shape) + 1)) if self.chance(0.3) else 0 :]
        return self.new(shape, array.dtype)

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        count: int = 1,
        outer: Sequence[str] = (),
        before: Sequence[onnx.NodeProto] = (),
        fused: bool = False,
        **more: Any,
    ) -> list[str]:
        """Add a node, with ``before`` as in :class:`Step`.

        Raises:
            Skip: it cannot be computed, or its results cannot be compared.
        """
        names = [self.name("y", i) for i in range(count)]
        attributes = {name: value for name, value in more.items() if value is not None}
        step = Step(
            helper.make_node(op, list(inputs), names, name=f"{op}_{names[0]}", **attributes),
            self.opset,
            tuple(outer),
            tuple(before),
            fused,
        )
        arrays = [self.values[name] for name in step.reads]
        step.validate(arrays)
        found = step(*arrays)
        check(step.node, arrays, found)
        self.graph.steps.append(step)
        self.values.update(zip(names, found, strict=True))
        self.graph.types.update((name, array.dtype) for name, array in zip(names, found, strict=True))
        return names

    def hide(self, names: Sequence[str]) -> None:
        """No further node reads these values, whose zeros are rounding errors elsewhere."""
        for name in names:
            self.values[name] = np.array("hidden")

    def finish(self) -> Graph:
        """The graph: its outputs are what no node reads, and some others."""
        read = {name for step in self.graph.steps for name in step.reads}
        made = [name for step in self.graph.steps for name in step.node.output]
        self.graph.outputs = [name for name in made if name not in read or self.chance(0.1)]
        graph = self.graph.pruned()
        if self.chance(0.4):  # dims of equal size have one name, or each has its own
            graph.loose = self.chance(0.3)
            for name, array in graph.inputs.items():
                if name in graph.fixed:
                    continue
                graph.symbols[name] = {
                    axis: f"n{size}_{axis}_{name}" if graph.loose else f"n{size}_{graph.seed}"
                    for axis, size in enumerate(array.shape)
                    if (size > 2 and self.chance(0.6)) or (graph.loose and size > 1)  # 1 may be stretched
                }
        return graph


def _broadcast(one: Sequence[int], other: Sequence[int], broadcasts: bool) -> bool:
    if not broadcasts:
        return tuple(one) == tuple(other)
    try:
        np.broadcast_shapes(tuple(one), tuple(other))
    except ValueError:
        return False
    return True
