"""The unit and the container file of examples/deploy start a server: the command has all their options."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from farcall.cli.serve import command

from .tree import ROOT

DEPLOY = ROOT / "examples/deploy"
UNIT, CONTAINER = DEPLOY / "farcall@.service", DEPLOY / "Containerfile"


def unit() -> configparser.SectionProxy:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(UNIT)
    return parsed["Service"]


def of_unit() -> list[str]:
    program, verb, *arguments = shlex.split(unit()["ExecStart"])
    assert (Path(program).name, verb) == ("farcall", "serve")
    return arguments


def of_container() -> list[str]:
    text = CONTAINER.read_text()
    entry, arguments = (
        json.loads(re.findall(rf"^{word} (.*)$", text, re.MULTILINE)[0]) for word in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["farcall", "serve"]
    return list(arguments)


@pytest.mark.parametrize("arguments", [of_unit(), of_container()], ids=["unit", "container"])
def test_the_command_takes_the_options(arguments: list[str], tmp_path: Path) -> None:
    for name in ("ca.pem", "server.pem", "server.key", "tokens.json"):
        (tmp_path / name).touch()
    here = [argument.replace("/etc/farcall", str(tmp_path)) for argument in arguments]
    taken = command.make_context("serve", here).params
    assert taken["sessions"] == 16 and taken["lease"] == 300 and taken["call_seconds"] == 600
    with pytest.raises(click.NoSuchOption):
        command.make_context("serve", [*here, "--lifetime", "5"])


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        (of_unit(), unit()["TimeoutStopSec"]),
        (of_container(), re.findall(r"--stop-timeout=(\d+)", CONTAINER.read_text())[0]),
    ],
    ids=["unit", "container"],
)
def test_running_calls_are_not_killed_before_they_may_finish(arguments: list[str], seconds: str) -> None:
    drain = float(arguments[arguments.index("--drain") + 1])
    assert float(seconds) >= drain + 10  # a server stops within 10 s after its drain


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if not systemd:
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    program = shutil.which("true")
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={program}", UNIT.read_text(), flags=re.MULTILINE)
    (tmp_path / "farcall@.service").write_text(text.replace("User=farcall", "User=root"))
    done = subprocess.run(
        [systemd, "verify", tmp_path / "farcall@.service"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
