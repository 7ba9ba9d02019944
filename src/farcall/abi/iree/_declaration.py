"""Makes Signatures from declarations, which IREE's compiler writes for every function, for human readers:

    sync func @add(%lhs: tensor<4xf32>, %input1: tensor<?xf32>) -> (%output0: tensor<4xf32>)

A declaration has names and types, but no nesting.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from farcall.abi._leaves import ANY_DTYPE, DYNAMIC, Leaf, RefSpec, ScalarSpec, TensorSpec
from farcall.abi._signature import Signature
from farcall.abi.iree._lexer import LONGEST
from farcall.abi.iree._types import dtype_of
from farcall.errors import SignatureError

_VALUE = re.compile(r"%(?P<name>[^:]+): (?P<type>[^{]+?)(?P<attributes> \{.*\})?", re.DOTALL)
_DIMS = re.compile(r"((?:[0-9]+|\?)x)*")
_OUTPUT = "iree.abi.output"  # on an argument: the storage of a result


class _Value(NamedTuple):
    name: str
    type: str
    attributes: str


def read(declaration: str) -> Signature:
    """The Signature that a declaration describes.

    Raises:
        SignatureError: the text is not a declaration, the function is asynchronous, or a dtype is unknown.
    """
    start, inputs, outputs = _parts(declaration)
    if not start.startswith(("sync func @", "async func @")):
        raise SignatureError(f"not a declaration of a function: {declaration!r:.80}")
    if start.startswith("async"):
        raise SignatureError(
            "the function is asynchronous: it takes fences that no Signature supplies; "
            "call the synchronous function of that name (without `$async`)"
        )
    try:
        taken, given = (tuple(map(_leaf, _values(side))) for side in (inputs, outputs))
        return Signature(taken, given, wraps=True)
    except ValueError as error:
        raise SignatureError(f"the declaration {declaration!r:.80}: {error}") from None


def input_names(declaration: str) -> tuple[str, ...]:
    """The names of the arguments; empty if the text is not a declaration, or if names repeat."""
    try:
        names = tuple(value.name for value in _values(_parts(declaration)[1]))
    except ValueError:
        return ()
    return names if len(set(names)) == len(names) else ()


def _parts(declaration: str) -> tuple[str, str, str]:
    """The text before the arguments, the arguments, and the results; empty if it is not a declaration."""
    head, arrow, outputs = declaration[:LONGEST].rpartition(") -> (")
    start, parenthesis, inputs = head.partition("(")
    whole = arrow and parenthesis and outputs.endswith(")")
    return (start, inputs, outputs[:-1]) if whole else ("", "", "")


def _values(text: str) -> list[_Value]:
    values = []
    for part in _split(text):
        found = _VALUE.fullmatch(part)
        if found is None:
            raise ValueError(f"expected `%name: type` in a declaration, got {part!r:.60}")
        values.append(_Value(found["name"], found["type"], found["attributes"] or ""))
    return values


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth, start = list[str](), 0, 0
    for i, char in enumerate(text):
        depth += (char in "<{([") - (char in ">})]")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _leaf(value: _Value) -> Leaf:
    if value.type.startswith("tensor<") and value.type.endswith(">"):
        return _tensor(value)
    if value.type == "!hal.buffer_view":
        return TensorSpec(value.name, ANY_DTYPE, None)
    dtype = dtype_of(value.type)
    return ScalarSpec(value.name, dtype) if dtype else RefSpec(value.name, "any")


def _tensor(value: _Value) -> TensorSpec:
    inside = value.type[len("tensor<") : -1]
    if inside.startswith("*x"):
        shape, element = None, inside[2:]
    else:
        found = _DIMS.match(inside)
        assert found is not None  # noqa: S101 - it matches nothing, too
        dims, element = found[0].split("x")[:-1], inside[found.end() :]
        shape = tuple(DYNAMIC if dim == "?" else int(dim) for dim in dims)
    dtype = dtype_of(element)
    if dtype is None:
        raise ValueError(f"`{value.name}`: the type {value.type!r:.60} is not known")
    return TensorSpec(value.name, dtype, shape, access="out" if _OUTPUT in value.attributes else "in")
