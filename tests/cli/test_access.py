"""``farcall token`` and ``farcall cert``, and the use of their tokens and certificates."""

from __future__ import annotations

import json
import re
import ssl
import sys
from pathlib import Path

import numpy as np
import pytest

from farcall.rpc import Server, Tls, connect
from farcall.rpc.tokens import TokenFile

from ..terminal import Cli


def test_a_token_from_creation_to_revocation(cli: Cli) -> None:
    made = cli("token", "create", "alice", "--scope", "call", "--days", "7", "--file", "t.json")
    assert made.code == 0
    assert re.fullmatch(r"alice\.[\w-]{43}\n", made.out)
    assert "Keep this token secret" in made.err
    assert TokenFile("t.json").admit(made.out.strip()).scopes == {"call"}
    listed = json.loads(cli("token", "list", "--file", "t.json", "--json").out)
    [row] = listed["tokens"]
    assert (row["name"], row["scopes"], row["state"]) == ("alice", ["call"], "valid")
    assert made.out.strip().partition(".")[2] not in json.dumps(listed)
    table = cli("token", "list", "--file", "t.json").out
    assert re.search(r"alice +call +\d{4}-\d\d-\d\dT", table)
    assert "alice is revoked" in cli("token", "revoke", "alice", "--file", "t.json").err
    assert json.loads(cli("token", "list", "--file", "t.json", "--json").out)["tokens"] == []


def test_tokens_have_a_place_of_their_own(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = json.loads(cli("token", "create", "bob", "--days", "0", "--json").out)
    assert made["file"] == str(tmp_path / "config" / "farcall" / "tokens.json")
    listed = json.loads(cli("token", "list", "--json").out)["tokens"]
    assert listed[0]["expires"] == "never"
    assert listed[0]["scopes"] == ["call", "copy", "load", "files", "relay"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("create", "a b"), "expected 1 to 64 letters"),
        (("create", "bob", "--scope", "cal"), "unknown scope 'cal'; did you mean `call`?; the scopes are"),
        (("create", "bob", "--days", "-1"), "positive number of days"),
        (("revoke", "bob"), "no token 'bob'; it has none"),
    ],
)
def test_what_a_token_is_not(cli: Cli, words: tuple[str, ...], error: str) -> None:
    outcome = cli("token", *words, "--file", "t.json")
    assert outcome.code in (1, 2)
    assert error in outcome.err


def test_certificates_that_work(cli: Cli) -> None:
    made = cli("cert", "certs")
    assert made.code == 0
    assert made.out.split() == [
        f"certs/{n}" for n in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")
    ]
    assert Path("certs/client.key").stat().st_mode & 0o777 == 0o600
    with (
        Server(urls=["tls://127.0.0.1:0"], tls=Tls.of("certs/server")) as server,
        connect(server.url, tls=Tls.of("certs/client")) as session,
    ):
        assert not session.closed


def test_a_model_runs_where_a_token_and_a_certificate_are_wanted(
    cli: Cli, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("x.npy", np.zeros((1, 1, 8, 8), "float32"))
    cli("cert", "certs")
    tokens = TokenFile("t.json")
    run = ["run", digits, "--input", "image=x.npy", "--ca", "certs/ca.pem", "--cert", "certs/client.pem"]
    run += ["--cert-key", "certs/client.key", "--json", "--on"]
    with Server(urls=["tls://127.0.0.1:0"], tls=Tls.of("certs/server"), tokens=tokens.path) as server:
        assert "this server wants a token" in cli(*run, server.url).err
        monkeypatch.setenv("FARCALL_TOKEN", tokens.create("alice"))
        done = cli(*run, server.url)
        assert done.code == 0, done.err
        assert json.loads(done.out)["on"] == server.url
        tokens.revoke("alice")
        assert "not known here" in cli(*run, server.url).err


def test_a_certificate_is_for_the_names_that_were_given(cli: Cli) -> None:
    assert cli("cert", "certs", "--name", "board.local", "--name", "10.0.0.7", "--days", "1").code == 0
    decoded = ssl._ssl._test_decode_cert("certs/server.pem")  # type: ignore[attr-defined]
    assert decoded["subjectAltName"] == (("DNS", "board.local"), ("IP Address", "10.0.0.7"))
    for words in (("--name", ""), ("--days", "0"), ("--name", "bäd")):
        assert "error: " in cli("cert", "certs", *words).err


def test_without_cryptography(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert "pip install 'farcall[tls]'" in cli("cert", "certs").err
