"""``python -m tests.random_graphs``: random graphs through the `c` backend, beside onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import click
import onnx

from farcall._progress import Phase
from farcall.cli._progress import shown

from .comparing import BATCH, Report, alone, minimized, opset_of, quietly, random_graph, save

STATE = Path("build/random_graphs.txt")


def batches(first: int, count: int) -> list[range]:
    """Seeds that are built together."""
    last = first + count
    starts = sorted({first, *range(-(-first // BATCH) * BATCH, last, BATCH)})
    return [range(start, min(last, (start // BATCH + 1) * BATCH)) for start in starts]


def compared(work: list[range], jobs: int) -> Iterator[tuple[range, Report]]:
    """The reports of all batches. A batch that ends its process is done again, graph by graph."""
    broken: list[range] = []
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=64) as pool:
        tasks = {pool.submit(quietly, seeds): seeds for seeds in work}
        for task in as_completed(tasks):
            try:
                yield tasks[task], task.result()
            except BrokenProcessPool:
                broken.append(tasks[task])
    for seeds in broken:
        for seed in seeds:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                try:
                    yield range(seed, seed + 1), pool.submit(quietly, range(seed, seed + 1)).result()
                except BrokenProcessPool:
                    failure = {seed: "it ends its process"}
                    yield range(seed, seed + 1), Report(failures=failure)


def show(seed: int, message: str, keep: Path | None) -> None:
    """Print a failure, with a minimized model."""
    click.echo(f"\nseed {seed}, opset {opset_of(seed)}: {message}")
    if "ends its process" in message:
        return
    with warnings.catch_warnings(action="ignore"):
        graph = minimized(random_graph(seed, opset_of(seed)))
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
    if start is None:
        start = int(STATE.read_text()) if STATE.exists() else 0
    total, left = Report(), batches(start, graphs)
    with shown() as report:
        phase = Phase(report, "graphs", graphs, "graphs", "comparing random graphs with onnxruntime")
        for seeds, one in compared(list(left), jobs):
            total.add(one)
            phase.step(f"seed {seeds[-1]}, {len(total.failures)} failures", len(seeds))
            for seed, message in one.failures.items():
                show(seed, message, keep)
            left = [batch for batch in left if batch[0] > seeds[-1] or batch[-1] < seeds[0]]
            STATE.parent.mkdir(exist_ok=True)
            STATE.write_text(f"{left[0][0] if left else start + graphs}\n")
    click.echo(f"{total.compared} graphs compared, {len(total.failures)} failures; not compared:")
    for reason, count in total.refused.most_common():
        click.echo(f"{count:8} {reason}")
    raise SystemExit(bool(total.failures))


if __name__ == "__main__":
    main()
