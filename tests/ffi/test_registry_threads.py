"""Sixteen threads that load, register, import and call at once lose nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from farcall import _core, ffi

from .threads import in_threads

THREADS = 16
TYPES = """
#include <farcall/c_api.h>
#include <string.h>
FARCALL_VISIBLE void* __tvm_ffi__library_ctx;

FARCALL_KERNEL(type_index) {
  TVMFFIByteArray name = {args[0].v_c_str, strlen(args[0].v_c_str)};
  result->type_index = kTVMFFIInt;
  result->v_int64 = TVMFFITypeGetOrAllocIndex(&name, -1, 1, 2, 1, kTVMFFIObject);
  return 0;
}
FARCALL_KERNEL(call_import) {
  TVMFFIObjectHandle f;
  if (TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, args[0].v_c_str, &f) != 0) return -1;
  return TVMFFIFunctionCall(f, (TVMFFIAny*)args + 1, num_args - 1, result);
}
"""


def test_load_register_import_call(compile_kernels: Callable[..., Path], tmp_path: Path) -> None:
    library = compile_kernels("types", TYPES)
    copies = [Path(shutil.copy(library, tmp_path / f"copy{i}.so")) for i in range(THREADS)]
    shared = ffi.load_library(library)
    indices: list[dict[str, int]] = [{} for _ in range(THREADS)]

    def work(i: int) -> None:
        own = ffi.load_library(copies[i])
        for k in range(40):
            name = f"race.{k}"
            indices[i][name] = own.type_index(name)
            helper = _core.new_module(f"kind{i}", {f"f{k}": lambda x: x + 1})
            own.import_module(helper)
            assert own.call_import(f"f{k}", k) == k + 1
            shared.import_module(_core.new_module("shared", {f"g{i}.{k}": lambda: None}))
            ffi.register_global_func(f"race.{i}.{k}", lambda x: x * 2)
            assert shared.call_import(f"race.{i}.{k}", k) == 2 * k
            ffi.remove_global_func(f"race.{i}.{k}")
        assert len(own.imports) == 40

    in_threads(THREADS, work)
    assert all(found == indices[0] for found in indices), "a type has one index, whoever comes first"
    assert len(set(indices[0].values())) == 40
    assert len(shared.imports) == THREADS * 40
    for i in range(THREADS):
        assert shared.implements_function(f"g{i}.39", query_imports=True)


def test_loaders_and_system_libraries() -> None:
    _core.register_loader("raced", lambda data: _core.new_module("raced", {"size": lambda: len(data)}))

    def work(i: int) -> None:
        for k in range(50):
            assert _core.load_module_from_bytes("raced", b"x" * k).size() == k
            assert _core.system_lib(f"race{k % 3}_") is _core.system_lib(f"race{k % 3}_")

    in_threads(THREADS, work)
    ffi.remove_global_func("ffi.Module.load_from_bytes.raced")
