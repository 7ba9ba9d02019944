"""Plans of modules of any kind are built without a compiler, and do what the compiled ones do."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import farcall as fc
from farcall.artifact import inspect
from farcall.backends.base import Backend, RegionModule
from farcall.errors import ArgumentError, ArtifactError, BackendError, ToolchainError
from farcall.graph import Region
from farcall.graph.dims import dims, product
from farcall.library._blob import Blob
from farcall.toolchain import Target

MODEL = """<ir_version: 10, opset_import: ["" : 22]> g (float[n, 3] x) => (float[n, 3] y, float[n, 3] z) {
  a = Neg(x) b = Exp(a) y = Abs(b) z = Identity(x)
}"""
X = np.float32([[1, -2, 3], [0.5, 0.25, 0]])
WEIGHTS = np.float32([[2, 3, 4]])
WANT = np.abs(np.exp(-X * WEIGHTS)) * WEIGHTS


class Wide(Backend):
    """Asks for all that a module may have: constants, working memory, and a size."""

    name = "wide"

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type in ("Neg", "Abs") else "no unit for it"

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionModule:
        data = json.dumps([region.name, [node.op_type for node in region.nodes]]).encode()
        size = product(dims(region.outputs[0])) * 4
        return RegionModule("wide", 1, data, {"w": WEIGHTS}, size, symbols=("n",))


def load_wide(blob: Blob) -> Any:
    """The loader of modules of kind ``wide``. The working memory counts the calls of the region."""
    name, operators = json.loads(blob.data)
    weights: list[np.ndarray[Any, Any]] = []

    def init(constants: Any) -> None:
        weights.append(np.from_dlpack(constants[0]))

    def call(x: Any, y: Any, memory: Any, n: int) -> None:
        assert memory is not None and n == x.shape[0]
        if np.isnan(x.numpy()).any():
            raise ValueError("the unit has no NaN")
        value = np.from_dlpack(x)
        for operator in operators:
            value = {"Neg": np.negative, "Abs": np.abs}[operator](value)
        np.copyto(np.from_dlpack(y), value * weights[0])

    return fc.ffi.new_module("wide", {name: call, f"__init_{name}": init}, save=lambda: bytes(blob))


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    fc.module_kind("wide", override=True)(load_wide)
    yield
    fc.remove_global_func("ffi.Module.load_from_bytes.wide")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: Target) -> None:
        raise ToolchainError("no C compiler found; install one")

    monkeypatch.setattr("farcall.artifact._build.find_compiler", refuse)


def build(*beside: str | Backend) -> Any:
    return fc.partition(parser.parse_model(MODEL), backends=[Wide(), *beside]).build()


@pytest.mark.parametrize("beside", ["json", "reference", "onnxruntime"])
def test_kinds_together(beside: str, no_compiler: None, tmp_path: Path) -> None:
    artifact = build(beside)
    path = artifact.save(tmp_path / "m.so")
    assert "compiler" not in inspect(path).versions
    assert {one.kind for one in inspect(path).modules} >= {"wide", f"farcall.{beside}"}
    module = fc.load_module(path)
    for _ in range(2):
        y, z = module["main"](X)
        np.testing.assert_allclose(y, WANT, rtol=1e-6)
        np.testing.assert_array_equal(z, X)
    np.testing.assert_array_equal(module["wide_0"](X), -X * WEIGHTS)
    np.testing.assert_array_equal(module["wide_0"](X[:, ::-1][:, ::-1]), -X * WEIGHTS)
    with pytest.raises(ArgumentError, match="argument 1 `x` of `wide_0`"):
        module["wide_0"](X[:, :2])


def test_constants_are_stored_once_and_are_views_of_the_file(
    no_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    fc.module_kind("wide", override=True)(
        lambda blob: fc.ffi.new_module(
            "wide",
            {
                (name := json.loads(blob.data)[0]): lambda *_: None,
                f"__init_{name}": lambda constants: seen.append(np.from_dlpack(constants[0])),
            },
        )
    )
    artifact = build("json")
    assert artifact.manifest.constants.count == 1
    module = artifact.load()
    first, second = seen
    assert first.ctypes.data == second.ctypes.data and first.ctypes.data % 64 == 0
    del module  # the library stays: the views are of it
    np.testing.assert_array_equal(first, WEIGHTS)


def test_a_session(no_compiler: None, tmp_path: Path) -> None:
    path = fc.partition(parser.parse_model(MODEL), backends=["reference"]).build().save(tmp_path / "m.so")
    with fc.connect(f"pipe:{sys.executable} -m farcall serve --stdio") as session:
        y, _ = session.load_module(path)["main"](X)
        np.testing.assert_allclose(y.numpy(), np.exp(-X), rtol=1e-6)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("triple", ["aarch64-linux-musl", "s390x-linux-musl", "arm-linux-musleabihf"])
def test_other_machines(triple: str, tmp_path: Path) -> None:
    plan = fc.partition(parser.parse_model(MODEL), backends=[Wide(), "json"])
    path = plan.build(triple).save(tmp_path / "m.so")
    assert {one.kind for one in inspect(path).modules} == {"wide", "farcall.json"}


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (
            {"other": abs},
            r"region `wide_0` of backend `wide`: its module of kind `wide` has no function `wide_0`",
        ),
        ({"wide_0": abs}, "has no function `__init_wide_0`, which takes its constants"),
        (
            {"wide_0": abs, "__init_wide_0": lambda constants: constants[9]},
            "index",
        ),
    ],
)
def test_what_a_module_lacks_is_told_at_load(
    functions: Mapping[str, Any], message: str, no_compiler: None
) -> None:
    fc.module_kind("wide", override=True)(lambda blob: fc.ffi.new_module("wide", functions))
    artifact = build("json")
    with pytest.raises((ArtifactError, IndexError), match=message):
        artifact.load()


def test_an_error_of_a_region_names_it(no_compiler: None) -> None:
    import traceback

    with pytest.raises(ValueError, match="the unit has no NaN") as caught:
        build("json").load()["main"](np.full((1, 3), np.nan, np.float32))
    assert "region `wide_0` of backend `wide`" in "".join(traceback.format_exception(caught.value))


def test_a_missing_loader_is_told_with_the_regions(no_compiler: None) -> None:
    artifact = build("json")
    fc.remove_global_func("ffi.Module.load_from_bytes.wide")
    with pytest.raises(ArtifactError, match=r"no loader for modules of kind `wide`.*regions wide_0, wide_1"):
        artifact.load()
    fc.module_kind("wide", override=True)(load_wide)


class Copies(Wide):
    """Takes all nodes, for dtypes with which the interpreter does not compute."""

    def check(self, node: ir.Node) -> str | None:
        return None

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionModule:
        return RegionModule("copies", 1, region.name.encode())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint64", "complex64"])
def test_dtypes_that_are_carried(dtype: str, no_compiler: None) -> None:
    def load(blob: Blob) -> Any:
        def call(x: Any, y: Any) -> None:
            y.numpy()[...] = x.numpy()

        return fc.ffi.new_module("copies", {blob.data.decode(): call})

    fc.module_kind("copies", override=True)(load)
    text = re.sub("Neg|Exp|Abs", "Identity", MODEL.replace("float[", f"{dtype}["))
    module = fc.partition(parser.parse_model(text), backends=[Copies()]).build().load()
    assert module.kind == "farcall.json"
    array = np.zeros((2, 3), fc.ffi.dtype(dtype).dtype)
    array[...] = X
    y, z = module["main"](array)
    assert y.dtype == array.dtype
    np.testing.assert_array_equal(y, array)
    np.testing.assert_array_equal(z, array)


def test_why_a_plan_of_modules_needs_a_compiler(no_compiler: None) -> None:
    late = (
        MODEL.splitlines()[0].replace("(float[n, 3] y, float[n, 3] z)", "(int64[2, k] y)")
        + "y = NonZero(x) }"
    )
    with pytest.raises(
        ToolchainError,
        match=r"install one; all regions are modules.*: region `reference_0` allocates `y`, whose shape",
    ):
        fc.partition(parser.parse_model(late), backends=["reference"]).build()
    with pytest.raises(ToolchainError, match="no C compiler found; install one\nsee: "):
        fc.partition(parser.parse_model(MODEL), backends=[Wide(), "c"]).build()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_model_without_nodes(compiled: bool, request: pytest.FixtureRequest) -> None:
    if not compiled:
        request.getfixturevalue("no_compiler")
    text = """<ir_version: 10, opset_import: ["" : 22]> g (float[n, 3] x) => (float[n, 3] x) {}"""
    module = fc.partition(parser.parse_model(text)).build().load()
    assert (module.kind == "farcall.json") == (not compiled)
    np.testing.assert_array_equal(module["main"](X), X)


# ---- one name, one function; with a compiler, too ----


class Shared(Wide):
    """All regions call one function, ``apply``."""

    def __init__(self, data: str, weights: float) -> None:
        self._data, self._weights = data, weights

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionModule:
        number = int(region.name[-1])
        constants = {"w": np.float32([self._weights * number])}
        return RegionModule("wide", 1, self._data.format(number).encode(), constants, function="apply")


@pytest.mark.parametrize(
    ("data", "weights", "message"),
    [
        ("module {}", 0, "their modules are different, and both have the function `apply`"),
        ("module", 1, "they share the function `apply` of one module.* and theirs differ"),
    ],
)
def test_functions_that_a_name_does_not_tell_apart(data: str, weights: float, message: str) -> None:
    plan = fc.partition(parser.parse_model(MODEL), backends=[Shared(data, weights), "json"])
    with pytest.raises(
        BackendError, match=f"regions `wide_0` and `wide_1` of backends `wide` and `wide`: {message}"
    ):
        plan.build()
