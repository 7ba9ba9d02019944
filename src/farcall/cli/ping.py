"""``farcall ping``: says who answers at a URL, and how fast."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from farcall.cli import _show
from farcall.cli._access import Access, access_options, url_argument
from farcall.cli._settings import setting

if TYPE_CHECKING:
    from farcall.rpc import Session


@click.command("ping")
@url_argument
@access_options
@click.option(
    "-n", "--count", type=click.IntRange(min=1), default=100, show_default=True, help="Round trips."
)
@click.option(
    "--interval", type=click.FloatRange(min=0), default=0.0, help="Seconds between two round trips."
)
@click.option("--jsonl", is_flag=True, help="Print one JSON object a round trip, at once.")
@setting("json")
def command(url: str, access: Access, count: int, interval: float, jsonl: bool, json_: bool) -> None:
    """Open a session with the server at URL, and measure round trips: minimum, median and 99th percentile.

    \b
    farcall ping tcp://board:9090
    farcall ping tcp://board:9090 --count 1000 --json
    farcall ping wss://board.local:8443/ws --ca ca.pem --interval 1 --jsonl
    """
    import farcall.rpc  # noqa: F401  outside of the measured time

    start = time.perf_counter()
    with access.connect(url) as session:
        opened = time.perf_counter() - start
        seconds = []
        for number, trip in enumerate(_trips(session, count, interval), 1):
            seconds.append(trip)
            if jsonl:
                _show.as_json_line("ping-reply", {"url": url, "number": number, "seconds": trip})
        facts = _facts(session, opened, seconds)
    if json_:
        _show.as_json("ping", facts)
    elif not jsonl:
        _print(facts)


def _trips(session: Session, count: int, interval: float) -> Iterator[float]:
    """The seconds of each round trip. The question, whether a CPU exists, is answered by every server."""
    cpu = session.cpu()
    for number in range(count):
        if number and interval:
            time.sleep(interval)
        start = time.perf_counter()
        _ = cpu.exist
        yield time.perf_counter() - start


def _facts(session: Session, opened: float, seconds: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    return {
        "url": session.url,
        "route": list(session.route),
        "server": "farcall" if session.server_limits else "TVM RPC",
        "features": sorted(session.features),
        "connect_seconds": opened,
        "count": len(ordered),
        "min_seconds": ordered[0],
        "median_seconds": statistics.median(ordered),
        "p99_seconds": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "max_seconds": ordered[-1],
    }


def _print(facts: dict[str, Any]) -> None:
    click.echo(f"{' -> '.join(facts['route'])}: a {facts['server']} server answers")
    if facts["features"]:
        click.echo(f"features: {', '.join(facts['features'])}")
    times = {name: facts[f"{name}_seconds"] for name in ("connect", "min", "median", "p99", "max")}
    cells = [_show.duration(seconds) for seconds in times.values()]
    _show.table(f"{facts['count']} round trips", [f"{name}>" for name in times], [cells])
