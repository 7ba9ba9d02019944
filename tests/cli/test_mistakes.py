"""Mistakes on the command line: one message, which names the mistake and the cure."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from farcall.errors import ConnectError
from farcall.rpc import Server, Tls, certificates, connect

from ..terminal import Cli
from ..waiting import SECONDS

COMMANDS = ("demo", "build", "run", "inspect", "stubgen", "serve", "cert", "config", "token", "token create")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_how_it_is_typed(cli: Cli, command: str) -> None:
    text = cli(*command.split(), "--help").out
    usage = text[: text.index("Options:")]
    assert f"\n  farcall {command}" in usage or f"$(farcall {command} " in usage
    assert "\\b" not in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sevre", "no command `sevre`; did you mean `serve`?; the commands are demo, build,"),
        ("serve --port 70000", "70000 is not in the range 0<=x<=65535"),
        ("serve --sessions 0", "0 is not in the range x>=1"),
        ("serve --memory -4", "-4 is not in the range x>=0"),
        ("serve --lease -1", "-1.0 is not in the range x>=0"),
        ("serve --relay sometimes", "relay is 'off', 'loopback', 'any', or words HOST:PORT, got 'sometimes'"),
        ("serve --listen htp://h:1", "there is no channel 'htp'; did you mean `tcp`?"),
        ("serve --stdio --tokens t.json --port 1", "--port, --tokens: no use with --stdio"),
        ("run m.so --on board", "no such file: 'm.so'"),
        (
            "token list --file t.json",
            "no such token file; `farcall token create NAME --file t.json` makes one",
        ),
        ("cert certs --days 0", "certificates last 1 to 3650 days, got 0"),
    ],
)
def test_what_is_mistyped(cli: Cli, words: str, says: str) -> None:
    outcome = cli(*words.split())
    assert outcome.code in (1, 2)
    assert says in outcome.err.replace("\n", " ")


def test_a_file_that_cannot_be_written_is_known_before_the_work(cli: Cli, digits: Path) -> None:
    outcome = cli("build", digits, "-o", "nowhere/m.so")
    assert outcome.code == 2
    assert "cannot write 'nowhere/m.so': there is no folder 'nowhere'" in outcome.err


def test_a_server_without_tokens_says_so(tmp_path: Path) -> None:
    listen = f"unix://{tmp_path}/u"
    command = [sys.executable, "-m", "farcall", "serve", "--listen", listen, "--tokens", "t.json"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"listening on {listen}\n"
    process.terminate()
    _, said = process.communicate(timeout=SECONDS)
    assert said.startswith(
        "t.json has no token, so no client gets in; run `farcall token create NAME --file t.json`\n"
    )


def test_a_certificate_that_has_expired(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")

    class LastWeek(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - timedelta(days=7)

    monkeypatch.setattr(certificates, "datetime", LastWeek)
    assert cli("cert", "certs", "--days", "1").code == 0
    expired = pytest.raises(ConnectError, match="certificate has expired; it needs a new one")
    with Server(urls=["tls://127.0.0.1:0"], tls=Tls.of("certs/server")) as server, expired:
        connect(server.url, tls=Tls.of("certs/client"))
