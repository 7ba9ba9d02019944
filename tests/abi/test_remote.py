"""Signatures of functions on another machine."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import farcall as fc
from farcall.abi import Arg, FunctionAbi, Signature
from farcall.errors import ArgumentError
from farcall.rpc import Server, Session

X = np.arange(6, dtype="f4").reshape(2, 3)


def model() -> onnx.ModelProto:
    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3])

    node = helper.make_node("Add", ["left", "right"], ["sum"])
    graph = helper.make_graph([node], "add", [value("left"), value("right")], [value("sum")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "add.so"
    fc.partition(model()).build().save(path)
    return path


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Server() as server, fc.connect(server.url) as opened:
        yield opened


def test_functions_of_an_artifact_carry_theirs(session: Session, artifact: Path) -> None:
    far, near = session.load_module(artifact)["main"], fc.load_module(artifact)["main"]
    assert far.signature == near.signature
    assert inspect.signature(far) == inspect.signature(near)
    result = far(right=session.tensor(X), left=X)
    assert isinstance(result, fc.Tensor)
    np.testing.assert_array_equal(result.numpy(), 2 * X)


def test_calls_are_checked_before_anything_is_sent(session: Session, artifact: Path) -> None:
    far = session.load_module(artifact)["main"]
    with pytest.raises(ArgumentError) as caught:
        far(session.tensor(X), session.tensor(X[:1]))
    assert caught.value.problems == (
        "argument 2 `right` of `main`: expected float32[batch, 3] with batch=2, got float32[1, 3]; "
        "dimension 0 must be 2, the `batch` of argument 1 `left`",
    )
    with pytest.raises(ArgumentError):
        far(session.tensor(X.astype("f8")), X)


def test_nested_values_and_structured_results(session: Session, artifact: Path) -> None:
    far = session.load_module(artifact)["main"]
    far.signature = Signature.of({"pair": ["float32[n, 3]", "float32[n, 3]"]}, {"sum": "float32[n, 3]"})
    result = far([session.tensor(X), session.tensor(X)])
    np.testing.assert_array_equal(result["sum"].numpy(), 2 * X)
    far.signature = Signature.of({"a": "float32[n, 3]", "b": Arg("float32[n, 3]")}, "float32[n, 3]")
    far.abi = FunctionAbi(far.signature, casting="same_kind")
    np.testing.assert_array_equal(far(X.astype("f8"), b=X).numpy(), 2 * X)
    assert far.abi.copies == 1


def test_a_file_that_was_removed_since_it_was_loaded(
    session: Session, artifact: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.so"
    copy.write_bytes(artifact.read_bytes())
    module = session.load_module(copy)
    copy.unlink()
    assert module["main"].signature == fc.load_module(artifact)["main"].signature
    np.testing.assert_array_equal(module["main"](X, X).numpy(), 2 * X)
