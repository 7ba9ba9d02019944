"""Compiled models of torch: the backend ``farcall`` beside eager mode and inductor, on one thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from bench.harness import Row, rows


def run() -> list[Row]:
    """Calls of a small MLP and a small CNN, at two batch sizes each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            return [*_model("MLP", _mlp(), (64,)), *_model("CNN", _cnn(), (3, 32, 32))]
    finally:
        torch.set_num_threads(threads)


def _mlp() -> torch.nn.Module:
    layers = (torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU())
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 10), torch.nn.Softmax(1)).eval()


def _cnn() -> torch.nn.Module:
    first = (torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU())
    second = (torch.nn.MaxPool2d(2), torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU())
    last = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    return torch.nn.Sequential(*first, *second, *last).eval()


def _model(name: str, model: torch.nn.Module, shape: tuple[int, ...]) -> list[Row]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    models: dict[str, Callable[..., torch.Tensor]] = {
        "farcall": torch.compile(model, backend="farcall", dynamic=True, options={"strict": True}),
        "torch, eager": model,
        "inductor": torch.compile(model, dynamic=True),
    }
    result = []
    for batch in (2, 32):
        x = torch.rand(batch, *shape)
        for other in models.values():
            torch.testing.assert_close(other(x), model(x), atol=1e-5, rtol=1e-4)
        contenders = {who: partial(compiled, x) for who, compiled in models.items()}
        result += rows(f"torch.compile, small {name}, batch {batch}", contenders)
    return result
