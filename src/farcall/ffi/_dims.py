"""Evaluates dims that are texts, such as ``(h - 1)//2 + 1``, with the sizes of their names.

farcall.graph.dims writes these texts in sympy's notation. Sizes are ints, or torch's symbolic ints, so that a
dynamic dim stays dynamic. A text may come from a file, so this module parses it and never executes it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import gcd
from typing import Any, NamedTuple

_LONGEST = 4096
LARGEST_POWER = 64  # sympy writes the n*n*... of a model as n**9, which must be readable
_MOST_BITS = 4096  # the largest power of a number, also when powers nest


class _Ratio(NamedTuple):
    """An exact quotient of ints or of torch's symbolic ints."""

    over: Any
    under: Any = 1

    def whole(self) -> Any:
        return self.over if _is_one(self.under) else self.over // self.under


def evaluate(text: str, sizes: Mapping[str, Any]) -> Any:
    """The value of a dim, given the sizes of its names.

    Raises:
        ValueError: the text is not a valid dim, or a name has no size.
    """
    try:
        return _value(parse(text), sizes).whole()
    except ZeroDivisionError:
        raise ValueError(f"the dim {text!r} divides by zero") from None
    except RecursionError:
        raise ValueError(f"the dim {text[:40]!r}... nests too deep") from None


def names(text: str) -> frozenset[str]:
    """The names that appear in a dim.

    Raises:
        ValueError: the text is not a valid expression.
    """
    return frozenset(node.id for node in ast.walk(parse(text)) if isinstance(node, ast.Name)) - _CALLS.keys()


@cache
def parse(text: str) -> ast.expr:
    """Parse a dim. The tree may contain nodes that :func:`evaluate` refuses.

    Raises:
        ValueError: the text is not a valid expression.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"a dim of {len(text)} characters: expected at most {_LONGEST}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
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
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if (
            0 <= power <= LARGEST_POWER
        ):
            base = _value(left, sizes)
            if isinstance(base.over, int) and base.over.bit_length() * power > _MOST_BITS:
                raise ValueError(f"a dim with a power of more than {_MOST_BITS} bits")
            return _Ratio(base.over**power, base.under**power)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _called(node, [_value(arg, sizes) for arg in args], _CALLS[name])
    raise ValueError(f"not part of a dim, or a name without a size: {ast.unparse(node)}")


def _called(node: ast.Call, values: Sequence[_Ratio], function: Callable[..., _Ratio]) -> _Ratio:
    try:
        return function(*values)
    except TypeError:
        raise ValueError(f"wrong number of arguments in a dim: {ast.unparse(node)}") from None


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def _ratio(over: Any, under: Any) -> _Ratio:
    """Reduce the quotient if both parts are known, so that symbols need few divisions."""
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
    choose = _chooser(values, largest)
    first, *rest = values
    for value in rest:  # compared over a common denominator; denominators of dims are positive
        over = choose(first.over * value.under, value.over * first.under)
        first = _ratio(over, first.under * value.under)
    return first


def _chooser(values: tuple[_Ratio, ...], largest: bool) -> Callable[[Any, Any], Any]:
    if all(isinstance(part, int) for value in values for part in value):
        return max if largest else min
    import torch

    chosen: Callable[[Any, Any], Any] = torch.sym_max if largest else torch.sym_min
    return chosen


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
