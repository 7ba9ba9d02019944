"""``python -m tests.models``: the table of networks beside onnxruntime."""

from __future__ import annotations

import fnmatch

import click

from farcall._progress import Phase
from farcall._table import plain_table
from farcall.cli._progress import shown

from .compared import Exported, lines
from .networks import NETWORKS

HEAD = ("model", "exporter", "nodes", "backends", "regions", "largest error", "build", "time/onnxruntime's")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--full", is_flag=True, help="The networks in the sizes that their names stand for. [minutes]")
@click.option("--backends", default="c", show_default=True, help="In order of priority, with commas.")
def main(names: tuple[str, ...], full: bool, backends: str) -> None:
    """Export networks by torch, build them, and compare them with onnxruntime on one thread.

    NAMES are names or patterns of names, such as 'resnet*'; default: all.
    """
    chosen = [
        (name, Exported(network, exporter, full))
        for name, network in NETWORKS.items()
        if not names or any(fnmatch.fnmatch(name, pattern) for pattern in names)
        for exporter in network.exporters
    ]
    rows: list[list[str]] = []
    with shown() as report:
        phase = Phase(report, "models", len(chosen), "models", "exporting and building")
        for row in lines(chosen, backends.split(",")):
            rows.append(row)
            phase.step(f"{row[0]}, {row[1]}")
    click.echo(plain_table([False, False, True, False, True, True, True, True], [HEAD, *rows]))


if __name__ == "__main__":
    main()
