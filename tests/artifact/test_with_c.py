"""Artifacts of the built-in backend: sizes that the entry must check, and the names that users see."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farcall as fc
from farcall.errors import ArtifactError
from farcall.testing import NullDevice

from ..graph.graphs import text_model
from .stub_backend import model


def main_of(proto: onnx.ModelProto) -> Callable[..., Any]:
    return fc.partition(proto).build().load()["main"]


def conv() -> onnx.ModelProto:
    """A valid 3x3 convolution: too small an image has no output."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, "h", "w_"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None, None, None])],
        [numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_size_that_would_be_negative_is_refused() -> None:
    main = main_of(conv())
    np.testing.assert_array_equal(
        main(np.ones((2, 1, 3, 4), np.float32)), np.full((2, 1, 1, 2), 9, np.float32)
    )
    assert main(np.ones((0, 1, 5, 5), np.float32)).shape == (0, 1, 3, 3)
    assert main(np.ones((1, 1, 2, 9), np.float32)).shape == (1, 1, 0, 7)
    with pytest.raises(ValueError, match="`main`: a size would be negative with batch=1, h=1, w_=9"):
        main(np.ones((1, 1, 1, 9), np.float32))


def test_a_tensor_of_another_device_is_refused_by_its_place() -> None:
    driver = NullDevice()
    fc.ffi.register_device_memory("ext_dev", driver)
    try:
        x = fc.ffi.empty((1, 1, 3, 4), "float32", "ext_dev:0")
        with pytest.raises(ValueError, match=r"argument 1 `x` .* on ext_dev:0; copy it to the CPU"):
            main_of(conv())(x)
        del x
    finally:
        fc.ffi.register_device_memory("ext_dev", None)


def test_sizes_that_must_agree_are_checked() -> None:
    nodes = [
        helper.make_node("Concat", ["x", "y"], ["a"], axis=0),
        helper.make_node("MatMul", ["a", "z"], ["r"]),
        helper.make_node("Neg", ["q"], ["s"]),
    ]
    graph = helper.make_graph(
        nodes,
        "agree",
        [
            helper.make_tensor_value_info(*args)
            for args in (("q", 1, ["nm"]), ("x", 1, ["n"]), ("y", 1, ["m"]), ("z", 1, ["k"]))
        ],
        [
            helper.make_tensor_value_info("r", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, None),
        ],
    )
    main = main_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    ones = np.ones(5, np.float32)
    assert main(ones, ones[:2], ones[:3], ones)[0] == 5
    with pytest.raises(
        ValueError, match=r"`main`: node `.*: expected .* == .* with n=2, m=2, k=5; pass"
    ):  # and no nm
        main(ones, ones[:2], ones[:2], ones)


def test_an_error_of_a_kernel_names_its_region_and_its_node() -> None:
    source = "g (float[4] x, int64[n] at) => (float[n] y) { a = Relu(x)  y = Gather(a, at) }"
    main = main_of(text_model(source))
    assert main(np.ones(4, np.float32), np.array([3])).tolist() == [1]
    with pytest.raises(IndexError, match=r"region `c_0` of backend `c`: Gather `\w+`: index 4"):
        main(np.ones(4, np.float32), np.array([4]))


def test_two_artifacts_in_one_process_keep_apart() -> None:
    mains = []
    for k in range(3):
        nodes = [("Mul", "x w", "y")]
        mains.append(main_of(model(nodes, {"x": [4]}, {"y": [4]}, {"w": np.full(4, k, np.float32)})))
    for k, main in enumerate(mains):
        np.testing.assert_array_equal(main(np.ones(4, np.float32)), np.full(4, k, np.float32))


def test_large_constants_are_in_the_file_once(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    nodes = [("MatMul", "x w", "a"), ("Relu", "a", "b"), ("MatMul", "b v", "y")]
    proto = model(nodes, {"x": ["n", 256]}, {"y": ["n", 256]}, {"w": w, "v": w})
    artifact = fc.partition(proto).build()
    data = artifact.save(tmp_path / "m.so").read_bytes()
    assert artifact.manifest.constants.bytes == w.nbytes
    row = 16  # elements of a row that stay together when the matrix is packed
    assert data.count(w[17, :row].tobytes()) == 1
    assert data.index(w[0, :row].tobytes()) % 64 == 0
    x = np.ones((3, 256), np.float32)
    np.testing.assert_allclose(artifact.load()["main"](x), np.maximum(x @ w, 0) @ w, rtol=1e-3, atol=1e-3)


def test_a_load_makes_no_copy_of_the_file(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w")
    proto = text_model("g (float[1,1024] x) => (float[1,1024] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(weights)
    path = fc.partition(proto).build().save(tmp_path / "large.so")
    assert path.stat().st_size > weights.ByteSize()
    tracemalloc.start()
    fc.load_module(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < weights.ByteSize() / 2


def test_messages_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    proto = model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]})
    path = fc.partition(proto).build().save(tmp_path / "model.so")
    module = fc.load_module(path)
    assert str(path) in repr(module)
    with pytest.raises(AttributeError, match=rf"{path} has no function `mian`; it has `main`"):
        module["mian"]
    path.unlink()  # the file that is loaded must stay whole: it is mapped
    path.write_bytes(b"not a library")
    with pytest.raises(ArtifactError, match=f"{path}: not a shared library"):
        fc.load_module(path)


def test_a_library_that_the_linker_refuses_says_why(tmp_path: Path) -> None:
    from farcall.toolchain import Source, compile_shared

    source = Source("lost.c", "int lost_symbol(void);\nint f(void);\nint f(void) { return lost_symbol(); }\n")
    compile_shared([source], tmp_path / "lost.so", flags=["-Wl,-z,undefs"])
    with pytest.raises(ArtifactError, match=r"lost\.so: the dynamic linker refuses it: .*lost_symbol"):
        fc.load_module(tmp_path / "lost.so")


def test_a_plain_kernel_library_loads(tmp_path: Path) -> None:
    from farcall.toolchain import Source, compile_shared

    text = (
        "#include <farcall/c_api.h>\n"
        "FARCALL_KERNEL(twice) {\n  result->type_index = kTVMFFIInt;\n"
        "  result->v_int64 = 2 * args[0].v_int64;\n  return 0;\n}\n"
    )
    compile_shared([Source("plain.c", text)], tmp_path / "plain.so")
    twice = fc.load_module(tmp_path / "plain.so")["twice"]
    assert twice(21) == 42
    assert twice.signature is None


def scaled(dtype: int) -> onnx.ModelProto:
    """x * k, where k has rank 0."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "k"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info("x", dtype, ["n"]), helper.make_tensor_value_info("k", dtype, [])],
        [helper.make_tensor_value_info("y", dtype, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (TensorProto.FLOAT, 0.5),
        (TensorProto.FLOAT, 3),
        (TensorProto.DOUBLE, np.float32(0.1)),
        (TensorProto.INT8, -128),
        (TensorProto.UINT16, 65535),
        (TensorProto.INT64, 2**62),
    ],
)
def test_a_number_stands_for_a_tensor_of_rank_0(dtype: int, number: float) -> None:
    main = main_of(scaled(dtype))
    x = np.array([1, 0, 1], helper.tensor_dtype_to_np_dtype(dtype))
    np.testing.assert_array_equal(main(x, number), x * x.dtype.type(number))


@pytest.mark.parametrize(
    ("dtype", "number", "got"),
    [
        (TensorProto.INT8, 128, "int8[], got int"),
        (TensorProto.UINT16, -1, "uint16[], got int"),
        (TensorProto.INT64, 0.5, "int64[], got float"),
        (TensorProto.FLOAT, True, "float32[], got bool"),
        (TensorProto.FLOAT, "1", "float32[], got str"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(dtype: int, number: object, got: str) -> None:
    main = main_of(scaled(dtype))
    x = np.zeros(3, helper.tensor_dtype_to_np_dtype(dtype))
    with pytest.raises(TypeError, match=f"argument 2 `k` of `main`: expected {got}".replace("[", r"\[")):
        main(x, number)
