"""Graphs: ONNX models in, regions out.

:func:`load_model` reads a model; :func:`cut` divides it between backends into a :class:`Partition`.
"""

from farcall._extras import require_compile

require_compile()  # the modules below import onnx_ir

from farcall.graph._annotate import Claims
from farcall.graph._expand import Expansion
from farcall.graph._export import save_model
from farcall.graph._model import convert_opset, load_model
from farcall.graph._partition import Body, Partition, cut
from farcall.graph._pattern import Pattern
from farcall.graph._region import Match, Region
from farcall.graph._rules import Rules
from farcall.graph.dims import Dim, UnknownShapeError
from farcall.library._why import Verdict, Why

__all__ = [
    "Body",
    "Claims",
    "Dim",
    "Expansion",
    "Match",
    "Partition",
    "Pattern",
    "Region",
    "Rules",
    "UnknownShapeError",
    "Verdict",
    "Why",
    "convert_opset",
    "cut",
    "load_model",
    "save_model",
]
__dir__ = [*__all__, "dims"].copy
