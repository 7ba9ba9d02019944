"""Generated code compiles for every machine without a warning, and works with a driver."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from farcall.errors import StatusError, UsageError
from farcall.idl import compile as compile_idl
from farcall.idl import runtime

from ..fuzz.fuzz_skel import build
from .building import HERE, compiler, run_compiler, shared_library, zig

CALCULATOR = """
#include "AEEStdDef.idl"
#include "remote.idl"
interface calculator : remote_handle64 {
  AEEResult sum(in sequence<long> values, rout long long result);
  AEEResult greet(in string name, rout string greeting);
  AEEResult def(in long from, rout long value);
};
"""
IMPLEMENTATION = r"""
#include "calculator.h"
#include <stdio.h>
#include <stdlib.h>

int32_t calculator_open(const char* uri, fc_remote_handle* h) {
  static int last = 40;
  *h = (fc_remote_handle)++last;
  return uri ? 0 : 1;
}
int32_t calculator_close(fc_remote_handle h) { return h < 41 ? FC_REMOTE_BAD_PARAMETER : 0; }
int32_t calculator_sum(fc_remote_handle h, const int32_t* values, int32_t valuesLen, int64_t* result) {
  (void)h;
  for (int32_t i = 0; i < valuesLen; ++i) *result += values[i];
  return 0;
}
int32_t calculator_greet(fc_remote_handle h, const char* name, char* greeting, int32_t greetingLen) {
  snprintf(greeting, (size_t)greetingLen, "hello %s, %d", name, (int)h);
  return 0;
}
int32_t calculator_def(fc_remote_handle h, int32_t from, int32_t* value) {
  (void)h;
  *value = from;
  return from;
}
"""
# Each string is one that the tests use already: a new one compiles a C library first.
TARGETS = [
    ("-target", "aarch64-linux-musl"),
    ("-target", "arm-linux-musleabihf"),
    ("-target", "hexagon-linux-musl", "-mcpu=hexagonv67"),
    ("-target", "riscv64-linux-musl"),
    ("-target", "x86-linux-musl"),
]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("everything")
    shutil.copy(HERE / "everything.idl", folder)
    compile_idl(folder / "everything.idl", folder, stubs=("c", "python"))
    return folder


@pytest.mark.parametrize("flags", TARGETS, ids=lambda flags: flags[1].partition("-")[0])
def test_every_machine_compiles_it_without_a_warning(everything: Path, flags: tuple[str, ...]) -> None:
    for name in ("stub", "skel"):
        file = everything / f"everything_{name}.c"
        run_compiler(zig(*flags), "-Wconversion", "-c", file, "-o", everything / "x.o", folder=everything)


def test_the_compiler_of_this_machine_takes_it_and_cxx_the_header(everything: Path) -> None:
    for name in ("stub", "skel"):
        file = everything / f"everything_{name}.c"
        run_compiler(
            compiler(), "-Wconversion", "-O2", "-c", file, "-o", everything / "x.o", folder=everything
        )
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    (everything / "use.cpp").write_text('#include "everything.h"\n')
    command = ["g++", "-Wno-pedantic"]
    source = everything / "use.cpp"
    output = everything / "x.o"
    run_compiler(command, "-c", source, "-o", output, folder=everything, standard="c++17")


def test_a_big_endian_machine_is_told(everything: Path) -> None:
    with pytest.raises(AssertionError, match="this machine cannot take part"):
        file = everything / "everything_stub.c"
        flags = ("-target", "s390x-linux-musl")
        run_compiler(zig(*flags), "-c", file, "-o", everything / "x.o", folder=everything)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_the_python_stub_has_types_and_constants(everything: Path) -> None:
    module = load(everything / "everything_stub.py")
    assert module.LIMIT == 4
    assert module.GREETING == 'quotes " and ??= \\ end'
    assert module.color(7).name == "GREEN"
    pixel = module.pixel(1, 0.5, [0, 7])

    class Recorder:
        def open(self, uri: str) -> tuple[int, int]:
            return 0, 3

        def invoke(self, handle: int, call: runtime.Call) -> int:
            self.word = call.scalars
            return 0

        def close(self, handle: int) -> int:
            return 0

    recorder = Recorder()
    with module.everything.open(recorder) as stub:
        changed, grid, color = stub.paint(module.color.RED, pixel, [[1, 2, 3, 4], [5, 6, 7, 8]], 1)
    assert recorder.word == 4 << 24 | 1 << 16 | 1 << 8
    assert (changed, grid, color) == (module.pixel(0, 0.0, [0, 0]), [[0] * 4, [0] * 4], 0)


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The module of the Python stub, and the library of the fake driver beside that of the skel."""
    folder = tmp_path_factory.mktemp("calculator")
    (folder / "calculator.idl").write_text(CALCULATOR)
    (folder / "calculator.c").write_text(IMPLEMENTATION)
    compile_idl(folder / "calculator.idl", folder, stubs=("python",))
    skel = folder / "libcalculator_skel.so"
    shared_library(skel, folder / "calculator.c", folder / "calculator_skel.c")
    flags = ("-D_GNU_SOURCE", "-Wno-pedantic", "-ldl")
    driver = shared_library(folder / "libcdsprpc.so", HERE / "fake_cdsprpc.c", flags=flags)
    return load(folder / "calculator_stub.py"), driver


def test_a_stub_in_python_calls_a_skel_by_the_drivers_functions(
    calculator: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, driver = calculator
    monkeypatch.setenv("DSP_LIBRARY_PATH", str(driver.parent))
    transport = runtime.LibraryTransport(str(driver))
    with module.calculator.open(transport) as first, module.calculator.open(transport) as second:
        assert first.sum([1, 2, -5]) == -2
        assert first.greet("you", 32) == "hello you, 41"
        assert second.greet("you", 12) == "hello you, "
        assert second.def_(0) == 0
        with pytest.raises(StatusError, match=r"calculator.def: status 0x14 \(unsupported\)"):
            second.def_(20)
    with pytest.raises(StatusError, match="bad parameter"):
        second.sum([1])


def test_an_interface_that_the_driver_does_not_find(
    calculator: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, driver = calculator
    monkeypatch.setenv("DSP_LIBRARY_PATH", "/nowhere")
    with pytest.raises(StatusError, match=r"open of file:///libcalculator_skel\.so"):
        module.calculator.open(runtime.LibraryTransport(str(driver)))


def test_a_machine_without_the_driver_is_told() -> None:
    with pytest.raises(UsageError, match=r"'libcdsprpc\.so' is not a driver of FastRPC"):
        runtime.LibraryTransport()


def test_hostile_calls_stay_in_their_buffers_under_sanitizers(tmp_path: Path) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DFUZZ_PROGRAM")
    program = build(tmp_path, *flags, output="program")
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
