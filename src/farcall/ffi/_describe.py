"""Descriptions of functions for the core. native/python/params.c asks for them once for each Function.

A description comes from the metadata that a library exports beside a function, or from a Signature. Metadata
has the schema of TVM FFI's C++ headers, and the key ``parameters``, which farcall/kernel.hpp adds for names
and defaults.
"""

from __future__ import annotations

import json
import keyword
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import inspect

REQUIRED = Ellipsis
"""Stands for a missing default: the parameter is required."""
ONLY_THE_KERNEL_KNOWS = NotImplemented
"""Stands for a default that JSON cannot express. A call may leave the parameter out at its end."""

_ALL = 2**64 - 1
_TEXTS = {
    "None": "None",
    "bool": "bool",
    "int": "int",
    "float": "float",
    "void*": "c_void_p",
    "DataType": "dtype",
    "Device": "Device",
    "DLTensor*": "Tensor",
    "ffi.Tensor": "Tensor",
    "ffi.String": "str",
    "ffi.Bytes": "bytes",
    "ffi.Shape": "Shape",
    "Any": "Any",
}
_CONTAINERS = {
    "ffi.Array": "Sequence",
    "ffi.List": "list",
    "ffi.Map": "Mapping",
    "ffi.Dict": "dict",
    "Tuple": "tuple",
    "std::vector": "Sequence",
    "std::map": "Mapping",
    "std::unordered_map": "Mapping",
    "std::tuple": "tuple",
}


class Description(NamedTuple):
    """The parameters of a function. The core relies on the order of these fields (``FC_PARAM_*``)."""

    names: tuple[str, ...] | None
    """None: the parameters have no names, so calls pass them by position."""
    defaults: tuple[Any, ...]
    types: tuple[str, ...]
    views: int
    """Bit i: parameter i borrows its tensor. Bit 63 stands for all later parameters, too."""
    writes: int
    text: str
    """``name(x: Tensor, by: float = 2.0) -> Tensor``"""
    result: str
    docs: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    """As inspect names them, in lower case; empty: by position, or by name if they have one."""


def describe(name: str, metadata: str | None, signature: Any) -> Description | None:
    """Describe the arguments and the result of a function; None if it has no description.

    Args:
        name: the name of the function.
        metadata: the metadata that its library exports; metadata that cannot be understood is ignored.
        signature: the Signature that is attached to it, which overrides the metadata.
    """
    exported = _read_metadata(name, metadata) if metadata else None
    return _of_signature(name, signature, exported) if signature is not None else exported


def _read_metadata(name: str, metadata: str) -> Description | None:
    try:
        return _of_metadata(name, metadata)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None


def signature(description: Description | None) -> inspect.Signature | None:
    """The result of ``inspect.signature`` for the function."""
    import inspect

    if description is None:
        return None
    plain = _plain_names(len(description.types))
    names = [
        name if _is_shown(name) else other
        for name, other in zip(description.names or plain, plain, strict=True)
    ]
    kinds = description.kinds or ["positional_or_keyword"] * len(names)
    named = [description.names is not None and name in description.names for name in names]
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            name,
            _kind(kind, all(named[i:])),
            default=empty if value is REQUIRED else value,
            annotation=annotation,
        )
        for i, (name, kind, value, annotation) in enumerate(
            zip(names, kinds, description.defaults, description.types, strict=True)
        )
    ]
    return inspect.Signature(parameters, return_annotation=description.result)


def _is_shown(name: str) -> bool:
    """Whether the name can be a keyword in a Python call."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _kind(kind: str, named: bool) -> Any:
    """Parameters up to the last one whose name Python cannot express must be positional-only."""
    import inspect

    shown = "positional_only" if kind.startswith("positional") and not named else kind
    return inspect._ParameterKind[shown.upper()]


def document(description: Description | None, text: str | None) -> str | None:
    """The docstring of the function: the library's text, and the description of each parameter."""
    documented = (
        [
            f"    {name}: {doc}"
            for name, doc in zip(description.names or (), description.docs, strict=False)
            if doc
        ]
        if description
        else []
    )
    parts = [text] if text else []
    if documented:
        parts.append("\n".join(["Args:", *documented]))
    return "\n\n".join(parts) or (description.text if description else None)


def _plain_names(count: int) -> tuple[str, ...]:
    return tuple(f"arg{i}" for i in range(1, count + 1))


def _of_signature(name: str, signature: Any, exported: Description | None) -> Description:
    """Describe a function with a Signature. Without metadata, it borrows its tensors, as artifacts do."""
    parameters = signature.parameters
    same = exported is not None and len(exported.types) == len(signature.inputs)
    return Description(
        names=_interned(one.name for one in parameters),
        defaults=tuple(one.default if one.has_default else REQUIRED for one in parameters),
        types=tuple(map(signature.parameter_type, parameters)),
        views=exported.views if exported is not None and same else _ALL,
        writes=exported.writes if exported is not None and same else 0,
        text=f"{name}{signature}",
        result=signature.result_text,
        docs=tuple(one.doc for one in parameters),
        kinds=tuple(one.kind for one in parameters),
    )


def _of_metadata(name: str, text: str) -> Description | None:
    metadata = json.loads(text)
    schema = json.loads(metadata["type_schema"])
    result, params = _split(schema)
    if params is None:
        return None
    known = metadata.get("parameters") or [{} for _ in params]
    named = bool(metadata.get("named", all("name" in one for one in known))) and len(known) == len(params)
    names = [one.get("name", plain) for one, plain in zip(known, _plain_names(len(params)), strict=True)]
    types = tuple(map(type_text, params))
    defaults = tuple(map(_default, known))
    shown = ", ".join(map(_shown, names, types, defaults))
    writes = [
        _is_tensor(param) and not one.get("read_only") for param, one in zip(params, known, strict=True)
    ]
    return Description(
        names=_interned(names) if named else None,
        defaults=defaults,
        types=types,
        views=_bits([_is_view(param) for param in params]),
        writes=_bits(writes) if "parameters" in metadata else 0,
        text=f"{name}({shown}) -> {type_text(result)}",
        result=type_text(result),
        docs=tuple(one.get("doc", "") for one in known),
    )


def _split(schema: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
    """The result and the parameters. Older headers write them as one list that begins with the result."""
    if named := schema.get("named_args"):
        return named["return"][0], named.get("params")
    if args := schema.get("args"):
        return args[0], args[1:]
    return {"type": "Any"}, None


def type_text(schema: dict[str, Any]) -> str:
    """A type in Python's syntax: ``{"type": "Optional", "args": [{"type": "int"}]}`` is ``int | None``."""
    key, args = schema["type"], schema.get("args", [])
    if key in ("Optional", "std::optional"):
        return f"{type_text(args[0])} | None" if args else "Any"
    if key in ("Variant", "std::variant"):
        return " | ".join(dict.fromkeys(map(type_text, args))) or "Any"
    if key in ("ffi.Function", "std::function"):
        result, params = _split(schema)
        return "Callable" if params is None else f"Callable[[{_joined(params)}], {type_text(result)}]"
    if key in _CONTAINERS:
        return f"{_CONTAINERS[key]}[{_joined(args)}]" if args else _CONTAINERS[key]
    return _TEXTS.get(key) or key.rsplit(".", 1)[-1]


def _joined(schemas: Sequence[dict[str, Any]]) -> str:
    return ", ".join(map(type_text, schemas))


def _is_view(schema: dict[str, Any]) -> bool:
    if schema["type"] in ("Optional", "std::optional"):
        return any(map(_is_view, schema.get("args", [])))
    return bool(schema["type"] == "DLTensor*")


def _is_tensor(schema: dict[str, Any]) -> bool:
    if schema["type"] in ("Optional", "std::optional"):
        return any(map(_is_tensor, schema.get("args", [])))
    return schema["type"] in ("DLTensor*", "ffi.Tensor")


def _bits(flags: Sequence[bool]) -> int:
    bits = sum(1 << i for i, flag in enumerate(flags[:63]) if flag)
    return bits | (1 << 63 if len(flags) > 63 and all(flags[63:]) else 0)


def _default(parameter: dict[str, Any]) -> Any:
    if parameter.get("optional"):
        return ONLY_THE_KERNEL_KNOWS
    return parameter.get("default", REQUIRED)


def _shown(name: str, annotation: str, default: Any) -> str:
    if default is REQUIRED:
        return f"{name}: {annotation}"
    return f"{name}: {annotation} = {'...' if default is ONLY_THE_KERNEL_KNOWS else repr(default)}"


def _interned(names: Any) -> tuple[str, ...]:
    return tuple(map(sys.intern, names))
