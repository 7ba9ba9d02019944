"""`farcall device`, and devices after `--on`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from farcall.launch import _started

from ..terminal import Cli
from ..waiting import has_ended


def test_a_server_is_started_listed_used_and_stopped(cli: Cli, aarch64_server: Path) -> None:
    device = "emulator:aarch64"
    started = cli("device", "start", device, "--server", str(aarch64_server), "--json")
    url = json.loads(started.out)["url"]
    assert cli("device", "start", device, "--server", str(aarch64_server)).out.endswith(f"serving at {url}\n")
    (row,) = json.loads(cli("device", "list", "--json").out)["devices"]
    assert (row["device"], row["state"], row["url"]) == (device, "running", url)
    assert cli("ping", url, "--count", "1").code == 0
    assert cli("device", "logs", device).code == 0
    assert cli("device", "stop", device).out == f"stopped {device}\n"
    assert json.loads(cli("device", "list", "--json").out)["devices"] == []
    assert cli("ping", url, "--count", "1").code == 3


def test_a_server_that_was_killed_has_ended(cli: Cli) -> None:
    cli("device", "start", "local")
    (record,) = _started.records()
    pid = int(record.place.run.split("-")[2])
    os.kill(pid, signal.SIGKILL)
    assert has_ended(pid)
    (row,) = json.loads(cli("device", "list", "--json").out)["devices"]
    assert row["state"] == "ended"
    assert cli("device", "stop", "--all").code == 0


def test_on_takes_a_device(cli: Cli, run_folder: Path) -> None:
    found = cli("ls", "local", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["url"] == "local"
    assert list(run_folder.glob("run-*")) == []
    refused = cli("ls", "local", "--via", "tcp://127.0.0.1:1")
    assert refused.code == 2 and "a device is launched from this machine; leave --via out" in refused.err


def test_the_shell_has_the_status_of_its_command(cli: Cli) -> None:
    done = cli("device", "shell", "local", "echo out; echo err >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "out\n", "err\n")


def test_mistakes_name_the_cure(cli: Cli) -> None:
    cli("device", "start", "local")
    wrong = cli("device", "stop", "locl")
    assert wrong.code == 2
    assert "no server was started on 'locl'; did you mean `local`?; started: local; run:" in wrong.err
    assert "name the devices to stop, or pass --all" in cli("device", "stop").err
    assert cli("device", "stop", "--all").code == 0
    assert cli("device", "start", "emulator:z80").code == 2
