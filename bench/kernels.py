"""Single operators, in models of one node: what ``bench_kernels`` measures, beside other engines.

Both operands of a matrix product are inputs, as those of a BLAS library are; nothing is packed before a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.networks import CASES, Arrays, Case, random
from bench.zoo import ZOO

PEAK = "FMA peak"  # the rival that only counts operations
PRODUCTS = (1, 4, 16, 64, 256, 1024, 4096)
LARGE = 256  # from this size on, a product is near the peak
DEPTHWISE = {7: 960, 14: 480, 28: 240, 56: 144, 112: 32}  # planes, and channels as in mobile networks
ROWS = (256, 1024)
FUNCTIONS = {"Softmax": 13, "Gelu": 20, "Tanh": 13, "Sigmoid": 13}  # the opsets that define them


def _model(
    node: onnx.NodeProto,
    inputs: Mapping[str, Sequence[int]],
    output: Sequence[int],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    constants = [numpy_helper.from_array(data, name) for name, data in (weights or {}).items()]
    graph = helper.make_graph([node], "kernel", infos, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _product(n: int) -> Case:
    def model() -> onnx.ModelProto:
        return _model(helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": [n, n], "b": [n, n]}, [n, n])

    def inputs() -> Arrays:
        return [random(n, n), random(n, n) + 1]

    beside = {"OpenBLAS": 1 / 0.9, **({PEAK: 1 / 0.85} if n >= LARGE else {})}
    return Case(
        model,
        {"": inputs},
        {"": 1.0},
        beside=beside,
        numpy=np.matmul,
        operations=2 * n**3 if n >= LARGE else 0,
    )


def _depthwise(plane: int, channels: int, side: int) -> Case:
    shape = [1, channels, plane, plane]

    def model() -> onnx.ModelProto:
        attributes: dict[str, Any] = {"group": channels, "pads": [side // 2] * 4}
        node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
        return _model(node, {"x": shape}, shape, {"w": random(channels, 1, side, side)})

    return Case(model, {"": lambda: [random(*shape)]}, {"": 1.0})


def _function(name: str, opset: int) -> Case:
    def model() -> onnx.ModelProto:
        return _model(helper.make_node(name, ["x"], ["y"]), {"x": ROWS}, ROWS, opset=opset)

    return Case(model, {"": lambda: [random(*ROWS)]}, {"": 0.9})


KERNELS: dict[str, Case] = {
    **{f"product {n}x{n}x{n}": _product(n) for n in PRODUCTS},
    **{
        f"depthwise {side}x{side}, {channels} planes {plane}x{plane}": _depthwise(plane, channels, side)
        for side in (3, 5)
        for plane, channels in DEPTHWISE.items()
    },
    **{f"{name} {ROWS[0]}x{ROWS[1]}": _function(name, opset) for name, opset in FUNCTIONS.items()},
}
ALL = CASES | ZOO | KERNELS
