"""``python -m bench [NAME ...] [--json]``: run the measurements, all or those of the modules named."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.harness import Row

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))


def time_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def amount_text(row: Row, amount: float | None) -> str:
    """A time, or an amount of memory."""
    if amount is None:
        return ""
    return time_text(amount) if row.unit == "s" else f"{amount / 1e6:.3g} MB"


def reach_text(row: Row) -> str:
    if row.reach_ratio is not None:
        return f"<= {row.reach_ratio:.3g}x"
    return f"<= {time_text(row.reach_seconds)}" if row.reach_seconds is not None else ""


def show(results: list[Row]) -> None:
    table = Table(title=f"farcall and rivals, {os.cpu_count()} cores; medians, compare ratios only")
    for name in ("work", "farcall", "spread", "rival", "rival's", "ratio", "reach", "met"):
        table.add_column(name, justify="left" if name in ("work", "rival") else "right")
    for row in results:
        table.add_row(
            row.work,
            amount_text(row, row.ours),
            f"{row.spread:.0%}",
            row.rival,
            amount_text(row, row.theirs),
            "" if row.ratio is None else f"{row.ratio:.2f}x",
            reach_text(row),
            "" if row.met is None else ("yes" if row.met else "NO"),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="NAME", help=f"of {', '.join(MODULES)}; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    results: list[Row] = []
    for name in args.modules or MODULES:
        print(f"measuring {name} ...", file=sys.stderr)
        results += importlib.import_module(f"bench.{name}").run()
    if args.json:
        print(
            json.dumps(
                {"rows": [asdict(row) | {"ratio": row.ratio, "met": row.met} for row in results]}, indent=2
            )
        )
    else:
        show(results)


if __name__ == "__main__":
    main()
