"""The interface of backends. A backend says which nodes it takes, and turns a region into code.

Subclass :class:`Backend` (or :class:`farcall.backends.c_backend_kit.CBackendKit` to generate C),
and name the class in the entry-point group ``farcall.backends``, or pass an instance to
``fc.partition(..., backends=[...])``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from farcall.graph import Pattern, Region
from farcall.graph.dims import Dim

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "Backend",
    "RegionCode",
]
__dir__ = __all__.copy


@dataclass(frozen=True)
class RegionCode:
    """The code of one region, as C.

    The sources define one exported function ``__tvm_ffi_<region.name>`` with the universal signature
    (``include/farcall/c_api.h``). An artifact gives it another name, which is hidden; what the artifact
    exports under the region's name checks the arguments first. The arguments are, in this order:

    * the region's inputs, then its outputs: each a ``DLTensor*`` (type index 7, or a Tensor) on the CPU,
      row-major and aligned to its element size; outputs overlap no input and no other output;
    * if ``workspace`` is not 0, an opaque pointer (type index 4) to that many bytes, aligned to 64;
    * for each name in ``symbols``, an Int: the size of that symbol.

    The function returns None, keeps no state between calls, and may run in several threads at once.

    ``constants`` maps C identifiers to data. The artifact stores them once, aligned to 64 bytes; the sources
    declare them as ``extern const unsigned char <id>[];``.
    """

    sources: Mapping[str, str]  # file name (unique to the region, ends in .c) -> text
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    workspace: Dim = 0  # bytes
    symbols: Sequence[str] = ()  # whose sizes the shapes of the arguments do not show
    compile_flags: Sequence[str] = ()
    link_flags: Sequence[str] = ()


class Backend(ABC):
    """Base of all backends. ``name``, a short C identifier, is the domain and the prefix of its regions."""

    name: str
    color: str = "#8888cc"  # in pictures of the partition

    def patterns(self) -> Sequence[Pattern]:
        """Groups of nodes that the backend takes together, in order of priority. Empty by default."""
        return ()

    def check(self, node: ir.Node) -> str | None:
        """The reason why the backend does not take the single ``node``; ``None`` if it does.

        Shapes and dtypes are inferred before the call; :func:`farcall.graph.dims.dims` reads dims.
        """
        return f"{self.name} takes no single {node.op_type}"

    @abstractmethod
    def compile(self, region: Region) -> RegionCode:
        """Generate the code of ``region``."""
