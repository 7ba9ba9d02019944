"""Leaves: what one raw argument or result is - a tensor, a scalar, a reference, or a list of these.

A leaf is data: it encodes to JSON by msgspec, compares and hashes by value. A tensor encodes as farcall 0.1
wrote it, without a tag; the others carry one in ``"leaf"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, get_args

import msgspec

from farcall._core import dtype as _dtype
from farcall.abi._structure import Node, Repeated, check_cover, structure_text

ANY_DTYPE = "?"
"""In place of a tensor's dtype: any."""

DYNAMIC = "?"
"""In place of a dim: any size, and none that another dim must agree with."""

Access: TypeAlias = Literal["in", "inout", "out"]
RefKind: TypeAlias = Literal[
    "any", "function", "module", "object", "str", "bytes", "dtype", "device", "shape"
]

_ACCESSES = get_args(Access)
_LARGEST_DIM = 2**63 - 1

if TYPE_CHECKING:
    Leaf: TypeAlias = "TensorSpec | ScalarSpec | RefSpec | ListSpec"
else:  # msgspec has no unions in which one member has no tag: read_leaves() tells them apart
    Leaf = Any


class TensorSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tensor argument or result.

    Attributes:
        name: what errors and ``help()`` call it; may be empty where the source has none.
        dtype: ``"float32"``, ``"int4"``, ``"float8_e4m3fn"``, ...; ``"?"`` for any.
        shape: an int for a fixed dim; text for a symbolic one: a name (``"batch"``), an expression over
            names (``"(h - 1)//2 + 1"``), or ``"?"`` for any size. None: any rank. Dims of one name are equal
            in all arguments and results of a call.
        access: whether the function reads the tensor (``"in"``), writes it (``"out"``), or both; what it
            writes into must be writable, and is passed as it is or refused, never copied.
        strided: whether the function heeds strides. If not, it gets row-major memory: other layouts of
            read-only arguments are copied, and the copy is counted (:attr:`FunctionAbi.copies`).
        alignment: of the first element, in bytes; 0 is the natural one of the dtype. Read-only arguments
            that are aligned less are copied, and counted.
        device: where it must be (``"cpu"``, ``"cuda:0"``); empty: anywhere.
        optional: None may be passed in its place.
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
        if self.dtype != ANY_DTYPE:
            _check_dtype(self.name, self.dtype)
        for dim in self.shape or ():
            _check_dim(self.name, dim)
        if self.alignment < 0 or self.alignment & (self.alignment - 1):
            raise ValueError(f"tensor `{self.name}`: alignment {self.alignment} is no power of two")
        if self.access not in _ACCESSES:
            raise ValueError(
                f"tensor `{self.name}`: access {self.access!r} is none of {', '.join(_ACCESSES)}"
            )

    def __str__(self) -> str:
        return _named(self.name, self.type)

    @property
    def type(self) -> str:
        """dtype and dims as text, e.g. ``float32[batch, 1, 8, 8]``; ``float32[...]`` is of any rank."""
        dims = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return _optional(f"{self.dtype}[{dims}]", self.optional)


def is_plain(leaf: TensorSpec) -> bool:
    """Whether dtype and dims say all that a caller must heed, as in other encodings: it is only read."""
    return leaf.access == "in" and not (leaf.alignment or leaf.device or leaf.optional)


class ScalarSpec(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="leaf", tag="scalar"):
    """One number: ``dtype`` says its range (``int8`` refuses 200) and its kind (``float32`` takes ints)."""

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
            raise ValueError(f"`{self.name}`: kind {self.kind!r} is none of {', '.join(get_args(RefKind))}")

    def __str__(self) -> str:
        return _named(self.name, self.type)

    @property
    def type(self) -> str:
        """The kind as text: ``function``."""
        return _optional(self.kind, self.optional)


class ListSpec(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="leaf", tag="list"):
    """Several values that travel as one list: ``items`` in order, in Python of the structure ``node``.

    With ``Repeated`` as the node there are as many values as the caller gives, each like ``items[0]``.
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
    """Leaves, from leaves or from what JSON gives for them.

    Raises:
        ValueError: one is neither; msgspec's message says what is wrong with it.
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
        raise ValueError(f"`{name}`: {text!r} is no dtype of a value")


@lru_cache(maxsize=256)
def _is_of_value(dtype: str) -> bool:
    return bool(dtype) and bool(_dtype(dtype).bits)


def _check_dim(name: str, dim: int | str) -> None:
    if isinstance(dim, str):
        if not dim.strip():
            raise ValueError(f'tensor `{name}`: an empty dim; write "?" for one of any size')
    elif not isinstance(dim, int) or not 0 <= dim <= _LARGEST_DIM:
        raise ValueError(f'tensor `{name}`: dim {dim} is not in 0..2**63-1; write "?" for one of any size')


def _named(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


def _optional(text: str, optional: bool) -> str:
    return f"{text} | None" if optional else text
