"""Prepares a Signature for the native core. native/python/abi/abi.h describes how it runs, and its limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from farcall import _core
from farcall.abi import _dims as dims
from farcall.abi._classes import class_of
from farcall.abi._leaves import ANY_DTYPE, DYNAMIC, STRING, Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec
from farcall.abi._signature import Parameter, Signature
from farcall.abi._structure import Fields, Items, Node, Repeated, Slot, children
from farcall.abi.calls._tensors import natural_alignment

# The constants FC_LEAF_*, FC_REF_*, FC_NODE_*, FC_ARRAYS_* and FC_DIM_* of native/python/abi/abi.h.
_KIND, _FLAG, _REF, _NODE = _core.LEAF_KINDS, _core.LEAF_FLAGS, _core.REF_KINDS, _core.NODE_KINDS
_ANY_DIM, _FIRST_EXPRESSION = _core.DIMS["any"], _core.DIMS["expression"]
ARRAYS = tuple(_core.ARRAY_KINDS)

Spec = tuple[Any, ...]


def symbols(signature: Signature) -> tuple[str, ...]:
    """The names in the dims of all tensors. The core refers to a name by its place in this list."""
    leaves = (*signature.inputs, *signature.outputs)
    return tuple(dict.fromkeys(name for leaf in leaves for name in _names(leaf)))


def compile_signature(signature: Signature, names: Sequence[str], arrays: str) -> Spec:
    """The arguments of ``farcall._core.SignatureProgram``.

    Args:
        signature: the Signature to compile.
        names: the names in its dims.
        arrays: the form of tensors in results, one of ``ARRAYS``.
    """
    places = _Places({name: i for i, name in enumerate(names)})
    roots = (*(_node(one.node) for one in signature.parameters), _node(signature.result_node))
    leaves = (
        tuple(_leaf(leaf, places, argument=True) for leaf in signature.inputs),
        tuple(_leaf(leaf, places, argument=False) for leaf in signature.outputs),
    )
    return (
        *leaves,
        tuple(map(_parameter, signature.parameters)),
        roots,
        sum(map(_count, leaves[0] + leaves[1])),
        sum(map(_count, roots)),
        sum(map(_count_dims, leaves[0] + leaves[1])),
        len(names),
        _core.ARRAY_KINDS[arrays],
        signature.destinations,
        tuple(places.code),
    )


class _Places:
    """Collects the data by which the core computes sizes: places of names, and the code of expressions."""

    def __init__(self, names: Mapping[str, int]) -> None:
        self._names = names
        self._starts: dict[str, int | None] = {}  # of the expressions, in the code; None: not computed there
        self.code: list[int] = []

    def dim(self, dim: int | str) -> int | None:
        """A dim in the core's form; None for an expression that only the Python rules compute."""
        if isinstance(dim, int):
            return dim
        if not dims.is_expression(dim):
            return _ANY_DIM if dim == DYNAMIC else _ANY_DIM - 1 - self._names[dim]
        if dim not in self._starts:
            code = dims.compile_expression(dim, self._names)
            self._starts[dim] = None if code is None else _FIRST_EXPRESSION + len(self.code)
            self.code += code or ()
        return self._starts[dim]


def _names(leaf: Leaf) -> Iterator[str]:
    if isinstance(leaf, TensorSpec):
        yield from dims.symbols(leaf.shape)
    elif isinstance(leaf, ListSpec):
        for item in leaf.items:
            yield from _names(item)


def _leaf(leaf: Leaf, places: _Places, argument: bool) -> Spec:
    optional = _FLAG["optional"] if leaf.optional else 0
    if isinstance(leaf, TensorSpec):
        return _tensor(leaf, places, optional, argument)
    if isinstance(leaf, ScalarSpec):
        return (_KIND["scalar"], optional, 0, _core.dtype(leaf.dtype), None, 1, (), ())
    if isinstance(leaf, RefSpec):
        return (_KIND["ref"], optional, _REF[leaf.kind], None, None, 1, (), ())
    return _list(leaf, places, optional, argument)


def _list(leaf: ListSpec, places: _Places, flags: int, argument: bool) -> Spec:
    """The spec of a list. The Python rules convert lists of results, and written or nested items."""
    in_order = tuple(map(Slot, range(len(leaf.items))))
    flat = isinstance(leaf.node, Repeated) or (isinstance(leaf.node, Items) and leaf.node.items == in_order)
    written = any(isinstance(item, TensorSpec) and item.access != "in" for item in leaf.items)
    items = tuple(_leaf(item, places, argument) for item in leaf.items)
    flags |= _FLAG["repeated"] if isinstance(leaf.node, Repeated) else 0
    kind = _KIND["list" if argument and flat and not written else "rules"]
    return (kind, flags, 0, None, None, 1, (), items)


def _tensor(leaf: TensorSpec, places: _Places, flags: int, argument: bool) -> Spec:
    """The spec of a tensor. A result may have any strides."""
    if leaf.dtype == STRING:
        return (_KIND["rules"], flags, 0, None, None, 1, (), ())
    any_dtype = leaf.dtype == ANY_DTYPE
    packed = (
        not any_dtype and _core.dtype(leaf.dtype).bits < 8
    )  # the rules pack a numpy array: a copy, which counts
    shape = [places.dim(dim) for dim in leaf.shape or ()]
    by_rules = None in shape or (argument and (packed or (any_dtype and leaf.alignment)))
    flags |= _FLAG["strided"] if leaf.strided or not argument else 0
    flags |= _FLAG["written"] if leaf.access != "in" and argument else 0
    flags |= _FLAG["any_dtype"] if any_dtype else 0
    flags |= _FLAG["any_rank"] if leaf.shape is None else 0
    flags |= _FLAG["on_device"] if leaf.device else 0
    alignment = leaf.alignment or (1 if any_dtype else natural_alignment(leaf.dtype))
    return (
        _KIND["rules" if by_rules else "tensor"],
        flags,
        0,
        None if any_dtype else _core.dtype(leaf.dtype),
        _core.Device(leaf.device) if leaf.device else None,
        alignment if argument else 1,
        tuple(_ANY_DIM if dim is None else dim for dim in shape),
        (),
    )


def _parameter(one: Parameter) -> Spec:
    by_position = one.kind.startswith("positional")
    by_name = one.kind in ("positional_or_keyword", "keyword_only")
    default = () if one.default is msgspec.UNSET else (one.default,)
    return (sys.intern(one.name), by_position, by_name, one.kind == "var_positional", default)


def _node(node: Node) -> Spec:
    below = tuple(_node(child) for _, child in children(node))
    slot = node.index if isinstance(node, Slot) else 0
    if isinstance(node, Fields):
        keys = tuple(sys.intern(key) for key, _ in node.fields)
        made = None if node.kind == "dict" else class_of(node)
        return (_NODE[node.kind], slot, keys, made, below)
    kind = node.kind if isinstance(node, Items) else "slot" if isinstance(node, Slot) else "nothing"
    return (_NODE[kind], slot, (), None, below)


def _count(spec: Spec) -> int:
    """Of leaves or of nodes: what is below one is the last of its parts."""
    return 1 + sum(map(_count, spec[-1]))


def _count_dims(leaf: Spec) -> int:
    return len(leaf[-2]) + sum(map(_count_dims, leaf[-1]))
