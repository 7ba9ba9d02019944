"""Modules of the real IREE compiler, called through FunctionAbi: IREE's values, or right ones if it fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed (group `test`)")
pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed (group `test`)")

from farcall.abi import ListSpec, Signature
from farcall.errors import ArgumentError, SignatureError

from .iree_adapter import IreeModule, numpy_dtype
from .iree_module import source

FLAGS = ["--iree-llvmcpu-target-cpu=generic", "--iree-input-demote-f64-to-f32=false"]
X = np.array([1, 2, 3, 4], "float32")


@pytest.fixture(scope="session")
def module() -> IreeModule:
    from iree.compiler.tools import compile_str

    return IreeModule(compile_str(source(), target_backends=["llvm-cpu"], extra_args=FLAGS))


def same(value: Any, other: Any) -> bool:
    """Equal in structure, types of containers, dtypes, shapes and elements."""
    if isinstance(value, dict):
        return (
            isinstance(other, dict)
            and value.keys() == other.keys()
            and all(same(value[k], other[k]) for k in value)
        )
    if isinstance(value, (list, tuple)):
        return type(value) is type(other) and len(value) == len(other) and all(map(same, value, other))
    if value is None or isinstance(value, (bool, int, float)):
        return type(value) is type(other) and value == other
    left, right = np.asarray(value), other.to_host() if hasattr(other, "to_host") else np.asarray(other)
    return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())


# name, positional, keywords: IREE's own invoker takes these
AGREED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(
        (f"add_{element}", (np.array([1, 0, 1, 100], dtype),) * 2, {})
        for element, dtype in [
            ("f32", "float32"),
            ("f64", "float64"),
            ("i8", "int8"),
            ("i16", "int16"),
            ("i32", "int32"),
            ("i64", "int64"),
            ("i1", "bool"),
        ]
    ),
    ("matmul", (np.ones((2, 3), "float32"), np.ones((3, 4), "float32")), {}),
    ("matmul", (np.ones((0, 3), "float32"), np.ones((3, 4), "float32")), {}),
    ("negate", (np.arange(6, dtype="int32").reshape(2, 3),), {}),
    ("nothing", (), {}),
    ("constant", (), {}),
    ("rank0", (np.float32(3),), {}),
    ("unranked", (X,), {}),
    ("declared", (X, 3), {}),
    ("scalars", (1, 2**40, 3.5, 1e300), {}),
    ("scale", (2.0,), {"by": 3.0}),
    ("named", (), {"a": X, "b": X + 1}),
    ("swap", ([X, X + 1],), {}),
    ("pair", ({"x": X, "y": X + 1},), {}),
]


@pytest.mark.parametrize(
    ("name", "args", "kwargs"), AGREED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_values_are_those_of_irees_own_invoker(
    module: IreeModule, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert same(module[name](*args, **kwargs), module.original(name)(*args, **kwargs))


def of(values: list[Any], dtype: str) -> Any:
    return np.array(values).astype(numpy_dtype(dtype))


# name, positional, keywords, the right result; IREE's invoker fails or is wrong, as the last says
BETTER: list[tuple[str, tuple[Any, ...], dict[str, Any], Any, str]] = [
    (
        "add_f16",
        (of([1, 2, 3, 4], "float16"),) * 2,
        {},
        of([2, 4, 6, 8], "float16"),
        "could not map abi type",
    ),
    (
        "add_bf16",
        (of([1, 2, 3, 4], "bfloat16"),) * 2,
        {},
        of([2, 4, 6, 8], "bfloat16"),
        "could not map abi type",
    ),
    (
        "add_complex_f32",
        (of([1, 2j, 3, 4], "complex64"),) * 2,
        {},
        of([2, 4j, 6, 8], "complex64"),
        "could not map",
    ),
    (
        "add_complex_f64",
        (of([1, 2j, 3, 4], "complex128"),) * 2,
        {},
        of([2, 4j, 6, 8], "complex128"),
        "could not map",
    ),
    (
        "f8_to_f32",
        (of([1, 2, 0.5, -4], "float8_e4m3fn"),),
        {},
        of([1, 2, 0.5, -4], "float32"),
        "could not map",
    ),
    ("id_ui8", (of([1, 200, 3, 4], "uint8"),), {}, of([1, 200, 3, 4], "uint8"), "could not map"),
    ("id_si8", (of([1, -100, 3, 4], "int8"),), {}, of([1, -100, 3, 4], "int8"), "could not map"),
    ("untyped", (X,), {}, X, "bad_cast"),
    ("small", (True, -100, 2**40), {}, (True, -100, 2**40), "Unrecognized reflection primitive type"),
    ("narrow", (100, 1), {}, (-56, 200, 2**32 - 1), "cannot map VM type to Python: ui8"),
    ("half", (1.5, -2.5), {}, (1.5, -2.5), "Unrecognized reflection primitive type"),
    ("scale", (2.0, 3.0), {}, 6.0, "mismatched call arity"),  # `named` by position
    ("named", (X, X + 1), {}, {"diff": of([-1] * 4, "float32"), "sum": 2 * X + 1}, "mismatched call arity"),
    ("count", ([X, X, X],), {}, 3, "Unrecognized reflection compound type"),
    ("count", ([],), {}, 0, "Unrecognized reflection compound type"),
]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "right", "refusal"),
    BETTER,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_irees_own_invoker_refuses(
    module: IreeModule, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any, refusal: str
) -> None:
    assert same(module[name](*args, **kwargs), right)
    with pytest.raises((ValueError, RuntimeError), match=refusal):
        module.original(name)(*args, **kwargs)


def test_an_int_is_the_float_that_it_says(module: IreeModule) -> None:
    """Without metadata IREE takes 2 for an f32 as its bits: 0.0 (iree-org/iree #12967)."""
    assert module["scale"](2, by=3) == 6.0
    assert module["scalars"](1, 2, 3, 4) == (1, 2, 3.0, 4.0)
    with pytest.raises(ArgumentError, match="argument input0: expected int32, got float"):
        module["scalars"](1.5, 2, 3, 4)


def test_what_iree_casts_silently_is_refused(module: IreeModule) -> None:
    with pytest.raises(ArgumentError, match=r"expected int32\[4\]"):
        module["add_i32"](X, X)
    assert same(module.original("add_i32")(X + 0.9, X).to_host(), np.array([2, 4, 6, 8], "int32"))
    with pytest.raises(ArgumentError, match=r"expected float32\[\?, 3\]|expected int32\[\?, 3\]"):
        module["negate"](np.ones((2, 4), "int32"))


def test_a_declaration_alone_is_enough(module: IreeModule) -> None:
    function = module["declared"]
    assert str(function.signature) == "(lhs: float32[?], input1: int32) -> (float32[?], int32)"
    assert same(function(lhs=X, input1=3), (X, 3))


def test_a_result_in_the_callers_memory(module: IreeModule) -> None:
    function = module["into"]
    assert [leaf.access for leaf in function.signature.inputs] == ["in", "out"]  # type: ignore[union-attr]
    memory = np.zeros(32, "float32")
    start = -memory.ctypes.data % 64 // 4
    out = memory[start : start + 4]
    function(X, out)
    assert same(out, 2 * X)
    out.setflags(write=False)
    with pytest.raises(ArgumentError, match="writ"):
        function(X, out)


def test_lists_travel_as_lists(module: IreeModule) -> None:
    inputs = module["pair"].signature.inputs
    assert isinstance(inputs[0], ListSpec)
    assert Signature.from_iree(module["pair"].signature.to_iree_json()).inputs == inputs


def test_asynchronous_functions_are_refused() -> None:
    from iree.compiler.tools import compile_str

    text = "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    flags = [*FLAGS, "--iree-execution-model=async-external"]
    module = IreeModule(compile_str(text, target_backends=["llvm-cpu"], extra_args=flags))
    with pytest.raises(SignatureError, match=r"asynchronous model 'coarse-fences'"):
        module["f"]
