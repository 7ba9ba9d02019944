"""One call from Python into a kernel, beside apache-tvm-ffi: same kernels, same GIL policy, same process."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm_ffi
import tvm_ffi.cpp

from bench import nanobind_kernels
from bench.harness import Row, in_turn, rows, spread
from farcall import cpp, ffi
from farcall.toolchain import find_compiler

KERNELS = """
#include <farcall/c_api.h>

FARCALL_KERNEL(nothing) { return 0; }

FARCALL_KERNEL(same) { return TVMFFIAnyViewToOwnedAny(&args[0], result); }

/* Calls args[0](7), args[1] times. */
FARCALL_KERNEL(call_often) {
  TVMFFIAny seven = {.type_index = kTVMFFIInt, .v_int64 = 7}, none;
  for (int64_t i = 0; i < args[1].v_int64; ++i) {
    none.type_index = kTVMFFINone;
    if (TVMFFIFunctionCall(args[0].v_obj, &seven, 1, &none) != 0) return -1;
  }
  return 0;
}

FARCALL_KERNEL(fail) {
  TVMFFIErrorSetRaisedFromCStr("ValueError", "as it was asked to");
  return -1;
}

static DLTensor* tensor(const TVMFFIAny* any) {
  return any->type_index == kTVMFFITensor ? TVMFFITensorGetDLTensorPtr(any->v_obj) : (DLTensor*)any->v_ptr;
}

FARCALL_KERNEL(chain) {
  const float *a = tensor(&args[0])->data, *b = tensor(&args[1])->data;
  const float *c = tensor(&args[2])->data, *d = tensor(&args[3])->data;
  TVMFFIObjectHandle out;
  int64_t n = 1;
  if (TVMFFIEnvTensorAlloc(tensor(&args[0]), &out) != 0) return -1;
  float* y = TVMFFITensorGetDLTensorPtr(out)->data;
  for (int32_t i = 0; i < tensor(&args[0])->ndim; ++i) n *= tensor(&args[0])->shape[i];
  for (int64_t i = 0; i < n; ++i) y[i] = ((a[i] + b[i]) - c[i]) * d[i];
  result->type_index = kTVMFFITensor;
  result->v_obj = out;
  return 0;
}
"""
BATCH = 200


def run() -> list[Row]:
    """Rows by kind of argument; results, callbacks, errors, and tensors whose ownership is transferred."""
    with tempfile.TemporaryDirectory() as folder:
        ours = ffi.load_library(build_kernels(Path(folder), "ours"))
        # A separate file: a file that is loaded twice is mapped once, and bound to one runtime only.
        theirs = tvm_ffi.load_module(str(build_kernels(Path(folder), "theirs")))
        lent = ffi.load_library(build_kernels(Path(folder), "lent"))["nothing"]
        lent.views = True
        bound = nanobind_kernels.load()
        return [
            *_arguments(ours, theirs, lent, bound),
            *_results(ours, theirs),
            *_chain(ours, theirs),
            *_callback(ours, theirs, bound),
            *_errors(ours, theirs, bound),
            *_from_dlpack(),
            _crowd(ours["nothing"]),
        ]


def build_kernels(folder: Path, name: str) -> Path:
    """The library with the kernels above, in a file of that name."""
    (folder / f"{name}.c").write_text(KERNELS)
    flags = ["-O3", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ffi.include_dir()}"]
    find_compiler().run([*flags, f"{name}.c", "-o", f"{name}.so"], folder, "benchmark kernels")
    return folder / f"{name}.so"


def _batch(function: Callable[..., object], args: tuple[Any, ...]) -> Callable[[], None]:
    """BATCH calls written as a user writes them, so that the time includes no wrapper around the call."""
    scope = {"f": function, "repeat": range(BATCH)} | {f"a{i}": arg for i, arg in enumerate(args)}
    actual = ", ".join(f"a{i}" for i in range(len(args)))
    local = ", ".join(f"{name}={name}" for name in scope)
    exec(f"def batch({local}):\n    for _ in repeat:\n        f({actual})\n", scope)  # noqa: S102 - our own text
    batch: Callable[[], None] = scope["batch"]
    return batch


def _single(row: Row) -> Row:
    return replace(row, ours=row.ours / BATCH, theirs=row.theirs / BATCH if row.theirs else None)


def _rows(
    work: str,
    ours: Callable[[], None],
    theirs: Callable[[], None],
    reach: float | None = None,
    third: Callable[[], None] | None = None,
) -> list[Row]:
    contenders = {"farcall": ours, "apache-tvm-ffi": theirs} | ({"nanobind": third} if third else {})
    limits = {"apache-tvm-ffi": reach} if reach else None
    return [_single(row) for row in rows(work, contenders, ratios=limits)]


def _arguments(ours: Any, theirs: Any, lent: Any, bound: Any) -> list[Row]:
    arrays = tuple(np.ones((10, 10), np.float32) for _ in range(8))
    torches = tuple(map(torch.from_numpy, arrays))
    f, g = ours["nothing"], theirs["nothing"]
    cases: list[tuple[str, Any, tuple[Any, ...], float, str]] = [
        ("call: 3 ints", f, (1, 2, 3), 0.45, "ints"),
        ("call: str of 26 characters", f, ("abcdefghijklmnopqrstuvwxyz",), 0.45, "text"),
        ("call: 3 torch tensors, views", lent, torches[:3], 0.55, "arrays"),
        ("call: 3 torch tensors, Tensor objects", f, torches[:3], 0.60, ""),
        ("call: 8 torch tensors, views", lent, torches, 0.55, ""),
        ("call: 3 numpy arrays", f, arrays[:3], 0.40, "arrays"),
    ]
    if jax := _jax_arrays():
        cases.append(("call: 3 jax arrays", f, jax, 0.50, ""))
    result = [
        row
        for work, call, args, reach, name in cases
        for row in _rows(work, _batch(call, args), _batch(g, args), reach, _bound(bound, name, args))
    ]
    own, rival = tuple(map(ffi.from_dlpack, arrays[:3])), tuple(map(tvm_ffi.from_dlpack, arrays[:3]))
    result += _rows("call: 3 of the library's own Tensors", _batch(f, own), _batch(g, rival), 0.55)
    return [*result, *_gil_kept(f, g, bound)]


def _bound(bound: Any, name: str, args: tuple[Any, ...]) -> Callable[[], None] | None:
    return _batch(getattr(bound, name), args) if bound and name else None


def _jax_arrays() -> tuple[Any, ...] | None:
    try:
        import jax.numpy as jnp
    except ImportError:
        return None
    return tuple(jnp.ones((10, 10), jnp.float32) for _ in range(3))


def _gil_kept(f: Any, g: Any, bound: Any) -> list[Row]:
    f.release_gil = g.release_gil = False
    ints = (1, 2, 3)
    try:
        third = _bound(bound, "ints_kept", ints)
        return _rows("call: 3 ints, GIL kept", _batch(f, ints), _batch(g, ints), 0.45, third)
    finally:
        f.release_gil = g.release_gil = True


def _results(ours: Any, theirs: Any) -> list[Row]:
    x = (torch.ones(10, 10),)
    assert type(ours["same"](*x)) is type(theirs["same"](*x)) is torch.Tensor
    return _rows("call: torch in, the same out", _batch(ours["same"], x), _batch(theirs["same"], x), 0.80)


def _callback(ours: Any, theirs: Any, bound: Any) -> list[Row]:
    def callback(x: int) -> None:
        pass

    mine, rival = ffi.Function(callback), tvm_ffi.convert(callback)
    f, g = ours["call_often"], theirs["call_often"]
    contenders = {"farcall": lambda: f(mine, BATCH), "apache-tvm-ffi": lambda: g(rival, BATCH)}
    result = []
    for policy, released in (("", True), (", GIL kept", False)):
        f.release_gil = g.release_gil = released
        if bound and not released:
            contenders["nanobind"] = lambda: bound.call_often(callback, BATCH)
        work = f"callback: native -> Python, 1 int{policy}"
        result += [_single(row) for row in rows(work, contenders, ratios={"apache-tvm-ffi": 0.60})]
    return result


def _from_dlpack() -> list[Row]:
    array = np.ones((10, 10), np.float32)
    tensor = torch.from_numpy(array)
    return [
        row
        for name, x in (("torch", tensor), ("numpy", array))
        for row in _rows(
            f"from_dlpack({name})", _batch(ffi.from_dlpack, (x,)), _batch(tvm_ffi.from_dlpack, (x,)), 0.60
        )
    ]


def _crowd(f: Any) -> Row:
    """A call beside 10,000 registered functions, against the same call alone."""
    call = _batch(f, (1, 2, 3))
    names = [f"bench.crowd.{i}" for i in range(10_000)]
    alone = in_turn({"": call})[""]
    for name in names:
        ffi.register_global_func(name, f)
    crowded = in_turn({"": call})[""]
    for name in names:
        ffi.remove_global_func(name)
    medians = statistics.median(crowded), statistics.median(alone)
    work, rival = "call: 3 ints, 10,000 functions registered", "farcall, few"
    return _single(Row(work, medians[0], spread(crowded), rival, medians[1], reach_ratio=1.1))


def _chain(ours: Any, theirs: Any) -> list[Row]:
    arrays = tuple(np.random.default_rng(0).random((4, 10, 10), dtype=np.float32))
    a, b, c, d = arrays
    np.testing.assert_array_equal(ours["chain"](*arrays), ((a + b) - c) * d)
    rivals = {"numpy": _batch(lambda a, b, c, d: ((a + b) - c) * d, arrays)}
    timed = rows(
        "call: kernel chain, 4 numpy 10x10 -> numpy", {"farcall": _batch(ours["chain"], arrays)} | rivals
    )
    torches = tuple(map(torch.from_numpy, arrays))
    own, rival = _batch(ours["chain"], torches), _batch(theirs["chain"], torches)
    return [
        *(replace(_single(row), reach_seconds=0.7e-6) for row in timed),
        *_rows("call: kernel chain, 4 torch 10x10 -> torch", own, rival, 0.80),
    ]


def _errors(ours: Any, theirs: Any, bound: Any) -> list[Row]:
    def caught(function: Callable[[], object]) -> Callable[[], None]:
        def call() -> None:
            try:
                function()
            except ValueError:
                return
            raise AssertionError("the kernel did not fail")

        return call

    in_c = {"farcall": caught(ours["fail"]), "apache-tvm-ffi": caught(theirs["fail"])}
    in_cpp = {name: caught(function) for name, function in _throwers().items()}
    if bound:
        in_cpp["nanobind"] = caught(bound.fail)
    return [
        *rows("call: C error -> Python except", in_c, ratios={"apache-tvm-ffi": 0.10}),
        *rows("call: C++ exception -> Python except", in_cpp, ratios={"apache-tvm-ffi": 0.10}),
    ]


def _throwers() -> dict[str, Callable[[], object]]:
    """The same function with each library's headers; compiled once, then taken from the libraries' caches."""
    mine = 'void fail() { throw farcall::Error("ValueError", "as it was asked to"); }'
    rival = 'void fail() { TVM_FFI_THROW(ValueError) << "as it was asked to"; }'
    return {
        "farcall": cpp.load_inline("bench_throw", cpp_sources=mine, functions=["fail"])["fail"],
        "apache-tvm-ffi": tvm_ffi.cpp.load_inline("bench_throw", cpp_sources=rival, functions=["fail"]).fail,
    }
