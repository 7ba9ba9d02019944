"""One artifact has code for every CPU level of x86-64, and calls that of the CPU that runs it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.artifact import _levels, inspect
from farcall.backends._function import RAISE
from farcall.cli.inspect import command as inspect_command
from farcall.toolchain import Target, find_compiler
from farcall.toolchain._build import include_dir
from farcall.toolchain._target import cpu_level, host_cpu_flags

from ..parsed import parsed

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")

LEVELS = ("x86-64", "x86-64-v3", "x86-64-v4")
# Products with packed, plain and transposed operands, with few rows or columns (a constant `r` is a left
# operand), in float and in bytes; convolutions; functions of elements.
MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[7, 61] x, float[61, 45] y, float[2, 10, 13, 17] z)
 => (float[7, 37] a, float[7, 45] b, float[2, 9, 13, 17] c, float[2, 10, 11, 15] d, float[7, 37] e,
     float[7, 45] f, float[7, 5] h, float[7, 7] i, float[45, 7] j, float[2, 45] k, float[2, 37] l)
 <float[61, 5] p, float[2, 61] r, float[61, 37] w,
  float[9, 10, 3, 3] v, float[10, 1, 3, 3] u, float scale = {0.05}, uint8 zero = {120},
  int8 none = {0}>
 { a = MatMul (x, w)
   b = MatMul (x, y)
   c = Conv <pads = [1, 1, 1, 1]> (z, v)
   d = Conv <group = 10> (z, u)
   xq = QuantizeLinear (x, scale, zero)
   xd = DequantizeLinear (xq, scale, zero)
   wq = QuantizeLinear (w, scale, none)
   wd = DequantizeLinear (wq, scale, none)
   e = MatMul (xd, wd)
   s = Softmax (b)
   t = Tanh (b)
   f = Add (s, t)
   h = MatMul (x, p)
   i = Gemm <transB = 1> (x, x)
   j = Gemm <transA = 1, transB = 1> (y, x)
   k = MatMul (r, y)
   l = MatMul (r, w) }"""

RUN = """
import sys, numpy as np, farcall as fc
given = np.load(sys.argv[2])
np.savez(sys.argv[3], *fc.load_module(sys.argv[1])["main"](*(given[name] for name in "xyz")))
"""


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return parsed(MODEL)


@pytest.fixture(scope="module")
def path(model: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("levels")
    shapes = {"x": (7, 61), "y": (61, 45), "z": (2, 10, 13, 17)}
    rng = np.random.default_rng(4)
    np.savez(folder / "given.npz", **{n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()})
    triple = Target.host().triple
    return fc.partition(model, backends=["c"]).build(target=triple).save(folder / "model.so")


def run(path: Path, level: str) -> subprocess.CompletedProcess[str]:
    made = path.with_name(f"{level}.npz")
    return subprocess.run(
        [sys.executable, "-c", RUN, path, path.with_name("given.npz"), made],
        env={**os.environ, "FARCALL_CPU_LEVEL": level, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", ""])
def test_each_level_computes_the_model(model: onnx.ModelProto, path: Path, level: str) -> None:
    done = run(path, level)
    assert done.returncode == 0, done.stderr
    given = np.load(path.with_name("given.npz"))
    expected = ReferenceEvaluator(model).run(None, dict(given))
    found = np.load(path.with_name(f"{level}.npz")).values()
    for output, one, other in zip(model.graph.output, found, expected, strict=True):
        bound = 2e-5 if output.name == "c" else 1e-5  # `c` is computed by Winograd's method
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound)


def test_an_unknown_level_is_an_error(path: Path) -> None:
    done = run(path, "x86-64-v5")
    assert "ValueError" in done.stderr and "FARCALL_CPU_LEVEL: expected x86-64, x86-64-v2" in done.stderr


def test_the_artifact_says_its_levels(path: Path) -> None:
    assert inspect(path).target.levels == LEVELS
    assert "x86-64, x86-64-v3, x86-64-v4" in CliRunner().invoke(inspect_command, [str(path)]).output


def test_a_target_with_a_level_has_that_alone(model: onnx.ModelProto, path: Path) -> None:
    plan = fc.partition(model, backends=["c"])
    for target in (Target.host().triple + ":x86-64", "host"):
        made = plan.build(target=target)
        assert not made.manifest.target.levels
    assert path.stat().st_size < 1.5 * made.save(path.with_name("host.so")).stat().st_size + 100_000


@pytest.mark.parametrize(("cpu", "number"), [("qemu64", 1), ("Nehalem", 2), ("Haswell", 3), ("", None)])
def test_the_level_of_a_cpu(tmp_path: Path, cpu: str, number: int | None) -> None:
    """As the loader of farcall sees it on this machine, and as QEMU says of older ones."""
    text = _levels.level_source([], LEVELS).text
    main = "int main(void) { (void)fc_level; return 10 + fc_detect(); }"
    (tmp_path / "level.c").write_text(f"#include <farcall/c_api.h>\n{text}\n{main}\n")
    assert RAISE in text
    flags = ["-w", f"-I{include_dir()}", "-o", tmp_path / "level"]
    subprocess.run([*find_compiler().command, *flags, tmp_path / "level.c"], check=True)
    words = [str(tmp_path / "level")]
    if cpu:
        emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
        if emulator is None:
            pytest.skip("needs qemu-x86_64")
        words = [emulator, "-cpu", cpu, *words]
    else:
        number = {"": 1, "x86-64-v2": 2, "x86-64-v3": 3, "x86-64-v4": 4}[cpu_level(host_cpu_flags())]
    assert subprocess.run(words, check=False, capture_output=True).returncode == 10 + (number or 0)


def test_a_profiled_build_counts_the_steps_of_the_level_that_runs(model: onnx.ModelProto, path: Path) -> None:
    plan = fc.partition(model, backends=["c"])
    profiled = plan.build(target=Target.host().triple, profile=True).save(path.with_name("profiled.so"))
    given = np.load(path.with_name("given.npz"))
    module = fc.load_module(profiled)
    module(*(given[name] for name in "xyz"))
    names = [name for name in module if name.endswith("_steps")]
    assert names and sum(module[names[0]](number) for number in range(20)) > 0
