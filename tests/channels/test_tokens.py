"""Tokens: the stored form, admission, and that revoking a token ends its sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.errors import AccessDeniedError, UsageError
from farcall.rpc.tokens import SCOPES, Grant, TokenFile, parse_tokens

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


def test_a_token_is_admitted_with_its_scopes(file: TokenFile) -> None:
    text = file.create("alice", ("copy", "call"), now=NOW)
    grant = file.admit(text, NOW)
    assert grant.scopes == {"call", "copy"}
    assert grant.token is not None
    assert grant.token.name == "alice"


def test_the_secret_is_long_and_not_stored(file: TokenFile) -> None:
    name, _, secret = file.create("alice").partition(".")
    content = file.path.read_text()
    assert name == "alice"
    assert len(secret) >= 43  # 256 bits
    assert secret not in content
    assert hashlib.sha256(secret.encode()).hexdigest() in content
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_secrets_differ(file: TokenFile) -> None:
    assert len({file.create(f"t{i}").split(".")[1] for i in range(20)}) == 20


@pytest.mark.parametrize("wrong", ["", "alice", "alice.", "alice.x", "bob.x", ".", "alice.\udcff"])
def test_a_wrong_token(file: TokenFile, wrong: str) -> None:
    file.create("alice")
    with pytest.raises(AccessDeniedError, match="the token is not known here"):
        file.admit(wrong)


def test_no_token(file: TokenFile) -> None:
    with pytest.raises(AccessDeniedError, match="this server wants a token"):
        file.admit(None)


def test_a_token_expires(file: TokenFile) -> None:
    text = file.create("alice", days=7, now=NOW)
    grant = file.admit(text, NOW + 7 * DAY - 1)
    assert file.objection(grant, NOW + 7 * DAY - 1) is None
    assert file.objection(grant, NOW + 7 * DAY) == "the token 'alice' has expired"
    with pytest.raises(AccessDeniedError, match="'alice' has expired"):
        file.admit(text, NOW + 7 * DAY)
    forever = file.create("bob", days=None, now=NOW)
    assert file.admit(forever, NOW + 1000 * DAY)


def test_a_revoked_token_ends_what_it_began(file: TokenFile) -> None:
    alice, bob = file.create("alice"), file.create("bob")
    server = TokenFile(file.path)
    grant, other = server.admit(alice), server.admit(bob)
    assert server.objection(grant) is None
    file.revoke("alice")
    assert server.objection(grant) == "the token 'alice' was revoked"
    assert server.objection(other) is None
    with pytest.raises(AccessDeniedError):
        server.admit(alice)
    file.create("alice")  # another token of the same name
    assert server.objection(grant) == "the token 'alice' was revoked"


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_bytes(b'{"version"'), lambda path: path.chmod(0o640)]
)
def test_a_file_that_goes_bad_admits_nobody_and_keeps_its_sessions_for_a_while(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    seconds = [0.0]
    file = TokenFile(tmp_path / "tokens.json", clock=lambda: seconds[0])
    text = file.create("alice")
    grant, content = file.admit(text), file.path.read_bytes()
    for until_then in (0.0, 100.0):  # the second time it has its seconds anew
        seconds[0] = until_then
        spoil(file.path)
        assert file.objection(grant) is None
        with pytest.raises(UsageError):
            file.admit(text)
        assert file.problem is not None
        seconds[0] += 9.9
        assert file.objection(grant) is None
        seconds[0] += 0.2
        assert file.objection(grant) == "the server cannot read its tokens any more"
        file.path.chmod(0o600)
        file.path.write_bytes(content)
        assert file.objection(grant) is None
        assert file.problem is None


def test_a_file_that_is_removed_ends_all(file: TokenFile) -> None:
    grant = file.admit(file.create("alice"))
    file.path.unlink()
    assert file.objection(grant) == "the token 'alice' was revoked"


def test_a_token_of_version_1_with_all_scopes_may_go_on_to_other_servers() -> None:
    def scopes(version: int, *names: str) -> set[str]:
        scopes = json.dumps(names).encode()
        content = VALID.replace(b'["call"]', scopes).replace(b'"version":1', b'"version":%d' % version)
        return set(parse_tokens(content, "f")["a"].scopes)

    assert scopes(1, "call", "copy", "load", "files") == set(SCOPES)
    assert scopes(1, "call", "copy", "load") == {"call", "copy", "load"}
    assert scopes(2, "call", "copy", "load", "files") == {"call", "copy", "load", "files"}


def test_a_file_of_version_1_is_written_as_version_2(file: TokenFile) -> None:
    file.path.touch(mode=0o600)
    file.path.write_bytes(VALID.replace(b'["call"]', b'["call","copy","load","files"]'))
    file.create("b", ("call", "copy", "load", "files"))
    scopes = {token.name: set(token.scopes) for token in TokenFile(file.path).tokens()}
    assert scopes == {"a": set(SCOPES), "b": {"call", "copy", "load", "files"}}


def test_a_server_without_tokens_grants_all() -> None:
    assert Grant().scopes == set(SCOPES)


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_file_that_others_can_read_is_refused(file: TokenFile, mode: int) -> None:
    file.create("alice")
    file.path.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        file.tokens()


def test_what_cannot_be_created(file: TokenFile) -> None:
    file.create("alice")
    with pytest.raises(UsageError, match="'alice' already"):
        file.create("alice")
    for name in ("", "a b", "a.b", "x" * 65, "ä"):
        with pytest.raises(UsageError, match="expected 1 to 64 letters"):
            file.create(name)
    with pytest.raises(UsageError, match="unknown scope 'root'"):
        file.create("bob", ("root",))
    with pytest.raises(UsageError, match="no scope"):
        file.create("bob", ())
    for days in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="positive number of days"):
            file.create("bob", days=days)
    with pytest.raises(UsageError, match="no token 'bob'; it has alice"):
        file.revoke("bob")
    assert [token.name for token in file.tokens()] == ["alice"]


def test_no_half_file_is_left(file: TokenFile) -> None:
    file.create("alice")
    before = file.path.read_bytes()
    with pytest.raises(UsageError):
        file.create("alice")
    assert file.path.read_bytes() == before
    assert {path.name for path in file.path.parent.iterdir()} == {"tokens.json", ".tokens.json.lock"}


VALID = (
    b'{"version":1,"tokens":[{"name":"a","sha256":"'
    + b"0" * 64
    + b'","scopes":["call"],"expires":null,"created":0}]}'
)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "not a token file"),
        (b"[]", "not a token file"),
        (b'{"version":3}', "version 3"),
        (VALID.replace(b'"a"', b'"a.b"'), "its name or sha256 is not valid"),
        (VALID.replace(b"0" * 64, b"0" * 63), "its name or sha256 is not valid"),
        (VALID.replace(b'"call"', b'"root"'), "unknown scope 'root'"),
        (VALID.replace(b'"created"', b'"more":1,"created"'), r"\$.tokens\[0\]"),
        (VALID.replace(b"}]}", b"}," + VALID[23:-2] + b"]}"), "there twice"),
        (b" " * (1 << 20) + VALID, "at most 1048576 bytes"),
    ],
)
def test_no_token_file(content: bytes, error: str) -> None:
    assert set(parse_tokens(VALID, "f")) == {"a"}
    with pytest.raises(UsageError, match=error):
        parse_tokens(content, "f")


@given(
    st.one_of(st.binary(max_size=200), st.integers(0, len(VALID)).map(lambda n: VALID[:n] + b'"' + VALID[n:]))
)
def test_any_bytes_are_tokens_or_refused(content: bytes) -> None:
    try:
        tokens = parse_tokens(content, "f")
    except UsageError:
        return
    assert all(name == token.name for name, token in tokens.items())
