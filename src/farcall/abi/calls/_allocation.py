"""Allocates results whose dims are known before the call, from the arguments or from a shape function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from farcall import _core
from farcall.abi import _dims as dims
from farcall.abi._leaves import ANY_DTYPE, STRING, Leaf, ListSpec, TensorSpec
from farcall.abi._signature import Signature
from farcall.abi._structure import Repeated
from farcall.abi.calls._values import tensor_info

_LARGEST = 2**63 - 1


def allocate(
    signature: Signature, packed: Sequence[Any], shape_function: Callable[..., Sequence[Any]] | None
) -> list[Any]:
    """See :meth:`FunctionAbi.allocate_results`."""
    known = _sizes(signature.inputs, packed)
    shapes = [_shape(leaf, known) for leaf in signature.outputs]
    if shape_function is not None and any(map(_is_open, signature.outputs, shapes)):
        given = shape_function(*packed)
        if len(given) != len(shapes):
            raise ValueError(f"the shape function returned {len(given)} shapes for {len(shapes)} results")
        shapes = [
            _checked(leaf, one) if _is_open(leaf, shape) else shape
            for leaf, shape, one in zip(signature.outputs, shapes, given, strict=True)
        ]
    return [_empty(leaf, shape) for leaf, shape in zip(signature.outputs, shapes, strict=True)]


def _sizes(inputs: Sequence[Leaf], packed: Sequence[Any]) -> dict[str, int]:
    known: dict[str, int] = {}
    tensors = [found for leaf, value in zip(inputs, packed, strict=True) for found in _tensors(leaf, value)]
    for shape, sizes in tensors:
        dims.fits(shape, sizes, known)
    for shape, sizes in tensors:
        dims.expressions_hold(shape, sizes, known)  # for the names that it finds
    return known


def _tensors(leaf: Leaf, value: Any) -> Iterator[tuple[Sequence[int | str] | None, Sequence[int]]]:
    """The expected dims and the actual sizes of the tensors in one packed argument."""
    if isinstance(leaf, ListSpec) and isinstance(value, list | tuple):
        specs = leaf.items * len(value) if isinstance(leaf.node, Repeated) else leaf.items
        for spec, item in zip(specs, value, strict=False):
            yield from _tensors(spec, item)
    elif isinstance(leaf, TensorSpec) and (info := tensor_info(value)) is not None:
        yield leaf.shape, info.shape


def _shape(leaf: Leaf, known: Mapping[str, int]) -> tuple[int, ...] | None:
    if not isinstance(leaf, TensorSpec) or leaf.shape is None or leaf.dtype in (ANY_DTYPE, STRING):
        return None
    sizes = [dims.size_of(dim, known) for dim in leaf.shape]
    return tuple(size for size in sizes if size is not None) if None not in sizes else None


def _is_open(leaf: Leaf, shape: tuple[int, ...] | None) -> bool:
    is_tensor = isinstance(leaf, TensorSpec) and leaf.dtype not in (ANY_DTYPE, STRING)
    return is_tensor and shape is None


def _checked(leaf: Leaf, shape: Any) -> tuple[int, ...] | None:
    """The sizes that the shape function returned for one result; they must match the Signature."""
    if shape is None:
        return None
    sizes = tuple(map(int, shape))
    assert isinstance(leaf, TensorSpec)  # noqa: S101 - only these are open
    if not dims.fits(leaf.shape, sizes, {}):
        raise ValueError(f"the shape function returned {list(sizes)} for {leaf}")
    return sizes


def _empty(leaf: Leaf, shape: tuple[int, ...] | None) -> _core.Tensor | None:
    if shape is None or not isinstance(leaf, TensorSpec):
        return None
    bits = math.prod(shape) * _core.dtype(leaf.dtype).bits
    if bits // 8 > _LARGEST:
        raise ValueError(f"result {leaf} has the dims {list(shape)}: more than 2**63 - 1 bytes")
    return _core.empty(shape, leaf.dtype)
