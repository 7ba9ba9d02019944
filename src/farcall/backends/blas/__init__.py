"""The BLAS backend: MatMul, Gemm and, if wanted, Conv by the matrix product of a CBLAS library.

It is the example of a backend that calls a shared library (:class:`farcall.backends.base.Library`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from farcall.backends.base import Library
from farcall.backends.c_backend_kit import CBackendKit, RegionWriter
from farcall.errors import UsageError
from farcall.graph import Match
from farcall.graph.dims import dims

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BlasBackend"]
__dir__ = __all__.copy

_OPERATORS = ("MatMul", "Gemm", "Conv")
_PRODUCTS = ("fast", "all")
_FLOATS = {ir.DataType.FLOAT: "s", ir.DataType.DOUBLE: "d"}
# option `library` -> soname, the prefix of its symbols, package, its least version, cure
_LIBRARIES = {
    "scipy-openblas32": (
        "libscipy_openblas.so",
        "scipy_",
        "scipy-openblas32",
        "0.3.21",
        "install it: pip install 'farcall[blas]'",
    ),
    "system": (
        "libopenblas.so.0",
        "",
        "",
        "",
        "install it (Debian: libopenblas0), or name its folder in LD_LIBRARY_PATH",
    ),
}


class BlasBackend(CBackendKit):
    """Takes matrix products of float32 and float64, where the library is faster than the backend ``c``.

    Options: ``products`` is ``fast``, or ``all`` for those that ``c`` computes faster, too; ``convolutions``
    takes those (``c`` computes them faster); ``threads``, the number of threads of one product (a setting of
    the library, for the whole process); ``library``, ``scipy-openblas32`` (a Python package) or ``system``
    (OpenBLAS).
    """

    name = "blas"
    color = "#5b7fbf"
    options: Mapping[str, Any] = {
        "products": "fast",
        "convolutions": False,
        "threads": 1,
        "library": "scipy-openblas32",
    }

    def check(self, node: ir.Node) -> str | None:
        from farcall.backends.c._check import reason
        from farcall.backends.c._node import int_attr, operand

        if node.domain not in ("", "ai.onnx") or node.op_type not in _OPERATORS:
            return f"only {', '.join(_OPERATORS)}"
        if node.outputs[0].dtype not in _FLOATS:
            return "only float32 and float64"
        if problem := reason(node):  # what the C backend asks of shapes and attributes
            return problem
        if node.op_type != "Conv":
            return self._product_refusal(node)
        if not self.options["convolutions"]:
            return "`c` computes convolutions faster; the option convolutions=True takes them"
        filters, group = dims(operand(node, 1))[0], int_attr(node, "group", 1)
        if filters == group > 1:
            return "one filter a group: no matrix product"
        if len(dims(node.outputs[0])) > 5:
            return "only up to three spatial dims"
        return None

    def _product_refusal(self, node: ir.Node) -> str | None:
        from farcall.backends.blas._speed import is_faster

        wanted = self.options["products"]
        if wanted not in _PRODUCTS:
            raise UsageError(
                f"backend `blas`, option `products`: expected {' or '.join(_PRODUCTS)}, got {wanted!r}"
            )
        if wanted == "all" or is_faster(node):
            return None
        return '`c` computes this product as fast or faster; the option products="all" takes it'

    def emit(self, match: Match, out: RegionWriter) -> None:
        from farcall.backends.blas._emit import EMITTERS, support

        node = match.root
        prefix = self._library()[1]
        out.file_scope(support(prefix, _FLOATS[node.outputs[0].dtype]))  # type: ignore[index]
        out.line(f"blas_threads({int(self.options['threads'])});")
        EMITTERS[node.op_type](node, out, _FLOATS[node.outputs[0].dtype])  # type: ignore[index]

    @property
    def libraries(self) -> Sequence[Library]:
        soname, prefix, package, version, cure = self._library()
        products = [f"{prefix}cblas_{kind}gemm" for kind in _FLOATS.values()]
        threads = [f"{prefix}openblas_{verb}_num_threads" for verb in ("get", "set")]
        return [Library(soname, [*products, *threads], package, version, cure)]

    def _library(self) -> tuple[str, str, str, str, str]:
        name = self.options["library"]
        if name not in _LIBRARIES:
            raise UsageError(
                f"backend `blas`, option `library`: expected {' or '.join(_LIBRARIES)}, got {name!r}"
            )
        return _LIBRARIES[name]
