"""Fake implementations: which shapes a function gives, for torch.compile and torch.export to go by.

A Signature says it by itself: its result dims are expressions over the names of its input dims. They are
worked out on torch's sizes, ints or symbols, so that a dynamic dim stays one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from math import gcd
from typing import Any, NamedTuple

Fake = Callable[..., Any]


def nothing(*args: Any) -> None:
    """The fake of a function that gives nothing: what it writes into has its shape already."""


def no_rule(qualname: str, name: str, result: str) -> Fake:
    """The fake of a function whose results nobody describes: it says what to do."""

    def fake(*args: Any) -> Any:
        raise RuntimeError(
            f"`{qualname}` returns {result}, and nothing says of which shape or value, which torch.compile "
            f"and torch.export must know before it runs; pass as_torch_op(..., fake={{{name!r}: f}}), where "
            "f takes the arguments and gives what the results are like: lambda x, *_: torch.empty_like(x)"
        )

    return fake


def of_signature(name: str, signature: Any) -> Fake:
    """The fake of an artifact's function: it checks arguments, as that does, and makes results."""
    inputs, outputs = tuple(signature.inputs), tuple(signature.outputs)

    def fake(*args: Any) -> Any:
        sizes: dict[str, Any] = {}
        for i, (spec, x) in enumerate(zip(inputs, args, strict=True)):
            _check(f"argument {i + 1} `{spec.name}` of `{name}`", spec, x, sizes)
        device = args[0].device if args else "cpu"
        results = [_empty(spec, sizes, device) for spec in outputs]
        return results[0] if len(results) == 1 else tuple(results)

    return fake


def torch_dtype(name: str, default: Any = None) -> Any:
    """torch's dtype of that name.

    Raises:
        TypeError: there is none, and no default.
    """
    import torch

    dtype = getattr(torch, name, None)
    if isinstance(dtype, torch.dtype):
        return dtype
    if default is None:
        raise TypeError(f"torch has no dtype `{name}`")
    return default


def torch_device(name: str) -> Any:
    """torch's device of that name, or the name where torch has none; its CPU has no number."""
    import torch

    try:
        return torch.device("cpu" if name == "cpu:0" else name)
    except RuntimeError:
        return name


def _empty(spec: Any, sizes: Mapping[str, Any], device: Any) -> Any:
    import torch

    shape = [dim if isinstance(dim, int) else evaluate(dim, sizes) for dim in spec.shape]
    return torch.empty(shape, dtype=torch_dtype(spec.dtype), device=device)


def _check(where: str, spec: Any, x: Any, sizes: dict[str, Any]) -> None:
    got = f"expected {spec.type}, got {str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
    if x.dtype != torch_dtype(spec.dtype):
        raise TypeError(f"{where}: {got}; convert it by .to(torch.{spec.dtype})")
    if x.ndim != len(spec.shape):
        raise ValueError(f"{where}: {got}; reshape it to rank {len(spec.shape)}")
    for axis, (dim, size) in enumerate(zip(spec.shape, x.shape, strict=True)):
        wanted = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
        if size != wanted:
            raise ValueError(f"{where}: {got}; axis {axis} must be {wanted}")


# ---- dims: farcall.graph.dims writes them, in sympy's notation


class _Ratio(NamedTuple):
    """A quotient that is exact; its parts are ints or torch's symbolic ints."""

    over: Any
    under: Any = 1

    def whole(self) -> Any:
        return self.over if _is_one(self.under) else self.over // self.under


def evaluate(text: str, sizes: Mapping[str, Any]) -> Any:
    """What a dim is under the sizes of its names.

    Raises:
        ValueError: the text is no dim, or has a name without a size.
    """
    return _value(_parse(text), sizes).whole()


@cache
def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"not a dim: {text!r}") from None


def _value(node: ast.expr, sizes: Mapping[str, Any]) -> _Ratio:
    match node:
        case ast.Constant(value=int() as number):
            return _Ratio(number)
        case ast.Name(id=name) if name in sizes:
            return _Ratio(sizes[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, sizes)
            return _Ratio(-value.over, value.under)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if power >= 0:
            base = _value(left, sizes)
            return _Ratio(base.over**power, base.under**power)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_value(arg, sizes) for arg in args))
    raise ValueError(f"not part of a dim, or a name without a size: {ast.unparse(node)}")


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def _ratio(over: Any, under: Any) -> _Ratio:
    """In lowest terms where both are known, so that symbols meet few divisions."""
    if isinstance(over, int) and isinstance(under, int) and (common := gcd(over, under)):
        return _Ratio(over // common, under // common)
    return _Ratio(over, under)


def _add(a: _Ratio, b: _Ratio) -> _Ratio:
    if isinstance(a.under, int) and a.under == b.under:
        return _ratio(a.over + b.over, a.under)
    return _ratio(a.over * b.under + b.over * a.under, a.under * b.under)


def _subtract(a: _Ratio, b: _Ratio) -> _Ratio:
    return _add(a, _Ratio(-b.over, b.under))


def _multiply(a: _Ratio, b: _Ratio) -> _Ratio:
    return _ratio(a.over * b.over, a.under * b.under)


def _divide(a: _Ratio, b: _Ratio) -> _Ratio:
    return _ratio(a.over * b.under, a.under * b.over)


def _floor(a: _Ratio) -> _Ratio:
    return _Ratio(a.whole())


def _ceiling(a: _Ratio) -> _Ratio:
    return _Ratio(-_Ratio(-a.over, a.under).whole())


def _floor_divide(a: _Ratio, b: _Ratio) -> _Ratio:
    return _floor(_divide(a, b))


def _modulo(a: _Ratio, b: _Ratio) -> _Ratio:
    return _subtract(a, _multiply(b, _floor_divide(a, b)))


def _extreme(*values: _Ratio, largest: bool) -> _Ratio:
    import torch

    choose: Any = torch.sym_max if largest else torch.sym_min
    first, *rest = values
    for value in rest:  # over one denominator; those of dims are positive
        over = choose(first.over * value.under, value.over * first.under)
        first = _ratio(over, first.under * value.under)
    return first


def _largest(*values: _Ratio) -> _Ratio:
    return _extreme(*values, largest=True)


def _smallest(*values: _Ratio) -> _Ratio:
    return _extreme(*values, largest=False)


_BINARY: dict[type[ast.operator], Callable[[_Ratio, _Ratio], _Ratio]] = {
    ast.Add: _add,
    ast.Sub: _subtract,
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
}
_CALLS: dict[str, Callable[..., _Ratio]] = {
    "floor": _floor,
    "ceiling": _ceiling,
    "Max": _largest,
    "max": _largest,
    "Min": _smallest,
    "min": _smallest,
    "Mod": _modulo,
    "mod": _modulo,
}
