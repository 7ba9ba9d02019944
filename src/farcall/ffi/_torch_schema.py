"""Writes the schema of a torch operator, from the description of a function.

Source: the schema language of torch's native_functions.yaml, as far as torch.library accepts it (2.13).
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from farcall.ffi._describe import ONLY_THE_KERNEL_KNOWS, REQUIRED
from farcall.ffi._exported import Exported, Parameter, Type
from farcall.ffi._torch_fakes import torch_device, torch_dtype

_SCALARS = {
    "bool": "bool",
    "int": "SymInt",
    "float": "float",
    "ffi.String": "str",
    "DataType": "ScalarType",
    "Device": "Device",
    "ffi.Shape": "SymInt[]",
}
_RESULTS = {"bool": "bool", "int": "SymInt", "float": "float"}


class Fill(NamedTuple):
    """A default that torch's schemas cannot express: the schema has None, and the call fills in the value."""

    place: int
    value: Any


class Operator(NamedTuple):
    """An operator to register."""

    function: Exported
    schema: str
    written: tuple[int, ...]
    fills: tuple[Fill, ...]


class NoSchemaError(TypeError):
    """torch has no type for a parameter or the result."""


def operator_of(function: Exported, mutates: Sequence[str | int] | None = None) -> Operator:
    """The operator for a function.

    Args:
        function: the description of the function.
        mutates: the parameters that it writes; default: all tensors that are not marked as read-only.

    Raises:
        NoSchemaError: torch's schemas cannot express the function; the message has the reason.
        ValueError: ``mutates`` names something other than a tensor parameter.
    """
    if function.parameters is None:
        raise NoSchemaError("its library has no metadata for it")
    if not function.name.isidentifier() or keyword.iskeyword(function.name):
        raise NoSchemaError("its name is not an identifier")
    parameters = function.parameters
    names = schema_names(parameters)
    written = _written(function, names, mutates)
    last = max((i for i, one in enumerate(parameters) if not _can_default(one)), default=-1)
    texts, fills = [], []
    for i, (name, one) in enumerate(zip(names, parameters, strict=True)):
        type_ = _parameter_type(one, f"(a{i}!)" if i in written else "")
        default = _default_text(one) if i > last else ""
        if default is None:
            fills.append(Fill(i, _for_torch(one)))
            type_, default = f"{type_.removesuffix('?')}?", "None"
        texts.append(f"{type_} {name}={default}" if default else f"{type_} {name}")
    schema = f"{function.name}({', '.join(texts)}) -> {result_type(function.result)}"
    return Operator(function, schema, written, tuple(fills))


def schema_names(parameters: Sequence[Parameter]) -> list[str]:
    """Valid names for a schema: the parameters' names, made identifiers, or ``arg1, arg2, ...``."""
    names = [_identifier(one.name or "") for one in parameters]
    if not all(names) or len(set(names)) != len(names):
        return [f"arg{i}" for i in range(1, len(parameters) + 1)]
    return names


def _identifier(name: str) -> str:
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    if clean[:1].isdigit():
        clean = f"_{clean}"
    return f"{clean}_" if keyword.iskeyword(clean) else clean


def _written(function: Exported, names: list[str], mutates: Sequence[str | int] | None) -> tuple[int, ...]:
    parameters = function.parameters or ()
    if mutates is None:
        return tuple(i for i, one in enumerate(parameters) if one.type.holds_tensor() and not one.read_only)
    given = [one.name for one in parameters]
    found = []
    for which in mutates:
        known = given if which in given else names
        index = which if isinstance(which, int) else known.index(which) if which in known else -1
        if not (0 <= index < len(parameters) and parameters[index].type.holds_tensor()):
            raise ValueError(
                f"as_torch_op: `mutates` names {which!r}, which is not a tensor parameter of "
                f"`{function.name}`; it has `{'`, `'.join(names)}`"
            )
        found.append(index)
    return tuple(sorted(set(found)))


def _parameter_type(parameter: Parameter, alias: str) -> str:
    text = _type_text(parameter.type, alias)
    if text is None:
        shown = f"`{parameter.name}`" if parameter.name else "a parameter"
        raise NoSchemaError(f"{shown} is of type {parameter.type.key}, which torch's schemas do not have")
    return text


def _type_text(type_: Type, alias: str) -> str | None:
    match type_.key, type_.args:
        case _ if type_.is_tensor:
            return f"Tensor{alias}"
        case ("Optional", (inner,)):
            text = _type_text(inner, alias)
            return f"{text}?" if text and not text.endswith("?") else None
        case ("ffi.Array" | "ffi.List", (item,)):
            text = _type_text(item, alias)
            return f"{text}[]" if text == "Tensor?" or (text and text[-1] not in "?]") else None
    return _SCALARS.get(type_.key)


def result_type(result: Type) -> str:
    if result.key == "None":
        return "()"
    if (text := _one_result(result)) is not None:
        return text
    if result.key in ("ffi.Array", "ffi.List") and [one.is_tensor for one in result.args] == [True]:
        return "Tensor[]"
    if result.key == "Tuple" and (len(result.args) > 1 or not result.args):
        texts = [_one_result(one) for one in result.args]
        if None not in texts:
            return f"({', '.join(map(str, texts))})"
    raise NoSchemaError(f"its result is of type {result.key}, which torch's schemas do not have")


def _one_result(result: Type) -> str | None:
    return "Tensor" if result.is_tensor else _RESULTS.get(result.key)


def _can_default(parameter: Parameter) -> bool:
    """Whether a caller of the operator can leave the parameter out: torch must know the default."""
    return parameter.default is not REQUIRED and parameter.default is not ONLY_THE_KERNEL_KNOWS


def _default_text(parameter: Parameter) -> str | None:
    """The default in the syntax of schemas; None if a schema cannot express it."""
    value, key = parameter.default, parameter.type.key
    if key == "Optional":
        if value is None:
            return "None"
        key = parameter.type.args[0].key
    if key == "ffi.String" and isinstance(value, str) and value.isascii() and value.isprintable():
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if key == "bool" and isinstance(value, bool | int):
        return str(bool(value))
    if key == "int" and isinstance(value, int):
        return str(int(value))
    if key == "float" and isinstance(value, int | float) and math.isfinite(value):
        return repr(float(value))
    return None


def _for_torch(parameter: Parameter) -> Any:
    """A default that a schema cannot express, as a value that torch's callers would pass."""
    value = parameter.default
    if parameter.type.key == "DataType" and isinstance(value, str):
        return torch_dtype(value, value)
    if parameter.type.key == "Device" and isinstance(value, str):
        return torch_device(value)
    return value
