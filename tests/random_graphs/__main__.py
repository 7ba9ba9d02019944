"""``python -m tests.random_graphs``: random graphs through the `c` backend, beside onnxruntime."""

from __future__ import annotations

import subprocess
import warnings
from collections import Counter
from pathlib import Path

import click
import msgspec
import onnx

from farcall._progress import Phase
from farcall.cli._progress import shown

from .comparing import Report, alone, minimized, random_graph, save, setting_of
from .working import batches, compared

STATE = Path("build/random_graphs.json")


class State(msgspec.Struct):
    """What runs have done so far. A run goes on where the last one ended."""

    next: int = 0
    commits: dict[str, Totals] = {}

    @classmethod
    def load(cls) -> State:
        return msgspec.json.decode(STATE.read_bytes(), type=cls) if STATE.exists() else cls()

    def save(self) -> None:
        STATE.parent.mkdir(exist_ok=True)
        STATE.write_bytes(msgspec.json.format(msgspec.json.encode(self)))


class Totals(msgspec.Struct):
    """What became of the graphs that were compared with the code of one commit."""

    compared: int = 0
    failures: dict[int, str] = {}
    refused: dict[str, int] = {}
    kinds: dict[str, int] = {}

    def add(self, report: Report) -> None:
        self.compared += report.compared
        self.failures |= report.failures
        self.refused = dict((Counter(self.refused) + report.refused).most_common())
        self.kinds = dict(sorted((Counter(self.kinds) + report.kinds).items()))


def commit() -> str:
    """The commit of the working tree, with ``-dirty`` behind it if files differ."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def tell(seed: int, message: str) -> None:
    """Print a failure."""
    click.echo(f"seed {seed}, {setting_of(seed)}: {message}")


def show(seed: int, message: str, keep: Path | None) -> None:
    """Print a failure with a minimized model, which takes a build for each of its nodes."""
    click.echo()
    tell(seed, message)
    if "its process" in message:
        return
    setting = setting_of(seed)
    with warnings.catch_warnings(action="ignore"):
        graph = minimized(random_graph(seed, setting.opset))
        reason = alone(graph).get(seed, "it fails beside the others of its batch only")
    click.echo(f"minimized: {reason}")
    click.echo(onnx.printer.to_text(graph.model()))
    if keep:
        click.echo(f"kept: {save(graph, keep)}")


@click.command()
@click.option("--graphs", default=1000, show_default=True, help="How many.")
@click.option("--start", type=int, help=f"The first seed. [default: where the last run ended, in {STATE}]")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for minimized models that fail.")
def main(graphs: int, start: int | None, jobs: int, keep: Path | None) -> None:
    """Compare random graphs with onnxruntime; the exit status is 1 if one differs."""
    state, total = State.load(), Totals()
    of_commit = state.commits.setdefault(commit(), Totals())
    first = state.next if start is None else start
    with shown() as report:
        phase = Phase(report, "graphs", graphs, "graphs", "comparing random graphs with onnxruntime")
        for seeds, one in compared(batches(first, graphs), jobs):
            total.add(one)
            phase.step(f"seed {seeds[-1]}, {len(total.failures)} failures", len(seeds))
            for seed, message in one.failures.items():
                tell(seed, message)
            if start is None:
                of_commit.add(one)
                state.next = seeds[-1] + 1
                state.save()
    for seed, message in total.failures.items():
        show(seed, message, keep)
    click.echo(f"{total.compared} graphs compared, {len(total.failures)} failures; not compared:")
    for reason, count in total.refused.items():
        click.echo(f"{count:8} {reason}")
    raise SystemExit(bool(total.failures))


if __name__ == "__main__":
    main()
