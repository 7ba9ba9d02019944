"""``farcall sessions``: lists the open sessions of a server."""

from __future__ import annotations

import json
from typing import Any

import click

from farcall.cli import _show
from farcall.cli._access import Access, access_options, url_argument
from farcall.cli._settings import setting
from farcall.errors import ProtocolError, UsageError

_LIST = "farcall.rpc.sessions"


@click.command("sessions")
@url_argument
@access_options
@setting("json")
def command(url: str, access: Access, json_: bool) -> None:
    """List the open sessions of the server at URL, this one too: who, for how long, and what runs.

    A token needs the scope `load`, since the list names other clients.

    \b
    farcall sessions unix:///run/farcall.sock
    farcall sessions tls://board.local:9090 --ca ca.pem --json
    """
    with access.connect(url) as session:
        try:
            text = session.get_function(_LIST)()
        except AttributeError:
            raise UsageError(
                f"{url} lists no sessions: it is a small server, TVM's, or an older one; "
                "look at the processes of its machine"
            ) from None
    rows = _rows(url, text)
    if json_:
        _show.as_json("sessions", {"url": url, "sessions": rows})
        return
    _show.table(
        f"Sessions of {url}",
        ("session>", "peer", "channel", "token", "open for>", "received>", "sent>", "calls>", "running"),
        [_cells(row) for row in rows],
    )


def _rows(url: str, text: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(text)
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
            return rows
    except (TypeError, ValueError, RecursionError):
        pass
    raise ProtocolError(f"{url}: its list of sessions is no list of JSON objects")


def _cells(row: dict[str, Any]) -> list[object]:
    return [
        row.get("session", ""),
        row.get("peer", ""),
        row.get("channel", ""),
        row.get("token") or "",
        f"{row.get('seconds', 0):.1f} s",
        _show.size(row.get("received", 0)),
        _show.size(row.get("sent", 0)),
        row.get("calls", 0),
        row.get("calling") or "",
    ]
