"""The options by which a command that opens a session identifies itself to the server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from farcall.rpc import Session

_File = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--key", default="", help="Key of the server, if it has one."),
    click.option(
        "--token",
        default=None,
        envvar="FARCALL_TOKEN",
        help="Token for the server. The variable FARCALL_TOKEN hides it from `ps`.",
    ),
    click.option(
        "--ca",
        type=_File,
        default=None,
        help="Certificate of the authority that signed the server's certificate (tls://, wss://).",
    ),
    click.option("--cert", type=_File, default=None, help="Your own certificate."),
    click.option("--cert-key", type=_File, default=None, help="Private key of your certificate."),
)


@dataclass(frozen=True)
class Access:
    """The values of the options."""

    key: str
    token: str | None
    ca: Path | None
    cert: Path | None
    cert_key: Path | None

    def connect(self, url: str) -> Session:
        """Open a session, as :func:`farcall.connect` does."""
        from farcall.rpc import Tls, connect

        tls = Tls(self.ca, self.cert, self.cert_key)
        return connect(url, self.key, token=self.token, tls=tls)


def access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets their values as its argument ``access``."""

    @functools.wraps(command)
    def with_access(
        *args: Any,
        key: str,
        token: str | None,
        ca: Path | None,
        cert: Path | None,
        cert_key: Path | None,
        **rest: Any,
    ) -> None:
        command(*args, access=Access(key, token, ca, cert, cert_key), **rest)

    for option in reversed(_OPTIONS):
        with_access = option(with_access)
    return with_access
