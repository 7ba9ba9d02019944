"""Tokens: who may do what on a server, for how long.

A token is shown once, as ``NAME.SECRET``. The file keeps the SHA-256 of the secret, so that who reads the
file cannot pose as anybody; a fast hash does, because the secret is 256 random bits. A server reads the file
again when it changes: a token that is revoked ends its sessions.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from farcall._files import write_beside
from farcall.errors import AccessDeniedError, UsageError
from farcall.rpc.channels import Address

SCOPES = ("call", "copy", "load", "files", "relay")
"""What a token can allow: calls of exported functions, copies of tensors, loading of libraries, files, and
going on to other servers."""
DEFAULT_DAYS = 30.0
_VERSION = 2  # of the file
_SCOPES_1 = {
    "call",
    "copy",
    "load",
    "files",
}  # all that version 1 had; every token could go on to other servers
_FILE_MAX = 1 << 20
_GRACE_SECONDS = 10.0  # that sessions go on while the file cannot be used: somebody may be writing it
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DAY = 86_400.0


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a token file.

    Attributes:
        name: of the token, for people.
        sha256: of its secret, in hexadecimal digits.
        scopes: what it allows.
        expires: when it ends, in seconds since 1970; None: never.
        created: when it was made.
    """

    name: str
    sha256: str
    scopes: tuple[str, ...]
    expires: float | None
    created: float

    def expired(self, now: float) -> bool:
        """Whether it is over at a time (seconds since 1970)."""
        return self.expires is not None and now >= self.expires


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    version: int = _VERSION
    tokens: list[Token] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class Grant:
    """What a session may do.

    Attributes:
        scopes: of :data:`SCOPES`.
        token: that gave them; None on a server without tokens.
    """

    scopes: frozenset[str] = frozenset(SCOPES)
    token: Token | None = None


def default_token_file() -> Path:
    """Where tokens are kept when no file is named: in the user's folder for configuration."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "farcall" / "tokens.json"


def check_carrier(presented: str | None, address: Address) -> None:
    """Refuse a token that came in plain text: whoever was on the way has it now.

    Raises:
        AccessDeniedError: it did.
    """
    if presented is not None and not address.secret:
        raise AccessDeniedError(
            f"a token over {address.scheme}:// can be read on the way, and is not accepted; revoke it, "
            "and use tls:// or wss://"
        )


class TokenFile:
    """The tokens of a server, in a file that only its user can read.

    Args:
        path: of the file; it need not exist yet.
        clock: seconds that never go back.

    Attributes:
        problem: why the file could not be used when a session was last checked; None: it could.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self.problem: str | None = None
        self._clock = clock
        self._unusable_since = 0.0
        self._stamp: tuple[int, ...] | None = None
        self._tokens: dict[str, Token] = {}

    # ---- for those who give tokens out

    def create(
        self,
        name: str,
        scopes: tuple[str, ...] = SCOPES,
        days: float | None = DEFAULT_DAYS,
        now: float | None = None,
    ) -> str:
        """Make a token.

        Args:
            name: letters, digits, ``-`` and ``_``, at most 64; not in use.
            scopes: what it allows, of :data:`SCOPES`.
            days: until it expires; None: it does not.
            now: the time, in seconds since 1970.

        Returns:
            ``NAME.SECRET``, which is kept nowhere: give it to its user now.

        Raises:
            UsageError: an argument is wrong, or the file cannot be used.
        """
        now = time.time() if now is None else now
        secret = secrets.token_urlsafe(32)
        expires = None if days is None else now + days * _DAY
        ordered = tuple(scope for scope in SCOPES if scope in scopes)
        with self._changing() as tokens:
            _check_new(name, scopes, days, tokens)
            tokens[name] = Token(name, _digest(secret), ordered, expires, now)
        return f"{name}.{secret}"

    def revoke(self, name: str) -> None:
        """Take a token back: sessions with it end within a second.

        Raises:
            UsageError: there is none of that name, or the file cannot be used.
        """
        with self._changing() as tokens:
            if name not in tokens:
                names = ", ".join(sorted(tokens)) or "none"
                raise UsageError(f"{self.path} has no token {name!r}; it has {names}")
            del tokens[name]

    def tokens(self) -> list[Token]:
        """All of them, by name.

        Raises:
            UsageError: the file cannot be used.
        """
        return [token for _, token in sorted(self._read().items())]

    # ---- for a server

    def admit(self, presented: str | None, now: float | None = None) -> Grant:
        """What a client that presents a token may do.

        Raises:
            AccessDeniedError: nothing; neither a wrong name nor a wrong secret is told apart.
            UsageError: the file cannot be used.
        """
        if presented is None:
            raise AccessDeniedError(
                "this server wants a token; pass token=... (`farcall token create` makes one)"
            )
        self._refresh()
        name, _, secret = presented.partition(".")
        token = self._tokens.get(name)
        # The comparison takes as long for a name that is unknown.
        right = secrets.compare_digest(_digest(secret), token.sha256 if token is not None else _digest(""))
        if token is None or not right:
            raise AccessDeniedError(
                "the token is not known here; it was mistyped, revoked, or is of another server"
            )
        if token.expired(time.time() if now is None else now):
            raise AccessDeniedError(f"the token {name!r} has expired; ask for a new one")
        return Grant(frozenset(token.scopes), token)

    def objection(self, grant: Grant, now: float | None = None) -> str | None:
        """Why a session that was admitted must end; None: it may go on.

        While the file cannot be used, what it said before still counts, for 10 s: it may be half written. It
        admits nobody meanwhile.
        """
        token = grant.token
        if token is None:
            return None
        try:
            self._refresh()
        except UsageError:
            if self._clock() - self._unusable_since >= _GRACE_SECONDS:
                return "the server cannot read its tokens any more"
        if self._tokens.get(token.name) != token:
            return f"the token {token.name!r} was revoked"
        if token.expired(time.time() if now is None else now):
            return f"the token {token.name!r} has expired"
        return None

    # ---- the file

    def _refresh(self) -> None:
        """Read the file again when it has changed.

        Raises:
            UsageError: it cannot be used.
        """
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._tokens, self.problem = self._read(), None
            except UsageError as error:
                if self.problem is None:
                    self._unusable_since = self._clock()
                self.problem = str(error)
        if self.problem is not None:
            raise UsageError(self.problem)

    def _read(self) -> dict[str, Token]:
        try:
            with self.path.open("rb") as file:
                _check_private(self.path, os.fstat(file.fileno()))
                data = file.read(_FILE_MAX + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}") from None
        return parse_tokens(data, str(self.path))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, Token]]:
        """The tokens, to be changed; written when the block ends well. One process at a time."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}; name a file that you may write") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self._read()
            yield tokens
            data = msgspec.json.encode(_Content(tokens=list(tokens.values())))
            write_beside(self.path, msgspec.json.format(data, indent=2) + b"\n", mode=0o600)
        finally:
            os.close(lock)


def parse_tokens(data: bytes, where: str) -> dict[str, Token]:
    """The tokens of a file's content.

    Raises:
        UsageError: it is no token file, or larger than 1 MiB.
    """
    if len(data) > _FILE_MAX:
        raise UsageError(f"{where}: a token file has at most {_FILE_MAX} bytes")
    try:
        content = msgspec.json.decode(data, type=_Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: no token file: {error}; make one by `farcall token create`") from None
    if content.version not in (1, _VERSION):
        raise UsageError(
            f"{where}: version {content.version} of token files; this farcall reads versions 1 and {_VERSION}"
        )
    tokens = {token.name: _upgraded(token) if content.version == 1 else token for token in content.tokens}
    for token in content.tokens:
        _check_token(token, where)
    if len(tokens) != len(content.tokens):
        raise UsageError(f"{where}: a token's name is there twice; remove one")
    return tokens


def _upgraded(token: Token) -> Token:
    """A token of version 1 as one of this version: who could do everything then can do everything now."""
    return msgspec.structs.replace(token, scopes=SCOPES) if set(token.scopes) == _SCOPES_1 else token


def _stamp(path: Path) -> tuple[int, ...]:
    """Another one when the file has changed."""
    try:
        about = path.stat()
    except OSError:
        return ()
    return (about.st_mtime_ns, about.st_ino, about.st_size, about.st_mode)


def _check_token(token: Token, where: str) -> None:
    unknown = set(token.scopes) - set(SCOPES)
    if not _NAME.fullmatch(token.name) or not re.fullmatch(r"[0-9a-f]{64}", token.sha256):
        raise UsageError(f"{where}: token {token.name[:80]!r}: its name or sha256 is none")
    if unknown:
        raise UsageError(
            f"{where}: token {token.name!r}: unknown scope {min(unknown)[:80]!r}; there are {SCOPES}"
        )


def _check_private(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise UsageError(f"{path}: a token file is a regular file")
    if about.st_mode & 0o077:
        raise UsageError(f"{path}: others can read or change it; run: chmod 600 {path}")
    if about.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{path}: it belongs to another user (id {about.st_uid}), who could admit anybody")


def _check_new(name: str, scopes: tuple[str, ...], days: float | None, tokens: dict[str, Token]) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"token name {name!r}: expected 1 to 64 letters, digits, - and _")
    if name in tokens:
        raise UsageError(f"there is a token {name!r} already; revoke it first, or choose another name")
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        given = f"unknown scope {unknown[0]!r}" if unknown else "no scope"
        raise UsageError(f"{given}; expected one or more of {', '.join(SCOPES)}")
    if days is not None and not 0 < days <= 36_500:
        raise UsageError(f"a token lasts a positive number of days, at most 36500, got {days:g}")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
