"""Small models, and their compilation, which the tests of this room share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from farcall.backends.c_backend_kit import CBackendKit
from farcall.graph import Pattern
from farcall.graph.dims import dims, product
from farcall.torch import backend


class Units(CBackendKit):
    """A backend for tests, which takes matrix products with constant weights."""

    name = "units"

    def patterns(self) -> list[Pattern]:
        def constant(match: Any) -> str | None:
            return None if match.values["w"].const_value is not None else "only constant weights"

        return [Pattern("dense", "Gemm(x, w, b)", check=constant)]

    def emit(self, match: Any, out: Any) -> None:
        x, w, b = (match.values[name] for name in "xwb")
        source, target = out.pointer(x), out.pointer(match.root.outputs[0])
        transposed = match.root.attributes.get_int("transB", 0)
        weights = w.const_value.numpy()
        rows, (width, size) = dims(x)[0], (weights.T if transposed else weights).shape
        taps, bias = out.constant((weights.T if transposed else weights).copy()), out.pointer(b)
        with out.loop("i", rows), out.loop("j", size):
            out.line(f"float sum = {bias}[j];")
            with out.loop("k", product([width])):
                out.line(f"sum += {source}[i * {width} + k] * {taps}[k * {size} + j];")
            out.line(f"{target}[i * {size} + j] = sum;")


def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return torch.nn.Sequential(*layers).eval().requires_grad_(False)


def cnn() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    return (
        torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(72, 10)).eval().requires_grad_(False)
    )


class Noise(torch.nn.Module):
    """Draws random numbers, which the backend c does not, and adds nothing of them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x) * 0


class Counting(torch.nn.Module):
    """Writes to a buffer at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def compiled(model: Callable[..., Any], *, dynamic: bool = True, **options: Any) -> Callable[..., Any]:
    """The model, compiled by farcall; a fallback is an error, unless ``strict=False``."""
    return torch.compile(model, backend=backend, dynamic=dynamic, options={"strict": True} | options)


def eager_reasons(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The result of a call, and the warnings of farcall meanwhile."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(item.message) for item in caught if str(item.message).startswith("farcall: ")]
