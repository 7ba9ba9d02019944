"""TVM FFI's own loader reads the modules that a library embeds, and gives each loader its whole frame."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from farcall import ffi
from farcall.library import Blob, embed_modules

from ..programs import hiding_torch, output_of

SOURCE = """
#include <farcall/c_api.h>
FARCALL_KERNEL(%s) {
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = %d};
  return 0;
}
"""
# The loader makes a module that TVM FFI can make in Python: that of another library.
PROGRAM = """
import json, sys
import tvm_ffi
root_path, other_path = sys.argv[1:]
got = []

def load(data):
    got.append(bytes(data).hex())
    return tvm_ffi.load_module(other_path)

try:
    tvm_ffi.load_module(root_path)
except Exception as error:
    without = str(error)
tvm_ffi.register_global_func("ffi.Module.load_from_bytes.npu", load)
root = tvm_ffi.load_module(root_path)
print(json.dumps({
    "without": without,
    "frames": got,
    "kind": root.kind,
    "imports": len(root.imports),
    "own": root.get_function("own")(),
    "theirs": root.get_function("theirs", query_imports=True)(),
}))
"""
BLOBS = [Blob("npu", 7, b"first", ("int4",), "farcall-npu 1.2"), Blob("npu", 7, b"second")]


@pytest.fixture(scope="module")
def paths(compile_kernels: Callable[..., Path]) -> tuple[Path, Path]:
    root = compile_kernels("embeds_for_tvm", SOURCE % ("own", 1) + embed_modules(BLOBS))
    return root, compile_kernels("made_for_tvm", SOURCE % ("theirs", 2))


def test_their_loader_reads_our_embedding(paths: tuple[Path, Path]) -> None:
    pytest.importorskip("tvm_ffi", reason="its loader is tested")
    found = json.loads(output_of("-c", PROGRAM, *paths, env=hiding_torch()))
    assert "npu" in found.pop("without")
    frames = [Blob.parse(bytes.fromhex(frame)) for frame in found.pop("frames")]
    assert frames == BLOBS
    assert found == {"kind": "library", "imports": 2, "own": 1, "theirs": 2}


def test_our_loader_reads_it_too(paths: tuple[Path, Path]) -> None:
    got: list[Blob] = []

    def load(data: bytes) -> ffi.Module:
        got.append(Blob.parse(data))
        return ffi.load_library(paths[1])

    ffi.register_loader("npu", load)
    root = ffi.load_library(paths[0])
    ffi.remove_global_func("ffi.Module.load_from_bytes.npu")
    assert got == BLOBS
    assert (root.own(), root.get_function("theirs", query_imports=True)()) == (1, 2)
