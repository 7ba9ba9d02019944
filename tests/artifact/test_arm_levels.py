"""One artifact has code for Armv8-A with and without dot products, and calls that of the CPU that runs it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.artifact import _levels, inspect
from farcall.toolchain import Target, find_compiler
from farcall.toolchain._build import include_dir

from ..parsed import parsed

TARGET = "aarch64-linux-musl"
LEVELS = ("armv8-a", "armv8.2-a+dotprod")
# Products of bytes, whose left operand is unsigned, and signed; one with few columns.
MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[7, 61] x, uint8[2, 5, 9, 8] z) => (float[7, 37] e, float[7, 37] f,
    int32[2, 6, 9, 8] c, float[7, 5] h)
 <float[61, 5] p, float[61, 37] w, float scale = {0.05}, uint8 zero = {120}, int8 below = {-3},
  int8 none = {0}, int8[6, 5, 3, 3] v>
 { xq = QuantizeLinear (x, scale, zero)
   xd = DequantizeLinear (xq, scale, zero)
   wq = QuantizeLinear (w, scale, none)
   wd = DequantizeLinear (wq, scale, none)
   e = MatMul (xd, wd)
   xs = QuantizeLinear (x, scale, below)
   xt = DequantizeLinear (xs, scale, below)
   f = MatMul (xt, wd)
   c = ConvInteger <pads = [1, 1, 1, 1]> (z, v, zero, none)
   h = MatMul (x, p) }"""
SDOT, SDOT_MASK = 0x4E809400, 0xFFE0FC00  # sdot Vd.4S, Vn.16B, Vm.16B

pytestmark = pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-aarch64")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return parsed(MODEL)


@pytest.fixture(scope="module")
def path(model: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("levels")
    return fc.partition(model, backends=["c"]).build(TARGET).save(folder / "model.so")


def dots(path: Path) -> int:
    data = path.read_bytes()
    words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
    return sum(word & SDOT_MASK == SDOT for word in words)


def test_the_artifact_says_its_levels_and_has_dot_products(path: Path) -> None:
    assert inspect(path).target.levels == LEVELS
    assert dots(path) > 50


def test_only_products_of_bytes_have_levels(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 22]> g (float[4, 5] x, float[5, 6] w) => (float[4, 6] y) {'
    plan = fc.partition(parser.parse_model(f"{text} y = MatMul (x, w) }}"))
    built = plan.build(TARGET)
    assert not built.manifest.target.levels
    assert dots(built.save(tmp_path / "m.so")) == 0


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose function gives the level that is chosen."""
    folder, target = tmp_path_factory.mktemp("probe"), Target.parse(TARGET)
    kernel = "FARCALL_KERNEL(level) { *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = fc_level()};"
    text = f"#include <farcall/c_api.h>\n{_levels.level_source([], LEVELS).text}\n{kernel} return 0; }}\n"
    (folder / "level.c").write_text(text)
    compiler = find_compiler(target)
    flags = ["-O1", "-shared", "-fPIC", "-w", f"-I{include_dir()}", "-o", "level.so", "level.c"]
    compiler.run([*compiler.target_flags(target), *flags], folder, "level.c")
    return folder / "level.so"


@pytest.mark.parametrize(("cpu", "level"), [("cortex-a53", 0), ("cortex-a76", 1)])
def test_each_level_computes_the_model(
    model: onnx.ModelProto, path: Path, probe: Path, cpu: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QEMU_CPU", cpu)
    rng = np.random.default_rng(4)
    x, z = rng.standard_normal((7, 61)).astype("f4"), rng.integers(0, 256, (2, 5, 9, 8), "u1")
    with fc.launch("emulator:aarch64") as device, device.connect() as session:
        assert session.load_module(probe)["level"]() == level
        results = session.load_module(path)["main"](session.tensor(x), session.tensor(z))
        found = [np.from_dlpack(result.numpy()) for result in results]
    e, f, c, h = ReferenceEvaluator(model).run(None, {"x": x, "z": z})
    np.testing.assert_allclose(found[0], e, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], f, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[2], c)
    np.testing.assert_allclose(found[3], h, rtol=1e-5, atol=1e-5)
