"""Copies to a session: any tensor of any framework, or an error with the cure."""

from __future__ import annotations

import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import farcall as fc
from farcall.rpc import Session

X = np.arange(12, dtype="float32").reshape(3, 4)


def read_only() -> np.ndarray[Any, Any]:
    x = X.copy()
    x.flags.writeable = False
    return x


ARRAYS: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "columns": lambda: X[:, ::2],
    "reversed": lambda: X[::-1, ::-1],
    "Fortran": lambda: np.asfortranarray(X),
    "broadcast": lambda: np.broadcast_to(np.float32(3), (3, 2)),
    "empty": lambda: X[:0],
    "empty, strided": lambda: X[:0, ::2],
    "without dims": lambda: np.array(5.0),
    "read-only": read_only,
    "bytes": lambda: np.frombuffer(b"abcd", "uint8"),
    "unaligned": lambda: np.ndarray(3, "float32", b"x" + X.tobytes()[:12], 1),
    "bool": lambda: np.array([True, False]),
    "complex": lambda: np.array([1 + 2j, -1j], "complex64")[::-1],
    "matrix": lambda: X.view(np.matrix),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(session: Session, name: str) -> None:
    x = ARRAYS[name]()
    there = session.tensor(x)
    assert there.shape == x.shape
    np.testing.assert_array_equal(there.numpy(), x)
    np.testing.assert_array_equal(session.get_function("test.echo")(x).numpy(), x)


ML_TYPES = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
    "float8_e3m4",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
]


@pytest.mark.parametrize("name", ML_TYPES)
@pytest.mark.parametrize("step", [1, 2, -1])
def test_types_of_ml_dtypes(session: Session, name: str, step: int) -> None:
    x = np.array([1, 0, 1, 1, 0, 1, 0], dtype=getattr(ml_dtypes, name))[::step]
    there = session.tensor(x)
    assert str(there.dtype) == name
    back = there.numpy()
    assert back.dtype == x.dtype
    assert back.astype(float).tolist() == x.astype(float).tolist()
    assert session.get_function("test.echo")(x).numpy().tobytes() == x.tobytes()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "byte order": (lambda: X.astype(">f4"), r"native byte order by \.astype"),
    "structured": (lambda: np.zeros(2, [("a", "f4"), ("b", "i4")]), r'its fields one by one, as x\["name"\]'),
    "void": (lambda: np.zeros(2, "V3"), r"its bytes by \.view"),
    "object": (lambda: np.array([1, "a"], dtype=object), r"a dtype of numbers by \.astype"),
    "dates": (lambda: np.array(["2020-01-01"], "M8[D]"), r"its ticks by \.view"),
    "time": (lambda: np.zeros(2, "m8[s]"), r"its ticks by \.view"),
    "text": (lambda: np.array(["a"]), "pass str or bytes, or a list of them"),
    "byte text": (lambda: np.array([b"a"]), "pass str or bytes, or a list of them"),
    "long double": (lambda: np.zeros(2, np.longdouble), "float64"),
    "long complex": (lambda: np.zeros(2, np.clongdouble), "complex128"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_cannot_travel(session: Session, name: str) -> None:
    make, cure = REFUSED[name]
    for use in (
        session.tensor,
        session.get_function("test.echo"),
        lambda x: session.copy(x, session.empty(2)),
    ):
        with pytest.raises(TypeError, match=rf"numpy dtype .* has no counterpart.*{cure}"):
            use(make())


@pytest.mark.parametrize("value", [None, [1.0], (1,), 1, "text", np.float32(1)], ids=repr)
def test_what_is_no_tensor(session: Session, value: Any) -> None:
    with pytest.raises(TypeError, match=r"tensor: expected a tensor, got .*; numpy\.asarray"):
        session.tensor(value)


def test_tensors_of_torch(session: Session) -> None:
    torch = pytest.importorskip("torch")
    x, echo = torch.arange(12.0).reshape(3, 4), session.get_function("test.echo")
    grown = torch.ones(3, requires_grad=True)
    for tensor in (
        x.t(),
        x[:, 1::2],
        torch.ones(1).expand(3),
        x[1:],
        x[:0],
        torch.tensor(3.0),
        grown,
        grown * 2,
    ):
        there = session.tensor(tensor)
        np.testing.assert_array_equal(there.numpy(), tensor.detach().numpy())
        np.testing.assert_array_equal(echo(tensor).numpy(), tensor.detach().numpy())
    half = torch.arange(4, dtype=torch.bfloat16)[::2]
    assert session.tensor(half).numpy().astype(float).tolist() == [0, 2]
    assert str(session.tensor(torch.ones(3).to(torch.float8_e5m2)).dtype) == "float8_e5m2"


@pytest.mark.parametrize("name", ["conj", "neg", "meta", "sparse"])
def test_tensors_of_torch_whose_memory_is_not_their_values(session: Session, name: str) -> None:
    torch = pytest.importorskip("torch")
    complexes = torch.ones(3, dtype=torch.complex64).conj()
    tensor, cure = {
        "conj": (complexes, r"pass x\.resolve_conj\(\)"),
        "neg": (complexes.imag, r"pass x\.resolve_neg\(\)"),
        "meta": (torch.ones(3, device="meta"), "does not give the tensor's memory out"),
        "sparse": (torch.eye(3).to_sparse(), "does not give the tensor's memory out"),
    }[name]
    for use, who in ((session.tensor, "tensor"), (session.get_function("test.echo"), r"test\.echo")):
        with pytest.raises(BufferError, match=f"argument 1 of `{who}`: .*{cure}"):
            use(tensor)


def test_arrays_of_jax(session: Session) -> None:
    jax = pytest.importorskip("jax")
    np.testing.assert_array_equal(session.tensor(jax.numpy.arange(4.0)).numpy(), np.arange(4.0))
    half = jax.numpy.ones((2, 3), "bfloat16").T
    assert session.tensor(half).numpy().astype(float).tolist() == [[1, 1]] * 3
    gone = jax.numpy.ones(3)
    gone.delete()
    for broken, words in ((gone, "deleted"), (jax.numpy.ones(3, "int4"), "S4")):
        with pytest.raises(
            BufferError, match=f"argument 1 of `tensor`: the framework does not give .*{words}"
        ):
            session.tensor(broken)
    target = jax.numpy.zeros(4)
    with pytest.raises(ValueError, match="read-only"):  # jax arrays never change
        session.copy(session.tensor(np.ones(4, "float32")), target)


# ---- buffers that are no tensors


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (b"abc", np.frombuffer(b"abc", "uint8")),
        (bytearray(b"abc"), np.frombuffer(b"abc", "uint8")),
        (memoryview(X), X),
        (memoryview(b"abcdef")[::2], np.frombuffer(b"ace", "uint8")),
        (array.array("d", [1, 2]), np.array([1.0, 2.0])),
        (array.array("i"), np.zeros(0, "int32")),
    ],
    ids=["bytes", "bytearray", "memoryview", "strided", "array", "empty"],
)
def test_a_buffer_becomes_a_tensor(session: Session, buffer: Any, expected: np.ndarray[Any, Any]) -> None:
    there = session.tensor(buffer).numpy()
    assert there.dtype == expected.dtype
    np.testing.assert_array_equal(there, expected)


@pytest.mark.parametrize("x", [array.array("u", "ab"), [1, 2], "text"], ids=["letters", "list", "text"])
def test_what_has_no_numbers_is_refused_with_the_cure(session: Session, x: Any) -> None:
    with pytest.raises(TypeError, match=r"numpy\.asarray|cannot be passed"):
        session.tensor(x)
    with pytest.raises(TypeError, match=r"from_dlpack: .* numpy\.asarray makes an array"):
        fc.from_dlpack(x)


def test_a_buffer_is_no_target(session: Session) -> None:
    text = b"abc"
    with pytest.raises(TypeError):
        session.copy(session.tensor(text), text)
    assert text == b"abc"


# ---- kernels of this process


def test_a_kernel_here_refuses_a_tensor_there(session: Session, kernels: Path) -> None:
    there = session.tensor(X)
    add_one = fc.load_module(kernels)["add_one"]
    with pytest.raises(
        ValueError, match=r"argument 1 of `add_one`: the tensor is on cpu:0 of tcp://.*x\.numpy\(\)"
    ):
        add_one(there, np.zeros_like(X))
    out = np.zeros_like(X)
    add_one(there.numpy(), out)
    np.testing.assert_array_equal(out, X + 1)


def test_other_functions_take_it(session: Session) -> None:
    there = session.tensor(X)
    assert session.get_function("test.scale")(there, 2.0).shape == X.shape
    assert fc.Function(lambda x: x.device.index)(there) == 0
    assert fc.Function(len)([there, there]) == 2
