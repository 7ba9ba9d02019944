"""Models that are linked into the small server: a firmware without files and without a loader."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import farcall as fc
from farcall.artifact import Artifact
from farcall.cli.inspect import command
from farcall.errors import ArtifactError, ToolchainError, UsageError
from farcall.launch import build_server
from farcall.library import inspect
from farcall.library._elf import Elf
from farcall.library._manifest import DIGEST_SIZE, compute_digest, encode
from farcall.library._static import static_library
from farcall.rpc import Session, connect
from farcall.toolchain import Machine

from ..tree import ROOT
from ..waiting import SECONDS
from ..wire.conftest import compiler
from .small_server import named

DIGITS = ROOT / "examples/digits"
FIRMWARE = """
#include <farcall/c_api.h>
#include "digits.h"
#include "other.h"

static int text(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIByteArray bytes = {farcall_digits.manifest, farcall_digits.manifest_size};
  (void)self, (void)args, (void)n;
  return TVMFFIStringFromByteArray(&bytes, result);
}

int farcall_server_setup(void) {
  TVMFFIByteArray name = {"firmware.manifest", 17};
  TVMFFIObjectHandle function;
  if (farcall_digits_register() != 0 || farcall_other_register() != 0) return -1;
  int rc = TVMFFIFunctionCreate(0, text, 0, &function);
  return rc == 0 ? TVMFFIFunctionSetGlobal(&name, function, 0) : rc;
}
"""
NEGATION = '<ir_version: 10, opset_import: ["": 21]>\n' + (
    "other (float[4] x) => (float[4] y, float[4] z) { y = Neg(x) z = Abs(x) }"
)


def negation() -> onnx.ModelProto:
    return onnx.parser.parse_model(NEGATION)


def digits(machine: Machine) -> Artifact:
    return fc.partition(DIGITS / "digits.onnx").build(machine.target, link="static")


@pytest.fixture(scope="module", params=["x86_64", pytest.param("hexagon", marks=pytest.mark.slow)])
def firmware(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that start a server with two models."""
    machine = named(request.param)
    emulator = [] if machine.name == "x86_64" else machine.emulate()
    if emulator is None or importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs {machine.emulator} and the ziglang package")
    folder = tmp_path_factory.mktemp(machine.name)
    digits(machine).save(folder / "digits.a")
    fc.partition(negation()).build(machine.target, link="static").save(folder / "other.a")
    (folder / "firmware.c").write_text(FIRMWARE)
    files = [folder / name for name in ("firmware.c", "digits.a", "other.a")]
    return [*emulator, str(build_server(machine.target, sources=files, output=folder / "server"))]


@pytest.fixture
def session(firmware: list[str]) -> Iterator[Session]:
    with connect(f"pipe:{' '.join(firmware)} --stdio", timeout=SECONDS) as session:
        yield session


def test_the_system_library_has_the_models(session: Session) -> None:
    images = np.load(DIGITS / "test.npz")["images"][:4].astype("float32")
    logits: Any = fc.partition(DIGITS / "digits.onnx").build().load()["main"](images)
    main = session.system_lib("digits_")["main"]
    for _ in range(2):
        assert np.abs(main(images).numpy() - logits).max() <= 1e-5 * np.abs(logits).max()
    with pytest.raises(ValueError, match="dimension 2 must be 8"):
        main(images[:, :, :3])
    x = np.arange(4, dtype="float32")
    assert list(session.system_lib("other_")) == ["c_0", "c_1", "main"]
    negated, positive = session.system_lib("other_")["main"](-x)
    np.testing.assert_array_equal(negated.numpy(), x)
    np.testing.assert_array_equal(positive.numpy(), x)
    assert "main" not in session.system_lib("")


def test_the_table_has_the_manifest(session: Session) -> None:
    manifest = json.loads(session.get_function("firmware.manifest")())
    assert manifest["model"]["name"] == "digits"
    assert manifest == json.loads(encode(digits_of(manifest["target"]["triple"]).manifest))


def digits_of(triple: str) -> Artifact:
    return digits(named("hexagon" if triple.startswith("hexagon") else "x86_64"))


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return digits(named("x86_64"))


def test_the_header_compiles_alone(artifact: Artifact, tmp_path: Path) -> None:
    header = artifact.save(tmp_path / "model.a").with_suffix(".h")
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    for language in (["-std=c11", "-xc"], ["-std=c++17", "-xc++"]):
        program = tmp_path / "program.c"
        program.write_text(f'#include "{header.name}"\n#include "{header.name}"\n')
        done = subprocess.run(
            [*compiler(), *language, *warnings, program], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "main(image: float32[batch, 1, 8, 8]) -> float32[batch, 10]" in header.read_text()


def test_equal_plans_give_equal_files_with_their_digest(artifact: Artifact, tmp_path: Path) -> None:
    data = artifact.save(tmp_path / "one.a").read_bytes()
    assert data == digits(named("x86_64")).save(tmp_path / "two.a").read_bytes()
    at = digest_place(data)
    assert data[at : at + DIGEST_SIZE] == compute_digest(data, at)


def digest_place(data: bytes) -> int:
    """The place of the digest in a library: that of its section in the last object."""
    start = data.rindex(b"\x7fELF")
    section = Elf(data[start:]).section(".farcall.digest")
    assert section is not None
    return start + section.offset


def test_each_symbol_has_the_name_of_the_library(artifact: Artifact, tmp_path: Path) -> None:
    data = artifact.save(tmp_path / "digits.a").read_bytes()
    size = int(data[8 + 48 : 8 + 58])
    count = int.from_bytes(data[68:72], "big")
    names = data[72 + 4 * count : 68 + size].rstrip(b"\0\n").decode().split("\0")
    assert len(names) == count
    assert {name for name in names if not name.startswith("farcall_digits")} == set()
    assert {"farcall_digits", "farcall_digits_register"} <= set(names)


def test_what_a_firmware_lacks_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"name it 'model\.a'"):
        artifact.save(tmp_path / "model.so")
    with pytest.raises(ArtifactError, match='build with link="shared" to load it'):
        artifact.load()
    with pytest.raises(UsageError, match="expected 'shared' or 'static'"):
        fc.partition(negation()).build(link="dynamic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            "int dlclose(void*);\nint f(void) { return dlclose(0); }",
            "a dynamic loader, .* dlclose",
        ),
        ("void __cxa_throw(void);\nvoid f(void) { __cxa_throw(); }", r"the C\+\+ runtime, .* __cxa_throw"),
        ("_Thread_local int x;\nint f(void) { return x++; }", "thread-local storage"),
    ],
)
def test_code_that_needs_more_than_a_firmware_has(code: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "code.c").write_text(code)
    subprocess.run([*compiler(), "-c", "-fPIC", "code.c", "-o", "code.o"], cwd=tmp_path, check=True)
    with pytest.raises(ToolchainError, match=problem):
        static_library("model", [tmp_path / "code.o"], named("x86_64").target)


# ---- kernels, names, and what a file tells


KERNELS = """
#include <farcall/c_api.h>
static int64_t halve(int64_t x) { return x / 2; }
FARCALL_KERNEL(half) {
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = halve(args[0].v_int64)};
  return 0;
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(KERNELS)
    target = named("x86_64").target
    file = fc.cpp.build(
        "my-kernels",
        sources=[folder / "kernels.c"],
        link="static",
        output="kernels.a",
        target=target,
        build_directory=folder,
    )
    return Path(file)


def test_kernels_and_two_models_of_one_name_in_a_firmware(kernels: Path, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    plan, target = fc.partition(negation()), named("x86_64").target
    plan.build(target, link="static").save(tmp_path / "one.a")
    plan.build(target, link="static").save(tmp_path / "same.a")
    plan.build(target, link="static", name="second").save(tmp_path / "two.a")
    (tmp_path / "kernels.h").write_text(kernels.with_suffix(".h").read_text())
    (tmp_path / "firmware.c").write_text(
        '#include "kernels.h"\n#include "one.h"\n#include "two.h"\nint farcall_server_setup(void) {\n'
        "  int rc = farcall_my_kernels_register();\n"
        "  return rc || farcall_other_register() || farcall_second_register() ? -1 : 0;\n}\n"
    )
    files = [tmp_path / "firmware.c", tmp_path / "one.a", kernels]
    with pytest.raises(UsageError, match="are both the library 'other'; build one of them with another"):
        build_server(target, sources=[*files, tmp_path / "same.a"], output=tmp_path / "server")
    server = build_server(target, sources=[*files, tmp_path / "two.a"], output=tmp_path / "server")
    with connect(f"pipe:{server} --stdio", timeout=SECONDS) as session:
        assert session.system_lib("my_kernels_")["half"](-(2**40)) == -(2**39)
        x = np.arange(4, dtype="float32")
        for name in ("other_", "second_"):
            np.testing.assert_array_equal(session.system_lib(name)["main"](-x)[0].numpy(), x)


def test_a_file_tells_what_it_is(artifact: Artifact, kernels: Path, tmp_path: Path) -> None:
    file = artifact.save(tmp_path / "digits.a")
    assert inspect(file) == artifact.manifest
    shown = CliRunner().invoke(command, [str(file)])
    assert "digits.a: an artifact, a static library" in shown.output
    shown = CliRunner().invoke(command, [str(kernels)])
    assert "kernels.a: a static library of kernels" in shown.output and "half" in shown.output
    data = file.read_bytes()
    manifest = data.index(encode(artifact.manifest))
    for broken, problem in (
        (flipped(data, manifest), "does not match its SHA-256"),
        (flipped(data, data.index(b"\0.farcall.manifest\0") + 1), "its manifest is gone"),
        (flipped(data, data.index(b"\0.farcall.digest\0") + 1), "its manifest is gone"),
        (data[:-2], "not whole"),
        (data[:8], "without objects"),
        *((flipped(data, len(data) * part // 16), "digits.a: ") for part in range(1, 16)),
    ):
        file.write_bytes(broken)
        with pytest.raises(ArtifactError, match=problem):
            inspect(file)


def flipped(data: bytes, at: int) -> bytes:
    """``data`` with one bit changed in the byte at ``at``."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_names_of_libraries(tmp_path: Path) -> None:
    plan = fc.partition(negation())
    with pytest.raises(UsageError, match="expected letters, digits"):
        plan.build(link="static", name="a-b")
    with pytest.raises(UsageError, match=r'build with link="static"'):
        plan.build(name="other")
    (tmp_path / "empty.c").write_text("int x;\n")
    with pytest.raises(ToolchainError, match="exports no function; begin its kernels with FARCALL_KERNEL"):
        fc.cpp.build("empty", sources=[tmp_path / "empty.c"], link="static", build_directory=tmp_path)
    with pytest.raises(UsageError, match=r"ends in \.a"):
        fc.cpp.build("empty", sources=[tmp_path / "empty.c"], link="static", output="x.so")
