"""What a newcomer may expect of the whole, tried as a newcomer would.

Other tests hold the rest: the messages of mistakes and completion from a file (``cli/test_output.py``,
``cli/test_smoke.py``), schemas (``cli/test_schemas.py``), traces (``rpc/test_trace.py``), what ``import
farcall`` imports (``test_public.py``), every block of README and of the four paths (``test_pages.py``).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import Server

from .cli.test_output import COMMANDS
from .cli.test_schemas import COMMANDS as OUTPUTS
from .cli.test_schemas import validator, words_of
from .pages import BLOCK
from .programs import output_of
from .rpc.servers import INIT
from .rpc.test_trace import check_format
from .terminal import Cli
from .tree import ROOT


def test_the_demo_ends_with_a_table_a_picture_and_a_trace(cli: Cli) -> None:
    outcome = cli("demo")
    assert outcome.code == 0, outcome.err
    table = re.search(
        r"^route +batch +accuracy.*\n(local +\d+ +0\.9.*\n){3}(remote +\d+ +0\.9.*\n){3}aarch64 ",
        outcome.out,
        re.M,
    )
    assert table is not None, outcome.out
    files = dict(re.findall(r"^(artifact|picture|model|trace) +(\S+) \(", outcome.out, re.MULTILINE))
    assert Path(files["picture"]).read_text().startswith("<svg ")
    assert cli("inspect", files["artifact"]).code == 0
    trace = json.loads(Path(files["trace"]).read_text())
    check_format(trace)
    processes = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert len(processes) == 2, "one call in this process, and one on the server"
    assert "npu_0" in cli("trace", "summary", files["trace"]).out


# ---- every command on any terminal


@pytest.fixture(scope="module")
def board() -> Iterator[str]:
    with Server(init=INIT) as server:
        yield server.url


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow terminal that shows neither colours nor lines, and a pipe behind it."""
    for name in ("FORCE_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "60"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("plain")
def test_the_help_of_every_command_fits_a_narrow_terminal(cli: Cli) -> None:
    for command in COMMANDS:
        text = cli(*command.split(), "--help").out
        assert "\x1b" not in text
        options = text[text.index("Options:") :].partition("Exit codes:")[0]
        assert max(map(len, options.splitlines())) <= 60, text


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", sorted(OUTPUTS.keys() - {"demo", "doctor"}))
def test_every_command_prints_plain_text(
    cli: Cli, name: str, board: str, digits: Path, digits_artifact: Path
) -> None:
    words = words_of(cli, name, board, digits, digits_artifact)
    outcome = cli(*(word for word in words if word not in ("--json", "--jsonl")))
    assert outcome.code == 0, outcome.err
    assert outcome.out
    assert (outcome.out + outcome.err).isascii()
    assert "\x1b" not in outcome.out + outcome.err


@pytest.mark.parametrize("count", [0, 1, 50])
def test_a_list_is_json_however_long_it_is(
    cli: Cli, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import farcall as fc\ndef register():\n"
    source += (
        f"    for i in range({count}):\n        fc.register_global_func(f'board.f{{i}}', lambda: None)\n"
    )
    (tmp_path / "many_exports.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Server(init="many_exports:register") as server:
        found = json.loads(cli("ls", server.url, "--json").out)
    validator("ls").validate(found)
    assert len([f for f in found["functions"] if "board.f" in str(f)]) == count


# ---- a backend in a wheel of its own


@pytest.fixture(scope="module")
def silu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the backend of the third path, from a wheel."""
    folder = tmp_path_factory.mktemp("silu")
    page = (ROOT / "docs/paths/accelerator.md").read_text()
    source = next(block["text"] for block in BLOCK.finditer(page) if block["file"] == "silu_unit.py")
    assert source.count("\n") < 60
    about = "silu_unit-2.5.dist-info"
    files = {
        "silu_unit.py": source,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: silu-unit\nVersion: 2.5\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[farcall.backends]\nsilu = silu_unit:SiluUnit\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    wheel = folder / "silu_unit-2.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder, wheel]
    subprocess.run(pip, check=True, capture_output=True)
    return folder


def test_a_backend_from_a_wheel_is_listed_and_used(silu: Path, tmp_path: Path) -> None:
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(silu), *sys.path])}
    farcall = ["-m", "farcall"]
    listed = json.loads(output_of(*farcall, "plugins", "list", "--json", env=path))["plugins"]
    assert next(row for row in listed if row["name"] == "silu") == {
        "kind": "backend", "name": "silu", "package": "silu-unit", "version": "2.5",
        "object": "silu_unit:SiluUnit", "state": "ok",
    }  # fmt: skip
    onnx = pytest.importorskip("onnx.parser")
    model = onnx.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> '
        "gate (float[n] x) => (float[n] y) {s = Sigmoid(x) y = Mul(x, s)}"
    )
    (tmp_path / "gate.onnx").write_bytes(model.SerializeToString())
    output_of(*farcall, "build", "gate.onnx", "--backends", "silu,c", env=path, cwd=tmp_path)
    gate = fc.load_module(tmp_path / "gate.so")
    assert "silu_0" in gate
    np.testing.assert_allclose(gate["main"](np.ones(3, "float32")), 1 / (1 + np.exp(-1)), rtol=1e-6)


# ---- an installation in an empty environment


@pytest.mark.slow
def test_the_demo_runs_in_an_empty_environment_within_a_minute(tmp_path: Path) -> None:
    """Slow: builds the wheel, and needs a package index."""
    output_of("-m", "pip", "wheel", ROOT, "-q", "--no-deps", "-w", tmp_path)
    (wheel,) = tmp_path.glob("farcall-*.whl")
    output_of("-m", "venv", tmp_path / "v")
    python = tmp_path / "v/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", f"{wheel}[compile]"], check=True)
    fresh = {**os.environ, "FARCALL_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""}
    demo = [python, "-m", "farcall", "demo"]
    done = subprocess.run(
        demo, cwd=tmp_path, env=fresh, timeout=60, check=True, capture_output=True, text=True
    )
    assert "trace      farcall-demo/trace.json" in done.stdout
