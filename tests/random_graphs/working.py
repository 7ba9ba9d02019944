"""Compares batches of random graphs in processes of their own, since a graph may end or hang its process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import local
from typing import Any

from .comparing import BATCH, Report, quietly

_CONTEXT = get_context("spawn")
_SECONDS = 900.0  # for a batch: machines may be busy
_LIFE = 48  # batches of a process, whose memory grows by each library that it loads


def batches(first: int, count: int) -> list[range]:
    """Seeds that are built together."""
    last = first + count
    starts = sorted({first, *range(-(-first // BATCH) * BATCH, last, BATCH)})
    return [range(start, min(last, (start // BATCH + 1) * BATCH)) for start in starts]


class Worker:
    """A process that compares batches, and may end or hang by what it compares."""

    def __init__(self) -> None:
        self.process: Any = None
        self.line: Connection
        self.done = 0

    def compare(self, seeds: range) -> Report:
        """Compare a batch. If it ends or holds its process, its graphs are compared one by one."""
        report = self._ask(seeds)
        if isinstance(report, Report):
            return report
        if len(seeds) == 1:
            return Report(failures={seeds[0]: report})
        total = Report()
        for seed in seeds:
            total.add(self.compare(range(seed, seed + 1)))
        return total

    def _ask(self, seeds: range) -> Report | str:
        if self.process is None or self.done >= _LIFE:
            self.end()
            self.line, far = _CONTEXT.Pipe()
            self.process, self.done = _CONTEXT.Process(target=_serve, args=(far,), daemon=True), 0
            self.process.start()
            far.close()
        self.done += 1
        try:
            self.line.send(seeds)
            if self.line.poll(_SECONDS):
                return self.line.recv()  # type: ignore[no-any-return]
            what = f"it holds its process for more than {_SECONDS:g} s"
        except (EOFError, OSError):
            what = "it ends its process"
        self.end()
        return what

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _serve(line: Connection) -> None:
    gc.set_threshold(200_000)  # plans are many objects, which live as long as their batch
    with suppress(EOFError):
        while True:
            line.send(quietly(line.recv()))


def compared(work: list[range], jobs: int) -> Iterator[tuple[range, Report]]:
    """The reports of all batches, in order."""
    own, workers = local(), []

    def compare(seeds: range) -> tuple[range, Report]:
        if not hasattr(own, "worker"):
            own.worker = Worker()
            workers.append(own.worker)
        return seeds, own.worker.compare(seeds)

    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(compare, work)
    finally:
        pool.shutdown(cancel_futures=True)
        for worker in workers:
            worker.end()
