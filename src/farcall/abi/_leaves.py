"""Leaves: each describes one raw argument or result: a tensor, a scalar, a reference, or a list of these.

A leaf is data: msgspec encodes it to JSON, and it compares and hashes by value. A tensor's JSON has no tag,
as in farcall 0.1; the others have a tag in ``"leaf"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, get_args

import msgspec

from farcall._core import dtype as _dtype
from farcall.abi._structure import Node, Repeated, check_cover, structure_text

ANY_DTYPE = "?"
"""Stands for any dtype of a tensor."""

STRING = "string"
"""The dtype of a tensor of strings, which native code gets as two Arrays: see farcall.abi.calls._strings."""

DYNAMIC = "?"
"""Stands for a dim of any size, which need not equal any other dim."""

Access: TypeAlias = Literal["in", "inout", "out"]
RefKind: TypeAlias = Literal[
    "any", "function", "module", "object", "str", "bytes", "dtype", "device", "shape"
]

_ACCESSES = get_args(Access)
_LARGEST_DIM = 2**63 - 1

if TYPE_CHECKING:
    Leaf: TypeAlias = "TensorSpec | ScalarSpec | RefSpec | ListSpec"
else:  # msgspec has no unions with an untagged member, so read_leaves() chooses the class
    Leaf = Any


class TensorSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tensor argument or result.

    Attributes:
        name: the name in errors and ``help()``; may be empty if the source has no name.
        dtype: ``"float32"``, ``"int4"``, ``"float8_e4m3fn"``, ...; ``"?"`` for any of these; ``"string"``.
        shape: an int for a fixed dim; text for a symbolic one: a name (``"batch"``), an expression over
            names (``"(h - 1)//2 + 1"``), or ``"?"`` for any size. None: any rank. A name has the same size in
            all arguments and results of a call.
        access: whether the function reads the tensor (``"in"``), writes it (``"out"``), or both
            (``"inout"``). A tensor that it writes must be writable, and is never copied: farcall passes it
            unchanged, or refuses it.
        strided: whether the function accepts strides. If not, it gets row-major memory. farcall then copies
            read-only arguments of other layouts, and counts the copies (:attr:`FunctionAbi.copies`).
        alignment: the alignment of the first element in bytes; 0 is the natural alignment of the dtype.
            farcall copies read-only arguments with a smaller alignment, and counts the copies.
        device: the device that the tensor must be on (``"cpu"``, ``"cuda:0"``); empty: any device.
        optional: whether a call may pass None instead.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    access: Access = "in"
    strided: bool = False
    alignment: int = 0
    device: str = ""
    optional: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in (ANY_DTYPE, STRING):
            _check_dtype(self.name, self.dtype)
        if self.dtype == STRING and (self.access != "in" or self.alignment or self.device):
            raise ValueError(f"tensor `{self.name}`: strings are only read, and have no memory of their own")
        for dim in self.shape or ():
            _check_dim(self.name, dim)
        if self.alignment < 0 or self.alignment & (self.alignment - 1):
            raise ValueError(f"tensor `{self.name}`: alignment {self.alignment} is not a power of two")
        if self.access not in _ACCESSES:
            raise ValueError(
                f"tensor `{self.name}`: expected an access of {', '.join(_ACCESSES)}, got {self.access!r}"
            )

    def __str__(self) -> str:
        return _named(self.name, self.type)

    @property
    def type(self) -> str:
        """dtype and dims as text, e.g. ``float32[batch, 1, 8, 8]``; ``float32[...]`` is of any rank."""
        dims = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return _optional(f"{self.dtype}[{dims}]", self.optional)


def is_numeric(leaf: Leaf) -> TypeGuard[TensorSpec]:
    """Whether a leaf is a tensor of numbers, never None."""
    return isinstance(leaf, TensorSpec) and leaf.dtype != STRING and not leaf.optional


def is_plain(leaf: TensorSpec) -> bool:
    """Whether dtype and dims describe the tensor completely, as in other encodings: it is only read."""
    return leaf.access == "in" and not (leaf.alignment or leaf.device or leaf.optional)


class ScalarSpec(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="leaf", tag="scalar"):
    """One number. Its dtype sets its range (``int8`` refuses 200) and its kind (``float32`` accepts ints)."""

    name: str
    dtype: str
    optional: bool = False

    def __post_init__(self) -> None:
        _check_dtype(self.name, self.dtype)

    def __str__(self) -> str:
        return _named(self.name, self.type)

    @property
    def type(self) -> str:
        """The dtype as text: ``int32``."""
        return _optional(self.dtype, self.optional)


class RefSpec(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="leaf", tag="ref"):
    """One object that is passed by reference.

    ``kind`` is ``function`` (a Function, or a callable that becomes one), ``module``, ``str``, ``bytes``,
    ``dtype``, ``device``, ``shape``, ``object`` (any native object) or ``any`` (all that can be passed).
    """

    name: str
    kind: RefKind
    optional: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(RefKind):
            expected = ", ".join(get_args(RefKind))
            raise ValueError(f"`{self.name}`: expected a kind of {expected}, got {self.kind!r}")

    def __str__(self) -> str:
        return _named(self.name, self.type)

    @property
    def type(self) -> str:
        """The kind as text: ``function``."""
        return _optional(self.kind, self.optional)


class ListSpec(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="leaf", tag="list"):
    """Several values that travel as one list: ``items`` in order. In Python they have the structure ``node``.

    If the node is ``Repeated``, the list has any number of values, each like ``items[0]``.
    """

    name: str
    items: tuple[Leaf, ...]
    node: Node
    optional: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "items", read_leaves(self.items))
        repeated = isinstance(self.node, Repeated)
        if repeated and len(self.items) != 1:
            raise ValueError(f"list `{self.name}`: a repeated item needs one leaf, got {len(self.items)}")
        if not repeated:
            check_cover([self.node], len(self.items), f"list `{self.name}`")

    def __str__(self) -> str:
        return _named(self.name, self.type)

    @property
    def type(self) -> str:
        """The structure as text: ``[int64[n], ...]``."""
        return _optional(structure_text(self.node, [leaf.type for leaf in self.items]), self.optional)


_LEAVES: dict[Any, Any] = {None: TensorSpec, "scalar": ScalarSpec, "ref": RefSpec, "list": ListSpec}
_LEAF_CLASSES = frozenset(_LEAVES.values())


def read_leaves(values: Iterable[Any]) -> tuple[Leaf, ...]:
    """Convert leaves, or the JSON values of leaves, to leaves.

    Raises:
        ValueError: a value is neither; the error includes msgspec's message.
    """
    return tuple([value if type(value) in _LEAF_CLASSES else _read_leaf(value) for value in values])


def _read_leaf(value: Any) -> Leaf:
    tag = value.get("leaf") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not (tag is None or isinstance(tag, str)) or tag not in _LEAVES:
        raise ValueError(f"expected a TensorSpec, ScalarSpec, RefSpec or ListSpec, got {value!r:.80}")
    try:
        leaf: Leaf = msgspec.convert(value, type=_LEAVES[tag])
    except msgspec.ValidationError as error:
        raise ValueError(f"a leaf is damaged: {error}") from None
    return leaf


def is_ref_kind(text: str) -> TypeGuard[RefKind]:
    """Whether a text is the kind of a :class:`RefSpec`."""
    return text in get_args(RefKind)


def _check_dtype(name: str, text: str) -> None:
    if not _is_of_value(text):
        raise ValueError(f"`{name}`: {text!r} is not a dtype of values")


@lru_cache(maxsize=256)
def _is_of_value(dtype: str) -> bool:
    return bool(dtype) and bool(_dtype(dtype).bits)


def _check_dim(name: str, dim: int | str) -> None:
    if isinstance(dim, str):
        if not dim.strip():
            raise ValueError(f'tensor `{name}`: a dim is empty; write "?" for any size')
    elif not isinstance(dim, int) or not 0 <= dim <= _LARGEST_DIM:
        raise ValueError(f'tensor `{name}`: dim {dim} is not in 0..2**63-1; write "?" for any size')


def _named(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


def _optional(text: str, optional: bool) -> str:
    return f"{text} | None" if optional else text
