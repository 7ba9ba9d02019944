"""The script that built affine.so, once: every later version must read that artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import farcall as fc


def main() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    weights = [
        numpy_helper.from_array(np.arange(8, dtype="float32").reshape(4, 2) - 3, "w"),
        numpy_helper.from_array(np.array([0.5, -0.5], "float32"), "b"),
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "affine", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    built = fc.partition(model, backends=["c"]).build(target="x86_64-linux-gnu")
    built.save(Path(__file__).with_name("affine.so"))


if __name__ == "__main__":
    main()
