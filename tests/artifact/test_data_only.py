"""Artifacts without code: built by ``json`` alone, without a compiler, and run wherever others run."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import farcall as fc
from farcall.backends.json import JsonBackend
from farcall.errors import ArgumentError, ArtifactError
from farcall.library import inspect
from farcall.library._elf import Elf

from ..tree import ROOT

DIGITS = ROOT / "examples/digits/digits.onnx"
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a compiler was looked for")

    monkeypatch.setattr("farcall.artifact._build.find_compiler", refuse)


@pytest.fixture(scope="module")
def images() -> Any:
    return np.load(DIGITS.with_name("test.npz"))["images"][:4].astype("float32")


@pytest.fixture(scope="module")
def logits(images: Any) -> Any:
    return fc.partition(DIGITS).build().load()["main"](images)


def close(a: Any, b: Any) -> bool:
    return bool(np.abs(np.asarray(a) - np.asarray(b)).max() <= 1e-5 * np.abs(np.asarray(b)).max())


@pytest.mark.usefixtures("no_compiler")
def test_the_digits_model(images: Any, logits: Any, tmp_path: Path) -> None:
    artifact = fc.partition(DIGITS, backends=["json"]).build()
    path = artifact.save(tmp_path / "digits.so")
    manifest = inspect(path)
    assert manifest.backends == ("json",)
    assert manifest.constants.count > 4
    assert "compiler" not in manifest.versions
    module = fc.load_module(path)
    assert module.kind == "farcall.json"
    assert str(module["main"].signature) == "(image: float32[batch, 1, 8, 8]) -> float32[batch, 10]"
    assert close(module["main"](images), logits)
    assert close(module["json_0"](images), logits)
    with pytest.raises(ArgumentError, match="dimension 2 must be 8"):
        module["main"](images[:, :, :3])
    main = module["main"]
    del module
    gc.collect()
    assert close(main(images), logits)


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    plan = fc.partition(DIGITS, backends=["json"])
    one, two = (plan.build().save(tmp_path / name).read_bytes() for name in ("a.so", "b.so"))
    assert one == two


def test_a_remote_session(images: Any, logits: Any, tmp_path: Path) -> None:
    path = fc.partition(DIGITS, backends=["json"]).build().save(tmp_path / "digits.so")
    with fc.connect(f"pipe:{sys.executable} -m farcall serve --stdio") as session:
        module = session.load_module(path)
        assert close(module["main"](images).numpy(), logits)


def test_another_runtime_reads_it(images: Any, tmp_path: Path) -> None:
    """TVM FFI's loader finds the embedded module, and asks for the loader of its kind."""
    tvm_ffi = pytest.importorskip("tvm_ffi")
    path = fc.partition(DIGITS, backends=["json"]).build().save(tmp_path / "digits.so")
    with pytest.raises(Exception, match=r"farcall\.json"):
        tvm_ffi.load_module(str(path))
    seen: list[bytes] = []

    def load(data: Any) -> Any:
        seen.append(bytes(data))
        return tvm_ffi.system_lib()

    tvm_ffi.register_global_func("ffi.Module.load_from_bytes.farcall.json", load)
    try:
        tvm_ffi.load_module(str(path))
    finally:
        tvm_ffi.remove_global_func("ffi.Module.load_from_bytes.farcall.json")
    assert len(seen) == 1 and seen[0].startswith(b"\x89FCBLOB\n")


@pytest.mark.parametrize("triple", ["aarch64-linux-musl", "s390x-linux-musl", "arm-linux-musleabihf"])
@pytest.mark.usefixtures("no_compiler")
def test_other_machines(triple: str, tmp_path: Path) -> None:
    path = fc.partition(DIGITS, backends=["json"]).build(triple).save(tmp_path / "digits.so")
    assert inspect(path).target.triple == triple
    assert Elf(path.read_bytes()).header.big_endian == triple.startswith("s390x")
    with pytest.raises(ArtifactError, match=f"built for {triple}"):
        fc.load_module(path)


def model(body: str, weights: Any = None) -> onnx.ModelProto:
    made = parser.parse_model(f"{HEAD} g {body}")
    if weights is not None:
        array = onnx.numpy_helper.from_array(weights, "w")
        made.graph.initializer.append(array)
    return made


class Half(JsonBackend):
    """Leaves Exp to others."""

    name = "half"

    def check(self, node: Any) -> str | None:
        return "not Exp" if node.op_type == "Exp" else super().check(node)


class Other(JsonBackend):
    """The same, as modules of another region."""

    name = "other"


def test_several_regions_constants_and_outputs() -> None:
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    made = model(
        "(float[n, 3] x) => (float[n, 4] y, float[n, 3] x2, float[3, 4] w2)"
        " { a = MatMul(x, w) b = Exp(a) y = Mul(b, b) x2 = Identity(x) w2 = Identity(w) }",
        w,
    )
    x = np.random.default_rng(0).random((5, 3), np.float32) / 100
    want = [np.exp(x @ w) ** 2, x, w]
    for backends in (["json"], [Half(), Other()], [Half(), "c"], ["c"]):
        module = fc.partition(made, backends=backends).build().load()
        got = module["main"](x)
        assert all(np.allclose(a, b, rtol=1e-5) for a, b in zip(got, want, strict=True)), backends


def test_sizes_that_must_be_equal() -> None:
    made = model("(float[4, n] x, float[m, 4] y) => (float[4, 4] z) { z = MatMul(x, y) }")
    x = np.ones((4, 4), np.float32)
    for backend in ("json", "c"):
        main = fc.partition(made, backends=[backend]).build().load()["main"]
        assert close(main(x, x), x @ x)
        with pytest.raises((ArgumentError, ValueError)):
            main(x, x[:1])
