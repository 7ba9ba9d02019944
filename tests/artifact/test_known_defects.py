"""Defects that code generators and graph runtimes of others have had, which these do not have.

Those of graph runtimes as kinds of modules are in ``tests/ffi/test_examplejson.py``.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.backends.base import Backend
from farcall.backends.c import CBackend
from farcall.backends.json import JsonBackend

from ..graph.graphs import text_model

BACKENDS = pytest.mark.parametrize("backend", ["c", "json"])


def module_of(source: str, *backends: str | Backend) -> Any:
    return fc.partition(text_model(source), list(backends)).build().load()


@BACKENDS
@pytest.mark.parametrize(("dtype", "of_numpy"), [("int64", "i8"), ("uint8", "u1"), ("double", "f8")])
def test_the_memory_between_operators_has_the_size_of_its_elements(
    backend: str, dtype: str, of_numpy: str
) -> None:
    """Not of float32: buffers of 4 bytes an element were too small."""
    source = f"g ({dtype}[5,7] x) => ({dtype}[5,7] y) {{ a = Add(x, x) b = Add(a, x) y = Add(b, a) }}"
    x = np.arange(35).reshape(5, 7).astype(of_numpy)
    np.testing.assert_array_equal(module_of(source, backend)["main"](x), x + x + x + x + x)


@BACKENDS
@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_the_number_of_operands_is_not_the_rank(backend: str, rank: int) -> None:
    kind = f"float[{','.join(['2'] * rank)}]" if rank else "float"
    source = f"g ({kind} x, {kind} z) => ({kind} y) {{ a = Add(x, z) y = Mul(a, z) }}"
    x = np.arange(2**rank, dtype=np.float32).reshape([2] * rank)
    np.testing.assert_array_equal(module_of(source, backend)["main"](x, x), 2 * x * x)


@BACKENDS
def test_operands_broadcast_and_have_strides_and_offsets(backend: str) -> None:
    """The shape is not the first operand's, and the memory not always dense."""
    source = """g (float[1,7] x, float[5,1] z, float[3,1,1] w) => (float[3,5,7] y) {
        a = Add(x, z) y = Mul(a, w) }"""
    big = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
    x, z, w = big[3:4, 20:6:-2], big.T[2:7, 1:2], big[::7, 4][:, None, None]
    np.testing.assert_array_equal(module_of(source, backend)["main"](x, z, w), (x + z) * w)


@BACKENDS
def test_each_result_is_its_own_and_may_be_asked_for_twice(backend: str) -> None:
    source = """g (float[6,2] unused, float[6,2] x)
      => (float[2,2] a, float[4,2] b, float[6,2] c, float[6,2] d, float[2,2] e) <int64[2] s = {2, 4}> {
        a, b = Split<axis = 0>(x, s) c = Neg(x) d = Abs(c) e = Identity(a) }"""
    x = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)
    results = module_of(source, backend)["main"](x * 0, x)
    for got, want in zip(results, (x[:2], x[2:], -x, np.abs(x), x[:2]), strict=True):
        np.testing.assert_array_equal(got, want)


@BACKENDS
def test_memory_that_is_not_there_is_an_error(backend: str) -> None:
    source = "g (float[n, m] x) => (float[n, n] y) { t = Transpose(x) a = MatMul(x, t) y = Exp(a) }"
    with pytest.raises(MemoryError):
        module_of(source, backend)["main"](np.broadcast_to(np.float32(0), (2**22, 1)))


@BACKENDS
def test_regions_have_their_own_constants_and_keep_apart(backend: str) -> None:
    """The indices of the second one's constants began behind the first one's; both ran the last graph."""

    class Mine({"c": CBackend, "json": JsonBackend}[backend]):  # type: ignore[misc]
        name = "mine"

        def check(self, node: Any) -> str | None:
            return "no" if node.op_type == "Exp" else super().check(node)

    module = module_of(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}, float[2] u = {5, 6}> {
        a = Mul(x, w) b = Add(a, v) c = Exp(b) d = Mul(c, u) y = Add(d, w) }""",
        Mine(),
        "c",
    )
    w, v, u = (np.float32(pair) for pair in ([1, 2], [3, 4], [5, 6]))
    first, second = module["mine_0"], module["mine_1"]

    def both(k: int) -> bool:
        x = np.float32([k, -k])
        return np.array_equal(first(x), x * w + v) and np.array_equal(second(x), x * u + w)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(both, range(400)))


@BACKENDS
def test_a_graph_may_have_no_inputs(backend: str) -> None:
    """A kernel without inputs was taken for an input."""
    source = "g () => (float[2] y) <float[2] w = {1, 2}> { a = Neg(w) y = Abs(a) }"
    np.testing.assert_array_equal(module_of(source, backend)["main"](), [1, 2])


@BACKENDS
def test_names_do_not_grow_with_a_region(backend: str, tmp_path: Path) -> None:
    """A name that lists the operators of its region, in each of its functions, makes files quadratic."""
    sizes = []
    for count in (200, 400):
        steps = "".join(f"v{i + 1} = Neg(v{i}) " for i in range(count))
        plan = fc.partition(text_model(f"g (float[2] v0) => (float[2] v{count}) {{ {steps} }}"), [backend])
        sizes.append(plan.build().save(tmp_path / f"{count}.so").stat().st_size)
    assert max(len(region.name) for region in plan.regions) < 10
    assert sizes[1] < sizes[0] * 2 + 4096
