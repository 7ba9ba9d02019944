"""Makes Signatures of kernels from the metadata of their libraries, in the schema of TVM FFI's headers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from farcall.abi._leaves import ANY_DTYPE, Access, Leaf, ListSpec, RefKind, RefSpec, ScalarSpec, TensorSpec
from farcall.abi._signature import Parameter, Signature
from farcall.abi._structure import Items, ItemsKind, Node, Nothing, Repeated, Slot
from farcall.errors import SignatureError

_OPTIONAL = ("Optional", "std::optional")
_TENSORS = ("DLTensor*", "ffi.Tensor")
_SCALARS = {"bool": "bool", "int": "int64", "float": "float64"}
_REFS: dict[str, RefKind] = {
    "ffi.String": "str",
    "ffi.Bytes": "bytes",
    "DataType": "dtype",
    "Device": "device",
    "ffi.Shape": "shape",
    "ffi.Function": "function",
    "std::function": "function",
    "ffi.Module": "module",
}
_REPEATED: dict[str, ItemsKind] = {"ffi.Array": "list", "ffi.List": "list", "std::vector": "list"}
_TUPLES = ("Tuple", "std::tuple")
_UNTYPED = ("Any", "Variant", "std::variant", "void*")
_MAPS = ("ffi.Map", "ffi.Dict", "std::map", "std::unordered_map")
_DEEPEST = 32


def from_metadata(metadata: str | Mapping[str, Any]) -> Signature:
    """See :meth:`farcall.abi.Signature.from_metadata`."""
    try:
        said = json.loads(metadata) if isinstance(metadata, str) else metadata
        schema = json.loads(said["type_schema"])
        result, types = _split(schema)
        known = said.get("parameters") or [{"read_only": True} for _ in types]
        inputs = [
            _leaf(_name(one, i), type_, writes=not one.get("read_only"))
            for i, (type_, one) in enumerate(zip(types, known, strict=True))
        ]
        outputs = [] if result["type"] == "None" else [_leaf("", result, writes=False)]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise SignatureError(f"metadata: it does not describe the parameters ({error!r:.200})") from None
    parameters = tuple(_parameter(_name(one, i), i, one) for i, one in enumerate(known))
    node: Node = Slot(0) if outputs else Nothing()
    return Signature(tuple(inputs), tuple(outputs), parameters, node)


def _split(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    """The result and the parameters. Older headers write them as one list that begins with the result."""
    if named := schema.get("named_args"):
        return named["return"][0], named["params"]
    return schema["args"][0], schema["args"][1:]


def _name(parameter: Mapping[str, Any], place: int) -> str:
    return str(parameter.get("name", f"arg{place}"))


def _parameter(name: str, slot: int, said: Mapping[str, Any]) -> Parameter:
    if said.get("optional"):
        raise SignatureError(f"metadata: parameter `{name}` has a default that only the kernel knows")
    default = said.get("default", msgspec.UNSET)
    kind = "positional_or_keyword" if "name" in said else "positional_only"
    return Parameter(name, Slot(slot), default, kind, str(said.get("doc", "")))  # type: ignore[arg-type]


def _leaf(name: str, schema: Mapping[str, Any], writes: bool, depth: int = 1) -> Leaf:
    if depth > _DEEPEST:
        raise ValueError(f"types nest deeper than {_DEEPEST} levels")
    key, args = str(schema["type"]), schema.get("args", [])
    if key in _OPTIONAL:
        inner = _leaf(name, args[0], writes, depth + 1) if args else RefSpec(name, "any")
        return msgspec.structs.replace(inner, optional=True)
    if key in _TENSORS:
        access: Access = "inout" if writes else "in"
        return TensorSpec(name, ANY_DTYPE, None, access, strided=True)
    if key in _SCALARS:
        return ScalarSpec(name, _SCALARS[key])
    if key in _TUPLES and args:
        items = tuple(_leaf("", one, writes, depth + 1) for one in args)
        return ListSpec(name, items, Items("tuple", tuple(map(Slot, range(len(items))))))
    if key in _REPEATED and args:
        return ListSpec(name, (_leaf("", args[0], writes, depth + 1),), Repeated(_REPEATED[key]))
    if key in (*_UNTYPED, *_MAPS, *_REPEATED, *_TUPLES):
        return RefSpec(name, "any")
    return RefSpec(name, _REFS.get(key, "object"))
