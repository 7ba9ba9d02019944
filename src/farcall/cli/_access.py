"""The options by which a command that opens a session reaches the server, and identifies itself to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from farcall.cli import _complete, _recent
from farcall.cli._settings import SETTINGS, setting
from farcall.errors import UsageError

if TYPE_CHECKING:
    from farcall.rpc import Session
    from farcall.toolchain import Target

_ON = next(entry for entry in SETTINGS if entry.name == "on")
url_argument = click.argument("url", envvar=_ON.variable, shell_complete=_complete.urls)
_OPTIONS = ("via", "timeout", "key", "token", "token-file", "ca", "cert", "cert-key")


class Place(NamedTuple):
    """A server: the URL that the user wrote, its own, and its target if it was started on a device."""

    url: str
    server_url: str
    target: Target | None


@dataclass(frozen=True)
class Access:
    """The values of the options."""

    via: tuple[str, ...]
    timeout: float | None
    key: str
    token: str | None
    token_file: Path | None
    ca: Path | None
    cert: Path | None
    cert_key: Path | None

    @contextmanager
    def connect(self, url: str) -> Iterator[Session]:
        """Open a session, as :func:`farcall.connect` does; a device gets a server for it."""
        with self.server(url) as place, self.session(place) as session:
            yield session

    @contextmanager
    def server(self, url: str) -> Iterator[Place]:
        """The server at ``url``. A device gets one for the time of the block.

        Raises:
            UsageError: the URL looks like that of a device, and no launcher knows it; or --via is given, too.
        """
        from farcall.launch._launchers import check_scheme, is_launcher_url

        if not is_launcher_url(url):
            check_scheme(url)
            yield Place(url, url, None)
            return
        if self.via:
            raise UsageError(f"{url}: a device is launched from this machine; leave --via out")
        import farcall as fc
        from farcall.cli._progress import shown

        with shown() as progress:
            device = fc.launch(url, progress=progress)
        with device:
            yield Place(url, device.server_url, device.target)

    @contextmanager
    def session(self, place: Place) -> Iterator[Session]:
        """Open a session with a server. Completion remembers the URL that the user wrote."""
        from farcall.rpc import Tls, connect

        with connect(
            place.server_url,
            self.key,
            via=self.via,
            timeout=self.timeout or 10.0,
            call_timeout=self.timeout,
            token=self.token or self._token_of_file(),
            tls=Tls(self.ca, self.cert, self.cert_key),
        ) as session:
            _recent.remember(place.url)
            yield session

    def _token_of_file(self) -> str | None:
        if self.token_file is None:
            return None
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(
                f"token file {str(self.token_file)!r}: {why}; write a token of `farcall token create` into it"
            ) from None


def access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets their values as its argument ``access``."""

    @functools.wraps(command)
    def with_access(*args: Any, **values: Any) -> None:
        access = Access(**{name: values.pop(name) for name in Access.__dataclass_fields__})
        command(*args, access=access, **values)

    for name in reversed(_OPTIONS):
        with_access = setting(name)(with_access)
    return with_access
