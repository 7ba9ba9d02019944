"""What a backend is: it says which nodes it takes, and turns a region into code.

A third party subclasses :class:`Backend` (or :class:`farcall.backends.c_backend_kit.CBackendKit` to write C),
and names the class in the entry-point group ``farcall.backends``, or passes an instance to
``fc.partition(..., backends=[...])``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from farcall.graph import Pattern, Region
from farcall.graph.dims import Dim


@dataclass(frozen=True)
class RegionCode:
    """The code of one region, as C.

    The sources define one exported function ``__tvm_ffi_<region.name>`` with the universal signature
    (``include/farcall/c_api.h``). It is called in destination-passing style: the region's inputs, then its
    outputs, each a ``DLTensor*`` (type index 7, or a Tensor) that is on the CPU, row-major and aligned to
    its element size, then, if ``workspace`` is not 0, an opaque pointer (type index 4) to that many bytes,
    aligned to 64, then, for each name in ``symbols``, an Int: the size of that symbol. Outputs overlap no
    input and no other output. It returns None, keeps no state between calls, and may run in several threads
    at once.

    ``constants`` maps C identifiers to data. The artifact stores them once, aligned to 64 bytes; the sources
    declare them as ``extern const unsigned char <id>[];``.
    """

    sources: Mapping[str, str]  # file name (unique to the region, ends in .c) -> text
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    workspace: Dim = 0  # bytes
    symbols: Sequence[str] = ()  # those that the code cannot read off the shapes of its arguments
    compile_flags: Sequence[str] = ()
    link_flags: Sequence[str] = ()


class Backend(ABC):
    """Base of all backends. ``name`` is the domain of its regions, and their prefix: a short C identifier."""

    name: str
    color: str = "#8888cc"  # in pictures of the partition

    def patterns(self) -> Sequence[Pattern]:
        """Groups of nodes that are taken together, most wanted first. None by default."""
        return ()

    def check(self, node: ir.Node) -> str | None:
        """Why ``node`` is not taken by itself; ``None`` means that it is taken.

        Shapes and dtypes are inferred before; read dims by :func:`farcall.graph.dims.dims`.
        """
        return f"{self.name} takes no single {node.op_type}"

    @abstractmethod
    def compile(self, region: Region) -> RegionCode:
        """Generate the code of ``region``."""
