"""A library's description of one function, as a tree of types. Stubs and torch's schemas are made from it.

Calls need less, which ``_describe`` provides. The metadata has TVM FFI's ``type_schema``, and also
``parameters``, which farcall/kernel.hpp adds (include/farcall/cpp/export.hpp).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from farcall.ffi._describe import ONLY_THE_KERNEL_KNOWS, REQUIRED

if TYPE_CHECKING:
    from farcall._core import Module

TENSOR = "ffi.Tensor"
VIEW = "DLTensor*"

_SAME = {
    "std::optional": "Optional",
    "std::variant": "Variant",
    "std::function": "ffi.Function",
    "std::tuple": "Tuple",
    "std::vector": "ffi.Array",
    "std::array": "ffi.Array",
    "std::map": "ffi.Map",
    "std::unordered_map": "ffi.Map",
    "std::string": "ffi.String",
    "TensorView": VIEW,
}


class Type(NamedTuple):
    """A type: ``Optional`` of ``int`` is ``Type("Optional", (Type("int"),))``."""

    key: str
    args: tuple[Type, ...] = ()
    """The item types of a container; the result and parameter types of a function, empty if unknown."""

    @property
    def is_tensor(self) -> bool:
        return self.key in (TENSOR, VIEW)

    def holds_tensor(self) -> bool:
        """Whether this is a tensor or a container of tensors. Parameters of a callback do not count."""
        return self.is_tensor or (self.key != "ffi.Function" and any(one.holds_tensor() for one in self.args))


class Parameter(NamedTuple):
    """One parameter."""

    name: str | None
    """None: the parameter has no name, and calls pass it by position."""
    type: Type
    default: Any = REQUIRED
    """REQUIRED: there is no default. ONLY_THE_KERNEL_KNOWS: JSON cannot express the default."""
    read_only: bool = False
    """Whether the kernel certainly does not write to it."""
    doc: str = ""

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED


class Exported(NamedTuple):
    """A function, with the description by its library."""

    name: str
    parameters: tuple[Parameter, ...] | None = None
    """None: unknown."""
    result: Type = Type("Any")
    doc: str = ""
    signature: Any = None
    """The Signature of an artifact's function."""
    shape_like: str = ""
    """The parameter that has the shape, dtype and device of the result; empty if unknown."""


def read(name: str, metadata: Mapping[str, Any] | None, doc: str | None, signature: Any = None) -> Exported:
    """Read the description of a function. As for calls, metadata that cannot be understood is ignored.

    Args:
        name: the name of the function.
        metadata: the metadata that its library exports, read from JSON.
        doc: its documentation.
        signature: a farcall.abi.Signature, which overrides the metadata.
    """
    if hasattr(signature, "inputs"):
        return _of_signature(name, doc or "", signature)
    if metadata:
        try:
            return _of_metadata(name, doc or "", metadata)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            pass
    return Exported(name, doc=doc or "")


def read_module(module: Module) -> list[Exported]:
    """The descriptions of all functions of a loaded module."""
    return [
        read(
            name,
            module.get_function_metadata(name),
            module.get_function_doc(name),
            module[name].signature,
        )
        for name in module.function_names()
    ]


def _of_signature(name: str, doc: str, signature: Any) -> Exported:
    parameters = tuple(
        Parameter(spec.name, Type(TENSOR), read_only=True, doc=spec.type) for spec in signature.inputs
    )
    results = (Type(TENSOR),) * len(signature.outputs)
    result = results[0] if len(results) == 1 else Type("Tuple", results)
    return Exported(name, parameters, result, doc, signature)


def _of_metadata(name: str, doc: str, metadata: Mapping[str, Any]) -> Exported:
    schema = _type(json.loads(metadata["type_schema"]))
    if not schema.args:
        return Exported(name, doc=doc)
    result, *types = schema.args
    known = metadata.get("parameters") or [{} for _ in types]
    named = metadata.get("named", all("name" in one for one in known))
    parameters = [_parameter(one, type_, named) for one, type_ in zip(known, types, strict=True)]
    return Exported(name, tuple(parameters), result, doc, shape_like=str(metadata.get("shape_like", "")))


def _parameter(known: Mapping[str, Any], type_: Type, named: bool) -> Parameter:
    default = ONLY_THE_KERNEL_KNOWS if known.get("optional") else known.get("default", REQUIRED)
    name = str(known["name"]) if named else None
    return Parameter(name, type_, default, bool(known.get("read_only")), str(known.get("doc", "")))


def _type(schema: Mapping[str, Any]) -> Type:
    """Functions have ``named_args``; older headers write a list that begins with the result."""
    key = str(schema["type"])
    if named := schema.get("named_args"):
        args = [named["return"][0], *named["params"]]
    else:
        args = schema.get("args") or []
    return Type(_SAME.get(key, key), tuple(map(_type, args)))
