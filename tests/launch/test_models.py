"""Models on devices that a command starts: `farcall run --on emulator:ARCH`, and pytest's `--farcall-on`."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall.launch import _driver

from ..native.small_server import named, small_server
from ..terminal import Cli

MODEL = """
    <ir_version: 9, opset_import: ["" : 17]>
    main (float[2] x) => (float[2] y) <float[2] one = {1, 1}> { y = Add(x, one) }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model and its input."""
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "model.onnx")
    np.save("x.npy", np.array([1, 2], "float32"))
    return tmp_path


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Launches take the servers of the tests, which are built already."""

    def built(target: fc.toolchain.Target, progress: object) -> Path:
        machine = fc.toolchain.machine_of(target)
        assert machine is not None
        return Path(small_server(machine, tmp_path_factory)[-1])

    monkeypatch.setattr(_driver, "build_server", built)


def run(cli: Cli, file: str, device: str) -> str:
    """What the command says on stderr, or the mean of its result."""
    done = cli("run", file, "--input", "x=x.npy", "--on", device, "--json")
    return done.err if done.code else str(json.loads(done.out)["outputs"][0]["mean"])


@pytest.mark.parametrize("name", ["aarch64", "hexagon"])
@pytest.mark.usefixtures("servers")
def test_an_artifact_runs_on_its_machine(
    cli: Cli, folder: Path, name: str, tmp_path_factory: pytest.TempPathFactory, run_folder: Path
) -> None:
    small_server(named(name), tmp_path_factory)  # skips without its tools
    target = str(named(name).target.triple)
    fc.partition("model.onnx").build(target=target).save("model.so")
    assert run(cli, "model.so", f"emulator:{name}") == "2.5"
    assert list(run_folder.glob("run-*")) == []


@pytest.mark.usefixtures("servers", "aarch64_server")
def test_a_model_is_built_for_the_device(cli: Cli, folder: Path) -> None:
    assert run(cli, "model.onnx", "emulator:aarch64") == "2.5"


@pytest.mark.usefixtures("servers", "aarch64_server")
def test_an_artifact_for_another_machine_is_refused_with_the_target(cli: Cli, folder: Path) -> None:
    fc.partition("model.onnx").build(target="x86_64-linux-musl").save("model.so")
    said = run(cli, "model.so", "emulator:aarch64")
    assert "it is built for x86_64 (ELF machine 62, 64 bits, little-endian), and this is aarch64" in said
    assert "build it with --target aarch64-linux-musl" in said


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ("emulatr:aarch64", "there is no launcher 'emulatr'; did you mean `emulator`?"),
        ("emulator:hexagn", "there is no machine 'hexagn'; did you mean `hexagon`?"),
    ],
)
def test_a_device_that_is_mistyped(cli: Cli, folder: Path, device: str, problem: str) -> None:
    done = cli("run", "model.onnx", "--input", "x=x.npy", "--on", device)
    assert done.code == 2 and problem in done.err.replace("\n", " ")


def test_pytest_starts_a_server_on_the_device(
    aarch64_server: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, run_folder: Path
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest(
        f"""
        from pathlib import Path
        from farcall.launch import _driver

        _driver.build_server = lambda target, progress: Path({str(aarch64_server)!r})
        """
    )
    pytester.makepyfile(
        """
        def test_add(farcall_url, farcall_session):
            assert farcall_url.startswith("unix://")
            assert farcall_session.get_function("test.add")(2, 3) == 5
        """
    )
    found = "farcall" in entry_points(group="pytest11").names  # not in an older editable installation
    plugin = [] if found else ["-p", "farcall._pytest_plugin"]
    words = ("-p", "no:cacheprovider", "--farcall-on=emulator:aarch64")
    pytester.runpytest_subprocess(*plugin, *words).assert_outcomes(passed=1)
    assert list(run_folder.glob("run-*")) == []
