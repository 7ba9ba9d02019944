"""Signatures from annotations."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, NotRequired, Optional, TypeAlias, TypedDict

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import farcall as fc
from farcall.abi import Parameter, RefSpec, ScalarSpec, Signature, Slot, TensorSpec
from farcall.errors import SignatureError

OPTIONAL = Optional
Int8s: TypeAlias = Annotated[fc.Array, "int8[n]"]


class Pair(NamedTuple):
    left: Annotated[fc.Array, "float32[n]"]
    right: int


class Tokens(TypedDict):
    ids: Annotated[fc.Array, "int64[batch, 128]"]
    mask: typing.Required[Annotated[fc.Array, "bool[?]"]]


class Sparse(TypedDict, total=False):
    ids: int


class Hidden(TypedDict):
    ids: NotRequired[int]


@dataclasses.dataclass
class Layer:
    weight: Annotated[fc.Array, "float16[]"]
    scales: list[Annotated[fc.Array, "int8[...]"]]

    def __post_init__(self) -> None:
        raise AssertionError("a class is described, not made")


def test_the_example() -> None:
    def f(
        x: Annotated[fc.Array, "float32[n, 128]"], *, scale: float = 1.0
    ) -> Annotated[fc.Array, "float32[n]"]:
        raise AssertionError

    made = Signature.from_callable(f)
    assert made.inputs == (TensorSpec("x", "float32", ("n", 128)), ScalarSpec("scale", "float64"))
    assert made.outputs == (TensorSpec("", "float32", ("n",)),)
    assert made.parameters == (
        Parameter("x", Slot(0)),
        Parameter("scale", Slot(1), default=1.0, kind="keyword_only"),
    )
    assert str(made) == "(x: float32[n, 128], *, scale: float64 = 1.0) -> float32[n]"


def of(annotation: Any) -> str:
    """The text of what an annotation describes."""

    def f(x: Any) -> None:
        raise AssertionError

    f.__annotations__["x"] = annotation
    made = Signature.from_callable(f)
    return made.parameter_type(made.parameters[0])


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Annotated[fc.Array, "float32[2*n, ?]"], "float32[2*n, ?]"),
        (Annotated[fc.Array, "int8[3]"] | None, "int8[3] | None"),
        (fc.Array, "?[...]"),
        (fc.Array["bfloat16"], "bfloat16[]"),
        (fc.Array["float32", ...], "float32[...]"),
        (fc.Array[np.dtype("int8"), None, "2*n"], "int8[?, 2*n]"),
        (fc.Array[fc.dtype("int4"), 3], "int4[3]"),
        (fc.Array["float32", 1] | None, "float32[1] | None"),
        (OPTIONAL[fc.Array["float32", 1]], "float32[1] | None"),
        (None | fc.Array["float32", 1], "float32[1] | None"),
        (Annotated[Any, "float32[n] | None"], "float32[n] | None"),
        (OPTIONAL[int], "int64 | None"),
        (bool, "bool"),
        (complex, "complex128"),
        (np.float32, "float32"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (bytes, "bytes"),
        (Any, "any"),
        (object, "any"),
        (None, "None"),
        (Callable, "function"),
        (Callable[[int], int], "function"),
        (typing.Callable[..., Any], "function"),
        (fc.Module, "module"),
        (fc.Tensor, "?[...]"),
        (np.ndarray, "?[...]"),
        (npt.NDArray[np.float32], "float32[...]"),
        (npt.NDArray[Any], "?[...]"),
        (Annotated[np.ndarray, 3, fc.Array["int8", 2]], "int8[2]"),
        (Annotated[int, "int8"], "int8"),
        (Annotated[int, 3], "int64"),
        (TensorSpec("", "int8", (), access="out"), "int8[]"),
        (list[int], "[int64, ...]"),
        (typing.Sequence[Annotated[fc.Array, "int8[n]"]], "[int8[n], ...]"),
        (tuple[int, ...], "(int64, ...)"),
        (tuple[int, str], "(int64, str)"),
        (tuple[()], "()"),
        (Pair, "Pair(left: float32[n], right: int64)"),
        (Tokens, '{"ids": int64[batch, 128], "mask": bool[?]}'),
        (Layer, "Layer(weight: float16[], scales: [int8[...], ...])"),
        ({"a": int, "b": [int, (str, None)]}, '{"a": int64, "b": [int64, (str, None)]}'),
        ([int, ...], "[int64, ...]"),
        (list[Pair], "[Pair(left: float32[n], right: int64), ...]"),
    ],
    ids=str,
)
def test_annotations(annotation: Any, text: str) -> None:
    assert of(annotation) == text


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (dict, "<class 'dict'> does not describe a value"),
        (dict[str, int], "use a TypedDict"),
        (set[int], "expected list, tuple, Annotated or Optional"),
        (int | str, "a union may only be"),
        (list[int] | None, "a union may only be"),
        (OPTIONAL[Pair], "a union may only be"),
        (Sparse, "cannot have optional keys"),
        (Hidden, "cannot have optional keys"),
        (3, "3 does not describe a value"),
        ({1, 2}, "does not describe a value"),
        (Annotated[np.ndarray, "what[n]"], "what"),
        (np.floating, "not allowed"),
        (list[set[int]], r"parameter `x`[...]: set[int] is not known"),
        ({"a": [dict]}, "parameter `x`['a'][0]"),
    ],
    ids=str,
)
def test_what_says_nothing_is_refused(annotation: Any, problem: str) -> None:
    with pytest.raises(SignatureError) as error:
        of(annotation)
    assert problem in str(error.value)


def test_every_parameter_and_the_result_are_annotated() -> None:
    def half(x: int, y) -> None:  # type: ignore[no-untyped-def]
        raise AssertionError

    def without(x: int):  # type: ignore[no-untyped-def]
        raise AssertionError

    def loose(x: int, **rest: int) -> None:
        raise AssertionError

    def lost(x: Missing) -> None:  # type: ignore[name-defined] # noqa: F821
        raise AssertionError

    for function, problem in [
        (half, "parameter `y` has no annotation"),
        (without, "the result has no annotation"),
        (loose, r"cannot have \*\*rest"),
        (lost, "name 'Missing' is not defined"),
        (3, "cannot be read"),
    ]:
        with pytest.raises(SignatureError, match=problem):
            Signature.from_callable(function)  # type: ignore[arg-type]


def test_kinds_and_defaults() -> None:
    def f(a: int, /, b: int = 2, *rest: Int8s, c: str = "x", d: int | None = None) -> Pair:
        raise AssertionError

    made = Signature.from_callable(f)
    assert str(made) == (
        "(a: int64, /, b: int64 = 2, *rest: [int8[n], ...], c: str = 'x', d: int64 | None = None)"
        " -> Pair(left: float32[n], right: int64)"
    )
    assert [one.name for one in made.parameters] == list(inspect.signature(f).parameters)


def test_an_array_type_is_no_class() -> None:
    with pytest.raises(TypeError, match=r"Array\[int8\[n\]\] is an annotation"):
        fc.Array["int8", "n"]()
    with pytest.raises((TypeError, ValueError)):
        fc.Array["int9000"]


def test_the_annotated_form_gives_a_reference() -> None:
    def f(x: Annotated[object, RefSpec("", "shape")]) -> Annotated[float, "float32"]:
        raise AssertionError

    made = Signature.from_callable(f)
    assert made.inputs == (RefSpec("x", "shape"),)
    assert made.outputs == (ScalarSpec("", "float32"),)
