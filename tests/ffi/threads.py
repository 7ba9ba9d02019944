"""Runs work in several threads at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_threads(count: int, work: Callable[[int], Any]) -> None:
    """Run ``work(i)`` in ``count`` threads that start together. Raises the first exception of a thread."""
    failures: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(i: int) -> None:
        try:
            gate.wait()
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
