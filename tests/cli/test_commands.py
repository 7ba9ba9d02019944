"""The commands, as a user types them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
import farcall.cli
from farcall.cli.demo import _ingredients
from farcall.graph._report import operators
from farcall.toolchain import Machine

from ..terminal import Cli
from ..tree import CXX
from ..waiting import SECONDS


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A `farcall serve` in a separate process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "farcall", "serve", "--key", "desk"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as out:
        line = out.readline()
        try:
            assert re.fullmatch(r"listening on tcp://127\.0\.0\.1:\d+\n", line)
            yield line.split()[-1]
        finally:
            process.terminate()
            assert process.wait(SECONDS) == 0


def test_help_names_every_command(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    for name in ("demo", "build", "run", "inspect", "serve"):
        assert re.search(rf"^  {name} ", result.out, re.MULTILINE)
        assert cli(name, "--help").code == 0


def test_python_dash_m_is_the_same_program() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "farcall", "--version"], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0
    assert out.stdout.startswith("farcall, version ")


def test_build_then_inspect(cli: Cli, digits: Path) -> None:
    built = cli("build", digits, "-o", "m.so", "--svg", "m.svg", "--json")
    assert built.code == 0, built.err
    report = json.loads(built.out)
    assert report["artifact_bytes"] == Path("m.so").stat().st_size
    assert Path("m.svg").read_text().startswith(("<svg", "<?xml"))
    seen = json.loads(cli("inspect", "m.so", "--json").out)
    assert seen["functions"]["main"]["signature"]["inputs"] == [
        {"name": "image", "dtype": "float32", "shape": ["batch", 1, 8, 8]}
    ]
    text = cli("inspect", "m.so")
    assert "image: float32[batch, 1, 8, 8]" in text.out


def test_a_build_with_regions_on_devices(cli: Cli, digits: Path) -> None:
    words = ("--device", "dsp0=host", "--device", "dsp1", "--backend-option", "dsp0.operators=Conv,Relu")
    built = cli("build", digits, "-o", "m.so", *words, "--backend-option", "dsp1.operators=MaxPool")
    assert built.code == 0, built.err
    backends = {region.backend for region in fc.library.inspect("m.so").regions}
    assert backends == {"dsp0", "dsp1", "c"}
    image = np.ones((2, 1, 8, 8), "float32")
    with fc.serve() as server, fc.connect(server.url) as session:
        far = fc.load_module("m.so", devices={"dsp0": session, "dsp1": session})["main"]
        here = fc.partition(digits, ["c"]).build().load()["main"]
        np.testing.assert_allclose(far(image), here(image), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--device", "dsp0="], "expected NAME=TARGET, such as dsp0=hexagon-linux-musl"),
        (["--device", "=host"], "expected NAME=TARGET"),
        (["--device", "dsp0", "--device", "dsp0=host"], "'dsp0' is named twice"),
        (["--device", "dsp0=vax"], "target 'vax': expected arch-linux-abi"),
        (["--device", "c=host"], "two backends are called `c`"),
        (["--device", "dsp-0=host"], "expected a short C identifier"),
    ],
)
def test_devices_that_are_wrong(cli: Cli, digits: Path, words: list[str], problem: str) -> None:
    built = cli("build", digits, *words)
    assert built.code in (1, 2)
    assert problem in " ".join(built.err.split())


def test_a_build_without_output_is_named_after_its_model(cli: Cli, digits: Path) -> None:
    built = cli("build", digits, "-q")
    assert (built.code, built.err) == (0, "")
    assert built.out.startswith("digits.so: ")
    assert Path("digits.so").exists()


def test_inspect_says_what_a_file_is(cli: Cli, digits: Path, digits_artifact: Path) -> None:
    model = cli("inspect", digits)
    assert f"{digits}: an ONNX model" in model.out
    for row in (
        "opsets      ai.onnx 20",
        "input   image   float32[batch, 1, 8, 8]",
        "output  logits  float32[batch, 10]",
    ):
        assert row in model.out
    assert model.err == f"next: farcall build {digits}\n"
    artifact = cli("inspect", digits_artifact)
    assert f"{digits_artifact}: an artifact" in artifact.out
    assert artifact.err == f"next: farcall run {digits_artifact} --input image=FILE.npy\n"
    plain = cli("inspect", CXX)
    assert "a shared library without farcall functions" in plain.out
    Path("scale.c").write_text("int __tvm_ffi_scale(void) { return 0; } int __tvm_ffi__metadata_scale;")
    subprocess.run(["cc", "-shared", "-fPIC", "scale.c", "-o", "scale.so"], check=True)
    library = cli("inspect", "scale.so")
    assert "scale.so: a library of kernels" in library.out
    assert re.search(r"^scale +yes$", library.out, re.MULTILINE)
    assert "farcall stubgen scale.so" in library.err
    np.save("x.npy", np.zeros(3))
    Path("notes.txt").write_text("no model\n")
    for file, kind in (("notes.txt", "it is text"), ("x.npy", "it is an array that numpy.save wrote")):
        refused = cli("inspect", file)
        assert refused.code == 1
        kinds = "neither an artifact nor a library of kernels nor an ONNX model"
        assert f"{file!r} is {kinds}: {kind}" in refused.err


def test_inspect_names_operators_as_the_plan_does(cli: Cli, digits: Path) -> None:
    plan = fc.partition(digits, backends=[_ingredients()[1], "c"])
    plan.build().save("m.so")
    assert str(plan).startswith("digits: 12 nodes in 4 regions")
    assert "conv_relu x2" in str(plan)
    seen = cli("inspect", "m.so").out
    for region in plan.regions:
        row = next(line for line in seen.splitlines() if line.startswith(f"{region.name} "))
        assert row.endswith(operators(region))


def test_run_here_and_there_agree(cli: Cli, digits_artifact: Path, digits: Path, server: str) -> None:
    np.save("x.npy", np.random.default_rng(1).random((3, 1, 8, 8), dtype=np.float32))
    for route in (["--output", "here"], ["--output", "there", "--on", server, "--key", "desk"]):
        result = cli("run", digits_artifact, "--input", "image=x.npy", "--json", *route)
        assert result.code == 0, result.err
        assert json.loads(result.out)["outputs"][0]["shape"] == [3, 10]
    assert cli("run", digits, "--input", "image=x.npy", "--output", "fresh").code == 0
    here = np.load("here/logits.npy")
    np.testing.assert_array_equal(here, np.load("there/logits.npy"))
    np.testing.assert_array_equal(here, np.load("fresh/logits.npy"))


def test_a_trace_of_a_run(cli: Cli, digits_artifact: Path, server: str) -> None:
    np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))
    result = cli(
        "run",
        digits_artifact,
        "--input",
        "image=x.npy",
        "--on",
        server,
        "--key",
        "desk",
        "--trace",
        "t.json",
        "--json",
    )
    assert result.code == 0, result.err
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert {"encode", "wire", "compute"} <= {event["cat"] for event in events if event["ph"] == "X"}
    assert "main" in {event["name"] for event in events}


def check_demo(report: dict[str, Any], devices: set[str]) -> None:
    """All routes give the same answers; a device that this machine cannot emulate is named, with the cure."""
    routes = {"local", "remote", *devices} - report["skipped"].keys()
    assert set(report["accuracy"]) == set(report["way"]) == routes
    for route in routes:
        assert report["accuracy"][route] == report["accuracy"]["local"] >= 0.99
        assert report["max_abs_diff"][route] <= 1e-5
        assert set(report["latency_us"][route]) == {"1", "32", "360"}


def test_the_demo_runs_here_in_a_server_and_on_a_device(cli: Cli) -> None:
    result = cli("demo", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    check_demo(report, {"aarch64"})
    assert {region["backend"] for region in report["regions"]} == {"npu", "c"}
    assert Path(report["svg"]).exists()


def test_the_demo_says_what_it_skips_and_the_cure(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "emulate", lambda _: None)
    result = cli("demo")
    assert result.code == 0, result.err
    cure = r"^aarch64 +skipped: the emulator qemu-aarch64 is not installed; run: apt install qemu-user$"
    assert re.search(cure, result.out, re.MULTILINE), result.out


@pytest.mark.slow
def test_the_demo_on_all_devices(cli: Cli) -> None:
    """Slow: compiles five servers, and runs the model on emulators."""
    result = cli("demo", "--devices", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    check_demo(report, {"aarch64", "armv7", "riscv64", "s390x", "hexagon"})
    if "hexagon" not in report["skipped"]:
        assert report["way"]["hexagon"].count("-->") == 2
        assert set(report["quantised"]["max_abs_diff"]) == {"hvx", "c"}
        assert max(report["quantised"]["max_abs_diff"].values()) <= 1e-5
        assert set(report["quantised"]["accuracy"].values()) == {report["accuracy"]["local"]}


BAD = {
    "no such model": (["build", "nowhere.onnx", "-o", "m.so"], 2, "nowhere.onnx"),
    "not ONNX": (["build", "text.onnx", "-o", "m.so"], 1, "text.onnx"),
    "unknown backend": (["build", "{digits}", "-o", "m.so", "--backends", "npv"], 2, "npv"),
    "folder missing": (["build", "{digits}", "-o", "no/such/m.so"], 2, "existing folder"),
    "unknown target": (["build", "{digits}", "-o", "m.so", "--target", "vax"], 1, "vax"),
    "no such artifact": (["run", "nowhere.so"], 2, "nowhere.so"),
    "input missing": (["run", "{artifact}"], 2, "--input image=FILE.npy"),
    "input unknown": (["run", "{artifact}", "--input", "img=x.npy"], 2, "no input 'img'"),
    "input malformed": (["run", "{artifact}", "--input", "image"], 2, "NAME=FILE.npy"),
    "input twice": (["run", "{artifact}", "--input", "image=x.npy", "--input", "image=x.npy"], 2, "twice"),
    "input file missing": (["run", "{artifact}", "--input", "image=gone.npy"], 2, "no such file"),
    "input no array": (["run", "{artifact}", "--input", "image=text.onnx"], 2, "numpy.save"),
    "wrong dtype": (["run", "{artifact}", "--input", "image=f64.npy"], 2, "float32[batch, 1, 8, 8]"),
    "wrong rank": (["run", "{artifact}", "--input", "image=flat.npy"], 2, "float32[batch, 1, 8, 8]"),
    "wrong dim": (["run", "{artifact}", "--input", "image=wide.npy"], 2, "float32[batch, 1, 8, 8]"),
    "truncated": (["inspect", "cut.so"], 1, "cut.so"),
    "server unreachable": (
        ["run", "{artifact}", "--input", "image=x.npy", "--on", "tcp://127.0.0.1:1"],
        3,
        "serve",
    ),
    "bad address": (["run", "{artifact}", "--input", "image=x.npy", "--on", "board"], 2, "tcp://"),
    "wrong key": (
        ["run", "{artifact}", "--input", "image=x.npy", "--on", "{server}", "--key", "x"],
        5,
        "key",
    ),
    "no such command": (["biuld"], 2, "biuld"),
    "public without TLS": (["serve", "--host", "0.0.0.0"], 2, "--insecure"),  # noqa: S104
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_message(
    cli: Cli, case: str, digits: Path, digits_artifact: Path, request: pytest.FixtureRequest
) -> None:
    words, code, text = BAD[case]
    Path("text.onnx").write_text("this is no model\n")
    Path("cut.so").write_bytes(digits_artifact.read_bytes()[:5000])
    np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))
    np.save("f64.npy", np.zeros((1, 1, 8, 8)))
    np.save("flat.npy", np.zeros(64, np.float32))
    np.save("wide.npy", np.zeros((1, 1, 8, 9), np.float32))
    places = {"digits": digits, "artifact": digits_artifact}
    if "{server}" in words:
        places["server"] = request.getfixturevalue("server")
    result = cli(*[word.format(**places) for word in words])
    assert (result.code, result.out) == (code, "")
    assert text in result.err
    assert not Path("m.so").exists()


def test_debug_shows_the_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from farcall.errors import MissingFileError

    monkeypatch.setattr(sys, "argv", ["farcall", "build", "nowhere.onnx", "-o", "m.so", "--debug"])
    with pytest.raises(MissingFileError):
        farcall.cli.main()
