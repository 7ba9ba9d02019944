"""Writes typed stubs (a ``.pyi`` file) of a library's functions, from the library's metadata.

A tensor result has the framework of the arguments. A function that takes and returns tensors therefore has
two
overloads: one for numpy arrays, whose dtype and rank may change, and one for any other type with
``__dlpack_device__``, which the result has, too. The stubs do not type calls that mix frameworks.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterable, Sequence

from farcall.ffi._describe import ONLY_THE_KERNEL_KNOWS, REQUIRED
from farcall.ffi._exported import Exported, Parameter, Type

_HEADER = '''\
"""The functions of {name}. Made by `farcall stubgen`; do not edit."""

import builtins as _builtins
import collections.abc as _abc
import typing as _typing

import farcall.ffi as _ffi
'''
_TENSORS = """
class _SupportsDLPack(_typing.Protocol):
    def __dlpack_device__(self) -> _typing.Any: ...

_Tensor = _typing.TypeVar("_Tensor", bound=_SupportsDLPack)
"""
_NUMPY = "import numpy.typing as _npt\n"

_ANY, _ARRAY, _SAME, _INPUT = "_typing.Any", "_npt.NDArray[_typing.Any]", "_Tensor", "_SupportsDLPack"

# The type of a parameter, and the type of a result.
_PLAIN = {
    "None": ("None", "None"),
    "bool": ("bool", "bool"),
    "int": ("int", "int"),
    "float": ("float", "float"),
    "ffi.String": ("str", "str"),
    "ffi.Bytes": ("bytes | bytearray | memoryview", "bytes"),
    "ffi.Shape": ("_abc.Sequence[int]", "_ffi.Shape"),
    "DataType": (_ANY, "_ffi.dtype"),
    "Device": (_ANY, "_ffi.Device"),
    "ffi.Module": ("_ffi.Module", "_ffi.Module"),
}
_DEFAULTS = {"bool": (bool,), "int": (int,), "float": (int, float), "ffi.String": (str,)}
_BUILTINS = frozenset(
    {"bool", "int", "float", "str", "bytes", "bytearray", "memoryview", "tuple", "list", "dict"}
)


def stub(name: str, functions: Iterable[Exported]) -> str:
    """The text of a stub file. Equal input gives equal text.

    Args:
        name: the name of the library.
        functions: its functions, in any order.

    Returns:
        Valid Python for type checkers. A function whose name is not valid in Python becomes a comment.
    """
    ordered = sorted(functions, key=lambda one: one.name)
    writer = _Writer({one.name for one in ordered})
    texts = [writer.function(one) for one in ordered]
    body = "\n".join(texts)
    head = _HEADER.format(name=_quoted(name).replace('"', "'"))
    if _ARRAY in body:
        head += _NUMPY
    if _SAME in body or _INPUT in body:
        head += _TENSORS
    return "\n".join([head, body]) if texts else head


class _Writer:
    """Writes functions. ``taken`` has the names that the file defines, which may hide builtin types."""

    def __init__(self, taken: set[str]) -> None:
        self._shadowed = taken & _BUILTINS

    def function(self, function: Exported) -> str:
        """The definition of one function, or one definition for each overload."""
        name = function.name
        if not name.isidentifier() or keyword.iskeyword(name):
            return f"# {name!r} is not a name in Python: use module[{name!r}]\n"
        if function.parameters is None:
            return self._define(name, "*args: " + _ANY, _ANY, documentation(function))
        document = documentation(function)
        variants = [self._variant(function, tensor) for tensor in _tensor_types(function)]
        if len(variants) == 1:
            return self._define(name, *variants[0], document)
        return "".join(
            "@_typing.overload\n" + self._define(name, *variant, document if last else "")
            for last, variant in zip((False, True), variants, strict=True)
        )

    def _define(self, name: str, parameters: str, result: str, document: str) -> str:
        head = f"def {name}({parameters}) -> {result}:"
        return f"{head}\n{_docstring(document)}" if document else f"{head} ...\n"

    def _variant(self, function: Exported, tensor: tuple[str, str]) -> tuple[str, str]:
        taken, given = tensor
        parameters = function.parameters or ()
        names = _names(parameters)
        texts = [
            f"{name}: {self._taken(one.type, taken)}{default}"
            for name, one, default in zip(
                names or _numbered(parameters), parameters, _defaults(parameters), strict=True
            )
        ]
        if parameters and names is None:
            texts.append("/")
        return ", ".join(texts), self._given(function.result, given)

    def _taken(self, type_: Type, tensor: str) -> str:
        """The annotation of a parameter of a type."""
        match type_.key, type_.args:
            case _ if type_.is_tensor:
                return tensor
            case ("ffi.Function", (result, *parameters)):
                arguments = ", ".join(self._given(one, "_ffi.Tensor") for one in parameters)
                return f"_abc.Callable[[{arguments}], {self._taken(result, _INPUT)}]"
            case ("ffi.Function", _):
                return f"_abc.Callable[..., {_ANY}]"
            case ("ffi.Array" | "ffi.List", args):
                return f"_abc.Sequence[{self._taken(args[0], tensor) if args else _ANY}]"
            case ("ffi.Map" | "ffi.Dict", args):
                return f"_abc.Mapping[{self._pair(args, lambda one: self._taken(one, tensor))}]"
        return self._either_way(type_, lambda one: self._taken(one, tensor), 0)

    def _given(self, type_: Type, tensor: str) -> str:
        """The annotation of a result of a type, as native/python/result.c converts it."""
        match type_.key, type_.args:
            case _ if type_.is_tensor:
                return tensor
            case ("ffi.Function", _):
                return "_ffi.Function"
            case ("ffi.Array", args):
                return f"{self._plain('tuple')}[{self._given(args[0], tensor) if args else _ANY}, ...]"
            case ("ffi.List", args):
                return f"{self._plain('list')}[{self._given(args[0], tensor) if args else _ANY}]"
            case ("ffi.Map" | "ffi.Dict", args):
                return f"{self._plain('dict')}[{self._pair(args, lambda one: self._given(one, tensor))}]"
        return self._either_way(type_, lambda one: self._given(one, tensor), 1)

    def _either_way(self, type_: Type, text: Callable[[Type], str], side: int) -> str:
        match type_.key, type_.args:
            case ("Optional", (inner,)):
                return _union([text(inner), "None"])
            case ("Variant", args) if args:
                return _union(map(text, args))
            case ("Tuple", args):
                items = ", ".join(map(text, args)) or "()"
                return f"{self._plain('tuple')}[{items}]"
        return self._plain(_PLAIN[type_.key][side]) if type_.key in _PLAIN else _ANY

    def _pair(self, args: Sequence[Type], text: Callable[[Type], str]) -> str:
        return ", ".join(map(text, args)) if len(args) == 2 else f"{_ANY}, {_ANY}"

    def _plain(self, text: str) -> str:
        """The text of a builtin type, even if a function of the library hides its name."""
        if not self._shadowed:
            return text
        words = text.replace("[", " [ ").replace("]", " ] ").split()
        said = " ".join(f"_builtins.{word}" if word in self._shadowed else word for word in words)
        return said.replace(" [ ", "[").replace(" ]", "]")


def documentation(function: Exported) -> str:
    """The docstring of a function: its text, its parameters, and the tensors that it returns."""
    parameters = function.parameters or ()
    names = _names(parameters) or _numbered(parameters)
    about = [f"    {name}: {one.doc}" for name, one in zip(names, parameters, strict=True) if one.doc]
    parts = [function.doc.strip()] if function.doc.strip() else []
    if about:
        parts.append("\n".join(["Args:", *about]))
    if function.signature is not None and function.signature.outputs:
        specs = [f"    {spec}" for spec in function.signature.outputs]
        parts.append("\n".join(["Returns:", *specs]))
    return "\n\n".join(parts)


def _tensor_types(function: Exported) -> list[tuple[str, str]]:
    """The annotations of tensors in the parameters and in the result: one pair for each overload."""
    if not function.result.holds_tensor():
        return [(_INPUT, _INPUT)]
    types = [one.type for one in function.parameters or ()]
    if not any(one.holds_tensor() for one in types):
        return [(_INPUT, "_ffi.Tensor")]
    if not any(one.holds_tensor() and one.key != "Optional" for one in types):
        return [(_INPUT, _ANY)]  # if all of them are None, nothing determines the type of the result
    return [(_ARRAY, _ARRAY), (_SAME, _SAME)]


def _names(parameters: Sequence[Parameter]) -> list[str] | None:
    """The names if all of them are valid in Python; otherwise None, and calls pass arguments by position."""
    names = [one.name for one in parameters if one.name and one.name.isidentifier()]
    good = len(set(names)) == len(parameters) and not any(map(keyword.iskeyword, names))
    return names if good else None


def _numbered(parameters: Sequence[Parameter]) -> list[str]:
    return [f"arg{i}" for i in range(1, len(parameters) + 1)]


def _defaults(parameters: Sequence[Parameter]) -> list[str]:
    """The defaults. Python allows a default only if all later parameters have one; others are left out."""
    last = max((i for i, one in enumerate(parameters) if not one.has_default), default=-1)
    return [_default(one) if i > last else "" for i, one in enumerate(parameters)]


def _default(parameter: Parameter) -> str:
    value, type_ = parameter.default, parameter.type
    if value is REQUIRED or value is ONLY_THE_KERNEL_KNOWS:
        return " = ..."
    if type_.key == "Optional":
        if value is None:
            return " = None"
        type_ = type_.args[0] if type_.args else type_
    fits = type(value) in _DEFAULTS.get(type_.key, ())
    finite = not isinstance(value, float) or math.isfinite(value)
    return f" = {value!r}" if fits and finite else " = ..."


def _union(texts: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(texts))


def _docstring(text: str) -> str:
    lines = re.sub(r'"(?="|\Z)', r"\"", _quoted(text)).split("\n")
    if len(lines) > 1:
        lines.append("")
    indented = "\n".join(f"    {line}".rstrip() if line else "" for line in lines[1:])
    if len(lines) == 1:
        return f'    """{lines[0]}"""\n'
    return f'    """{lines[0]}\n{indented}    """\n'


def _quoted(text: str) -> str:
    """The text, escaped for a Python string literal. Line breaks stay line breaks."""
    return "".join(
        "\\\\" if c == "\\" else c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in text
    )
