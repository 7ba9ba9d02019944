"""The objects that an installation brings: what does not depend on a model is not compiled for it."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.artifact._fixed import fixed_sources, kernels_source
from farcall.backends.c._fixed import fixed_kernels
from farcall.toolchain import Compiler, Target, find_compiler
from farcall.toolchain._build import _fixed_name, _header_key

from ..parsed import parsed
from ..tree import ROOT

# A product of matrices, a convolution by Winograd's transforms, and one by a product.
MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2, 8, 20, 20] x) => (float[2, 10] y)
 <float[16, 8, 3, 3] v, float[24, 16, 1, 1] u, float[24, 10] w>
 { a = Conv <pads = [1, 1, 1, 1]> (x, v)
   b = Conv (a, u)
   c = GlobalAveragePool (b)
   d = Flatten (c)
   y = MatMul (d, w) }"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the package, with the objects that the script makes, which needs no packages."""
    folder = tmp_path_factory.mktemp("installation")
    script = ROOT / "scripts" / "fixed_objects.py"
    arguments = [folder / "_objects", *find_compiler().command]
    subprocess.run([sys.executable, "-I", "-S", script, *arguments], check=True)
    return folder


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The jobs that the compiler gets; the cache is empty."""
    jobs: list[str] = []
    run = Compiler.run
    monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(Compiler, "run", lambda *given: (jobs.append(given[3].split()[1]), run(*given))[1])
    return jobs


def test_the_script_makes_the_objects_that_builds_look_for(made: Path) -> None:
    compiler, host = find_compiler(), Target(Target.host().triple)
    sources = fixed_sources(compiler)
    for level in host.levels or ("",):
        target = Target(host.triple, level)
        sources += [kernels_source(one, target, compiler) for one in fixed_kernels()]
    names = {_fixed_name(host, source, _header_key()) for source in sources}
    assert {path.name for path in (made / "_objects").iterdir()} == names


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are those of x86-64")
@pytest.mark.parametrize(
    ("target", "own"),
    [
        ("x86_64-linux-gnu:x86-64-v3", {"c_0.c"}),
        ("x86_64-linux-gnu", {"x86-64.c_0.c", "x86-64-v3.c_0.c", "x86-64-v4.c_0.c", "farcall_levels.c"}),
    ],
)
def test_a_build_compiles_only_what_depends_on_its_model(
    made: Path, counted: list[str], target: str, own: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fc, "__path__", [*fc.__path__, str(made)])
    model = parsed(MODEL)
    artifact = fc.partition(model).build(target=target)
    assert {name for name in counted if name.endswith(".c")} == own | {"farcall_main.c", "farcall_regions.c"}
    x = np.random.default_rng(0).standard_normal((2, 8, 20, 20), np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(artifact.load()["main"](x), expected, rtol=1e-4, atol=1e-3)
