"""Models on machines without a dynamic loader: built for them, and loaded by the small server as images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.errors import ArgumentError, ArtifactError, MissingFunctionError, ToolchainError
from farcall.library import embed_modules, inspect
from farcall.library._elf import Elf
from farcall.library._image import image_exports, missing_exports
from farcall.rpc import Session, connect
from farcall.toolchain import MACHINES, Machine

from ..tree import ROOT
from ..waiting import SECONDS
from .small_server import LONG, build_kernel, small_server

ADDER = ROOT / "tests/ffi/adder.c"
DIGITS = ROOT / "examples/digits"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(machine, marks=[pytest.mark.slow] if machine.name in LONG else [])
        for machine in MACHINES
    ],
    ids=lambda machine: machine.name,
)
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    return found


def served(machine: Machine, factory: pytest.TempPathFactory, folder: Path, *options: str) -> Session:
    command = [*small_server(machine, factory), "--stdio", "--workpath", str(folder), *options]
    return connect(f"pipe:{' '.join(command)}", timeout=SECONDS)


@pytest.fixture
def session(machine: Machine, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Session]:
    with served(machine, tmp_path_factory, tmp_path) as session:
        yield session


@pytest.fixture(scope="module")
def model(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits model, built for the machine."""
    plan = fc.partition(DIGITS / "digits.onnx")
    return plan.build(machine.target).save(tmp_path_factory.mktemp("model") / "digits.so")


@pytest.fixture(scope="module")
def expected() -> tuple[Any, Any]:
    """Images, and their logits as this machine computes them."""
    images = np.load(DIGITS / "test.npz")["images"][:4].astype("float32")
    return images, fc.partition(DIGITS / "digits.onnx").build().load()["main"](images)


def test_the_digits_model(session: Session, model: Path, expected: tuple[Any, Any]) -> None:
    images, logits = expected
    module = session.load_module(model)
    got = module["main"](images).numpy()
    assert np.abs(got - logits).max() <= 1e-5 * np.abs(logits).max()
    assert str(module["main"].signature) == "(image: float32[batch, 1, 8, 8]) -> float32[batch, 10]"
    assert module.kind == "library"
    assert list(module) == sorted(["main", *(region.name for region in inspect(model).regions)])
    assert "main" in module and "nothing" not in module
    with pytest.raises(ArgumentError, match="dimension 2 must be 8"):
        module["main"](images[:, :, :3])
    with pytest.raises(MissingFunctionError, match="nothing"):
        module["nothing"]


def test_an_artifact_without_code(
    session: Session, machine: Machine, expected: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What the backend `json` builds for the machine, without a compiler."""
    images, logits = expected
    plan = fc.partition(DIGITS / "digits.onnx", backends=["json"])
    path = plan.build(machine.target).save(tmp_path_factory.mktemp("data") / "digits.so")
    module = session.load_module(path)
    assert module.kind == "farcall.json"
    function = module["main"]
    del module
    got = function(images).numpy()
    assert np.abs(got - logits).max() <= 1e-5 * np.abs(logits).max()


def test_sizes_that_depend_on_the_data(
    session: Session, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Regions allocate such outputs from the server's memory, within the limit of the build."""
    from onnx import parser

    graph = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 4] x) => (int64[] at, float[] kept)'
        "{ at = NonZero (x) t = Transpose (at) z = GatherND (x, t) kept = Neg (z) }"
    )
    plan = fc.partition(graph)
    path = plan.build(machine.target, late_bytes=4000).save(tmp_path_factory.mktemp("late") / "late.so")
    main = session.load_module(path)["main"]
    for x in (np.float32([[0, 1, 0, 2], [3, 0, 0, 4]]), np.zeros((3, 4), np.float32)):
        at, kept = main(x)
        np.testing.assert_array_equal(at.numpy(), np.nonzero(x))
        np.testing.assert_array_equal(kept.numpy(), -x[x != 0])
    with pytest.raises(MemoryError, match=r"NonZero .*int64\[2, 256\], 4096 bytes; .*4000 more of 4000"):
        main(np.ones((64, 4), np.float32))


def test_a_function_outlives_its_module(session: Session, model: Path, expected: tuple[Any, Any]) -> None:
    images, logits = expected
    function = session.load_module(model)["main"]
    for _ in range(3):
        np.testing.assert_allclose(function(images).numpy(), logits, rtol=1e-4, atol=1e-3)
    del function
    assert session.load_module(model)["main"](images).numpy().shape == logits.shape


def test_a_damaged_file_ends_nothing(session: Session, machine: Machine, model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    (tmp_path / "cut.so").write_bytes(data[: len(data) // 2])
    with contextlib.suppress(ArtifactError):  # the client's own check of the manifest
        session.load_module(tmp_path / "cut.so")
    session.upload(data[: len(data) // 2], "half.so")
    with pytest.raises(ArtifactError, match="cut off"):
        session.get_function("tvm.rpc.server.load_module")("half.so")
    assert session.get_function("test.echo")(7) == 7


def test_the_build_imports_what_the_loader_exports(model: Path) -> None:
    assert missing_exports(Elf(model.read_bytes())) == []
    assert {"memcpy", "aligned_alloc", "expf", "TVMFFIErrorSetRaisedFromCStr"} <= image_exports()


HALF = (
    "FARCALL_KERNEL(half) {\n"
    "  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = args[0].v_int64 / 2};\n  return 0;\n}\n"
)


@pytest.mark.parametrize("memory", ["256M", "1M"])
def test_a_kernel_of_c(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, memory: str
) -> None:
    with served(machine, tmp_path_factory, tmp_path, "--memory", memory) as session:
        module = session.load_module(build_kernel(tmp_path, HALF, str(machine.target)))
        assert module["half"](-(2**40)) == -(2**39)


def test_a_loader_of_modules_travels_in_the_image(session: Session, machine: Machine, tmp_path: Path) -> None:
    """The machine has no Python, so what embeds the module brings its loader."""

    def library(name: str, *modules: fc.Blob) -> str:
        source = tmp_path / f"{name}.c"
        source.write_text(embed_modules(modules) + ADDER.read_text())
        return fc.cpp.build(
            name, sources=[source], target=str(machine.target), build_directory=tmp_path / name
        )

    far = session.load_module(library("adds", fc.Blob("adder", 2, b"40", ("sums",))))
    assert far.get_function("add", query_imports=True)(2) == 42
    lacking = fc.Blob("adder", 1, b"1"), fc.Blob("npu", 3, b"", (), "farcall-npu 1.2")
    with pytest.raises(
        ArtifactError, match=r"kind `npu`; loaders are there for: `farcall.json`; `pip install farcall-npu`"
    ):
        session.load_module(library("lacks", *lacking))
    with pytest.raises(ArtifactError, match="has version 3, and its loader reads versions 1 to 2"):
        session.load_module(library("newer", fc.Blob("adder", 3, b"1")))
    assert far.get_function("add", query_imports=True)(-40) == 0


def test_an_image_for_a_newer_cpu_is_refused(session: Session, machine: Machine, tmp_path: Path) -> None:
    if machine.name != "hexagon":
        pytest.skip("only Hexagon's files tell the version of the CPU")
    path = Path(build_kernel(tmp_path, "FARCALL_KERNEL(f) { return 0; }\n"))
    data = bytearray(path.read_bytes())
    flags = 36  # e_flags, of which the lowest byte comes first
    assert data[flags] == 0x67
    data[flags] = 0x68
    session.upload(bytes(data), "newer.so")
    with pytest.raises(ArtifactError, match=r"built for hexagon v68, and this server for v67; .*:hexagonv67"):
        session.get_function("tvm.rpc.server.load_module")("newer.so")


@pytest.mark.long
def test_what_the_loader_would_refuse_is_refused_when_it_is_built(tmp_path: Path) -> None:
    opens = '#include <stdio.h>\nFARCALL_KERNEL(f) { return fopen("x", "r") != 0; }\n'
    with pytest.raises(ToolchainError, match="imports fopen, which the server there does not export"):
        build_kernel(tmp_path, opens)
    with pytest.raises(ToolchainError, match="thread-local storage"):
        build_kernel(tmp_path, "_Thread_local int x;\nFARCALL_KERNEL(f) { return x++; }\n")
