"""The headers compile without a warning: by each compiler, standard and target that they claim."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from farcall.ffi import include_dir

HERE = Path(__file__).parent
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-fPIC", "-c", "-o")
ZIG = (sys.executable, "-m", "ziglang")
with_zig = pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="ziglang is not installed")
with_gcc = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not installed")

C_SOURCE = """
#include <farcall/c_api.h>
FARCALL_SAY_ABI_VERSION;
FARCALL_KERNEL(first) {
  const TVMFFISeqCell* list = TVMFFISeqGetCellPtr(args[0].v_obj);
  if (num_args != 1 || list->size != 1) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "first: expected a list of one");
    return -1;
  }
  return TVMFFIAnyViewToOwnedAny((const TVMFFIAny*)list->data, result);
}
"""
CPP_SOURCE = """
#include <farcall/allocators.hpp>
static farcall::Tensor twice(farcall::ConstTensorView x) {
  auto y = farcall::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.sizes(), x.dtype(), x.device());
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
  return y;
}
FARCALL_EXPORT(twice, twice, farcall::arg("x"));
FARCALL_EXPORT(lookup, [](farcall::Map<farcall::String, farcall::Any> map, const farcall::String& key) {
  return map.at(key);
});
"""
TARGETS = [
    "x86_64-linux-musl",
    "aarch64-linux-gnu",
    "riscv64-linux-musl",
    "s390x-linux-musl",
    "arm-linux-musleabihf",
    "hexagon-linux-musl",
]


def compile_with(
    compiler: tuple[str, ...], source: Path, *flags: str, extra: tuple[str, ...] = STRICT
) -> None:
    command = [*compiler, *flags, f"-I{include_dir()}", str(source), *extra, str(source.with_suffix(".o"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-6000:]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@with_gcc
@pytest.mark.parametrize("standard", ["c11", "c17", "gnu11"])
def test_c_by_gcc(tmp_path: Path, standard: str) -> None:
    compile_with(("gcc",), written(tmp_path, "use.c", C_SOURCE), f"-std={standard}")


@with_zig
@pytest.mark.parametrize("target", TARGETS)
def test_c_for_other_machines(tmp_path: Path, target: str) -> None:
    """The targets include 32-bit pointers and big-endian machines, for which the layouts are pinned too."""
    compile_with((*ZIG, "cc", "-target", target), written(tmp_path, "use.c", C_SOURCE), "-std=c11")


@with_gcc
@pytest.mark.parametrize("standard", ["c++17", "c++20", "c++23"])
def test_cpp_by_gcc(tmp_path: Path, standard: str) -> None:
    compile_with(("g++",), written(tmp_path, "use.cpp", CPP_SOURCE), f"-std={standard}", "-O2")


@with_gcc
@pytest.mark.long
def test_every_header_by_itself(tmp_path: Path) -> None:
    """In either order of inclusion."""
    headers = sorted(path.name for path in (Path(include_dir()) / "farcall" / "cpp").glob("*.hpp"))
    for header in headers:
        source = written(tmp_path, f"{header}.cpp", f"#include <farcall/cpp/{header}>\n")
        compile_with(("g++", "-fsyntax-only"), source, "-std=c++17")


@with_zig
@pytest.mark.parametrize("standard", ["c++17", "c++23"])
def test_cpp_by_clang(tmp_path: Path, standard: str) -> None:
    source = tmp_path / "kernels.cpp"
    source.write_bytes((HERE / "kernels.cpp").read_bytes())
    loose = tuple(flag for flag in STRICT if flag != "-Wconversion")
    compile_with((*ZIG, "c++"), source, f"-std={standard}", "-O0", extra=loose)


@with_zig
@pytest.mark.parametrize("target", ["x86_64-linux-musl", "aarch64-linux-musl", "arm-linux-musleabihf"])
def test_cpp_for_other_machines(tmp_path: Path, target: str) -> None:
    compile_with((*ZIG, "c++", "-target", target), written(tmp_path, "use.cpp", CPP_SOURCE), "-std=c++17")


def toolkit() -> list[str]:
    """The folders of CUDA's and NVSHMEM's headers that packages brought; empty when one is missing."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    folders = [folder for place in places for folder in place.glob("*/include")]
    wanted = ("cuda_runtime_api.h", "crt/host_defines.h", "nvshmem.h")
    found = all(any((folder / name).is_file() for folder in folders) for name in wanted)
    return [f"-isystem{folder}" for folder in folders] if found else []


@pytest.mark.skipif(
    not toolkit(),
    reason="nvidia-cuda-runtime-cu12, -nvcc-cu12, -cccl-cu12 and nvidia-nvshmem-cu12 are not all installed",
)
def test_allocators_of_the_device_toolkits(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        "use.cpp",
        """
#include <farcall/allocators.hpp>
using namespace farcall;
Tensor on_cuda(Shape s) { return Tensor::FromNDAlloc(CudaAllocator(), s, dtype_of<float>, {kDLCUDA, 0}); }
Tensor symmetric(Shape s) {
  return Tensor::FromNDAlloc(NvshmemAllocator(), s, dtype_of<float>, {kDLCUDA, 0});
}
FARCALL_EXPORT(on_cuda, on_cuda);
FARCALL_EXPORT(symmetric, symmetric);
""",
    )
    loose = tuple(flag for flag in STRICT if flag != "-Wshadow")
    compile_with(("g++",), source, "-std=c++17", "-fsyntax-only", *toolkit(), extra=loose)


@with_zig
def test_a_library_for_musl(tmp_path: Path) -> None:
    """Linked, and nothing undefined but the runtime's functions and the C library's."""
    from farcall.library._elf import Elf

    source = written(tmp_path, "use.cpp", CPP_SOURCE)
    target = ("-target", "x86_64-linux-musl")
    compile_with((*ZIG, "c++", *target), source, "-std=c++17", "-fvisibility=hidden")
    link = [
        *ZIG,
        "cc",
        *target,
        "-shared",
        "-nostdlib",
        "use.o",
        "-o",
        "use.so",
    ]  # the C++ runtime is the host's
    subprocess.run(link, cwd=tmp_path, check=True, timeout=600)
    symbols = Elf((tmp_path / "use.so").read_bytes()).dynamic_symbols()
    assert {"__tvm_ffi_twice", "__tvm_ffi_lookup"} <= {symbol.name for symbol in symbols if symbol.defined}
    assert any(symbol.name == "TVMFFIEnvTensorAlloc" and not symbol.defined for symbol in symbols)
