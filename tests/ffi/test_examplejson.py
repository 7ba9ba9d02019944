"""A graph runtime as a kind of module, in Python and in C, without the defects of TVM's ExampleJSON."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall import ffi

from . import examplejson
from .examplejson import KIND

TEXT = """function f 2
add 0 1
mul 2 0
outputs 3
function g 2
sub 0 1
outputs 2
function both 3
mul 1 2
sub 3 0
add 0 0
outputs 4 5 3
"""
BLOB = fc.Blob(KIND, 1, TEXT.encode(), producer="examplejson 1.0")
Living = Callable[[], int]


@pytest.fixture(scope="module")
def in_c(compile_kernels: Callable[..., Path]) -> ffi.Module:
    source = Path(__file__).with_name("examplejson.c").read_text()
    return ffi.load_library(compile_kernels("examplejson", source))


@pytest.fixture(params=["python", "c"])
def living(request: pytest.FixtureRequest) -> Iterator[Living]:
    """The loader of the kind; gives the number of its living states."""
    if request.param == "python":
        fc.module_kind(KIND)(examplejson.load)
        yield lambda: examplejson.State.living
    else:
        library = request.getfixturevalue("in_c")
        library.register_loader()
        yield library.living
    ffi.remove_global_func(f"ffi.Module.load_from_bytes.{KIND}")


@pytest.fixture
def module(living: Living) -> fc.Module:
    return ffi.load_module_from_bytes(KIND, bytes(BLOB))


def test_each_function_runs_its_own_graph(module: fc.Module) -> None:
    """Not the one that was fetched last; and the graphs, which use the same numbers, share no entries."""
    f, g = module["f"], module["g"]
    x, y, out = np.arange(4.0), np.full(4, 2.0), np.empty(4)
    f(x, y, out)
    assert out.tolist() == [0, 3, 8, 15]
    g(x, y, out)
    assert out.tolist() == [-2, -1, 0, 1]
    f(x, y, out)
    assert out.tolist() == [0, 3, 8, 15]


def test_several_outputs_in_their_order(module: fc.Module) -> None:
    x, y, z = (np.array([value], "float32") for value in (1, 2, 3))
    outputs = [np.empty(1, "float32") for _ in range(3)]
    module["both"](x, y, z, *outputs)
    assert [out.item() for out in outputs] == [5, 2, 6]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_elements_have_their_own_size(module: fc.Module, dtype: str) -> None:
    big = 2**53 + 1 if dtype == "int64" else 3  # float64 cannot hold the first
    x, y = np.array([big, 1], dtype), np.array([0, 1], dtype)
    out = np.empty(2, dtype)
    module["g"](x, y, out)
    assert out.tolist() == [big, 0]


def test_operands_broadcast_and_may_have_strides(module: fc.Module) -> None:
    x, y = np.arange(3.0).reshape(3, 1), np.arange(8.0)[::2]
    out = np.empty((4, 3)).T
    module["g"](x, y, out)
    assert (out == x - y).all()
    out = np.empty((3, 4))
    module["f"](x, y, out)
    assert (out == (x + y) * x).all()


def test_calls_at_the_same_time_do_not_meet(module: fc.Module) -> None:
    def call(seed: int) -> bool:
        x, y, out = np.full(500, float(seed)), np.arange(500.0), np.empty(500)
        module["f"](x, y, out)
        return bool((out == (x + y) * x).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(200)))


def test_a_wrong_number_of_arguments(module: fc.Module) -> None:
    with pytest.raises(TypeError):
        module["f"](np.empty(1), np.empty(1))


def test_saved_loaded_and_saved_again(module: fc.Module, tmp_path: Path) -> None:
    for number in range(3):
        module.save(tmp_path / f"{number}.examplejson")
        module = fc.load_module(tmp_path / f"{number}.examplejson")
    assert (module.kind, module.function_names()) == (KIND, ["both", "f", "g"])
    assert module.inspect_source() == TEXT
    assert fc.Blob.parse(module.save_to_bytes()) == BLOB
    out = np.empty(1)
    module["g"](np.array([5.0]), np.array([3.0]), out)
    assert out.item() == 2


def test_nothing_is_left_of_modules_that_are_gone(living: Living) -> None:
    gc.collect()
    before = living()
    for _ in range(20):
        module = ffi.load_module_from_bytes(KIND, bytes(BLOB))
        module["f"](np.ones(2), np.ones(2), np.empty(2))
    kept = module["g"]
    del module
    gc.collect()
    assert living() == before + 1  # the function needs it
    kept(np.ones(2), np.ones(2), np.empty(2))
    del kept
    gc.collect()
    assert living() == before


def test_it_is_found_through_an_import(module: fc.Module) -> None:
    parent = ffi.new_module("parent", {})
    parent.import_module(module)
    out = np.empty(1)
    parent.get_function("g", query_imports=True)(np.array([5.0]), np.array([3.0]), out)
    assert (out.item(), parent.imports) == (2, (module,))


@pytest.mark.parametrize(
    "text", ["add 0 1\n", "function f 1\nadd 0 7\noutputs 1\n", "function f\n", "function f -1\n"]
)
def test_a_graph_that_is_not_one_is_refused_at_load(in_c: ffi.Module, text: str) -> None:
    in_c.register_loader()
    with pytest.raises(fc.errors.ArtifactError, match="a line is not one"):
        ffi.load_module_from_bytes(KIND, bytes(fc.Blob(KIND, 1, text.encode())))
    assert in_c.living() == 0
    ffi.remove_global_func(f"ffi.Module.load_from_bytes.{KIND}")
