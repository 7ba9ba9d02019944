"""The functions of single regions: checked like ``main``, with Signatures, here and in the real tvm_ffi."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.artifact import Artifact
from farcall.backends.c import CBackend
from farcall.ffi import Module

from ..graph.graphs import text_model
from .stub_backend import Stub, model, plan

CHAIN = [("Add", "x y", "a"), ("Neg", "a", "b"), ("Mul", "b w", "z")]
SHAPE = {"x": ["batch", 3], "y": ["batch", 3]}
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def chain() -> Artifact:
    proto = model(CHAIN, SHAPE, {"z": ["batch", 3]}, {"w": np.array(2.5, np.float32)})
    return plan(proto, Stub("npu", ["Neg"]), Stub("cpu")).build()


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return chain()


@pytest.fixture(params=["farcall", "tvm_ffi"])
def function_of(request: pytest.FixtureRequest, artifact: Artifact, tmp_path: Path) -> Callable[[str], Any]:
    """A function of the artifact by its name, in either of the two runtimes, on numpy arrays."""
    if request.param == "farcall":
        return lambda name: artifact.load()[name]
    tvm_ffi = pytest.importorskip("tvm_ffi")
    module = tvm_ffi.load_module(str(artifact.save(tmp_path / "model.so")))
    return lambda name: lambda *arguments: np.from_dlpack(module[name](*arguments))


def test_each_region_has_a_signature(artifact: Artifact) -> None:
    module = artifact.load()
    assert {name: str(module[name].signature) for name in ("cpu_0", "npu_0", "cpu_1")} == {
        "cpu_0": "(x: float32[batch, 3], y: float32[batch, 3]) -> float32[batch, 3]",
        "npu_0": "(a: float32[batch, 3]) -> float32[batch, 3]",
        "cpu_1": "(b: float32[batch, 3]) -> float32[batch, 3]",
    }
    assert [str(region.signature) for region in artifact.manifest.regions] == [
        str(module[region.name].signature) for region in artifact.manifest.regions
    ]


def test_regions_called_one_after_another_are_the_model(function_of: Callable[[str], Any]) -> None:
    a = function_of("cpu_0")(X, X)
    z = function_of("cpu_1")(function_of("npu_0")(a))
    np.testing.assert_array_equal(z, function_of("main")(X, X))


def test_any_layout_is_taken(function_of: Callable[[str], Any]) -> None:
    strided = np.arange(24, dtype=np.float32).reshape(3, 8).T[::2]
    np.testing.assert_array_equal(function_of("npu_0")(strided), -strided)


REFUSALS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "few": (
        (X,),
        TypeError,
        "`cpu_0`: expected 2 arguments .x: float32[batch, 3], y: float32[batch, 3]., got 1"
        "|argument 2 `y` of `cpu_0`: missing; expected float32[batch, 3]",
    ),
    "small": (
        (X[:, :1], X),
        ValueError,
        "argument 1 `x` of `cpu_0`: expected float32[batch, 3], got float32[4, 1]; dimension 1 must be 3",
    ),
    "short": (
        (X, X[:2]),
        ValueError,
        "argument 2 `y` of `cpu_0`: expected float32[batch, 3] with batch=4, got float32[2, 3]; "
        "dimension 0 must be 4, the `batch` of argument 1 `x`",
    ),
    "rank": (
        (X.ravel(), X),
        ValueError,
        "argument 1 `x` of `cpu_0`: expected float32[batch, 3], got float32[12]; reshape it to rank 2",
    ),
    "dtype": (
        (X, X.astype(np.float64)),
        TypeError,
        "argument 2 `y` of `cpu_0`: expected float32[batch, 3] with batch=4, got float64[4, 3]; "
        "convert it to float32",
    ),
    "kind": (
        (X, "text"),
        TypeError,
        "argument 2 `y` of `cpu_0`: expected float32[batch, 3] with batch=4, got str( 'text')?; "
        "pass an array or a tensor",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_main_would_refuse_is_refused(function_of: Callable[[str], Any], case: str) -> None:
    arguments, kind, message = REFUSALS[case]
    with pytest.raises(kind) as caught:
        function_of("cpu_0")(*arguments)
    assert re.fullmatch(re.sub(r"[\[\]]", r"\\\g<0>", message), str(caught.value))


def test_without_a_signature_the_library_checks(artifact: Artifact) -> None:
    function = artifact.load()["npu_0"]
    function.signature = None
    with pytest.raises(TypeError, match=r"`npu_0`: expected 1 argument \(a: float32\[batch, 3\]\), got 0"):
        function()
    with pytest.raises(ValueError, match=r"argument 1 `a` of `npu_0`: .*; dimension 1 must be 3"):
        function(X[:, :1])


def pooled() -> Module:
    """Two regions; the second takes a tensor whose dims show neither ``h`` nor ``w``."""
    source = """g (float[n,1,h,w] x) => (float[n,1,?,?] y) {
        a = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)  b = Neg(a)  y = Concat<axis=2>(b, b) }"""

    class Pooling(CBackend):
        name = "pool"

        def check(self, node: Any) -> str | None:
            return super().check(node) if node.op_type == "MaxPool" else "only MaxPool"

    return fc.partition(text_model(source), [Pooling(), "c"]).build().load()


def test_a_size_that_no_dim_shows_is_a_parameter() -> None:
    module = pooled()
    x = np.arange(35, dtype=np.float32).reshape(1, 1, 5, 7)
    a = module["pool_0"](x)
    tail = module["c_0"]
    assert str(tail.signature) == (
        "(a: float32[n, 1, floor(h/2), floor(w/2)], h: int64[], w: int64[]) -> "
        "float32[n, 1, 2*floor(h/2), floor(w/2)]"
    )
    np.testing.assert_array_equal(tail(a, 5, 7), module["main"](x))
    np.testing.assert_array_equal(tail(a, 4, 6), module["main"](x))
    wrong = r"expected a dimension of floor\(h/2\) with h=6, floor\(h/2\)=2"
    tail.signature = None
    with pytest.raises(ValueError, match=f"`c_0`: {wrong}; pass arguments of other sizes"):
        tail(a, 6, 7)
    with pytest.raises(ValueError, match="`c_0`: a size would be negative with n=1, h=-5"):
        tail(a, -5, 7)
    with pytest.raises(TypeError, match=r"argument 2 `h` of `c_0`: expected int64\[\], got str"):
        tail(a, "5", 7)


def test_a_region_of_several_results_gives_a_tuple() -> None:
    nodes = [("Neg", "x", "a"), ("Abs", "a", "b"), ("Neg", "b", "y")]
    proto = model(nodes, {"x": ["n"]}, {"y": ["n"], "a": ["n"], "b": ["n"]})
    module = plan(proto, Stub("one", ["Neg"]), Stub("two")).build().load()
    x = np.array([1, -2], np.float32)
    (b,) = [module["two_0"](-x)]
    np.testing.assert_array_equal(b, [1, 2])
    both = plan(model(nodes[:2], {"x": ["n"]}, {"a": ["n"], "b": ["n"]})).build().load()["stub_0"]
    first, second = both(x)
    np.testing.assert_array_equal(first, -x)
    np.testing.assert_array_equal(second, [1, 2])
