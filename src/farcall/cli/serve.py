"""``farcall serve``: offers this machine's functions and devices to sessions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import click

from farcall.cli import _server_log, _show

_File = click.Path(dir_okay=False, path_type=Path)
_Seconds = click.FloatRange(min=0)
_STDIO = ("stdio", "init", "relay", "devices", "memory")  # the options that apply to one session on a pipe


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port to listen on; 0 chooses a free one.",
)
@click.option(
    "--listen",
    "urls",
    multiple=True,
    metavar="URL",
    help="Listen at this URL instead of --host and --port; may be repeated.",
)
@click.option("--stdio", is_flag=True, help="Serve one session on standard input and output.")
@click.option("--key", default="", help="Key that a client must name. It is not a secret.")
@click.option(
    "--tokens",
    type=_File,
    default=None,
    help="Token file, made by `farcall token create`. Only clients with one of its tokens get in.",
)
@click.option("--cert", type=_File, default=None, help="Certificate of this server (tls://, wss://).")
@click.option("--cert-key", type=_File, default=None, help="Private key of that certificate.")
@click.option(
    "--ca",
    type=_File,
    default=None,
    help="Certificate of the authority that signed the clients' certificates.",
)
@click.option(
    "--init",
    default=None,
    metavar="PKG.MOD:FUNC",
    help="Function to call first, which registers the functions that clients may call.",
)
@click.option(
    "--sessions",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Maximum number of concurrent sessions.",
)
@click.option(
    "--sessions-per-token",
    type=click.IntRange(min=0),
    default=0,
    help="Maximum number of concurrent sessions of one token; 0: no further limit.",
)
@click.option(
    "--sessions-per-peer",
    type=click.IntRange(min=0),
    default=0,
    help="Maximum number of concurrent sessions of one address (or local user); 0: no further limit.",
)
@click.option(
    "--session-seconds",
    type=_Seconds,
    default=0.0,
    help="Maximum duration of a session, in seconds; 0: no limit.",
)
@click.option(
    "--call-seconds",
    type=_Seconds,
    default=0.0,
    help="Maximum duration of a call, in seconds; 0: no limit.",
)
@click.option(
    "--lease",
    type=_Seconds,
    default=0.0,
    help="End a session whose client is silent for this many seconds between calls; 0: no limit.",
)
@click.option(
    "--relay",
    default="loopback",
    show_default=True,
    help='Servers that a session may relay to: "off", "loopback", "any", or a list "HOST:PORT ...".',
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME=URL",
    help="Device behind this server, which sessions reach by its name; may be repeated.",
)
@click.option(
    "--memory",
    type=click.IntRange(min=0),
    default=0,
    help="Maximum private memory of a session, in MiB; 0: as much as the machine has.",
)
@click.option(
    "--drain",
    type=_Seconds,
    default=5.0,
    show_default=True,
    help="Seconds that running calls have to finish after SIGTERM or SIGHUP.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow a public address without TLS. Anyone who reaches it can run code on this machine.",
)
@click.option(
    "--metrics",
    default=None,
    metavar="HOST:PORT",
    help="Show counters at http://HOST:PORT/metrics, in Prometheus' text format.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Log events to standard output, one JSON object a line."
)
def command(
    host: str,
    port: int,
    urls: tuple[str, ...],
    stdio: bool,
    key: str,
    tokens: Path | None,
    cert: Path | None,
    cert_key: Path | None,
    ca: Path | None,
    init: str | None,
    sessions: int,
    sessions_per_token: int,
    sessions_per_peer: int,
    session_seconds: float,
    call_seconds: float,
    lease: float,
    relay: str,
    devices: tuple[str, ...],
    memory: int,
    drain: float,
    insecure: bool,
    metrics: str | None,
    as_json: bool,
) -> None:
    """Serve sessions until interrupted. The first line on stdout is the address.

    Each session has a worker process of its own. A crash in a worker ends that session and nothing else.

    \b
    farcall serve --init my.exports:register             on this machine
    farcall serve --listen unix:///run/farcall.sock --tokens tokens.json --json
    farcall serve --listen tls://0.0.0.0:9090 --ca ca.pem --cert server.pem \\
        --cert-key server.key --tokens tokens.json       for other machines
    """
    from farcall import rpc
    from farcall.rpc.channels import Tls
    from farcall.rpc.tokens import TokenFile

    limits = rpc.Limits(
        sessions=sessions,
        sessions_per_token=sessions_per_token,
        sessions_per_peer=sessions_per_peer,
        session_seconds=session_seconds,
        call_seconds=call_seconds,
        lease_seconds=lease,
        relay=relay,
        memory_bytes=memory << 20,
        drain_seconds=drain,
    )
    if stdio:
        _check_stdio(click.get_current_context())
        rpc.serve_stdio(init, limits, _devices(devices))
        return

    if tokens is not None and not TokenFile(tokens).tokens():
        _show.note(
            f"{tokens} has no token, so no client gets in; run `farcall token create NAME --file {tokens}`"
        )
    with contextlib.nullcontext() if as_json else _server_log.shown():
        rpc.serve_forever(
            host=host,
            port=port,
            key=key,
            init=init,
            limits=limits,
            urls=urls,
            tls=Tls(ca, cert, cert_key) if cert else None,
            tokens=tokens,
            insecure=insecure,
            devices=_devices(devices),
            log=_log_json if as_json else None,
            metrics=metrics,
            on_listening=_listening_json if as_json else _listening,
        )


def _devices(pairs: tuple[str, ...]) -> dict[str, str]:
    """``NAME=URL`` -> name and URL."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, _, url = pair.partition("=")
        if not name or not url or name in found:
            problem = f"{name!r} is named twice" if name in found else f"{pair!r}: expected NAME=URL"
            raise click.BadParameter(f"{problem}, such as dsp0=mailbox:/dev/shm/dsp0", param_hint="--device")
        found[name] = url
    return found


def _log_json(event: Mapping[str, object]) -> None:
    click.echo(json.dumps({"schema": _show.schema("serve"), **event}))


def _listening_json(url: str) -> None:
    _log_json({"event": "listening", "url": url})


def _listening(url: str) -> None:
    click.echo(f"listening on {url}")


def _check_stdio(ctx: click.Context) -> None:
    """Refuse options that would have no effect, such as tokens: a pipe has no handshake to carry one."""
    given = [
        option
        for option in ctx.command.params
        if option.name not in _STDIO
        and ctx.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        names = ", ".join(option.opts[0] for option in given)
        raise click.UsageError(
            f"{names}: no use with --stdio, which serves one session without a handshake; leave it out"
        )
