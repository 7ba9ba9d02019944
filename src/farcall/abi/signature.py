"""The Signature of a function over tensors: names, dtypes and dims, as data.

This is what an artifact's manifest carries and what ``farcall inspect`` prints.
"""

from __future__ import annotations

import msgspec


class TensorSpec(msgspec.Struct, frozen=True):
    """One tensor argument or result.

    ``shape`` holds an int for a fixed dim and text for a symbolic one: a name (``"batch"``) or an
    expression over names (``"(h - 1)//2 + 1"``).
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    @property
    def type(self) -> str:
        """dtype and dims as text, e.g. ``float32[batch, 1, 8, 8]``."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Signature(msgspec.Struct, frozen=True):
    """Arguments and results of one function, in order. One result comes bare, several as a tuple."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __str__(self) -> str:
        results = ", ".join(spec.type for spec in self.outputs)
        if len(self.outputs) != 1:
            results = f"({results})"
        return f"({', '.join(map(str, self.inputs))}) -> {results}"
