"""Models as text, whose constants get random values."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser


def parsed(text: str, seed: int = 3) -> onnx.ModelProto:
    """The model, in which each value that the text declares inside of the graph is a constant."""
    made = parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for item in made.graph.value_info:
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        is_float = item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        data = rng.standard_normal(shape).astype("f4") if is_float else rng.integers(-128, 128, shape, "i1")
        made.graph.initializer.append(onnx.numpy_helper.from_array(data, item.name))
    del made.graph.value_info[:]
    return made
