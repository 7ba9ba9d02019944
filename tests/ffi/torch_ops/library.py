"""Builds the library of the operators of kernels.cpp, and makes names that torch does not know yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

torch = pytest.importorskip("torch")

FAKES: dict[str, Callable[..., Any]] = {
    "scale": lambda x, by: torch.empty_like(x),
    "multiples": lambda x, n: [torch.empty_like(x) for _ in range(n)],
    "both": lambda x: (torch.empty_like(x), torch.empty_like(x)),
    "same": torch.empty_like,
    "first": lambda xs: torch.empty_like(xs[0]),
    "zeros": lambda shape, dtype, device: torch.empty(shape, dtype=dtype, device=device),
}
X = torch.arange(4.0)
spaces: Iterator[str] = (f"farcall_test_{i}" for i in count())
