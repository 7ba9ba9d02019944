"""``farcall serve``: offer this machine's functions and devices to sessions."""

from __future__ import annotations

import click


@click.command("serve", short_help="Offer this machine to sessions.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, help="Port; 0 takes a free one.")
@click.option("--key", default="", help="Word that a session must name to get in.")
@click.option(
    "--init", default=None, metavar="PKG.MOD:FUNC", help="Called in each worker, to register functions."
)
@click.option(
    "--insecure", is_flag=True, help="Listen on a public address without TLS. Anyone there can run code here."
)
def command(host: str, port: int, key: str, init: str | None, insecure: bool) -> None:
    """Serve sessions until interrupted; the first line on stdout is the address.

    Each session gets a worker process of its own; one that crashes ends that session and nothing else.
    """
    from farcall import rpc

    rpc.serve(
        host=host,
        port=port,
        key=key,
        init=init,
        insecure=insecure,
        on_listening=lambda url: click.echo(f"listening on {url}"),
    )
