"""FunctionAbis of one argument or one result, for tests of single leaves."""

from __future__ import annotations

from typing import Any

from farcall.abi import FunctionAbi, Signature, TensorSpec


def abi_of(*inputs: Any, outputs: tuple[Any, ...] = (), **options: Any) -> FunctionAbi:
    return FunctionAbi(Signature(inputs, outputs), **options)


def tensor(dtype: str = "float32", shape: Any = ("n",), **more: Any) -> TensorSpec:
    return TensorSpec("x", dtype, shape, **more)
