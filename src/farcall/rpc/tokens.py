"""Tokens: what a client may do on a server, and for how long.

A token is shown once, as ``NAME.SECRET``. The file keeps the SHA-256 of the secret, so that a reader of the
file cannot use the tokens; a fast hash is enough, because the secret is 256 random bits. A server reads the
file again when it changes: revoking a token ends its sessions.
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
from farcall._suggest import did_you_mean
from farcall.errors import AccessDeniedError, UsageError
from farcall.rpc.channels import Address

__all__ = [
    "DEFAULT_DAYS",
    "SCOPES",
    "Grant",
    "Token",
    "TokenFile",
    "check_carrier",
    "default_token_file",
    "parse_tokens",
]
__dir__ = __all__.copy

SCOPES = ("call", "copy", "load", "files", "relay")
"""The scopes of a token: calls of exported functions, copies of tensors, loading of libraries, files, and
relays to other servers."""
DEFAULT_DAYS = 30.0
"""After so many days a token expires, unless its owner asks for another time."""
_VERSION = 2  # of the file
# All scopes of version 1, in which every token allowed relays.
_SCOPES_1 = {"call", "copy", "load", "files"}
_FILE_MAX = 1 << 20
_GRACE_SECONDS = 10.0  # sessions go on this long while the file cannot be used: it may be half written
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DAY = 86_400.0


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a token file.

    Attributes:
        name: of the token, for people.
        sha256: of its secret, in hexadecimal digits.
        scopes: the rights that it gives, of :data:`SCOPES`.
        expires: when it expires, in seconds since 1970; None: never.
        created: when it was made, in seconds since 1970.
    """

    name: str
    sha256: str
    scopes: tuple[str, ...]
    expires: float | None
    created: float

    def expired(self, now: float) -> bool:
        """Whether the token has expired at the time ``now`` (seconds since 1970)."""
        return self.expires is not None and now >= self.expires


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    version: int = _VERSION
    tokens: list[Token] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class Grant:
    """The rights of a session.

    Attributes:
        scopes: of :data:`SCOPES`.
        token: that gives them; None on a server without tokens.
    """

    scopes: frozenset[str] = frozenset(SCOPES)
    token: Token | None = None


def default_token_file() -> Path:
    """The default token file, in the user's configuration folder."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "farcall" / "tokens.json"


def check_carrier(presented: str | None, address: Address) -> None:
    """Refuse a token that came in plain text, because others may have read it on the way.

    Args:
        presented: the client's token; None: it has none, which is allowed here.
        address: at which the client connected.

    Raises:
        AccessDeniedError: the token came in plain text.
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
        clock: a monotonic clock, in seconds.

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

    # ---- for the administrator

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
            scopes: the rights that it gives, of :data:`SCOPES`.
            days: until it expires; None: never.
            now: the time, in seconds since 1970.

        Returns:
            ``NAME.SECRET``, which is not stored: give it to its user now.

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
        """Revoke a token; its sessions end within a second.

        Raises:
            UsageError: there is no token of that name, or the file cannot be used.
        """
        with self._changing() as tokens:
            if name not in tokens:
                names = ", ".join(sorted(tokens)) or "none"
                raise UsageError(f"{self.path} has no token {name!r}; it has {names}")
            del tokens[name]

    def tokens(self) -> list[Token]:
        """All tokens, sorted by name.

        Raises:
            UsageError: the file cannot be used.
        """
        return [token for _, token in sorted(self._read().items())]

    # ---- for a server

    def admit(self, presented: str | None, now: float | None = None) -> Grant:
        """The rights of a client that presents a token.

        Args:
            presented: the token, as ``NAME.SECRET``; None: the client has none.
            now: the time in seconds since 1970; None: this machine's clock.

        Raises:
            AccessDeniedError: the token is missing, wrong or expired. The message does not tell a wrong name
                from a wrong secret.
            UsageError: the file cannot be used.
        """
        if presented is None:
            raise AccessDeniedError(
                "this server wants a token; pass token=..., or --token (`farcall token create` makes one)"
            )
        self._refresh()
        name, _, secret = presented.partition(".")
        token = self._tokens.get(name)
        # For an unknown name, the comparison takes equally long.
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

        While the file cannot be used (it may be half written), its previous content still holds for 10 s.
        Meanwhile the server admits no client.

        Args:
            grant: the rights of the session.
            now: the time in seconds since 1970; None: this machine's clock.
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
            UsageError: the file cannot be used.
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
        """The tokens, for the block to change; written when the block ends without an error. Locks the file
        against other processes."""
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
    """Decode the content of a token file.

    Args:
        data: the content.
        where: the name of the file in errors.

    Raises:
        UsageError: the content is not that of a token file, or larger than 1 MiB.
    """
    if len(data) > _FILE_MAX:
        raise UsageError(f"{where}: a token file has at most {_FILE_MAX} bytes")
    try:
        content = msgspec.json.decode(data, type=_Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: not a token file: {error}; make one by `farcall token create`") from None
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
    """A token of version 1 in this version: one that allowed everything still allows everything."""
    return msgspec.structs.replace(token, scopes=SCOPES) if set(token.scopes) == _SCOPES_1 else token


def _stamp(path: Path) -> tuple[int, ...]:
    """A value that differs when the file has changed."""
    try:
        about = path.stat()
    except OSError:
        return ()
    return (about.st_mtime_ns, about.st_ino, about.st_size, about.st_mode)


def _check_token(token: Token, where: str) -> None:
    unknown = set(token.scopes) - set(SCOPES)
    if not _NAME.fullmatch(token.name) or not re.fullmatch(r"[0-9a-f]{64}", token.sha256):
        raise UsageError(f"{where}: token {token.name[:80]!r}: its name or sha256 is not valid")
    if unknown:
        raise UsageError(f"{where}: token {token.name!r}: {_no_scope(min(unknown)[:80])}")


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
        given = _no_scope(unknown[0]) if unknown else f"no scope; the scopes are {', '.join(SCOPES)}"
        raise UsageError(f"token {name!r}: {given}")
    if days is not None and not 0 < days <= 36_500:
        raise UsageError(f"a token lasts a positive number of days, at most 36500, got {days:g}")


def _no_scope(name: str) -> str:
    return f"unknown scope {name!r}{did_you_mean(name, SCOPES)}; the scopes are {', '.join(SCOPES)}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
