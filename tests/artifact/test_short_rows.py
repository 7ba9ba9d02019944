"""Short rows with conditions, at the flags of builds: gcc 12 vectorized the loops around them wrongly."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import farcall as fc


@pytest.mark.filterwarnings("ignore")
def test_conditions_in_rows_of_known_length() -> None:
    """For each length, two PRelu of which the second depends on the first; both results are read."""
    rng = np.random.default_rng(0)
    lengths = (2, 3, 5, 8, 10, 13, 14, 16)
    parts, inputs, weights, expected = [], [], {}, []
    for n in lengths:
        x, slope, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, n), (8, n), (n,)))
        parts.append(f"a{n} = PRelu(x{n}, s{n}) b{n} = PRelu(a{n}, t{n}) m{n} = ReduceMin<keepdims=0>(a{n})")
        inputs.append(x)
        weights |= {f"s{n}": slope, f"t{n}": second}
        a = np.where(x < 0, slope * x, x)
        expected += [a.min(), np.where(a < 0, second * a, a)]
    takes = ", ".join(f"float[8, {n}] x{n}" for n in lengths)
    gives = ", ".join(f"float m{n}, float[8, {n}] b{n}" for n in lengths)
    head = f'<ir_version: 9, opset_import: ["" : 19]> rows ({takes}) => ({gives})'
    model = onnx.parser.parse_model(f"{head} {{ {' '.join(parts)} }}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(data, name) for name, data in weights.items())
    results = fc.partition(model, backends=["c"]).build().load()["main"](*inputs)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(np.from_dlpack(ours), theirs, rtol=1e-6)
