"""The option ``--show-output``: what a function prints on the server, on standard error here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from farcall.cli import _talk

if TYPE_CHECKING:
    from farcall.rpc import Session

output_option = click.option(
    "--show-output", is_flag=True, help="Print on stderr what the function prints on the server."
)


@contextmanager
def output_shown(session: Session, wanted: bool) -> Iterator[None]:
    """Show at the end of the block what the session's functions have printed, also if the block fails.

    Raises:
        RemoteError: the server keeps no output.
    """
    if not wanted:
        yield
        return
    _show(session)  # nothing yet; but a server that keeps none says so before it runs anything
    try:
        yield
    finally:
        if not session.closed:
            _show(session)


def _show(session: Session) -> None:
    for line in session.output().splitlines():
        click.echo(f"{session.route[-1]}: {_talk.safe(line)}", err=True)
