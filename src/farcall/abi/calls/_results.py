"""The rules of results: they convert raw values by the Signature, or report all that do not match it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farcall import _core
from farcall.abi import _dims as dims
from farcall.abi._leaves import ANY_DTYPE, STRING, Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec
from farcall.abi._structure import Fields, Items, Node, Repeated, Slot
from farcall.abi.calls._casts import cast_number, from_register
from farcall.abi.calls._report import Report
from farcall.abi.calls._strings import strings_from_raw
from farcall.abi.calls._tensors import Later
from farcall.abi.calls._values import TensorInfo, as_number, describe, strings_info, tensor_info
from farcall.errors import ResultError

Arrays = str | Callable[[_core.Tensor], Any] | None
"""The form of a Tensor on the CPU: ``"numpy"``, the result of a callable, or None for the Tensor itself."""


class ResultChecker:
    """Checks the raw results of one call against their leaves, and returns their values."""

    def __init__(
        self, report: Report, arrays: Arrays, sizes: Mapping[str, int], *, wraps: bool = False
    ) -> None:
        """Start with the sizes that the arguments gave to names; ``wraps`` as in a Signature."""
        self.report = report
        self._arrays = arrays
        self._wraps = wraps
        self._sizes = dict(sizes)
        self._later: list[Later] = []

    def all(
        self, leaves: Sequence[Leaf], paths: Mapping[int, str], values: Any, function: str | None
    ) -> list[Any]:
        """The value of each leaf. Errors call a leaf without a name by its path in the result.

        Raises:
            ResultError: the number of values, or one of them, does not match the leaves.
        """
        if not isinstance(values, list | tuple) or len(values) != len(leaves):
            got = f"{len(values)} values" if isinstance(values, list | tuple) else describe(values)
            name = f"`{function}`: " if function else ""
            raise ResultError([f"{name}expected {len(leaves)} results, got {got}"])
        restored = [
            self.leaf(spec, spec.name or paths[i] or str(i), value)
            for i, (spec, value) in enumerate(zip(leaves, values, strict=True))
        ]
        for path, spec, info in self._later:
            if not dims.expressions_hold(spec.shape, info.shape, self._sizes):
                self._wrong(path, spec, info.value)
        if self.report.problems:
            raise ResultError(self.report.problems)
        return restored

    def leaf(self, spec: Leaf, path: str, value: Any) -> Any:
        if value is None and spec.optional:
            return None
        if isinstance(spec, TensorSpec):
            return self._tensor(spec, path, value)
        if isinstance(spec, ScalarSpec):
            return self._scalar(spec, path, value)
        if isinstance(spec, ListSpec):
            return self._list(spec, path, value)
        return self._ref(spec, path, value)

    def _wrong(self, path: str, spec: Leaf, value: Any) -> None:
        known = dims.known_text(spec.shape, self._sizes) if isinstance(spec, TensorSpec) else ""
        self.report.add(path, f"expected {spec.type}{known}, got {describe(value)}")

    def _tensor(self, spec: TensorSpec, path: str, value: Any) -> Any:
        info = _strings_info(value) if spec.dtype == STRING else tensor_info(value)
        sizes = dict(self._sizes)
        if info is None or not dims.fits(spec.shape, info.shape, sizes):
            return self._wrong(path, spec, value)
        if info.dtype != spec.dtype and spec.dtype != ANY_DTYPE:
            return self._wrong(path, spec, value)
        self._sizes = sizes
        if any(map(dims.is_expression, spec.shape or ())):
            self._later.append(Later(path, spec, info))
        if spec.dtype == STRING:
            return info.value
        if not isinstance(value, _core.Tensor) or not info.device.startswith("cpu:") or self._arrays is None:
            return value
        return self._arrays(value) if callable(self._arrays) else value.numpy()

    def _scalar(self, spec: ScalarSpec, path: str, value: Any) -> Any:
        plain = as_number(value)
        if type(plain) is int and (self._wraps or spec.dtype == "uint64"):
            plain = from_register(plain, spec.dtype)  # a raw uint64 is an int64 with the same bits
        try:
            return self._wrong(path, spec, value) if plain is None else cast_number(plain, spec.dtype, "safe")
        except ValueError:
            return self._wrong(path, spec, value)

    def _ref(self, spec: RefSpec, path: str, value: Any) -> Any:
        if isinstance(value, _REFERENCES[spec.kind]):
            return value
        return self._wrong(path, spec, value)

    def _list(self, spec: ListSpec, path: str, value: Any) -> Any:
        repeated = isinstance(spec.node, Repeated)
        if not isinstance(value, list | tuple) or not (repeated or len(value) == len(spec.items)):
            return self._wrong(path, spec, value)
        specs = spec.items * len(value) if repeated else spec.items
        items = [
            self.leaf(one, f"{path}[{i}]", item)
            for i, (one, item) in enumerate(zip(specs, value, strict=True))
        ]
        return _structured(spec.node, items)


def _strings_info(value: Any) -> TensorInfo | None:
    """The properties of a raw tensor of strings; None: the value is not one."""
    try:
        return strings_info(strings_from_raw(value))
    except TypeError:
        return None


def _structured(node: Node, values: list[Any]) -> Any:
    """The structure of a list's own items."""
    from farcall.abi._classes import class_of

    if isinstance(node, Slot):
        return values[node.index]
    if isinstance(node, Repeated):
        return values if node.kind == "list" else tuple(values)
    if isinstance(node, Items):
        items = [_structured(child, values) for child in node.items]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, Fields):
        fields = {key: _structured(child, values) for key, child in node.fields}
        return fields if node.kind == "dict" else class_of(node)(**fields)
    return None


_REFERENCES: dict[str, type | tuple[type, ...]] = {
    "any": object,
    "function": _core.Function,
    "module": _core.Module,
    "object": object,
    "str": str,
    "bytes": bytes,
    "dtype": _core.dtype,
    "device": _core.Device,
    "shape": _core.Shape,
}
