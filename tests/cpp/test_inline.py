"""fc.cpp: building from text and from files, and the cases in which the cache must build again."""

from __future__ import annotations

import inspect
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import farcall.cpp._builder as builder
from farcall.cpp import build, build_inline, load, load_inline
from farcall.cpp._builder import depends_of
from farcall.cpp._cuda import find_nvcc
from farcall.errors import ArtifactError, ToolchainError, UsageError
from farcall.ffi import Module

FAST = ["-O0"]
C_KERNEL = """
#include <farcall/c_api.h>
FARCALL_KERNEL(seven) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = 7;
  return 0;
}
"""


def make_c(folder: Path, value: int = 7) -> Path:
    path = folder / "seven.c"
    path.write_text(C_KERNEL.replace("v_int64 = 7", f"v_int64 = {value}"))
    return path


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the units that are compiled from now on."""
    seen: list[str] = []
    original = builder._Builder._compile

    def compile_one(self: builder._Builder, unit: object, source: Path, out: Path) -> Path:
        seen.append(source.name)
        return original(self, unit, source, out)  # type: ignore[arg-type]

    monkeypatch.setattr(builder._Builder, "_compile", compile_one)
    return seen


def test_load_inline_includes_the_header_and_exports(tmp_path: Path, compiles: list[str]) -> None:
    source = """
    int add(int a, int b = 3) { return a + b; }
    farcall::Tensor twice(farcall::ConstTensorView x) {
      auto y = farcall::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.sizes(), x.dtype(), x.device());
      for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = std::ldexp(x.data_ptr<float>()[i], 1);
      return y;
    }
    """
    doc = 'Adds "two"\nnumbers: ü \\ \x01.'

    def once() -> None:
        mod = load_inline("demo", cpp_sources=source, functions={"add": doc, "twice": ""}, extra_cflags=FAST)
        assert (mod["add"](1, 2), mod["add"](1)) == (3, 4)
        assert mod["_doc_add"]() == doc
        np.testing.assert_array_equal(mod["twice"](np.ones(3, np.float32)), np.full(3, 2, np.float32))
        with pytest.raises(
            TypeError, match=r"argument 2 `b` of `add\(a: int, b: int = 3\) -> int`: expected int"
        ):
            mod["add"](1, "x")

    once()
    once()
    assert len(compiles) == 1  # the second time it was there


def test_the_compilers_words_are_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"compile broken\.cpp of 'broken'") as caught:
        load_inline(
            "broken", cpp_sources="int f() { return undeclared_name; }", functions="f", extra_cflags=FAST
        )
    assert "undeclared_name" in str(caught.value)


def test_a_missing_symbol_is_an_error_at_load() -> None:
    source = "extern int nowhere_to_be_found(); int f() { return nowhere_to_be_found(); }"
    with pytest.raises(ArtifactError, match="nowhere_to_be_found"):
        load_inline("missing", cpp_sources=source, functions=["f"], extra_cflags=FAST)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "-x", ".x", "a b"])
def test_a_name_that_cannot_be_one(name: str) -> None:
    with pytest.raises(UsageError, match="name "):
        build(name, sources="x.c")


def test_other_wrong_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a C identifier"):
        build_inline("x", cpp_sources="", functions=["ns::f"])
    with pytest.raises(UsageError, match="backend 'hip'"):
        build_inline("x", cpp_sources="", backend="hip")
    with pytest.raises(UsageError, match="no sources"):
        build("x")
    with pytest.raises(UsageError, match="extension names no language"):
        build("x", sources="x.rs")
    with pytest.raises(UsageError, match="cannot read"):
        build("x", sources=tmp_path / "nothing.c")
    with pytest.raises(UsageError, match=r"ends in \.so or \.o"):
        build("x", sources=make_c(tmp_path), output="../x.so")


def test_load_from_files(tmp_path: Path) -> None:
    assert load("seven", sources=[make_c(tmp_path)], build_directory=tmp_path / "out")["seven"]() == 7


def test_a_changed_file_is_loaded_anew_from_the_same_folder(tmp_path: Path, compiles: list[str]) -> None:
    out = tmp_path / "out"
    first = load("seven", cpp_files=make_c(tmp_path), build_directory=out)
    second = load("seven", cpp_files=make_c(tmp_path, 8), build_directory=out)
    assert (first["seven"](), second["seven"]()) == (7, 8)
    load("seven", cpp_files=make_c(tmp_path, 7), build_directory=out)
    assert len(compiles) == 2


def test_a_changed_header_builds_anew(tmp_path: Path, compiles: list[str]) -> None:
    header = tmp_path / "value with space.h"
    source = tmp_path / "seven.c"
    source.write_text('#include "value with space.h"\n' + C_KERNEL.replace("= 7", "= VALUE"))

    def value(n: int) -> int:
        header.write_text(f"#define VALUE {n}\n")
        mod = load("h", sources=source, extra_include_paths=[tmp_path], build_directory=tmp_path / "out")
        result: int = mod["seven"]()
        return result

    assert (value(1), value(2)) == (1, 2)
    assert len(compiles) == 2
    os.utime(header, ns=(1, 1))  # another time, the same content
    assert value(2) == 2
    assert len(compiles) == 2


def test_a_torn_library_is_built_again(tmp_path: Path) -> None:
    source = make_c(tmp_path)
    path = Path(build("torn", sources=source, build_directory=tmp_path / "out"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert build("torn", sources=source, build_directory=tmp_path / "out") == str(path)
    assert path.read_bytes() == whole


def test_a_torn_stamp_is_written_again(tmp_path: Path) -> None:
    source = make_c(tmp_path)
    build("torn", sources=source, build_directory=tmp_path / "out")
    (stamp,) = (tmp_path / "out").glob("*.json")
    for text in ("", "{", "[]", "{}", '{"file": "../x", "sha256": "", "headers": []}', '{"file": 1}'):
        stamp.write_text(text)
        assert Path(build("torn", sources=source, build_directory=tmp_path / "out")).is_file()


def test_many_builders_at_once_leave_one_whole_library(tmp_path: Path) -> None:
    source = make_c(tmp_path)
    results: list[str] = []
    gate = threading.Barrier(4)

    def run() -> None:
        gate.wait()
        results.append(build("many", sources=source, build_directory=tmp_path / "out"))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert len(results) == 4
    left = sorted(path.suffix for path in (tmp_path / "out").iterdir())
    assert left == [".json", ".so"]  # no temporary folder, no lock


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text("int f( {")
    with pytest.raises(ToolchainError):
        build("bad", sources=source, build_directory=tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_objects_and_named_outputs(tmp_path: Path) -> None:
    object_file = build("seven", sources=make_c(tmp_path), build_directory=tmp_path / "out", output="seven.o")
    assert object_file == str(tmp_path / "out" / "seven.o")
    again = load("again", sources=object_file, build_directory=tmp_path / "out")
    assert again["seven"]() == 7


def test_flags_are_part_of_the_content(tmp_path: Path) -> None:
    source = tmp_path / "seven.c"
    source.write_text(C_KERNEL.replace("= 7", "= VALUE"))
    values = [
        load("flags", sources=source, extra_cflags=[f"-DVALUE={n}"], build_directory=tmp_path)["seven"]()
        for n in (1, 2, 1)
    ]
    assert values == [1, 2, 1]


def test_an_embedded_image_is_a_symbol(tmp_path: Path) -> None:
    source = """
    extern "C" const char __tvm_ffi__cubin_blob[], __tvm_ffi__cubin_blob_end[];
    farcall::Bytes blob() {
      return {__tvm_ffi__cubin_blob, static_cast<size_t>(__tvm_ffi__cubin_blob_end - __tvm_ffi__cubin_blob)};
    }
    """
    data = bytes(range(256))
    mod = load_inline(
        "blob", cpp_sources=source, functions="blob", embed_cubin={"blob": data}, extra_cflags=FAST
    )
    assert mod["blob"]() == data


def test_dependencies_as_make_writes_them() -> None:
    text = "0.o: /a/b.cpp \\\n /inc/with\\ space.h \\\n  /x$$y.h\n"
    assert depends_of(text) == ["/a/b.cpp", "/inc/with space.h", "/x$y.h"]


def test_without_nvcc_cuda_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farcall.cpp._cuda.find_nvcc", lambda: None)
    with pytest.raises(ToolchainError, match="CUDA sources need nvcc"):
        build_inline("gpu", cuda_sources="__global__ void k() {}", functions=[])


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_cuda_sources_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARCALL_CUDA_ARCH_LIST", "9.0")
    source = """
    __global__ void fill(float* x, int64_t n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }
    void launch(farcall::TensorView x) {
      fill<<<1, 32, 0, farcall::EnvGetStream<cudaStream_t>(x.device())>>>(x.data_ptr<float>(), x.numel());
    }
    """
    mod = load_inline("gpu", cuda_sources=source, functions="launch", build_directory=tmp_path)
    with pytest.raises(TypeError, match="expected a tensor of float32, got int32"):
        mod["launch"](np.zeros(3, np.int32))


DEFAULTS = """
using namespace farcall;
constexpr int kBlock = 16;
struct Mode { static constexpr int fast = 2; };
int of_containers(int a, std::vector<int> v = {}, Map<String, int> m = {}, Shape s = {}) {
  return a + static_cast<int>(v.size() + m.size() + s.size());
}
std::string of_text(std::string text = {}, bool flag = {}, Optional<int> n = {}) {
  return text + (flag ? "yes" : "no") + (n ? "some" : "none");
}
int shifted(int a, int b = 1 << 4) { return a + b; }
int constants(int a, int b = kBlock, int c = 3, int d = Mode::fast) {
  return 1000 * a + 100 * b + 10 * c + d;
}
"""


@pytest.fixture(scope="module")
def defaults() -> Module:
    return load_inline(
        "defaults", cpp_sources=DEFAULTS, functions=["of_containers", "of_text", "shifted", "constants"]
    )


def test_defaults_that_only_the_source_knows(defaults: Module) -> None:
    """A call may omit trailing optional arguments; passing a later one requires all before it."""
    assert defaults["of_containers"](1) == 1
    assert defaults["of_containers"](1, [2, 3]) == 3
    assert defaults["of_containers"](a=1, v=[2, 3], m={"x": 1}) == 4
    assert defaults["constants"](1) == 1000 + 1600 + 30 + 2
    assert defaults["constants"](1, c=4, b=2) == 1000 + 200 + 40 + 2
    with pytest.raises(TypeError, match=r"argument 2 `b` of .*constants.* is missing: expected int"):
        defaults["constants"](1, c=4)
    with pytest.raises(TypeError, match=r"argument 2 `b` of `constants\(a: int, b: int = \.\.\., c: int = 3"):
        defaults["constants"](1, "x")


def test_defaults_that_python_shows(defaults: Module) -> None:
    assert str(inspect.signature(defaults["shifted"])) == "(a: 'int', b: 'int' = 16) -> 'int'"
    assert defaults["shifted"](1) == 17
    assert str(inspect.signature(defaults["of_text"])).startswith(
        "(text: 'str' = '', flag: 'bool' = False, n: 'int | None' = None)"
    )
    assert defaults["of_text"]() == "nonone"
    assert defaults["of_text"](n=1) == "nosome"
