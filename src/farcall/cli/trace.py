"""``farcall trace``: reads the files that ``fc.trace`` and ``farcall run --trace`` write."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from farcall.cli import _show
from farcall.cli._settings import setting


@click.group("trace")
def command() -> None:
    """Look at a trace without a browser. Perfetto (ui.perfetto.dev) opens the same file as a picture."""


@command.command("summary")
@click.argument("file", type=click.Path(path_type=Path))
@setting("json")
def summary(file: Path, json_: bool) -> None:
    """Print how often each kind of work was done at each hop, and how long it took.

    \b
    farcall run model.so --input x=x.npy --on tcp://board:9090 --trace t.json
    farcall trace summary t.json
    """
    from farcall.rpc.client._trace_summary import summary as rows_of

    rows = rows_of(file)
    if json_:
        _show.as_json("trace summary", {"rows": [asdict(row) for row in rows]})
        return
    columns = ("where", "kind", "name", "count>", "total ms>", "median us>", "longest us>", "bytes>")
    _show.table(
        f"{file}: {sum(row.count for row in rows)} spans",
        columns,
        (
            (
                row.where,
                row.kind,
                row.name,
                row.count,
                f"{row.total * 1e3:.3f}",
                f"{row.median * 1e6:.1f}",
                f"{row.longest * 1e6:.1f}",
                _show.size(row.bytes) if row.bytes else "",
            )
            for row in rows
        ),
    )
