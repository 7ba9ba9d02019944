"""``farcall cert``: makes certificates for a trial of tls:// and wss://."""

from __future__ import annotations

from pathlib import Path

import click

from farcall.cli import _show
from farcall.cli._settings import setting


@click.command("cert")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name or IP address of the server; repeat it for several. [default: localhost and 127.0.0.1]",
)
@click.option("--days", default=90, show_default=True, help="Days until the certificates expire.")
@setting("json")
def command(folder: Path, names: tuple[str, ...], days: int, json_: bool) -> None:
    """Make a certificate authority, a server's certificate and a client's certificate in FOLDER.

    \b
    farcall cert certs --name board.local
    farcall serve --listen tls://0.0.0.0:9090 --ca certs/ca.pem \\
        --cert certs/server.pem --cert-key certs/server.key
    fc.connect("tls://board.local:9090", tls=fc.rpc.Tls.of("certs/client"))
    """
    from farcall.rpc.certificates import make_certificates

    files = [str(path) for path in make_certificates(folder, names or ("localhost", "127.0.0.1"), days)]
    if json_:
        _show.as_json("cert", {"files": files})
        return
    for file in files:
        click.echo(file)
