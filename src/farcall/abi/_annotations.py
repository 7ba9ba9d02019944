"""Signatures from annotations: ``def f(x: Annotated[fc.Array, "float32[n]"], *, by: float = 1.0) -> ...``."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from farcall._core import Function, Module, Tensor
from farcall._core import dtype as _dtype
from farcall.abi._building import Arg, build, parse_leaf
from farcall.abi._leaves import ANY_DTYPE, DYNAMIC, Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec
from farcall.abi._signature import ParameterKind, Signature
from farcall.errors import SignatureError

_LEFT_OUT = "a Signature cannot have optional keys; annotate the key with `| None` instead"
_LEAF_CLASSES = (TensorSpec, ScalarSpec, RefSpec, ListSpec)
_Arguments: TypeAlias = tuple[Any, ...]
_PLAIN: dict[Any, Leaf | None] = {
    bool: ScalarSpec("", "bool"),
    int: ScalarSpec("", "int64"),
    float: ScalarSpec("", "float64"),
    complex: ScalarSpec("", "complex128"),
    str: RefSpec("", "str"),
    bytes: RefSpec("", "bytes"),
    object: RefSpec("", "any"),
    Any: RefSpec("", "any"),
    Tensor: TensorSpec("", ANY_DTYPE, None),
    Function: RefSpec("", "function"),
    Module: RefSpec("", "module"),
    None: None,
    types.NoneType: None,
}
_KINDS: Mapping[Any, ParameterKind] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional_only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional_or_keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword_only",
}

if TYPE_CHECKING:
    Array: TypeAlias = Any
else:

    class Array:
        """The annotation of an array of any framework: ``Annotated[Array, "float32[n, 128]"]``.

        The text has the dtype and the dims. A dim is an int, a name, an expression (``2*n``), or ``?`` for
        any size; ``float32[]`` has rank 0, ``float32[...]`` any rank. Without a text, it is any array. Type
        checkers read it as Any. In place of ``Array`` you may name a class that they know, such as
        ``numpy.ndarray``.

        ``Array["float32", "n", 128]`` means the same at run time, but type checkers and linters read a text
        in brackets as the name of a class.
        """

        def __class_getitem__(cls, parts: Any) -> ArrayType:
            dtype, *dims = parts if isinstance(parts, tuple) else (parts,)
            shape = None if dims == [...] else tuple(DYNAMIC if dim is None else dim for dim in dims)
            return ArrayType(TensorSpec("", str(_dtype(dtype)), shape))


_PLAIN[Array] = _PLAIN[Tensor]


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """The value of ``Array[...]``: a leaf, which supports ``| None``."""

    spec: TensorSpec

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 - this method defines `|`

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __call__(self) -> NoReturn:
        """Exists because typing accepts only callables as types."""
        raise TypeError(f"{self!r} is an annotation")

    def __repr__(self) -> str:
        return f"Array[{self.spec.type}]"


def from_callable(function: Callable[..., Any]) -> Signature:
    """See :meth:`farcall.abi.Signature.from_callable`."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        found = inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError, ValueError, TypeError) as error:
        raise SignatureError(f"{name}: its annotations cannot be read: {error}") from error
    try:
        parameters = {one.name: _argument(one) for one in found.parameters.values()}
        return build(parameters, _described(found.return_annotation, "the result"))
    except (TypeError, ValueError) as error:  # TypeError: a class is not a dtype
        raise SignatureError(f"{name}: {error}") from None


def _argument(parameter: inspect.Parameter) -> Arg:
    where = f"parameter `{parameter.name}`"
    kind = _KINDS.get(parameter.kind)
    if kind is None:
        raise ValueError(
            f"{where}: a function with a Signature cannot have **{parameter.name}; list the keys"
        )
    described = _described(parameter.annotation, where)
    if kind == "var_positional":
        described = [described, ...]
    missing = parameter.default is inspect.Parameter.empty
    return Arg(described, msgspec.UNSET if missing else parameter.default, kind)


def _described(annotation: Any, where: str) -> Any:
    """The nested Python value with leaves that :func:`farcall.abi._building.build` takes."""
    if annotation is inspect.Parameter.empty:
        raise ValueError(
            f'{where} has no annotation; expected one such as Annotated[fc.Array, "float32[n]"], int or None'
        )
    if isinstance(annotation, ArrayType):
        return annotation.spec
    if isinstance(annotation, _LEAF_CLASSES):
        return annotation
    if isinstance(annotation, str):
        return parse_leaf(annotation)
    if typing.get_origin(annotation) is not None:
        return _described_generic(annotation, where)
    if isinstance(annotation, (list, tuple, Mapping)):
        return _described_value(annotation, where)
    if isinstance(annotation, type) and (fields := _fields_of(annotation)) is not None:
        return _described_class(annotation, fields, where)
    return _described_plain(annotation, where)


def _described_plain(annotation: Any, where: str) -> Any:
    try:
        if annotation in _PLAIN:
            return _PLAIN[annotation]
    except TypeError:  # not hashable
        pass
    name = f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__qualname__', '')}"
    if name == "numpy.ndarray":
        return TensorSpec("", ANY_DTYPE, None)
    if name.startswith(("numpy.", "ml_dtypes.")):
        return ScalarSpec("", str(_dtype(annotation)))
    if annotation in (Callable, typing.Callable):
        return RefSpec("", "function")
    raise ValueError(
        f'{where}: {annotation!r:.80} does not describe a value; expected Annotated[fc.Array, "float32[n]"], '
        "a number's type, str, or list, tuple, TypedDict, NamedTuple or dataclass of these"
    )


def _described_generic(annotation: Any, where: str) -> Any:
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _GENERIC:
        return _GENERIC[origin](inside, where)
    if getattr(origin, "__module__", "") == "numpy":  # np.ndarray[Any, np.dtype[...]], which NDArray[...] is
        scalar = typing.get_args(inside[-1])
        return TensorSpec("", str(_dtype(scalar[0])) if scalar not in ((), (Any,)) else ANY_DTYPE, None)
    raise ValueError(f"{where}: {annotation!r:.80} is not known; expected list, tuple, Annotated or Optional")


def _described_annotated(inside: _Arguments, where: str) -> Any:
    """The leaf that the first Array or text among the notes describes; otherwise the type describes it."""
    for note in inside[1:]:
        if isinstance(note, (ArrayType, str, *_LEAF_CLASSES)):
            return _described(note, where)
    return _described(inside[0], where)


def _described_union(inside: _Arguments, where: str) -> Leaf:
    others = [one for one in inside if one is not types.NoneType]
    described = _described(others[0], where) if len(others) == 1 else None
    if not isinstance(described, _LEAF_CLASSES):
        raise ValueError(f"{where}: a union may only be `| None` after one array, number or reference")
    leaf: Leaf = msgspec.structs.replace(described, optional=True)
    return leaf


def _described_list(inside: _Arguments, where: str) -> list[Any]:
    return [_described(inside[0], f"{where}[...]"), ...]


def _described_tuple(inside: _Arguments, where: str) -> tuple[Any, ...]:
    if inside[1:] == (...,):
        return (_described(inside[0], f"{where}[...]"), ...)
    return tuple(_described(one, f"{where}[{i}]") for i, one in enumerate(inside))


def _refused_dict(inside: _Arguments, where: str) -> NoReturn:
    raise ValueError(f"{where}: the annotation does not name the keys of the dict; use a TypedDict")


def _refused_key(inside: _Arguments, where: str) -> NoReturn:
    raise ValueError(f"{where}: {_LEFT_OUT}")


_GENERIC: Mapping[Any, Callable[[_Arguments, str], Any]] = {
    typing.Annotated: _described_annotated,
    typing.Union: _described_union,
    types.UnionType: _described_union,
    list: _described_list,
    Sequence: _described_list,
    tuple: _described_tuple,
    Callable: lambda inside, where: RefSpec("", "function"),
    typing.Required: lambda inside, where: _described(inside[0], where),
    typing.NotRequired: _refused_key,
    dict: _refused_dict,
}


def _described_value(annotation: Any, where: str) -> Any:
    """A structure as a literal: ``{"ids": int}``, ``[int, ...]``."""
    if isinstance(annotation, Mapping):
        return {key: _described(one, f"{where}[{key!r}]") for key, one in annotation.items()}
    items = [one if one is ... else _described(one, f"{where}[{i}]") for i, one in enumerate(annotation)]
    return items if isinstance(annotation, list) else tuple(items)


def _fields_of(cls: type) -> dict[str, Any] | None:
    """The annotated fields of a dataclass, NamedTuple or TypedDict, in order; None for other classes."""
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = list(cls._fields)
    elif typing.is_typeddict(cls):
        names = list(cls.__annotations__)
    else:
        return None
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: hints.get(name, inspect.Parameter.empty) for name in names}


def _described_class(cls: type, fields: Mapping[str, Any], where: str) -> Any:
    if typing.is_typeddict(cls):
        if optional := sorted(getattr(cls, "__optional_keys__", ())):
            raise ValueError(f"{where}: {_LEFT_OUT}: {', '.join(optional)}")
        return _described_value(fields, where)
    values = {name: _described(one, f"{where}.{name}") for name, one in fields.items()}
    if dataclasses.is_dataclass(cls):
        made = object.__new__(cls)  # without its __init__, which may check its arguments
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made
    return tuple.__new__(cls, values.values())
