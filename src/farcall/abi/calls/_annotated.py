"""Turns annotated Python functions into Functions, which native code calls with raw arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from farcall._core import Function, convert
from farcall.abi._signature import Parameter, Signature
from farcall.abi._structure import Items
from farcall.abi.calls._function_abi import FunctionAbi
from farcall.errors import ArgumentError, ResultError


def annotated(function: Callable[..., Any]) -> Function:
    """Make a Function with the Signature of a Python function's annotations; usable as a decorator.

    Callers, also in native code or on another machine, pass raw arguments. The Python function gets them as
    its annotations describe: nested, and with numpy arrays that share their memory. Its result is converted
    by its annotation. An ArgumentError lists the problems of the arguments, and a ResultError those of the
    result.

    Raises:
        SignatureError: an annotation is missing, or does not describe a value.

    >>> @annotated
    ... def norm(points: list[Annotated[np.ndarray, "float32[3]"]], *, scale: float = 1.0) -> float: ...
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
    """The mirrored Signature: arguments and results change places, so that results are packed."""
    arguments = Items("tuple", tuple(one.node for one in signature.parameters))
    return Signature(
        signature.outputs, signature.inputs, (Parameter("result", signature.result_node),), arguments
    )


def _arguments(callee: FunctionAbi, signature: Signature, values: Sequence[Any], name: str) -> Sequence[Any]:
    """One value for each parameter. The mirrored Signature calls them results; the caller, arguments."""
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
    """Call the function with one value for each parameter, by position or by keyword as its kind demands."""
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
