"""How much memory an artifact takes, in a call with given arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farcall._core import Module
from farcall._texts import size
from farcall.errors import ArtifactError, UsageError
from farcall.ffi._dims import evaluate
from farcall.library._loading import inspect
from farcall.library._manifest import Manifest, MemoryInfo


@dataclass(frozen=True)
class Memory:
    """The memory of an artifact and of one call of ``main``, in bytes. Made by :func:`memory`.

    Attributes:
        constants: weights in the file, which is mapped: processes that load it share them.
        workspace: tensors between operators, and what kernels use while they run. It is kept for later calls.
        least: the lower bound of the workspace: the most bytes that are alive in one step.
        results: what a call allocates for its caller.
        scratch: what each thread that takes part in a call, beyond the caller's, keeps for itself.
    """

    constants: int
    workspace: int
    least: int
    results: int
    scratch: int = 0

    @property
    def overhead(self) -> float:
        """By which part the workspace is larger than its lower bound."""
        return self.workspace / self.least - 1 if self.least else 0.0

    def __str__(self) -> str:
        parts = ((name, getattr(self, name)) for name in ("constants", "workspace", "least", "results"))
        others = f", {size(self.scratch)} in each other thread" if self.scratch else ""
        return ", ".join(f"{name} {size(number)}" for name, number in parts) + others


def memory(module: Module, /, *args: Any, **kwargs: Any) -> Memory:
    """The memory of an artifact, in a call of ``main`` with these arguments.

    Args:
        module: loaded from an artifact.
        args: the arguments of ``main``, in order; only their shapes matter. A model without symbolic dims
            needs none.
        kwargs: arguments of ``main`` by name.

    Raises:
        ArtifactError: the module comes from no artifact, or from one that an earlier version built.
        UsageError: the arguments do not tell a size.
    """
    manifest = inspect(module.path)
    found = manifest.memory
    if found is None:
        raise ArtifactError(
            f"{manifest.model.name}: {manifest.producer} built the artifact, and did not write how much "
            "memory it takes; build it again with this farcall"
        )
    sizes = _sizes(manifest, args, kwargs)
    parts = (_bytes(found, name, sizes) for name in MemoryInfo.__struct_fields__)
    return Memory(manifest.constants.bytes, *parts)


def _sizes(manifest: Manifest, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """The size of each symbol, by the dims of the arguments."""
    inputs = manifest.functions["main"].signature.inputs
    values = {**dict(zip((spec.name for spec in inputs), args, strict=False)), **kwargs}
    return {
        str(dim): int(size)
        for spec in inputs
        if spec.name in values
        for dim, size in zip(
            getattr(spec, "shape", None) or (), getattr(values[spec.name], "shape", ()), strict=False
        )
        if not isinstance(dim, int)
    }


def _bytes(found: MemoryInfo, name: str, sizes: Mapping[str, int]) -> int:
    amount: int | str = getattr(found, name)
    if isinstance(amount, int):
        return amount
    try:
        return int(evaluate(amount, sizes))
    except ValueError as error:
        raise UsageError(
            f"memory: {name} is {amount}: {error}; pass the arguments of main, or arrays of their shapes"
        ) from None
