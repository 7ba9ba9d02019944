"""Graphs: ONNX models in, regions out.

:func:`load_model` reads a model; :func:`cut` divides it between backends into a :class:`Partition`.
"""

from farcall.graph.annotate import Claims
from farcall.graph.dims import Dim, UnknownShapeError
from farcall.graph.model import load_model
from farcall.graph.partition import Partition, cut
from farcall.graph.pattern import Pattern
from farcall.graph.region import Match, Region

__all__ = [
    "Claims",
    "Dim",
    "Match",
    "Partition",
    "Pattern",
    "Region",
    "UnknownShapeError",
    "cut",
    "load_model",
]
