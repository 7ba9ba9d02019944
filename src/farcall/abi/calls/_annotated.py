"""Annotated Python functions as Functions: called with raw arguments, as native code calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from farcall._core import Function, convert
from farcall.abi._signature import Parameter, Signature
from farcall.abi._structure import Items
from farcall.abi.calls._function_abi import FunctionAbi
from farcall.errors import ArgumentError, ResultError


def annotated(function: Callable[..., Any]) -> Function:
    """A Function with the Signature of a Python function's annotations; usable as a decorator.

    Whoever calls it, also from native code or another machine, gives raw arguments; the Python function gets
    them as it is annotated, nested and with arrays of numpy that share their memory, and its result goes back
    by its annotation. Both are checked: an ArgumentError names what is wrong with the arguments, and a
    ResultError what is wrong with what it returned.

    Raises:
        SignatureError: an annotation is missing, or says nothing of what is passed.

    >>> @annotated
    ... def norm(points: list[fc.Array["float32", 3]], *, scale: float = 1.0) -> float: ...
    """
    signature = Signature.from_callable(function)
    callee = FunctionAbi(_mirrored(signature))
    name = getattr(function, "__name__", "function")

    def raw(*values: Any) -> Any:
        result = _called(function, signature.parameters, _arguments(callee, signature, values, name))
        try:
            flat = callee.pack_inputs(result)
        except ArgumentError as error:
            raise ResultError([problem.removeprefix("argument ") for problem in error.problems]) from None
        return flat[0] if len(flat) == 1 else flat or None

    made: Function = convert(raw)
    made.signature = signature
    return made


def _mirrored(signature: Signature) -> Signature:
    """The Signature of the other side: results are packed there, and arguments unpacked."""
    arguments = Items("tuple", tuple(one.node for one in signature.parameters))
    return Signature(
        signature.outputs, signature.inputs, (Parameter("result", signature.result_node),), arguments
    )


def _arguments(callee: FunctionAbi, signature: Signature, values: Sequence[Any], name: str) -> Sequence[Any]:
    """One value a parameter. For the mirrored Signature they are results; for who called, arguments."""
    if len(values) != len(signature.inputs):
        raise ArgumentError(
            f"`{name}` takes {len(signature.inputs)} raw arguments, of {signature}; got {len(values)}"
        )
    try:
        given: Sequence[Any] = callee.unpack_results(values)
    except ResultError as error:
        wrong = [problem.removeprefix("result ") for problem in error.problems]
        raise ArgumentError([f"`{name}`: argument {problem}" for problem in wrong]) from None
    return given


def _called(function: Callable[..., Any], parameters: Sequence[Parameter], values: Sequence[Any]) -> Any:
    """Call it with one value a parameter, each in the way in which that goes."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for one, value in zip(parameters, values, strict=True):
        if one.kind == "keyword_only":
            kwargs[one.name] = value
        elif one.kind == "var_positional":
            args += value
        else:
            args.append(value)
    return function(*args, **kwargs)
