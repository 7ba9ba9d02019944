"""``farcall cp``: copies a file to a server's store, or from it."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

import click

from farcall.cli import _complete, _progress, _show
from farcall.cli._access import Access, access_options
from farcall.cli._settings import setting
from farcall.errors import ProtocolError, UsageError

_CONTENT = re.compile(
    r"(\d{1,20}-[0-9a-f]{32})\.([0-9a-f]{64})"
)  # as docs/spec/wire.md names contents: hint, SHA-256


@click.command("cp")
@click.argument("source", shell_complete=_complete.places)
@click.argument("target", shell_complete=_complete.places)
@access_options
@setting("json")
def command(source: str, target: str, access: Access, json_: bool) -> None:
    """Copy a file to the server at a URL, or from it; print the file's address there.

    The server keeps the file for a while: a session that uploads the same content need not send it, and
    whoever has its address (and a token of the same name) can fetch it.

    \b
    farcall cp model.so tcp://board:9090                   prints tcp://board:9090#CONTENT
    farcall cp tcp://board:9090#CONTENT copy.so
    """
    if _remote(target) == _remote(source):
        raise click.UsageError("expected a file and a URL, or a URL#CONTENT and a file")
    copy = _send if _remote(target) else _fetch
    address, nbytes, seconds = copy(source, target, access)
    if json_:
        facts = {"source": source, "target": target, "address": address, "bytes": nbytes, "seconds": seconds}
        _show.as_json("cp", facts)
    else:
        click.echo(address if _remote(target) else target)
    _show.note(f"{_show.size(nbytes)} in {seconds:.2f} s, {_show.size(nbytes / max(seconds, 1e-9))}/s")


def _remote(place: str) -> bool:
    return "://" in place or place.startswith("pipe:")


def _send(source: str, url: str, access: Access) -> tuple[str, int, float]:
    from farcall.rpc.shared._content_names import HINT_ENDS, hint_of

    try:
        data = Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}; give the path of a file on this machine") from None
    hint = hint_of(len(data), data[:HINT_ENDS], data[-HINT_ENDS:])
    name = f"{hint}.{hashlib.sha256(data).hexdigest()}"
    with access.connect(url) as session:
        _check_keeps(url, session.features)
        start = time.perf_counter()
        with _progress.shown() as progress:
            session.upload(data, name, progress=progress)
        session.get_function("farcall.rpc.share")(name, hint)
        return f"{url}#{name}", len(data), time.perf_counter() - start


def _fetch(address: str, target: str, access: Access) -> tuple[str, int, float]:
    from farcall._files import check_folder, write_beside

    url, _, name = address.rpartition("#")
    content = _CONTENT.fullmatch(name)
    if content is None:
        raise UsageError(f"{address}: expected URL#CONTENT, as `farcall cp FILE URL` prints it")
    file = Path(target) / name if Path(target).is_dir() else Path(target)
    check_folder(file)
    with access.connect(url) as session:
        _check_keeps(url, session.features)
        hint, sha256 = content.groups()
        if not session.get_function("farcall.rpc.have")(name, sha256, hint):
            raise UsageError(
                f"{url} no longer has this file; copy it there again with `farcall cp FILE {url}`"
            )
        start = time.perf_counter()
        with _progress.shown() as progress:
            data = session.download(name, progress=progress)
        seconds = time.perf_counter() - start
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ProtocolError(f"{url} sent another content than the one of this address")
    write_beside(file, data)
    return address, len(data), seconds


def _check_keeps(url: str, features: frozenset[str]) -> None:
    if "files" not in features:
        raise UsageError(f"{url} keeps no files: it is no farcall server, or it serves one session on a pipe")
