"""The output of commands: quick help, tables for any terminal, and the messages of typical mistakes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from farcall.rpc import Server
from farcall.rpc.tokens import TokenFile

from ..graph.graphs import chain
from ..rpc.servers import INIT
from ..terminal import Cli
from ..tree import ROOT
from ..waiting import SECONDS

GOLDEN = ROOT / "tests" / "golden" / "commands"
HEAVY = {"farcall._core", "farcall.abi", "msgspec", "numpy", "onnx", "rich", "asyncio", "importlib.metadata"}
COMMANDS = (
    "", "demo", "build", "convert", "run", "inspect", "stubgen", "serve", "ping", "ls", "call", "cp",
    "sessions", "token",
    "token create", "token list", "device", "device build", "device start", "device list",
    "device stop", "device logs", "device shell", "idl",
    "trace", "trace summary", "cert", "plugins", "plugins list", "doctor",
    "config", "config show",
)  # fmt: skip


def test_help_imports_only_what_it_shows() -> None:
    """A command's module is imported when the user names it, and what it works with when it works."""
    code = f"""
import contextlib, sys
before = set(sys.modules)
from farcall.cli import cli
counts = []
for words in {COMMANDS!r}:
    with contextlib.redirect_stdout(None):
        cli.main([*words.split(), "--help"], standalone_mode=False)
    counts.append(len(set(sys.modules) - before))
print(counts[0], counts[-1], *({HEAVY!r} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, last, *heavy = done.stdout.split()
    assert heavy == []
    assert int(first) < 110, "farcall --help imports more than click and the list of commands"
    assert int(last) < 180


def test_completion_of_urls_imports_as_little(tmp_path: Path) -> None:
    (tmp_path / "recent-urls").write_text("tcp://board:9090\n")
    code = f"""
import sys
import farcall.cli
sys.argv = ["farcall"]
try:
    farcall.cli.main()
finally:
    print(*(({HEAVY!r} | {{"farcall.toolchain"}}) & set(sys.modules)))
"""
    asked = {"_FARCALL_COMPLETE": "bash_complete", "COMP_WORDS": "farcall ping t", "COMP_CWORD": "2"}
    environment = {**os.environ, **asked, "FARCALL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["plain,tcp://board:9090"], done.stdout


LOUD = """
import ctypes
from farcall.backends.c import CBackend

class Loud(CBackend):
    name = "loud"

    def check(self, node):
        print("from Python")
        ctypes.CDLL(None).puts(b"from C")
        return super().check(node)
"""


def test_what_a_backend_prints_is_not_in_the_json(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    onnx.save(chain(1), tmp_path / "m.onnx")
    done = subprocess.run(
        [sys.executable, "-m", "farcall", "explain", "m.onnx", "--backends", "loud:Loud", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["nodes"][0]["backend"] == "loud"
    assert "from Python" in done.stderr
    assert "from C" in done.stderr


# ---- terminals


def on_a_terminal(words: list[str], folder: Path, **environment: str) -> str:
    """What a terminal shows of a command."""
    controller, terminal = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "farcall", *words],
        cwd=folder,
        env={**clean, "TERM": "xterm-256color", **environment},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(controller, 65536):
            shown += piece
    except OSError:  # the last process that has the terminal has ended
        pass
    os.close(controller)
    assert process.wait(SECONDS) == 0, shown
    return shown.decode()


@pytest.fixture(scope="module")
def listed() -> list[str]:
    return ["plugins", "list"]


def test_a_terminal_gets_lines_and_colours(tmp_path: Path, listed: list[str]) -> None:
    shown = on_a_terminal(listed, tmp_path)
    assert "\x1b[1m" in shown
    assert "─" in shown


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"FARCALL_COLOR": "never"}], ids=["dumb", "never"])
def test_a_terminal_that_shows_no_lines_gets_plain_text(
    tmp_path: Path, listed: list[str], environment: dict[str, str]
) -> None:
    shown = on_a_terminal(listed, tmp_path, **environment)
    assert "\x1b" not in shown
    assert shown.isascii()
    assert re.search(r"^backend +c +farcall ", shown, re.MULTILINE)


def test_no_color_keeps_the_lines(tmp_path: Path, listed: list[str]) -> None:
    shown = on_a_terminal(listed, tmp_path, NO_COLOR="1")
    assert not re.search(r"\x1b\[(3\d|9\d|38)", shown)
    assert "─" in shown


def test_a_narrow_terminal_folds_cells(tmp_path: Path, listed: list[str]) -> None:
    shown = on_a_terminal(listed, tmp_path, COLUMNS="60")
    lines = [re.sub(r"\x1b\[[\d;?]*\w", "", line).rstrip("\r") for line in shown.splitlines()]
    assert max(map(len, lines)) <= 60
    assert "channel" in "".join(lines)


def test_a_pipe_gets_colours_only_if_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b" not in cli("plugins", "list").out
    assert "\x1b" in cli("plugins", "list", "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in cli("plugins", "list").out
    assert "\x1b" not in cli("plugins", "list", "--color", "never").out


def test_quiet_leaves_the_notes_out(cli: Cli, digits_artifact: Path) -> None:
    assert cli("inspect", digits_artifact).err.startswith("next: ")
    assert cli("inspect", "-q", digits_artifact).err == ""
    assert cli("-q", "inspect", digits_artifact).err == ""


# ---- mistakes

MISTAKES = {
    "a command that does not exist": "biuld m.onnx",
    "an option that does not exist": "build {digits} --taget host",
    "a model that is missing": "build gone.onnx",
    "a model that is text": "build text.onnx",
    "a target that does not exist": "build {digits} --target vax",
    "a backend that is not installed": "build {digits} --backends npv,c",
    "a folder that is missing": "build {digits} -o no/such/m.so",
    "an artifact that is cut off": "inspect cut.so",
    "an input that is missing": "run {artifact}",
    "an input of another name": "run {artifact} --input img=x.npy",
    "an input that is no array": "run {artifact} --input image=text.onnx",
    "an input of another dtype": "run {artifact} --input image=f64.npy",
    "a URL without a scheme": "run {artifact} --input image=x.npy --on board",
    "a server that does not run": "ping tcp://127.0.0.1:1",
    "a key that is wrong": "ping {board} --key x",
    "a token that is missing": "ls {guarded}",
    "a token file that is missing": "ls {guarded} --token-file gone",
    "a function that the server lacks": "call {board} test.ad 1 2",
    "a setting that does not exist": "config show",
    "a public address without TLS": "serve --host 0.0.0.0",
    "a scope that does not exist": "token create alice --scope cal --file t.json",
    "a timeout that is no time": "ping {board} --timeout 0",
    "a launcher that does not exist": "run {artifact} --input image=x.npy --on emulatr:hexagon",
    "a machine without its full name": "build {digits} --target hexagon",
    "a machine that no server is built for": "device build --target armv",
    "an emulator that does not exist": "device start emulator:hexagn",
    "a device that is a server": "device start tcp://127.0.0.1:9090",
    "a device without its host": "device start ssh://",
    "a server for another device": "device start local:small --server x.npy",
    "a device that was not started": "device logs emulator:hexagon",
    "devices that are not named": "device stop",
    "a device of a server without its URL": "serve --device dsp0",
    "a device of a server without its name": "serve --device =tcp://127.0.0.1:9091",
    "an interface that is missing": "idl gone.idl",
    "a parameter without its mode": "idl wrong.idl",
    "a stub in another language": "idl wrong.idl --stub java",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("servers")
    tokens = TokenFile(folder / "t.json")
    tokens.create("alice")
    guarded = Server(urls=[f"unix://{folder}/u"], tokens=tokens.path)
    with Server(init=INIT, key="desk") as board, guarded:
        yield {"board": board.url, "guarded": guarded.url}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gives_its_message(
    cli: Cli,
    name: str,
    servers: dict[str, str],
    digits: Path,
    digits_artifact: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To update a file, delete it and run the test: it writes the file, and fails."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(Path.cwd()))
    Path("text.onnx").write_text("this is no model\n")
    Path("wrong.idl").write_text("interface i {\n  long get(out long x);\n};\n")
    Path("cut.so").write_bytes(digits_artifact.read_bytes()[:5000])
    np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))
    np.save("f64.npy", np.zeros((1, 1, 8, 8)))
    if "setting" in name:
        Path("farcall.toml").write_text('\nbackend = "c"\n')
    places = {**servers, "digits": digits, "artifact": digits_artifact}
    words = [word.format(**places) for word in MISTAKES[name].split()]
    if name == "a function that the server lacks":
        words += ["--key", "desk"]
    outcome = cli(*words)
    assert outcome.out == ""
    said = f"exit code {outcome.code}\n{outcome.err}"
    for place, value in places.items():
        said = said.replace(str(value), f"{{{place}}}")
    said = re.sub(r"the commands are .*", "the commands are ...", said)
    said = said.replace(f"{Path.cwd()}/", "")
    said = re.sub(r"^\d\d:\d\d:\d\d .*\n", "", said, flags=re.MULTILINE)  # of the servers in this process
    said = re.sub(r"reaches to \d+", "reaches to N", said)
    file = GOLDEN / f"{name.replace(' ', '-')}.txt"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(said)
        pytest.fail(f"{file.name} was missing; read it, then commit it")
    assert said == file.read_text()


def test_no_message_is_left_of_a_mistake_that_is_gone() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {name.replace(" ", "-") for name in MISTAKES}
