"""`farcall new` writes packages whose tests pass."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from farcall.cli._new_backend import KINDS

from ..terminal import Cli

LINES = {"c": 60, "module": 120, "library": 100}  # that an author writes, at most


def installed(folder: Path) -> Path:
    """The folder for PYTHONPATH in which the package is found with its entry points."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "src" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"]
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in groups.items()
        )
    )
    return folder / "src"


@pytest.mark.parametrize(
    "kind", ["module", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != "module")]
)
@pytest.mark.long
def test_the_tests_of_a_new_package_pass(tmp_path: Path, cli: Cli, kind: str) -> None:
    folder = tmp_path / "made"
    listed = cli("new", "backend", "acme_npu", "--kind", kind, "--output", str(folder))
    assert listed.code == 0
    assert sorted(listed.out.split()) == sorted(str(p) for p in folder.rglob("*") if p.is_file())
    lines = [line for path in (folder / "src").rglob("*.py") for line in path.read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) <= LINES[kind]
    env = {**os.environ, "PYTHONPATH": str(installed(folder))}
    env.pop("PYTEST_ADDOPTS", None)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "tests",
    ]
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "backend acme_npu: " in done.stdout


TOGETHER = """
import numpy as np, onnx, farcall as fc
model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 22]>
g (float[2,4] x) => (float[2,4] y) {
  a = Relu(x) b = Tanh(a) c = Neg(b) d = Pow(c, c) e = Relu(d) y = Abs(e) }''')
backends = ["acme_c", "acme_library", "acme_module", "c"]
plan = fc.partition(model, backends, exclude={"acme_c": ["Neg*", "Relu_4"]})
assert [region.backend for region in plan.regions] == [*backends, "acme_module", "c"], str(plan)
plan.build().save("all.so")
x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
c = -np.tanh(np.maximum(x, 0))
np.testing.assert_allclose(fc.load_module("all.so")["main"](x), np.abs(np.maximum(c**c, 0)), rtol=1e-5)
"""


def test_packages_of_all_kinds_compute_parts_of_one_model(tmp_path: Path, cli: Cli) -> None:
    paths = []
    for kind in KINDS:
        cli("new", "backend", f"acme_{kind}", "--kind", kind, "--output", str(tmp_path / kind))
        paths.append(str(installed(tmp_path / kind)))
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["Npu", "1npu", "a-b", "../npu", "class", "n" * 32, ""])
def test_names_are_checked(tmp_path: Path, cli: Cli, name: str) -> None:
    refused = cli("new", "backend", name, "--output", str(tmp_path / "made"))
    assert refused.code == 2
    assert "is no name for a backend" in refused.err
    assert not list(tmp_path.iterdir())


def test_what_exists_stays(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "made").mkdir()
    refused = cli("new", "backend", "npu", "--output", str(tmp_path / "made"))
    assert refused.code == 2
    assert "exists already" in refused.err
    assert not list((tmp_path / "made").iterdir())
    for name in ("c", "control"):
        assert f"a backend is called `{name}` already" in cli("new", "backend", name).err
    missing = cli("new", "backend", "npu", "--output", str(tmp_path / "no" / "made"))
    assert "No such file or directory" in missing.err
