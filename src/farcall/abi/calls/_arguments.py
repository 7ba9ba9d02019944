"""The rules of a call: they check each leaf against its spec, and convert it.

A check changes nothing. The conversions run only if the whole call has no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from farcall import _core
from farcall._extras import import_numpy
from farcall.abi import _dims as dims
from farcall.abi._leaves import STRING, Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec
from farcall.abi._structure import Repeated
from farcall.abi.calls._binding import Walker
from farcall.abi.calls._casts import Casting, cast_number
from farcall.abi.calls._report import Report
from farcall.abi.calls._strings import raw_strings, strings_of
from farcall.abi.calls._tensors import Later, fault, plain_array, target_dtype, unfit_layout
from farcall.abi.calls._values import (
    TensorInfo,
    as_number,
    copy_tensor,
    describe,
    exported_array,
    is_numpy,
    strings_info,
    tensor_info,
    unshared,
)

Convert = Callable[[], Any]
"""Makes the raw value of a leaf that passed its check."""


class ArgumentChecker:
    """Checks the raw arguments of one call against their leaves. Each size binds a name for the next ones."""

    def __init__(self, report: Report, casting: Casting) -> None:
        self.report = report
        self.casting = casting
        self.copies = 0
        self._sizes: dict[str, int] = {}
        self._origins: dict[str, str] = {}  # of the sizes: paths
        self._later: list[Later] = []

    def walker(self, leaves: Sequence[Leaf]) -> Walker:
        """A walker that takes a structure over these leaves apart, and reports its problems here."""
        return Walker(leaves, self.report)

    def leaf(self, spec: Leaf, path: str, value: Any) -> Convert:
        """Check one value. Call the returned conversion only if the whole call has no problem."""
        if value is None and spec.optional:
            return _nothing
        if isinstance(spec, TensorSpec):
            return self._tensor(spec, path, value)
        if isinstance(spec, ScalarSpec):
            return self._scalar(spec, path, value)
        if isinstance(spec, ListSpec):
            return self._list(spec, path, value)
        return self._ref(spec, path, value)

    def finish(self) -> None:
        """Compare the dims that are expressions."""
        for path, spec, info in self._later:
            if not dims.expressions_hold(spec.shape, info.shape, self._sizes):
                self._wrong(path, spec, info.text)

    def _wrong(self, path: str, spec: Leaf, got: str, cure: str = "") -> Convert:
        known = dims.known_text(spec.shape, self._sizes) if isinstance(spec, TensorSpec) else ""
        self.report.add(path, f"expected {spec.type}{known}, got {got}{f'; {cure}' if cure else ''}")
        return _nothing

    # ---- tensors

    def _tensor(self, spec: TensorSpec, path: str, value: Any) -> Convert:
        if spec.dtype == STRING:
            return self._strings(spec, path, value)
        try:
            info = tensor_info(value)
        except Exception as error:  # of any framework
            return self._wrong(path, spec, unshared(value, error))
        if info is None:
            array = exported_array(value, spec.access != "in")
            return self._plain(spec, path, value) if array is None else self._tensor(spec, path, array)
        if problem := fault(spec, info, self.casting):
            return self._wrong(path, spec, *problem)
        return self._fitting(spec, path, info, lambda: self._pass(spec, info))

    def _strings(self, spec: TensorSpec, path: str, value: Any) -> Convert:
        try:
            array = strings_of(value)
        except (TypeError, ValueError) as error:
            return self._wrong(path, spec, describe(value), str(error))
        info = strings_info(array)
        return self._fitting(spec, path, info, lambda: raw_strings(array))

    def _fitting(self, spec: TensorSpec, path: str, info: TensorInfo, convert: Convert) -> Convert:
        """Check the dims of a tensor, and bind their names; returns its conversion."""
        sizes = dict(self._sizes)
        if not dims.fits(spec.shape, info.shape, sizes):
            return self._wrong(path, spec, info.text, self._dims_cure(spec, info))
        self._origins.update(dict.fromkeys(sizes.keys() - self._sizes.keys(), path))
        self._sizes = sizes
        if any(map(dims.is_expression, spec.shape or ())):
            self._later.append(Later(path, spec, info))
        return convert

    def _dims_cure(self, spec: TensorSpec, info: TensorInfo) -> str:
        shape = spec.shape or ()
        if len(shape) != len(info.shape):
            return f"reshape it to rank {len(shape)}"
        misfit = dims.first_misfit(shape, info.shape, dict(self._sizes))
        if misfit is None:  # an expression
            return ""
        axis, size, symbol = misfit
        origin = self._origins.get(symbol, "") if symbol else ""
        whose = f", the `{symbol}` of {self.report.origin(origin)}" if origin else ""
        return f"dimension {axis} must be {size}{whose}"

    def _pass(self, spec: TensorSpec, info: TensorInfo) -> Any:
        if unfit_layout(spec, info) is not None:
            self.copies += 1
            return copy_tensor(info, target_dtype(spec, info), spec.alignment)
        if _core.dtype(info.dtype).bits < 8 and is_numpy(info.value):
            self.copies += 1  # numpy uses a byte for an element of 4 bits, and the core packs them
        return info.value

    def _plain(self, spec: TensorSpec, path: str, value: Any) -> Convert:
        """A number, or nested lists of numbers, in place of a tensor that is only read."""
        if spec.access != "in":
            return self._wrong(path, spec, describe(value), "it is written in place; pass an array")
        try:
            array = plain_array(value, spec, self.casting)
        except (ValueError, TypeError, OverflowError) as error:
            return self._wrong(path, spec, describe(value), str(error))
        if array.ndim == 0 and spec.shape:
            return self._wrong(path, spec, describe(value), "pass an array or a tensor")
        convert = self._tensor(spec, path, array)
        return lambda: self._counted(convert)

    def _counted(self, convert: Convert) -> Any:
        self.copies += 1
        return convert()

    # ---- the others

    def _scalar(self, spec: ScalarSpec, path: str, value: Any) -> Convert:
        try:
            number = as_number(value)
        except Exception:  # an error of any framework, for example for a tensor without memory
            number = None
        if number is None:
            return self._wrong(path, spec, describe(value))
        try:
            made = cast_number(number, spec.dtype, self.casting)
        except ValueError as error:
            return self._wrong(path, spec, describe(value), str(error))
        return lambda: raw_number(made, spec.dtype)

    def _ref(self, spec: RefSpec, path: str, value: Any) -> Convert:
        try:
            made = _REFERENCES[spec.kind](value)
        except Exception:  # of the value's own methods, too
            return self._wrong(path, spec, describe(value))
        return lambda: made

    def _list(self, spec: ListSpec, path: str, value: Any) -> Convert:
        if not isinstance(spec.node, Repeated):
            found = list(self.walker(spec.items).walk(spec.node, value, path))
            checked = {one.slot: self.leaf(spec.items[one.slot], one.path, one.value) for one in found}
            return lambda: [checked[i]() for i in range(len(spec.items))]
        if not isinstance(value, list | tuple):
            return self._wrong(path, spec, describe(value))
        parts = [self.leaf(spec.items[0], f"{path}[{i}]", item) for i, item in enumerate(value)]
        return lambda: [part() for part in parts]


def _nothing() -> None:
    return None


def raw_number(value: Any, dtype: str) -> Any:
    """The raw form of a number: an unsigned 64-bit int as the same signed bits, a complex one as a tensor."""
    if isinstance(value, int) and value >= 1 << 63:
        return value - (1 << 64)
    if isinstance(value, complex):
        return import_numpy("a complex number").array(value, dtype=dtype)
    return value


# ---- references: each function returns the raw value, or raises an error


def _only(*types: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, types):
            raise TypeError
        return value

    return check


def _function(value: Any) -> Any:
    if not callable(value):
        raise TypeError
    return value if isinstance(value, _core.Function) else _core.Function(value)


def _object(value: Any) -> Any:
    passed = isinstance(value, _core.Function | _core.Module | _core.Opaque | _core.Tensor)
    return value if passed else _core.Opaque(value)


def _any(value: Any) -> Any:
    _core.convert(value)
    return value


_REFERENCES: dict[str, Callable[[Any], Any]] = {
    "any": _any,
    "function": _function,
    "module": _only(_core.Module),
    "object": _object,
    "str": _only(str),
    "bytes": _only(bytes, bytearray, memoryview),
    "dtype": lambda value: value if isinstance(value, _core.dtype) else _core.dtype(value),
    "device": lambda value: value if isinstance(value, _core.Device) else _core.Device(value),
    "shape": lambda value: value if isinstance(value, _core.Shape) else _core.Shape(value),
}
