"""Single operators beside other engines: products also beside OpenBLAS and the peak of the machine.

They are measured as the whole models of ``bench_models`` are, and chosen by the same variables.
"""

from __future__ import annotations

from bench.bench_models import measure
from bench.harness import Row
from bench.kernels import KERNELS


def run() -> list[Row]:
    """Each operator with each number of threads."""
    return measure(KERNELS)
