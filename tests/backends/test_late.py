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
from farcall.errors import ModelError, UsageError

from .late_graphs import random_inputs, random_model

ort = pytest.importorskip("onnxruntime")

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


NARROW = """g (float16[n, 4] x, bool[n] c, int64[2] s, int64[1] k) => (int64[r, m] a, float16[p, q] b,
 float16[t] d, float16[u, v] e, float16[i, j] f, float16[g, h] z, int64[g, h] at, int64[2, 1] first,
 int64[2, w] others)
 <int64[2] parts = {1, 6}>
 { a = NonZero (x)
   b = Compress <axis = 0> (x, c)
   d = Unique (x)
   e = Reshape (x, s)
   f = ConstantOfShape <value: tensor = float16[1] {2}> (s)
   z, at = TopK (x, k)
   first, others = Split <axis = 1> (a, parts) }"""


def test_narrow_floats_where_the_data_decides_sizes() -> None:
    graph = model(NARROW)
    main = fc.partition(graph).build().load()["main"]
    x = np.float16([[1, 0, 2.5, 0], [0, 2.5, 1, -7], [4, 0, 3, 0]])
    feeds = {"x": x, "c": np.array([True, False, True]), "s": np.int64([6, 2]), "k": np.int64([2])}
    same_as_reference(main, graph, feeds)
    feeds["x"] = np.abs(x) * np.float16([1, 0, 1, 1])
    with pytest.raises(ValueError, match=r"a_dim1.* 7.* with .*a_dim1=6"):
        main(*feeds.values())


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


# Operands that decide shapes are inputs of the model, so that no inference can follow them.
OPERANDS = """g (float[n, 4] x, int64[3] shape, int64[3] big, int64[2] wide, int64[1] one, int64[1] two,
  int64[2] lens, int64[4] ends, int64 from, int64 to, int64 by, float f, int64[2] axes, int64[2] steps,
  bool[4] mask, int64[1] k, int64 deep) =>
 (float[] reshaped, float[] expanded, float[] filled, float[] sliced, float[] stepped, float[] padded,
  float[] split, float[] split2, float[] widened, float[] squeezed, float[] kept, float[] dropped,
  int64[] counted, float[] floats, float[] some, float[] uq, int64[] ui, int64[] uv, int64[] uc, float[] ua,
  int64[] uac, float[] tiled, int64[] best, float[] ones, float[] crop)
 <float half = {0.5}, float[2] marks = {0, 1}>
 { reshaped = Reshape (x, shape)
   expanded = Expand (x, big)
   filled = ConstantOfShape <value = float[1] {2.5}> (wide)
   sliced = Slice (x, one, two, one)
   stepped = Slice (x, steps, wide, axes, steps)
   padded = Pad <mode = "edge"> (x, ends)
   split, split2 = Split <axis = 1> (x, lens)
   widened = Unsqueeze (x, one)
   row = ReduceMax <keepdims = 1> (x, one)
   squeezed = Squeeze (row, one)
   kept = ReduceSum <keepdims = 1> (x, one)
   dropped = ReduceLogSumExp <keepdims = 0> (x, one)
   counted = Range (from, to, by)
   floats = Range (f, half, f)
   some = Compress <axis = 1> (x, mask)
   r = Round (x)
   uq, ui, uv, uc = Unique (r)
   ua, a1, a2, uac = Unique <axis = 1, sorted = 0> (r)
   tiled = Tile (x, wide)
   v, best = TopK (x, k)
   ones = OneHot <axis = 0> (best, deep, marks)
   crop = CenterCropPad (x, wide) }"""
NAMES = ("shape", "big", "wide", "one", "two", "lens", "ends")
NUMBERS = ("from", "to", "by", "f", "axes", "steps", "mask", "k", "deep")
GIVEN: list[tuple[int, list[list[int]], list[Any]]] = [
    (
        3,
        [[0, 2, -1], [2, 1, 4], [2, 5], [1], [3], [1, 3], [1, 0, 2, 1]],
        [9, -4, -3, 0.125, [1, 0], [1, -1], [1, 0, 1, 1], [3], 2],
    ),
    (
        1,
        [[1, 2, 2], [3, 1, 4], [0, 3], [1], [4], [4, 0], [0] * 4],
        [0, 5, 1, -1.0, [-1, -2], [1, 2], [0, 0, 0, 0], [0], 1],
    ),
    (
        5,
        [[5, 1, 4], [1, 5, 1], [1, 4], [-1], [-1], [0, 4], [2, 3, 0, -1]],
        [4, 4, 7, 0.25, [0, 1], [-1, -2], [1, 1, 1, 1], [4], 4],
    ),
]


def operands(items: tuple[int, list[list[int]], list[Any]], **changed: Any) -> dict[str, np.ndarray]:
    kinds: dict[str, Any] = {"f": np.float32, "mask": np.bool_}
    named = dict(zip((*NAMES, *NUMBERS), (*items[1], *items[2]), strict=True)) | changed
    return rows(items[0]) | {name: np.asarray(v, kinds.get(name, np.int64)) for name, v in named.items()}


@pytest.fixture(scope="module")
def computed() -> tuple[onnx.ModelProto, Any]:
    graph = model(OPERANDS)
    return graph, fc.partition(graph).build(late_bytes=1 << 20).load()["main"]


@pytest.mark.parametrize("items", GIVEN)
def test_operands_that_only_a_call_knows(computed: tuple[onnx.ModelProto, Any], items: Any) -> None:
    graph, main = computed
    feeds = operands(items)
    expected = ort.InferenceSession(graph.SerializeToString()).run(None, feeds)
    for info, one, other in zip(
        graph.graph.output, results(main, list(feeds.values())), expected, strict=True
    ):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), info.name
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=info.name)


def test_a_hole_beside_a_0_is_what_the_other_sizes_need() -> None:
    """Any number would fit there; -1 stands for the size of a head in the shape that is made of `d`."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
    g (float[1, q, d] x, float[1, n, d] k) => (float[1, q, e] y) {
        y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, k, k) }""")
    main = fc.partition(model, backends=["c"]).build().load()["main"]
    y = np.from_dlpack(main(np.ones((1, 3, 4), np.float32), np.ones((1, 0, 4), np.float32)))
    assert y.tolist() == np.zeros((1, 3, 4)).tolist()


def test_operands_that_do_not_fit_each_other_are_named() -> None:
    """Operands that may broadcast are copied by an Expand, which the model does not have: it is not named."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
    g (float[n, a] x, float[m, b] y) => (float[k, l] z) { w = Relu(y) z = Add(x, w) }""")
    main = fc.partition(model, backends=["c"]).build().load()["main"]
    one, other = np.ones((3, 2), np.float32), np.ones((3, 4), np.float32)
    with pytest.raises(
        ValueError, match="Add `Add_1`: axis 1 of its result has 2 elements by `x`, and 4 by `w`"
    ):
        main(one, other)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"shape": [3, 2, 3]},
            ValueError,
            "Reshape `Reshape.*has 18 elements without -1, and the input has 12",
        ),
        ({"shape": [-1, 2, -1]}, ValueError, "Reshape .*: its shape has -1 twice, at axis 2"),
        ({"shape": [-2, 2, 3]}, ValueError, "its shape has -2"),
        ({"shape": [2**32, 2**32, 1]}, ValueError, "elements without -1"),
        (
            {"big": [1, 2, 4]},
            ValueError,
            r"Expand .*: axis 1 of its output has 2 elements by the shape, and 3 by",
        ),
        (
            {"wide": [2**20, 2**30]},
            MemoryError,
            r"ConstantOfShape .*float32\[1048576, 1073741824\], 4503599627370496 b",
        ),
        (
            {"wide": [2**40, 2**40]},
            MemoryError,
            r"ConstantOfShape .*float32\[1099511627776, 1099511627776\]; the call",
        ),
        ({"wide": [-3, 2]}, ValueError, r"float32\[-3, 2\]; a size cannot be negative"),
        ({"one": [2]}, IndexError, "2 is outside of its list of axes"),
        ({"steps": [1, 0]}, ValueError, "Slice .*: axis 0 has a step of 0"),
        ({"ends": [0, -3, 0, -3]}, ValueError, r"Pad .*float32\[3, -2\]; a size cannot be negative"),
        ({"lens": [1, 4]}, ValueError, "Split .*: a length of 4, and 3 elements are left"),
        ({"lens": [1, 2]}, ValueError, "Split .*: its lengths leave 1 elements of axis 1"),
        ({"k": [5]}, ValueError, "TopK .*: the first 5 of 4 elements"),
        (
            {"deep": -1},
            ValueError,
            r"OneHot .*: its output would be float32\[-1, 3, 3\]; a size cannot be negative",
        ),
        ({"by": 0}, ValueError, "Range .*: expected a step other than 0"),
        (
            {"from": -(2**63), "to": 2**63 - 1, "by": 1},
            MemoryError,
            r"Range .*int64\[9223372036854775807\]; the call",
        ),
        ({"f": 1e-30}, MemoryError, "Range"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_memory_is_taken(
    computed: tuple[onnx.ModelProto, Any], changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        computed[1](*operands(GIVEN[0], **changed).values())


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            "g () => (float[] y) <int64[1] s = {1125899906842624}> { y = ConstantOfShape (s) }",
            "1125899906842624",
        ),
        (
            "g (float[1] x) => (float[] y) <int64[2] s = {1048576, 1073741824}> { y = Expand (x, s) }",
            "1048576, 107",
        ),
        (
            """g () => (int64[] y) <int64 a = {0}, int64 b = {1125899906842624}, int64 one = {1}>
             { y = Range (a, b, one) }""",
            "y",
        ),
        (
            "g (float[4] x) => (float[] y) <int64[2] s = {-5, 0}> { y = Pad (x, s) }",
            r"\[-1\], a dim cannot be neg",
        ),
    ],
)
def test_impossible_sizes_are_refused_before_anything_is_built(graph: str, message: str) -> None:
    with pytest.raises(
        ModelError, match=f"node `.*: its output `y` would be .*{message}.*; correct the sizes"
    ):
        fc.partition(model(graph))


def check_random(seed: int, steps: int) -> int:
    """Compare a random model with onnxruntime, for several sizes; returns how many of them it computed."""
    graph = random_model(seed, steps)
    options = ort.SessionOptions()
    options.log_severity_level = 4  # it logs the models that it refuses
    session = ort.InferenceSession(graph.SerializeToString(), options)
    main = fc.partition(graph).build().load()["main"]
    computed = 0
    for n, m in ((3, 5), (0, 0), (1, 1), (6, 4), (1, 9)):
        feeds = random_inputs(seed + n, n, m)
        try:
            expected = session.run(None, feeds)
        except Exception:
            with pytest.raises((ValueError, IndexError)):
                main(*feeds.values())
            continue
        computed += 1
        for info, one, other in zip(
            graph.graph.output, results(main, [*feeds.values()]), expected, strict=True
        ):
            assert (one.shape, one.dtype) == (other.shape, other.dtype), (seed, info.name)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=f"{seed} {info.name}")
    return computed


@pytest.mark.parametrize("seed", [2, 13, 135, 401])
def test_random_chains_of_such_operators(seed: int) -> None:
    assert check_random(seed, 14)


@pytest.mark.slow
def test_many_random_chains() -> None:
    assert sum(check_random(seed, 18) for seed in range(1000, 1300)) > 1000


def test_bounds_of_a_slice_may_be_of_any_number() -> None:
    """As torch's embedding bags slice rows, by bounds that are slices."""
    graph = model("g (float[n, 4] x, int64[a] from, int64[b] to) => (float[] y) { y = Slice (x, from, to) }")
    main = fc.partition(graph).build().load()["main"]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for bounds in (([], []), ([1], [3]), ([0, -3], [2, 9])):
        start, stop = (np.array(one, np.int64) for one in bounds)
        expected = x[tuple(map(slice, start, stop))]
        np.testing.assert_array_equal(results(main, [x, start, stop])[0], expected)
    for bounds, message in (
        (([0], [1, 1]), "input 2 is 2 instead of 1"),
        (([0] * 3, [1] * 3), "3 axes; .* most 2"),
    ):
        with pytest.raises(ValueError, match=f"Slice .*: .*{message}"):
            main(x, *(np.array(one, np.int64) for one in bounds))


SQUEEZE = """g (float[a, 3] x, int64[3] s) => (float[?, ?] y, int64[?] z) <int64[1] axis = {1}>
 { t = Reshape (x, s)  q = Squeeze (t, axis)  y = Neg (q)
   at = NonZero (s)  one = Squeeze (at)  z = Neg (one) }"""


def test_a_squeeze_of_sizes_from_the_data() -> None:
    main = fc.partition(model(SQUEEZE), backends=["c"]).build().load()["main"]
    x = rows(4)["x"][:, :3]
    feeds = {"x": np.ascontiguousarray(x), "s": np.int64([6, 1, 2])}
    same_as_reference(main, model(SQUEEZE), feeds)
    with pytest.raises(ValueError, match="dim 1 of its input, t_dim1, which must be 1 with t_dim1=2; pass"):
        main(feeds["x"], np.int64([3, 2, 2]))


def test_a_dim_of_the_caller_that_is_1_may_become_any_size() -> None:
    graph = model("g (float[n, 1] x, int64[2] shape) => (float[] y) { y = Expand (x, shape) }")
    main = fc.partition(graph, backends=["c"]).build().load()["main"]
    for rows, wide in ((1, 3), (3, 3), (3, 1)):
        x = np.arange(rows, dtype=np.float32).reshape(rows, 1)
        same_as_reference(main, graph, {"x": x, "shape": np.int64([wide, 4])})
