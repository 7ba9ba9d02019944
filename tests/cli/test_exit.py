"""Exit codes: what a script learns without reading the message."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import farcall.cli
from farcall import errors
from farcall.cli._exit import EXITS, exit_code
from farcall.rpc import Limits, Server, Tls, connect
from farcall.rpc.tokens import TokenFile

from ..terminal import Cli
from ..tree import ROOT

Run = list[object]


@pytest.fixture
def run(digits_artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A `farcall run` that lacks only its server."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))
    yield ["run", digits_artifact, "--input", "image=x.npy", "--on"]


def test_help_lists_the_codes(cli: Cli) -> None:
    listed = re.findall(r"^ +(\d)  (.+)$", cli("--help").out, re.MULTILINE)
    assert [int(code) for code, _ in listed] == [0, 1, 2, 3, 4, 5]
    assert {(int(code), text) for code, text in listed} == {(row.code, row.meaning) for row in EXITS}


def test_every_error_of_a_session_has_a_code_that_says_so() -> None:
    remote = {name for name, kind in inspect.getmembers(errors) if inspect.isclass(kind)
              and issubclass(kind, errors.RemoteError)}  # fmt: skip
    codes = {name: exit_code(getattr(errors, name)("x")) for name in remote}
    assert {name for name, code in codes.items() if code == 1} == {
        "InvalidHandleError", "ProtocolError", "RemoteError", "StatusError", "WorkerCrashedError"
    }  # fmt: skip
    assert codes["ConnectTimeoutError"] == 4


def test_nobody_listens(cli: Cli, run: Run) -> None:
    assert cli(*run, "tcp://127.0.0.1:1").code == 3


def test_a_server_is_full(cli: Cli, run: Run) -> None:
    with Server(limits=Limits(sessions=1)) as server, connect(server.url):
        outcome = cli(*run, server.url)
        with pytest.raises(errors.ServerBusyError, match="1 session open, which is its limit"):
            connect(server.url)
    assert outcome.code == 4
    assert "retry later" in outcome.err


def test_a_deadline_passes(cli: Cli, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*args: object, **options: object) -> None:
        raise errors.DeadlineExceededError("main: more than 1 s")

    monkeypatch.setattr("farcall.rpc.connect", late)
    assert cli(*run, "tcp://127.0.0.1:1").code == 4


def test_a_call_takes_longer_than_its_timeout(cli: Cli, server: Server) -> None:
    outcome = cli("call", server.url, "--key", "k", "--timeout", "0.3", "test.wait", "60")
    assert outcome.code == 4, outcome.err


def test_the_guide_lists_the_codes() -> None:
    guide = (ROOT / "docs" / "commands.md").read_text()
    rows = re.findall(r"^\| (\d) \| (.*?) \| (.*) ?\|$", guide, re.MULTILINE)
    assert {(int(code), text) for code, text, _ in rows} == {(row.code, row.meaning) for row in EXITS}
    for code, _, names in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert exit_code(getattr(errors, name)("x")) == int(code), name


def test_the_key_is_wrong(cli: Cli, run: Run) -> None:
    with Server(key="desk") as server:
        assert cli(*run, server.url, "--key", "x").code == 5


def test_a_token_is_missing_or_lacks_a_scope(cli: Cli, run: Run, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "t.json")
    with Server(urls=[f"unix://{tmp_path}/u"], tokens=tokens.path) as server:
        assert cli(*run, server.url).code == 5
        Path("secret").write_text(tokens.create("alice", ("call",)) + "\n")
        outcome = cli(*run, server.url, "--token-file", "secret")
        assert outcome.code == 5
        assert "scope" in outcome.err


def test_a_certificate_is_not_accepted(cli: Cli, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    assert cli("cert", "ours").code == cli("cert", "theirs").code == 0
    with Server(urls=["tls://127.0.0.1:0"], tls=Tls.of("ours/server")) as server:
        for folder in ("theirs", "ours"):  # the server's is not accepted; then the client's, as it has none
            outcome = cli(*run, server.url, "--ca", f"{folder}/ca.pem")
            assert outcome.code == 5, outcome.err
            assert "certificate" in outcome.err


def test_a_package_that_is_missing_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> None:
        raise ModuleNotFoundError("No module named 'numpy.linalg'", name="numpy.linalg")

    monkeypatch.setattr("farcall.cli.inspect._read", missing)
    outcome = cli("inspect", "m.so")
    assert outcome.code == 1
    assert outcome.err == (
        "error: the package numpy is not installed; run: pip install numpy\n"
        f"see: {errors.MissingExtraError.url}\n"
    )


def test_a_bug_says_that_it_is_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise KeyError("shape")

    monkeypatch.setattr("farcall.cli.inspect._read", broken)
    outcome = cli("inspect", "m.so")
    assert outcome.code == 1
    assert "this is a bug in farcall: KeyError: 'shape'" in outcome.err
    assert "--debug" in outcome.err
    monkeypatch.setattr(sys, "argv", ["farcall", "inspect", "m.so", "--debug"])
    with pytest.raises(KeyError):
        farcall.cli.main()
