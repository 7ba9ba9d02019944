"""The colour of measured time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Heat:
    """The measured time of a region: its part of the whole, from 0 to 1, and a text."""

    share: float
    text: str

    @property
    def color(self) -> str:
        """From pale yellow to red."""
        part = min(max(self.share, 0.0), 1.0) ** 0.6
        red, green, blue = (round(a + (b - a) * part) for a, b in ((250, 215), (205, 25), (60, 28)))
        return f"#{red:02x}{green:02x}{blue:02x}"

    @property
    def paint(self) -> str:
        """The colour as attributes of a shape: the more time, the stronger."""
        tint = 0.07 + 0.45 * min(max(self.share, 0.0), 1.0) ** 0.6
        return f'fill="{self.color}" stroke="{self.color}" style="--tint:{tint:.2f}"'
