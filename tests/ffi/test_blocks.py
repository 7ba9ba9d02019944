"""Memory of large tensors is kept for the next ones, up to a bound."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from farcall import ffi

MIB = 1 << 20

# As the 24 caches of a GPT-2, in a process that has not used large memory before.
RESULTS = """
import resource
import numpy as np
from farcall import ffi

def step():
    results = [ffi.empty(400_000, "uint8") for _ in range(24)]
    for result in results:
        np.from_dlpack(result)[:] = 1

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""

# Tensors of all sizes from 64 KiB to 80 MiB; then the memory that stays.
SIZES = """
import pathlib
import numpy as np
from farcall import ffi

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

before = resident()
for _ in range(2):
    results = [ffi.empty(size, "uint8") for size in [80 << 20, *range(1 << 16, 4 << 20, 1 << 16)]]
    for result in results:
        np.from_dlpack(result)[:] = 1
    del result, results
print(resident() - before)
"""


def output(code: str) -> int:
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def test_memory_of_results_is_not_fetched_from_the_system_for_each_call() -> None:
    assert output(RESULTS) < 24 * 400_000 // 4096


def test_memory_that_is_kept_has_a_bound() -> None:
    assert output(SIZES) < 64 * MIB + 16 * MIB


def test_tensors_of_many_threads_share_no_memory() -> None:
    def work(number: int) -> bool:
        rng, right = np.random.default_rng(number), True
        for _ in range(100):
            tensors = [ffi.empty(int(rng.integers(60_000, 300_000)), "uint8") for _ in range(4)]
            for tensor in tensors:
                np.from_dlpack(tensor)[:] = number
            right &= all(bool((np.from_dlpack(tensor) == number).all()) for tensor in tensors)
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
