"""Which dims of a model's inputs vary: as the caller says it, as torch takes it, and as it came out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.utils._pytree as pytree

from farcall._suggest import did_you_mean
from farcall.errors import ModelError, UsageError


def shapes(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Any) -> Any:
    """``dynamic`` as torch takes it: with an entry for each input.

    Raises:
        UsageError: it names no input or no dim of one, or the model is a program.
    """
    if dynamic is False or dynamic is None:
        return None
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            "dynamic is for modules, and this is a program, whose dims are fixed; "
            "give dynamic_shapes to torch.export.export"
        )
    given = _inputs(model, args, kwargs)
    if dynamic is True:
        return {name: pytree.tree_map(_all_dims, value) for name, value in given.items()}
    if not isinstance(dynamic, Mapping):
        if isinstance(dynamic, str) or not isinstance(dynamic, Sequence) or len(dynamic) != len(given):
            raise UsageError(
                f"dynamic={dynamic!r}: expected True, False, or the dims by input, "
                f'such as {{"{next(iter(given), "x")}": {{0: "batch"}}}}'
            )
        dynamic = dict(zip(given, dynamic, strict=True))
    for name in dynamic:
        if name not in given:
            raise UsageError(
                f"dynamic names `{name}`{did_you_mean(name, given)}; the inputs are {', '.join(given)}"
            )
    named = {name: dynamic.get(name) for name in given}
    for name, value in given.items():
        for tensor, axis, dim in _dims(value, named[name]):
            if not (isinstance(axis, int) and -tensor.dim() <= axis < tensor.dim()):
                raise UsageError(
                    f"dynamic: `{name}` has no dim {axis!r} to be {dim!r}: its shape is {list(tensor.shape)}"
                )
    return named


def check_dims(model: ir.Model, args: Sequence[Any], kwargs: Mapping[str, Any], named: Any, of: Any) -> None:
    """Refuse a model in which torch has fixed a dim that was to vary.

    Raises:
        ModelError: there is such a dim.
    """
    if not isinstance(named, Mapping):
        return
    given = _inputs(of, args, kwargs)
    tensors = [tensor for value in given.values() for tensor in _tensors(value)]
    places = {id(tensor): place for place, tensor in enumerate(tensors)}
    if len(model.graph.inputs) != len(tensors):
        return  # torch left one out
    for name, value in given.items():
        for tensor, axis, dim in _dims(value, named[name]):
            shape = model.graph.inputs[places[id(tensor)]].shape
            if shape is not None and isinstance(shape[axis], int):
                raise ModelError(
                    f"dim {axis} of `{name}` was to vary as {dim!r}, and torch fixed it at {shape[axis]}: "
                    "the code of the model depends on it; export one model for each size, or change that code"
                )


def _inputs(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The example inputs by the names that torch gives them."""
    try:
        return inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise UsageError(f"the example inputs are not those of the model: {error}") from error


def _all_dims(value: Any) -> Any:
    """The dims of an example that may vary: torch takes one of 1 for broadcasting."""
    if not isinstance(value, torch.Tensor):
        return None
    return {axis: torch.export.Dim.AUTO for axis, size in enumerate(value.shape) if size > 1}


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _dims(value: Any, named: Any) -> Iterator[tuple[torch.Tensor, Any, Any]]:
    """The dims that must vary: the tensor, the axis, and the name or ``Dim``."""
    if isinstance(value, torch.Tensor):
        found = named.items() if isinstance(named, Mapping) else enumerate(named or ())
        yield from ((value, axis, dim) for axis, dim in found if _varies(dim))
    elif isinstance(value, Mapping) and isinstance(named, Mapping):
        for key, inner in value.items():
            yield from _dims(inner, named.get(key))
    elif isinstance(value, list | tuple) and isinstance(named, list | tuple):
        for inner, dims in zip(value, named, strict=False):
            yield from _dims(inner, dims)


def _varies(dim: Any) -> bool:
    """Whether torch may not fix it: not a size, and not a hint that leaves it to torch."""
    return isinstance(dim, str | type(torch.export.Dim("d"))) or dim is torch.export.Dim.DYNAMIC
