"""Many single operators beside onnxruntime, one thread each, in one process: where a loop lost its vectors.

``bench_kernels`` measures the operators that models spend their time in, more exactly. This one is wide: few
rounds, no limits, and the slowest beside onnxruntime come first. ``FARCALL_BENCH_MODELS`` (patterns of names,
with commas) chooses some.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import farcall as fc
from bench.bench_models import is_chosen
from bench.harness import Row, in_turn, rows_of
from bench.rivals import onnxruntime

ROUNDS = 9
OPSET = 22
GRID, ROWS = "float[512,512]", "float[256,1024]"
PLANES = {28: 192, 56: 128, 112: 64}  # sides of planes, and their number

UNARY = (
    "Abs Acos Asin Asinh Atan Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN "
    "LeakyRelu Mish Neg Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh ThresholdedRelu"
)
POSITIVE = "Log Reciprocal Sqrt Acosh"
BINARY = "Add Sub Mul Div Max Min Mean Sum PRelu Less Greater Equal LessOrEqual GreaterOrEqual"
REDUCTIONS = "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp"
OTHERS = {
    # name: types and names of the inputs; what is computed, with constants as <type name = {elements}>
    "Pow, a square": (f"{GRID} x", "Pow(x, <float two = {2}>)"),
    "Pow": (f"{GRID} p, {GRID} q", "Pow(p, q)"),
    "Mod, fmod": (f"{GRID} x, {GRID} p", "Mod<fmod=1>(x, p)"),
    "Mod, int32": ("int32[512,512] i, int32[512,512] j", "Mod(i, j)"),
    "Add, a row": (f"{GRID} x, float[512] z", "Add(x, z)"),
    "Add, a column": (f"{GRID} x, float[512,1] z", "Add(x, z)"),
    "Where": (f"bool[512,512] c, {GRID} x, {GRID} z", "Where(c, x, z)"),
    "Clip": (f"{GRID} x, float lowest, float highest", "Clip(x, lowest, highest)"),
    "CumSum": (f"{ROWS} x", "CumSum(x, <int64 axis = {1}>)"),
    "ArgMax, last axis": (f"{ROWS} x", "ArgMax<axis=1>(x)"),
    "ArgMax, first axis": (f"{ROWS} x", "ArgMax<axis=0>(x)"),
    "TopK": (f"{ROWS} x", "TopK(x, <int64[1] k = {10}>)"),
    "Hardmax": (f"{ROWS} x", "Hardmax(x)"),
    "Softmax": (f"{ROWS} x", "Softmax(x)"),
    "LogSoftmax": (f"{ROWS} x", "LogSoftmax(x)"),
    "Softmax, first axis": (f"{ROWS} x", "Softmax<axis=0>(x)"),
    "LayerNormalization": (f"{ROWS} x, float[1024] w, float[1024] b", "LayerNormalization(x, w, b)"),
    "LpNormalization": (f"{ROWS} x", "LpNormalization(x)"),
    "InstanceNormalization": (
        "float[1,64,56,56] x, float[64] w, float[64] b",
        "InstanceNormalization(x, w, b)",
    ),
    "LRN": ("float[1,64,56,56] x", "LRN<size=5>(x)"),
    "GlobalAveragePool": ("float[1,256,28,28] x", "GlobalAveragePool(x)"),
    "GlobalMaxPool": ("float[1,256,28,28] x", "GlobalMaxPool(x)"),
    "Transpose": (f"{ROWS} x", "Transpose(x)"),
    "Transpose, heads": ("float[1,128,12,64] x", "Transpose<perm=[0,2,1,3]>(x)"),
    "Concat, last axis": (f"{GRID} x, {GRID} z", "Concat<axis=1>(x, z)"),
    "Slice": (f"{GRID} x", "Slice(x, <int64[2] s = {3, 5}>, <int64[2] e = {500, 500}>)"),
    "Slice, every second": (
        f"{GRID} x",
        "Slice(x, <int64[1] s = {0}>, <int64[1] e = {512}>, <int64[1] a = {1}>, <int64[1] d = {2}>)",
    ),
    "Gather": ("float[1000,384] x, int64[256] i", "Gather(x, i)"),
    "Gather, last axis": (f"{GRID} x, int64[256] i", "Gather<axis=1>(x, i)"),
    "GatherElements": (f"{GRID} x, int64[512,512] i", "GatherElements<axis=1>(x, i)"),
    "ScatterElements": (f"{GRID} x, int64[512,16] i, float[512,16] z", "ScatterElements<axis=0>(x, i, z)"),
    "Expand": ("float[512,1] x", "Expand(x, <int64[2] to = {512, 512}>)"),
    "Tile": ("float[128,128] x", "Tile(x, <int64[2] times = {4, 4}>)"),
    "Pad": ("float[1,64,56,56] x", "Pad(x, <int64[8] p = {0,0,1,1,0,0,1,1}>)"),
    "Resize, nearest": (
        "float[1,64,28,28] x",
        'Resize<mode="nearest">(x, , <float[4] by = {1,1,2,2}>)',
    ),
    "Resize, linear": ("float[1,64,28,28] x", 'Resize<mode="linear">(x, , <float[4] by = {1,1,2,2}>)'),
    "Resize, cubic": ("float[1,64,28,28] x", 'Resize<mode="cubic">(x, , <float[4] by = {1,1,2,2}>)'),
    "DepthToSpace": ("float[1,64,56,56] x", "DepthToSpace<blocksize=2>(x)"),
    "SpaceToDepth": ("float[1,64,56,56] x", "SpaceToDepth<blocksize=2>(x)"),
    "Trilu": (f"{GRID} x", "Trilu(x)"),
    "OneHot": ("int64[512] i", "OneHot(i, <int64 n = {512}>, <float[2] v = {0, 1}>)"),
    "Einsum": ("float[64,128,32] x, float[64,32,128] z", 'Einsum<equation="bij,bjk->bik">(x, z)'),
    "Cast to float16": (f"{GRID} x", "Cast<to=10>(x)"),
    "Cast from float16": ("float16[512,512] x", "Cast<to=1>(x)"),
    "Cast to int32": (f"{GRID} x", "Cast<to=6>(x)"),
    "Cast to int64": (f"{GRID} x", "Cast<to=7>(x)"),
    "Cast from int64": ("int64[512,512] i", "Cast<to=1>(i)"),
    "QuantizeLinear": (f"{GRID} x", "QuantizeLinear(x, <float s = {0.1}>, <uint8 zero = {128}>)"),
    "DequantizeLinear": ("uint8[512,512] i", "DequantizeLinear(i, <float s = {0.1}>, <uint8 zero = {128}>)"),
    "DynamicQuantizeLinear": (f"{GRID} x", "DynamicQuantizeLinear(x)"),
    "MatMulInteger": ("uint8[128,256] i, int8[256,256] w", "MatMulInteger(i, w)"),
    "MatMul, weights": ("float[128,384] x, float[384,384] w", "MatMul(x, w)"),
    "MatMul, one row": ("float[1,1024] x, float[1024,1024] w", "MatMul(x, w)"),
    "MatMul, a batch": ("float[12,128,64] x, float[12,64,128] z", "MatMul(x, z)"),
    "Gemm, both transposed": ("float[256,128] x, float[256,256] w", "Gemm<transA=1,transB=1>(x, w)"),
    "Conv 3x3": ("float[1,64,56,56] x, float[64,64,3,3] w", "Conv<pads=[1,1,1,1]>(x, w)"),
    "Conv 3x3/2": ("float[1,64,56,56] x, float[64,64,3,3] w", "Conv<pads=[1,1,1,1],strides=[2,2]>(x, w)"),
    "Conv 3x3, dilated": (
        "float[1,64,56,56] x, float[64,64,3,3] w",
        "Conv<pads=[2,2,2,2],dilations=[2,2]>(x, w)",
    ),
    "Conv 1x1": ("float[1,64,56,56] x, float[128,64,1,1] w", "Conv(x, w)"),
    "Conv 5x5": ("float[1,32,56,56] x, float[64,32,5,5] w", "Conv<pads=[2,2,2,2]>(x, w)"),
    "Conv 7x7/2": ("float[1,3,224,224] x, float[64,3,7,7] w", "Conv<pads=[3,3,3,3],strides=[2,2]>(x, w)"),
    "Conv 3x3, 4 groups": ("float[1,64,56,56] x, float[64,16,3,3] w", "Conv<pads=[1,1,1,1],group=4>(x, w)"),
    "Conv 3, 1-d": ("float[1,64,1024] x, float[64,64,3] w", "Conv<pads=[1,1]>(x, w)"),
    "Conv 3x3x3": ("float[1,16,16,28,28] x, float[16,16,3,3,3] w", "Conv<pads=[1,1,1,1,1,1]>(x, w)"),
    "ConvTranspose 2x2/2": (
        "float[1,64,28,28] x, float[64,32,2,2] w",
        "ConvTranspose<strides=[2,2]>(x, w)",
    ),
    "LSTM": ("float[32,1,64] x, float[1,512,64] w, float[1,512,128] r", "LSTM<hidden_size=128>(x, w, r)"),
    "GRU": ("float[32,1,64] x, float[1,384,64] w, float[1,384,128] r", "GRU<hidden_size=128>(x, w, r)"),
}
RESULTS = {"LSTM": 3, "GRU": 2, "TopK": 2, "DynamicQuantizeLinear": 3}  # how many, where it is more than one
WEIGHTS = {"w", "b", "r"}  # the inputs that are constants
CONSTANT = re.compile(r"<(\w+(?:\[\d+\])? (\w+) = \{[^}]*\})>")


def _operators() -> dict[str, tuple[str, str]]:
    """The inputs and the expression of each, by its name."""
    found = {name: (f"{GRID} x", f"{name}(x)") for name in UNARY.split()}
    found |= {name: (f"{GRID} u", f"{name}(u)") for name in ("Acos", "Asin", "Atanh")}
    found |= {name: (f"{GRID} p", f"{name}(p)") for name in POSITIVE.split()}
    for title, types in (("", GRID), (", a number", "float")):
        found |= {name + title: (f"{GRID} x, {types} z", f"{name}(x, z)") for name in BINARY.split()}
    for name in REDUCTIONS.split():
        for axis, title in enumerate(("first", "last")):
            call = f"Reduce{name}(p, <int64[1] axes = {{{axis}}}>)"
            found[f"Reduce{name}, {title} axis"] = f"{ROWS} p", call
    for side, planes in PLANES.items():
        for name in ("MaxPool", "AveragePool"):
            for size, pad, stride in ((2, 0, 2), (3, 1, 2), (3, 1, 1)):
                how = (
                    f"kernel_shape=[{size},{size}],pads=[{pad},{pad},{pad},{pad}],strides=[{stride},{stride}]"
                )
                types = f"float[1,{planes},{side},{side}] x"
                found[f"{name} {size}x{size}/{stride}, planes {side}x{side}"] = types, f"{name}<{how}>(x)"
    return found | OTHERS


def _random(value: onnx.ValueInfoProto) -> np.ndarray:
    """Values for an input. Its name says which ones the operator can take."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    random, name = np.random.default_rng(sum(map(ord, value.name))), value.name
    if dtype.kind != "f":
        least, beyond = (0, 2) if dtype.kind == "b" else (1, 100)
        return random.integers(least, beyond, shape).astype(dtype)
    if name in ("lowest", "highest"):
        return np.array(-1 if name == "lowest" else 1, dtype)
    if name == "u":
        return random.uniform(-1, 1, shape).astype(dtype)
    return (random.uniform(1, 2, shape) if name in ("p", "q") else random.standard_normal(shape)).astype(
        dtype
    )


def _model(name: str, types: str, call: str) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """A model of the one operator, and what it is fed with."""
    body, constants = CONSTANT.sub(r"\2", call), ", ".join(text for text, _ in CONSTANT.findall(call))
    results = ", ".join(f"y{number}" for number in range(RESULTS.get(name, 1)))
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {OPSET}]>
        kernel ({types}) => ({results}) <{constants}> {{ {results} = {body} }}"""
    )
    given = {value.name: _random(value) for value in model.graph.input}
    fed = [value for value in model.graph.input if value.name not in WEIGHTS]
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(given[name], name) for name in given if name in WEIGHTS
    )
    del model.graph.input[:]
    model.graph.input.extend(fed)
    return onnx.shape_inference.infer_shapes(model), [given[value.name] for value in fed]


def _measure(name: str, types: str, call: str) -> list[Row]:
    model, inputs = _model(name, types, call)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        main = fc.partition(path).build().load()["main"]
        contenders = {
            "farcall": partial(main, *inputs, threads=1),
            "onnxruntime": partial(onnxruntime(path, name, 1), *inputs),
        }
        return rows_of(name, in_turn(contenders, ROUNDS, time.process_time))


def run() -> list[Row]:
    """A row for each operator that both compute, the worst ratio first."""
    result: list[Row] = []
    for name, (types, call) in _operators().items():
        if is_chosen(name):
            try:
                result += _measure(name, types, call)
            except Exception as error:  # onnxruntime has many kinds
                print(f"  {name}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
    return sorted(result, key=lambda row: -(row.ratio or 0))
