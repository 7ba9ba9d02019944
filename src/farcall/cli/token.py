"""``farcall token``: creates, lists and revokes tokens."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farcall._suggest import did_you_mean
from farcall.cli import _show
from farcall.cli._settings import setting

if TYPE_CHECKING:
    from farcall.rpc.tokens import Token, TokenFile

_SCOPES = ("call", "copy", "load", "files", "relay")


class _Scope(click.Choice[str]):
    """A scope. The message for another word suggests the one that was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in _SCOPES:
            meant = did_you_mean(str(value), _SCOPES)
            self.fail(f"unknown scope {value!r}{meant}; the scopes are {', '.join(_SCOPES)}", param, ctx)
        return super().convert(value, param, ctx)


_file_option = click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    default=None,
    help="Token file of the server. [default: ~/.config/farcall/tokens.json]",
)
_json_option = setting("json")


@click.group("token")
def command() -> None:
    """Manage tokens. A server that runs with `--tokens FILE` demands a token from every client.

    \b
    farcall token create alice --scope call --scope copy --days 7
    farcall token list
    farcall token revoke alice
    """


def _token_file(path: Path | None) -> TokenFile:
    from farcall.rpc.tokens import TokenFile, default_token_file

    return TokenFile(path or default_token_file())


@command.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=_Scope(_SCOPES),
    help="One scope of the token; repeat it for several. [default: all]",
)
@click.option("--days", default=30.0, show_default=True, help="Days until the token expires; 0: never.")
@_file_option
@_json_option
def create(name: str, scopes: tuple[str, ...], days: float, path: Path | None, json_: bool) -> None:
    """Create a token NAME, and print it. It is shown only this once.

    \b
    farcall token create alice                         all scopes, for 30 days
    farcall token create ci --scope call --days 1 --file tokens.json
    """
    file = _token_file(path)
    text = file.create(name, scopes or _SCOPES, days if days != 0 else None)
    if json_:
        _show.as_json("token create", {"token": text, "file": str(file.path)})
        return
    click.echo(text)
    _show.note(f"Keep this token secret. It is not stored; {file.path} has only its hash.")


@command.command("list")
@_file_option
@_json_option
def list_(path: Path | None, json_: bool) -> None:
    """List the tokens with their names, scopes and expiry times."""
    import time

    from farcall.errors import UsageError

    file, now = _token_file(path), time.time()
    if path is not None and not path.exists():
        raise UsageError(f"{path}: no such token file; `farcall token create NAME --file {path}` makes one")
    rows = [_row(token, now) for token in file.tokens()]
    if json_:
        _show.as_json("token list", {"file": str(file.path), "tokens": rows})
        return
    columns = ("name", "scopes", "created", "expires", "state")
    cells = [[" ".join(row["scopes"]) if c == "scopes" else row[c] for c in columns] for row in rows]
    _show.table(str(file.path), columns, cells)


def _row(token: Token, now: float) -> dict[str, Any]:
    return {
        "name": token.name,
        "scopes": list(token.scopes),
        "created": _day(token.created),
        "expires": "never" if token.expires is None else _day(token.expires),
        "state": "expired" if token.expired(now) else "valid",
    }


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


@command.command()
@click.argument("name")
@_file_option
def revoke(name: str, path: Path | None) -> None:
    """Revoke the token NAME. Its sessions end within a second."""
    file = _token_file(path)
    file.revoke(name)
    _show.note(f"The token {name} is revoked in {file.path}.")
