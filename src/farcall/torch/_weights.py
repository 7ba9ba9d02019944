"""Weights that are constants of the artifact, and the guard that notices when they change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from farcall.torch._graph import Captured

_CHANGES = 2  # a weight that has changed this often is an input from then on


class Frozen:
    """The state of a tensor when its values were taken.

    torch counts the changes in place of each tensor (``_version``); an assignment brings another tensor, and
    ``tensor.data = ...`` other memory. The detached alias keeps the memory from being reused meanwhile.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.alias = tensor.detach()
        self._address = tensor.data_ptr()
        self._version = tensor._version

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` has the values that were taken, by what torch records of it."""
        return (
            tensor is self._tensor and tensor._version == self._version and tensor.data_ptr() == self._address
        )


class Weights:
    """Which inputs of a graph are constants of its artifact. Immutable: changed weights make another one.

    Attributes:
        frozen: the constants, by the index of the input.
        fed: the indices of all other inputs.
    """

    def __init__(self, values: Sequence[Any], indices: Sequence[int], changes: Counter[int]) -> None:
        self.frozen = {
            index: Frozen(values[index])
            for index in indices
            if changes[index] < _CHANGES and not values[index].is_inference()  # those count no changes
        }
        self.fed = [index for index in range(len(values)) if index not in self.frozen]
        self._changes = changes

    @classmethod
    def of(
        cls, captured: Captured, values: Sequence[Any], written: Sequence[int], *, freeze: bool
    ) -> Weights:
        """The parameters and buffers of a graph that it does not write to; none without ``freeze``."""
        kept = (index for index in range(len(values)) if freeze and captured.is_weight(index))
        indices = [index for index in kept if index not in written]
        return cls(values, indices, Counter())

    def stale(self, values: Sequence[Any]) -> list[int]:
        """The indices of the constants that have changed."""
        return [index for index, frozen in self.frozen.items() if not frozen.holds(values[index])]

    def renewed(self, values: Sequence[Any]) -> Weights:
        """The same weights with their new values."""
        return Weights(values, [*self.frozen], self._changes + Counter(self.stale(values)))
