"""What a library says of one function, as a tree of types: what stubs and torch's schemas are made from.

The calls themselves need less, and get it from ``_describe``. Rules of the metadata: TVM FFI's
``type_schema``, and beside it ``parameters``, which farcall/kernel.hpp adds (include/farcall/cpp/export.hpp).
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
    """Of a container its items; of a function its result and its parameters, or nothing where nobody says."""

    @property
    def is_tensor(self) -> bool:
        return self.key in (TENSOR, VIEW)

    def holds_tensor(self) -> bool:
        """Whether it is a tensor, or a container of some. What a callback takes does not count."""
        return self.is_tensor or (self.key != "ffi.Function" and any(one.holds_tensor() for one in self.args))


class Parameter(NamedTuple):
    """One parameter."""

    name: str | None
    """None: it has none, and is passed by position."""
    type: Type
    default: Any = REQUIRED
    """REQUIRED and ONLY_THE_KERNEL_KNOWS stand for none, and for one without a form in JSON."""
    read_only: bool = False
    """Whether it is certain that the kernel does not write into it."""
    doc: str = ""

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED


class Exported(NamedTuple):
    """A function, and what its library says of it."""

    name: str
    parameters: tuple[Parameter, ...] | None = None
    """None: nobody says."""
    result: Type = Type("Any")
    doc: str = ""
    signature: Any = None
    """Its Signature, of a function of an artifact."""
    shape_like: str = ""
    """The parameter whose shape, dtype and device the result has; empty where nobody says."""


def read(name: str, metadata: Mapping[str, Any] | None, doc: str | None, signature: Any = None) -> Exported:
    """What is known of a function; what is not understood counts as not said, as for calls.

    Args:
        name: of the function.
        metadata: what its library exports beside it, read from JSON.
        doc: its documentation.
        signature: a farcall.abi.Signature; it goes before the metadata.
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
    """All functions of a loaded module, by name."""
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
    """Functions come with ``named_args``, and of older headers as a list that begins with the result."""
    key = str(schema["type"])
    if named := schema.get("named_args"):
        args = [named["return"][0], *named["params"]]
    else:
        args = schema.get("args") or []
    return Type(_SAME.get(key, key), tuple(map(_type, args)))
