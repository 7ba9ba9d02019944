"""The JSON output of every command follows its schema, which docs/json.md lists."""

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

from farcall.rpc import Server, connect

from ..rpc.servers import INIT
from ..terminal import Cli
from ..tree import CXX, ROOT

jsonschema = pytest.importorskip("jsonschema")
FOLDER = ROOT / "docs" / "schemas"
NAMES = sorted(file.name.removesuffix(".1.json") for file in FOLDER.glob("*.json"))

COMMANDS = {
    "build": "build {digits} --json",
    "build-dry-run": "build {digits} --dry-run --json",
    "call": "call {board} test.add 1 2 --json",
    "cert": "cert certs --json",
    "config-show": "config show --json",
    "cp": "cp x.npy {board} --json",
    "demo": "demo --json",
    "device-build": "device build --target x86_64 --json",
    "device-list": "device list --json",
    "device-start": "device start local --json",
    "device-stop": "device stop local --json",
    "doctor": "doctor --json",
    "explain": "explain {digits} --json",
    "inspect-artifact": "inspect {artifact} --json",
    "inspect-library": "inspect {library} --json",
    "inspect-model": "inspect {digits} --json",
    "ls": "ls {board} --json",
    "ping": "ping {board} --json",
    "ping-reply": "ping {board} --count 2 --jsonl",
    "plugins-list": "plugins list --json",
    "run": "run {artifact} --input image=x.npy --output results --json",
    "sessions": "sessions {board} --json",
    "token-create": "token create alice --file t.json --json",
    "token-list": "token list --file t.json --json",
    "trace-summary": "trace summary t.json --json",
}


@pytest.fixture(scope="module")
def board() -> Iterator[str]:
    with Server(init=INIT) as server:
        yield server.url


def validator(name: str) -> Any:
    schema = json.loads((FOLDER / f"{name}.1.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_events_of_a_server_follow_their_schema() -> None:
    words = [sys.executable, "-m", "farcall", "serve", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline())]
        with connect(events[0]["url"]):
            events.append(json.loads(process.stdout.readline()))
        events.append(json.loads(process.stdout.readline()))
        process.terminate()
        events += map(json.loads, process.stdout)
    assert {"listening", "session start", "session end", "stopped"} <= {event["event"] for event in events}
    for event in events:
        validator("serve").validate(event)


def words_of(cli: Cli, name: str, board: str, digits: Path, artifact: Path) -> list[str]:
    """The words of a command. What it reads is made first."""
    np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))
    if name.startswith("device-"):
        cli("device", "start", "local")
    if name == "token-list":
        cli("token", "create", "alice", "--file", "t.json")
    if name == "trace-summary":
        cli("run", artifact, "--input", "image=x.npy", "--trace", "t.json")
    places = {"board": board, "digits": digits, "artifact": artifact, "library": CXX}
    return COMMANDS[name].format(**places).split()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_output_follows_its_schema(
    cli: Cli, name: str, board: str, digits: Path, digits_artifact: Path
) -> None:
    outcome = cli(*words_of(cli, name, board, digits, digits_artifact))
    cli("device", "stop", "--all")
    assert outcome.code == 0, outcome.err
    objects = outcome.out.splitlines() if "--jsonl" in COMMANDS[name] else [outcome.out]
    for text in objects:
        found = json.loads(text)
        assert found["schema"] == f"farcall.{name}/1"
        validator(name).validate(found)
        with pytest.raises(jsonschema.ValidationError):
            validator(name).validate({"schema": found["schema"]})


def test_each_schema_has_a_command_and_a_row_of_the_page() -> None:
    assert sorted([*COMMANDS, "serve"]) == NAMES
    page = (ROOT / "docs" / "json.md").read_text()
    assert sorted(re.findall(r"\(schemas/([\w-]+)\.1\.json\)", page)) == NAMES


def test_each_output_has_a_schema() -> None:
    source = "".join(file.read_text() for file in (ROOT / "src/farcall/cli").glob("*.py"))
    printed = re.findall(r'_show\.as_json(?:_line)?\(\s*"([\w -]+)"', source)
    assert sorted({*(name.replace(" ", "-") for name in printed), "serve"}) == NAMES
