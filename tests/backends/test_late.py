"""Shapes that are known only when the model runs: the backend ``c`` allocates such outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.errors import UsageError

SELECT = """g (float[n, 4] x) => (int64[r, k] at, float[k, 1] z, float[n, 4] w)
 <int64 one = {1}, int64[1] last = {1}>
 { a = Relu (x)
   [nz] at = NonZero (a)
   s = Shape (at)
   length = Gather (s, one)
   f = Cast <to = 1> (length)
   t = Transpose (at)
   c = Cast <to = 1> (t)
   rows = ReduceSum <keepdims = 1> (c, last)
   z = Div (rows, f)
   w = Neg (x) }"""


def model(graph: str, opset: int = 22) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}')


def results(main: Any, feeds: Sequence[Any]) -> list[np.ndarray]:
    got = main(*feeds)
    return [np.asarray(one) for one in (got if isinstance(got, list | tuple) else [got])]


def same_as_reference(main: Any, graph: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(graph).run(None, dict(feeds))
    for one, other in zip(results(main, list(feeds.values())), expected, strict=True):
        assert (one.shape, one.dtype) == (np.shape(other), np.asarray(other).dtype)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def rows(n: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)}


def test_sizes_from_the_data_here_in_threads_on_a_server_and_reloaded(tmp_path: Path) -> None:
    graph = model(SELECT)
    plan = fc.partition(graph)
    assert plan.regions[0].nodes[-1].op_type == "NonZero"  # what reads it is in a later region
    artifact = plan.build()
    assert str(artifact.manifest.functions["main"].signature) == (
        "(x: float32[n, 4]) -> (int64[2, at_dim1], float32[at_dim1, 1], float32[n, 4])"
    )
    path = artifact.save(tmp_path / "m.so")
    module = fc.load_module(path)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: same_as_reference(module["main"], graph, rows(n)), [5, 0, 1, 9, 3, 5]))
    relu = np.maximum(rows(3)["x"], 0)
    np.testing.assert_array_equal(module["c_0"](rows(3)["x"]), np.nonzero(relu))  # a region alone
    with fc.rpc.Server() as server, fc.connect(server.url) as session:
        far = session.load_module(path)["main"]
        for one, other in zip(far(rows(6)["x"]), module["main"](rows(6)["x"]), strict=True):
            np.testing.assert_array_equal(one.numpy(), np.asarray(other))


def test_a_call_may_take_so_many_bytes() -> None:
    """8 rows are all positive: NonZero gives 2 * 32 int64, and what follows needs some more."""
    plan = fc.partition(model(SELECT))
    x = np.ones((8, 4), np.float32)
    with pytest.raises(
        MemoryError, match=r"NonZero `nz`: .*int64\[2, 32\], 512 bytes; .*511 more of 511; .*`late_b"
    ):
        plan.build(late_bytes=511).load()["main"](x)
    main = plan.build(late_bytes=512).load()["main"]
    with pytest.raises(
        MemoryError, match=r"after NonZero `nz`, it needs \d+ bytes with n=8, at_dim1=32; .*0 more of 512"
    ):
        main(x)
    assert results(main, [0 * x])[0].shape == (2, 0)
    with pytest.raises(UsageError, match="late_bytes=-1: expected a number of bytes"):
        plan.build(late_bytes=-1)
