"""A Signature as what the native core compiles; native/core/abi.h says how it runs and what it leaves."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from farcall import _core
from farcall.abi import dims
from farcall.abi.classes import class_of
from farcall.abi.leaves import ANY_DTYPE, Leaf, RefSpec, ScalarSpec, TensorSpec
from farcall.abi.signature import Parameter, Signature
from farcall.abi.structure import Fields, Items, Node, Slot, children
from farcall.abi.tensors import natural_alignment

# native/core/abi.h
_TENSOR, _SCALAR, _REF, _RULES = range(4)
_OPTIONAL, _STRIDED, _WRITTEN, _ANY_DTYPE, _ANY_RANK, _ON_DEVICE = (1 << bit for bit in range(6))
_ANY_DIM = -1
_REFS = ("any", "function", "module", "object", "str", "bytes", "dtype", "device", "shape")
_NODES = ("slot", "nothing", "list", "tuple", "dict", "namedtuple", "dataclass")
ARRAYS = ("farcall", "numpy", "rules")

Spec = tuple[Any, ...]


def symbols(signature: Signature) -> tuple[str, ...]:
    """The names of sizes in the dims of all tensors; the core knows them by their place here."""
    leaves = (*signature.inputs, *signature.outputs)
    return tuple(dict.fromkeys(str(dim) for leaf in leaves for dim in _shape(leaf) if dims.is_symbol(dim)))


def compile_signature(signature: Signature, names: Sequence[str], arrays: str) -> Spec:
    """The arguments of ``farcall._core.SignatureProgram``.

    Args:
        signature: what to compile.
        names: its symbols.
        arrays: what ``unpack_results`` makes of tensors, one of ``ARRAYS``.
    """
    places = {name: i for i, name in enumerate(names)}
    roots = (*(_node(one.node) for one in signature.parameters), _node(signature.result_node))
    rules_only = any(one.kind == "var_positional" for one in signature.parameters)
    return (
        tuple(_leaf(leaf, places, argument=True) for leaf in signature.inputs),
        tuple(_leaf(leaf, places, argument=False) for leaf in signature.outputs),
        tuple(map(_parameter, signature.parameters)),
        roots,
        sum(map(_count, roots)),
        sum(len(_shape(leaf)) for leaf in (*signature.inputs, *signature.outputs)),
        len(places),
        ARRAYS.index(arrays),
        rules_only,
        signature.destinations,
    )


def _shape(leaf: Leaf) -> Sequence[int | str]:
    return leaf.shape or () if isinstance(leaf, TensorSpec) else ()


def _leaf(leaf: Leaf, places: Mapping[str, int], argument: bool) -> Spec:
    optional = _OPTIONAL if leaf.optional else 0
    if isinstance(leaf, TensorSpec):
        return _tensor(leaf, places, optional, argument)
    if isinstance(leaf, ScalarSpec):
        return (_SCALAR, optional, 0, _core.dtype(leaf.dtype), None, 1, ())
    if isinstance(leaf, RefSpec):
        return (_REF, optional, _REFS.index(leaf.kind), None, None, 1, ())
    return (_RULES, optional, 0, None, None, 1, ())


def _tensor(leaf: TensorSpec, places: Mapping[str, int], flags: int, argument: bool) -> Spec:
    """Results may be laid out as the function likes, and their dims that are expressions are not computed."""
    any_dtype = leaf.dtype == ANY_DTYPE
    packed = (
        not any_dtype and _core.dtype(leaf.dtype).bits < 8
    )  # an array of numpy is packed: a copy, counted
    computed = any(map(dims.is_expression, leaf.shape or ()))
    flags |= _STRIDED if leaf.strided or not argument else 0
    flags |= _WRITTEN if leaf.access != "in" and argument else 0
    flags |= _ANY_DTYPE if any_dtype else 0
    flags |= _ANY_RANK if leaf.shape is None else 0
    flags |= _ON_DEVICE if leaf.device else 0
    alignment = leaf.alignment or (1 if any_dtype else natural_alignment(leaf.dtype))
    return (
        _RULES if argument and (packed or computed or (any_dtype and leaf.alignment)) else _TENSOR,
        flags,
        0,
        None if any_dtype else _core.dtype(leaf.dtype),
        _core.Device(leaf.device) if leaf.device else None,
        alignment if argument else 1,
        tuple(_dim(dim, places) for dim in leaf.shape or ()),
    )


def _dim(dim: int | str, places: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return _ANY_DIM - 1 - places[dim] if dim in places else _ANY_DIM


def _parameter(one: Parameter) -> Spec:
    by_position = one.kind.startswith("positional")
    by_name = one.kind in ("positional_or_keyword", "keyword_only")
    default = () if one.default is msgspec.UNSET else (one.default,)
    return (sys.intern(one.name), by_position, by_name, default)


def _node(node: Node) -> Spec:
    below = tuple(_node(child) for _, child in children(node))
    slot = node.index if isinstance(node, Slot) else 0
    if isinstance(node, Fields):
        keys = tuple(sys.intern(key) for key, _ in node.fields)
        made = None if node.kind == "dict" else class_of(node)
        return (_NODES.index(node.kind), slot, keys, made, below)
    kind = node.kind if isinstance(node, Items) else "slot" if isinstance(node, Slot) else "nothing"
    return (_NODES.index(kind), slot, (), None, below)


def _count(spec: Spec) -> int:
    return 1 + sum(map(_count, spec[-1]))
