"""More whole models beside other engines: see ``bench.zoo``.

They are measured as those of ``bench_models`` are, and chosen by the same variables.
"""

from __future__ import annotations

from bench.bench_models import measure
from bench.harness import Row
from bench.zoo import ZOO


def run() -> list[Row]:
    """Each model with each number of threads."""
    return measure(ZOO)
