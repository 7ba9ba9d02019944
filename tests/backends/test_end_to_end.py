"""Whole models through partition, build, load and call, by the C backend alone and beside another one."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import farcall as fc

from .npu import Npu

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 2, h, w] x, float[batch, 6] z)
=> (float[batch, 5] y, float[batch, 6, p, q] m, float[batch, 2, h, w] same)
<float[6, 2, 3, 3] k, float[6] b, float[6] s, float[5, 6] f, int64[2] flat = {0, -1}>
{
  c = Conv<pads = [1, 1, 1, 1]>(x, k, b)
  n = BatchNormalization(c, s, b, b, s)
  r = Relu(n)
  m = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
  a = GlobalAveragePool(m)
  v = Reshape(a, flat)
  u = Add(v, z)
  g = Gemm<transB = 1, alpha = 0.5>(u, f)
  y = Softmax(g)
  same = Identity(x)
}"""


def net() -> onnx.ModelProto:
    model = onnx.parser.parse_model(NET)
    rng = np.random.default_rng(0)
    shapes = {"k": (6, 2, 3, 3), "b": (6,), "s": (6,), "f": (5, 6)}
    del model.graph.initializer[:]
    for name, shape in shapes.items():
        data = rng.random(shape).astype(np.float32) + 0.1
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, -1], np.int64), "flat"))
    return model


@pytest.fixture(scope="module", params=["c", "npu+c"])
def main(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> fc.Function:
    path: Path = tmp_path_factory.mktemp("net") / "net.so"
    backends = ["c"] if request.param == "c" else [Npu(), "c"]
    fc.partition(net(), backends=backends).build().save(path)
    return fc.load_module(path)["main"]


def feeds(batch: int, height: int, width: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    shapes = {"x": (batch, 2, height, width), "z": (batch, 6)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


SIZES = [(1, 4, 4), (7, 9, 6), (2, 30, 41), (1, 2, 2), (3, 5, 300)]


@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_the_reference(main: fc.Function, size: tuple[int, int, int]) -> None:
    given = feeds(*size)
    expected = ReferenceEvaluator(net()).run(None, given)
    for got, wanted in zip(main(*given.values()), expected, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_nothing_to_do(main: fc.Function) -> None:
    y, m, same = main(*feeds(0, 4, 4).values())
    assert (y.shape, m.shape, same.shape) == ((0, 5), (0, 6, 2, 2), (0, 2, 4, 4))


def test_many_threads_at_once(main: fc.Function) -> None:
    """No state between calls: each thread has its own sizes, all run at the same time."""
    expected = {size: [np.copy(item) for item in main(*feeds(*size).values())] for size in SIZES}
    wrong: list[tuple[int, int, int]] = []

    def work(size: tuple[int, int, int]) -> None:
        for _ in range(20):
            got = main(*feeds(*size).values())
            if not all(np.array_equal(a, b) for a, b in zip(got, expected[size], strict=True)):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in SIZES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_error_in_a_kernel_is_an_exception(tmp_path: Path) -> None:
    text = "g (float[3, 2] x, int64[n] i) => (float[n, 2] y) { y = Gather(x, i) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    fc.partition(model).build().save(tmp_path / "gather.so")
    gather = fc.load_module(tmp_path / "gather.so")["main"]
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(gather(table, np.array([2, -3])), table[[2, 0]])
    with pytest.raises(IndexError, match="index 3 is outside of axis 0, which has 3 elements"):
        gather(table, np.array([3]))


def test_a_node_of_any_name_is_named_by_the_error_of_its_kernel(tmp_path: Path) -> None:
    text = "g (float[3, 2] x, int64[n] i) => (float[n, 2] y) { y = Gather(x, i) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    model.graph.node[0].name = name = '@a"b\\c\n??=%d é@'
    fc.partition(model).build().save(tmp_path / "gather.so")
    gather = fc.load_module(tmp_path / "gather.so")["main"]
    with pytest.raises(IndexError, match=re.escape(f"Gather `{name}`: index 3 is outside of axis 0")):
        gather(np.zeros((3, 2), np.float32), np.array([3]))
