"""What is told of a region before the build: plain data, which needs no package that compiles."""

from __future__ import annotations

from dataclasses import dataclass

from farcall._texts import size


@dataclass(frozen=True)
class RegionForecast:
    """One region before the build.

    Attributes:
        name: of the region.
        backend: which computes it.
        nodes: how many it has.
        operators: its patterns and operators, with counts.
        constants: bytes of its weights, as the model holds them. Two regions may share one.
        border: bytes of its inputs and outputs in a call: a number, or an expression of the model's symbols.
        multiply_adds: of its matrix products and convolutions in a call: a number, or an expression.
        notes: what takes time: copies, allocations, steps of loops, computation outside of the artifact.
    """

    name: str
    backend: str
    nodes: int
    operators: str
    constants: int
    border: int | str
    multiply_adds: int | str
    notes: tuple[str, ...]

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table."""
        border = size(self.border) if isinstance(self.border, int) else self.border
        work = f"{self.multiply_adds:,}" if isinstance(self.multiply_adds, int) else self.multiply_adds
        return (
            self.name, self.backend, str(self.nodes), self.operators, size(self.constants), border, work,
            "; ".join(self.notes),
        )  # fmt: skip
