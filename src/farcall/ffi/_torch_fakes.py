"""Fake implementations, which tell torch.compile and torch.export the shapes of a function's results.

A Signature has this information: its result dims are expressions over the names of its input dims. This
module evaluates them with torch's sizes, ints or symbols, so that a dynamic dim stays dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from farcall.ffi._dims import evaluate

Fake = Callable[..., Any]


def nothing(*args: Any) -> None:
    """The fake of a function without a result. The tensors that it writes have their shapes already."""


def like(place: int) -> Fake:
    """The fake of a function whose result is a new row-major tensor, like the argument at ``place``."""

    def fake(*args: Any) -> Any:
        import torch

        return torch.empty_like(args[place], memory_format=torch.contiguous_format)

    return fake


def no_rule(qualname: str, name: str, result: str) -> Fake:
    """The fake of a function without a description of its results. It raises an error with the cure."""

    def fake(*args: Any) -> Any:
        raise RuntimeError(
            f"`{qualname}` returns {result} of unknown shape or value, which torch.compile and torch.export "
            f"need before the operator runs; pass as_torch_op(..., fake={{{name!r}: f}}), where f takes the "
            "arguments and returns tensors like the results, such as lambda x, *_: torch.empty_like(x)"
        )

    return fake


def of_signature(name: str, signature: Any) -> Fake:
    """The fake of an artifact's function. It checks arguments as the function does, and makes results."""
    inputs, outputs = tuple(signature.inputs), tuple(signature.outputs)

    def fake(*args: Any) -> Any:
        sizes: dict[str, Any] = {}
        for i, (spec, x) in enumerate(zip(inputs, args, strict=True)):
            _check(f"argument {i + 1} `{spec.name}` of `{name}`", spec, x, sizes)
        device = args[0].device if args else "cpu"
        results = [_empty(spec, sizes, device) for spec in outputs]
        return results[0] if len(results) == 1 else tuple(results)

    return fake


def torch_dtype(name: str, default: Any = None) -> Any:
    """torch's dtype of that name.

    Raises:
        TypeError: torch has no such dtype, and there is no default.
    """
    import torch

    dtype = getattr(torch, name, None)
    if isinstance(dtype, torch.dtype):
        return dtype
    if default is None:
        raise TypeError(f"torch has no dtype `{name}`")
    return default


def torch_device(name: str) -> Any:
    """torch's device of that name, or the name itself if torch has none. torch's CPU has no number."""
    import torch

    try:
        return torch.device("cpu" if name == "cpu:0" else name)
    except RuntimeError:
        return name


def _empty(spec: Any, sizes: Mapping[str, Any], device: Any) -> Any:
    import torch

    shape = [dim if isinstance(dim, int) else evaluate(dim, sizes) for dim in spec.shape]
    return torch.empty(shape, dtype=torch_dtype(spec.dtype), device=device)


def _check(where: str, spec: Any, x: Any, sizes: dict[str, Any]) -> None:
    got = f"expected {spec.type}, got {str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
    if x.dtype != torch_dtype(spec.dtype):
        raise TypeError(f"{where}: {got}; convert it with .to(torch.{spec.dtype})")
    if x.ndim != len(spec.shape):
        raise ValueError(f"{where}: {got}; reshape it to rank {len(spec.shape)}")
    for axis, (dim, size) in enumerate(zip(spec.shape, x.shape, strict=True)):
        wanted = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
        if size != wanted:
            raise ValueError(f"{where}: {got}; axis {axis} must be {wanted}")
