"""Dims: an int, or a sympy expression over named, integer, non-negative symbols.

Static and symbolic models share one shape model; in a static model every expression folds to an int. A value
keeps its dims in ``value.shape``, as onnx-ir does: each is an int or the text of an expression, so that they
survive a save. :func:`dims` reads them back.

After :func:`farcall.graph.load_model`:

* every dim of a graph input is an int or a plain symbol;
* every other known dim is an int or an expression over those symbols, made of ``+ - * // %``, ``floor``,
  ``Min`` and ``Max``;
* a dim that is not the int 1 is never broadcast, but by Expand: if another operator needs two dims to be
  equal, they are the same expression, or the pair is one of the model's constraints, which the entry checks.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, reduce
from itertools import combinations, islice
from math import prod
from typing import Any, TypeAlias, TypeGuard

import onnx_ir as ir
import sympy

from farcall.errors import ModelError
from farcall.ffi._dims import LARGEST_POWER
from farcall.graph._numeric import value_of

__all__ = [
    "Dim",
    "UnknownShapeError",
    "broadcast",
    "ceildiv",
    "dims",
    "dtype_name",
    "evaluate",
    "factor",
    "floordiv",
    "fold",
    "identifier",
    "is_identifier",
    "is_large",
    "late",
    "maximum",
    "minimum",
    "parse",
    "product",
    "same",
    "set_dims",
    "settled",
    "shape_of",
    "symbol",
    "symbols",
    "text",
    "try_dims",
    "without_common_factors",
]
__dir__ = __all__.copy

Dim: TypeAlias = "int | sympy.Expr"


class UnknownShapeError(ModelError):
    """The shape of a value is not known when the model is compiled. Declare it in the model.

    Name the dims of the graph's inputs, or add the value's shape to the model's ``value_info``.
    """


@cache
def symbol(name: str) -> sympy.Symbol:
    """The dim called ``name``: an integer >= 0, the same object for the same name."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


def fold(value: Dim) -> Dim:
    """``value`` as an int if it is a number, else unchanged."""
    if isinstance(value, int):
        return value
    return int(value) if value.is_Integer else value


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a tensor with these dims (1 for a scalar)."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return fold(total)


def factor(dim: Dim) -> int:
    """The number in ``dim``, a product of dims: its size with a batch of one."""
    return dim if isinstance(dim, int) else int(dim.as_coeff_Mul()[0])


def floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b``, rounding down, as an int or an expression.

    Equal quotients get equal forms: a constant in ``a`` ends up in ``0 .. b - 1``, so ``(h - 1)//2 + 1`` is
    ``floor(h/2 + 1/2)``. That also keeps most numerators from being negative, for which C rounds up.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if not isinstance(b, int):
        a, b = without_common_factors(a, b)
        if b == 1:
            return a
    whole: Dim = 0
    if isinstance(b, int) and not isinstance(a, int):
        constant, rest = a.as_coeff_Add()
        if constant.is_Integer:
            whole, left = divmod(int(constant), b)
            a = rest + left
    return fold(sympy.floor(sympy.sympify(a) / sympy.sympify(b)) + whole)


def without_common_factors(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """``a`` and ``b`` divided by their common factors: 32*n*s and 224*n give s and 7.

    Both stay without fractions, since a call rounds what it divides. They stay as they are if one is 0, if
    nothing but numbers would be left of a ``b`` that may be 0, or if they are large.
    """
    ratio = sympy.sympify(a) / sympy.sympify(b) if a != 0 and b != 0 else sympy.Integer(0)
    if ratio.is_number or _expanded_terms(sympy.sympify(a)) * _expanded_terms(sympy.sympify(b)) > _MOST_TERMS:
        return a, b
    top, bottom = sympy.fraction(sympy.together(sympy.cancel(ratio)))  # cancel may leave floor(n/2)/5 + 1/5
    if top.is_number and bottom.is_number and not sympy.sympify(b).is_positive:
        return a, b
    return fold(top), fold(bottom)


def ceildiv(a: Dim, b: int) -> Dim:
    """``a / b``, rounded up, as an int or an expression."""
    return floordiv(a + (b - 1), b)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of the dims ``a`` and ``b``."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else fold(sympy.Min(a, b))


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of the dims ``a`` and ``b``."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else fold(sympy.Max(a, b))


def broadcast(a: Dim, b: Dim) -> Dim | None:
    """The dim of two operands that ONNX broadcasts to each other, if either dim may be 1.

    That is ``Max(a, b)*Min(1, a, b)`` for operands that fit: one of them, if the other is 1, also if it is 0.

    Returns:
        The dim; None for two numbers that do not fit, and for expressions over common symbols that are meant
        to be equal, because some sizes make them so.
    """
    if a == 1 or b == 1:
        return b if a == 1 else a
    parts = _broadcast_parts(a) | _broadcast_parts(b)
    numbers = {item for item in parts if isinstance(item, int)}
    if len(numbers) > 1:
        return None
    if numbers:
        return numbers.pop()
    least = sorted((item for item in parts if _is_at_most_one(item)), key=str)
    rest = sorted(parts.difference(least), key=str)
    if any(_may_be_equal(one, other) for one, other in combinations(rest, 2)):
        return None
    return reduce(_times_at_most_one, least, _broadcast_of(tuple(rest)))


def _is_at_most_one(dim: Dim) -> TypeGuard[sympy.Expr]:
    """Whether ``dim`` is one or zero, as that of the slice ``x[:1]`` is: ``Min(1, n)``."""
    return not isinstance(dim, int) and dim.func == sympy.Min and sympy.Integer(1) in dim.args


def _times_at_most_one(dim: Dim, least: sympy.Expr) -> Dim:
    """The broadcast of ``dim`` and ``Min(1, n)``: ``dim`` itself, if it is 0 where ``n`` is."""
    for size in least.args:
        if dim == size or (size.is_Symbol and sympy.sympify(dim).subs(size, 0) == 0):
            return dim
    return fold(dim * least)


@lru_cache(maxsize=4096)
def _may_be_equal(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Whether some large sizes make two expressions over common symbols equal.

    Such are ``2*floor(n/2)`` and ``n``, which the two ways through a U-Net have, but not ``2*n`` and ``n``.
    """
    if a.free_symbols.isdisjoint(b.free_symbols):
        return False
    if a.free_symbols != b.free_symbols:
        return True
    names, difference = sorted(a.free_symbols, key=str), a - b
    for rest in range(_REMAINDERS):
        sizes = {name: _MULTIPLE * number + rest for number, name in enumerate(names, 1)}
        if difference.subs(sizes) == 0:
            return True
    return False


@lru_cache(maxsize=4096)  # a walk asks for the same ones again, and sympy's Max takes milliseconds
def _broadcast_of(parts: tuple[Dim, ...]) -> Dim:
    if not parts:
        return 1
    if len(parts) == 1:
        return parts[0]
    return fold(sympy.Max(*parts) * sympy.Min(1, *parts))


def _broadcast_parts(dim: Dim) -> set[Dim]:
    """The dims other than 1 that :func:`broadcast` made ``dim`` of; the dim itself if it did not."""
    if isinstance(dim, int):
        return {dim} - {1}
    if dim.is_Mul and len(dim.args) == 2:
        for largest, smallest in (dim.args, reversed(dim.args)):
            if largest.func == sympy.Max and smallest.func == sympy.Min:
                parts = set(largest.args)
                if set(smallest.args) == parts | {sympy.Integer(1)}:
                    return set(map(fold, parts))
    return {dim}


def settled(dim: Dim) -> Dim:
    """``dim``, some symbols of which were replaced: a broadcast of dims that are one now is that dim."""
    if isinstance(dim, int) or not dim.has(sympy.Min):
        return dim
    return fold(dim.replace(lambda part: part.is_Mul and part.has(sympy.Min), _settled_product))


def _settled_product(dim: sympy.Expr) -> sympy.Expr:
    """Replaces a broadcast of ``n`` alone, such as ``Max(1, n)*Min(1, n)`` or ``n*Min(1, n)``, by it."""
    one = {sympy.Integer(1)}
    for least in (item for item in dim.args if item.func == sympy.Min and one < set(item.args)):
        parts = set(least.args) - one
        for item in dim.args:
            if (set(item.args) if item.func == sympy.Max else {item}) - one == parts:
                return dim / least / item * _broadcast_of(tuple(sorted(parts, key=str)))
    return dim


def same(a: Dim, b: Dim) -> bool:
    """Whether ``a`` and ``b`` are provably equal for every binding of their symbols."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a == b:
        return True
    difference = sympy.sympify(a - b)
    return _expanded_terms(difference) <= _MOST_TERMS and bool(sympy.expand(difference) == 0)


def _expanded_terms(dim: sympy.Expr) -> int:
    """An upper bound for the terms of the expanded expression: (n + 1)*(m + 1) has four."""
    counts = [_expanded_terms(item) for item in dim.args]
    if dim.is_Mul:
        return prod(counts)
    if dim.is_Pow:
        return counts[0] ** abs(int(dim.exp)) if dim.exp.is_Integer else sum(counts)
    return max(sum(counts), 1)


def is_large(dim: Dim) -> bool:
    """Whether the expression ``dim`` is too large: each of a chain of operators can double it."""
    return not isinstance(dim, int) and _has_many_parts(dim)


@lru_cache(maxsize=65536)
def _has_many_parts(dim: sympy.Expr) -> bool:
    return next(islice(sympy.preorder_traversal(dim), _LARGEST, None), None) is not None


def symbols(*dims: Dim) -> tuple[str, ...]:
    """The names of the symbols in the dims, each once, in order of appearance."""
    found: dict[str, None] = {}
    for dim in dims:
        if not isinstance(dim, int):
            found.update(dict.fromkeys(sorted(item.name for item in dim.free_symbols)))
    return tuple(found)


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The value of ``dim`` for ``sizes`` (symbol name -> int).

    Raises:
        KeyError: A symbol of ``dim`` has no size.
    """
    if isinstance(dim, int):
        return dim
    return int(value_of(dim, sizes))


def is_identifier(name: str) -> bool:
    """Whether ``name`` can name a symbol: an ASCII identifier that is not a keyword."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def identifier(name: str) -> str:
    """``name`` turned into an identifier: other characters become underscores."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    clean = f"_{clean}" if clean[0].isdigit() else clean
    return f"{clean}_" if keyword.iskeyword(clean) else clean


_MULTIPLE = 2**10 * 3**3 * 5 * 7  # of most strides; sizes are tried beyond it, with these remainders
_REMAINDERS = 64
_SIZE_BITS = 64
_LONGEST_TEXT = 1000  # characters; files are not trusted, so the text and its numbers are bounded
_MOST_TERMS = 1000  # most terms that are compared one by one
_LARGEST = 500  # parts of an expression, whose text is longer than this


def _floor_divide(a: Any, b: Any) -> Any:
    return sympy.sympify(floordiv(fold(a), fold(b)))


def _power(a: Any, b: Any) -> Any:
    if not (b.is_Integer and 0 <= int(b) <= LARGEST_POWER):
        raise ValueError(f"not part of a dim: a power of {b}")
    if a.is_Integer and int(a).bit_length() * int(b) > _SIZE_BITS:
        raise ValueError(f"not part of a dim: {a}**{b}, which is not a 64-bit size")
    return a**b


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: _floor_divide,
    ast.Mod: sympy.Mod,
    ast.Pow: _power,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "floor": sympy.floor,
    "ceiling": sympy.ceiling,
    "Min": sympy.Min,
    "Max": sympy.Max,
    "min": sympy.Min,
    "max": sympy.Max,
    "Mod": sympy.Mod,
    "mod": sympy.Mod,
}


def _convert(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return sympy.Integer(number)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_convert(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_convert(left), _convert(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*map(_convert, args))
    raise ValueError(f"not part of a dim: {ast.unparse(node)}")


@lru_cache(maxsize=65536)
def parse(text: str) -> Dim:
    """Read a dim from text: an int, a name, or an expression, as ``str(dim)`` and exporters write it.

    Raises:
        ValueError: The text is not a dim.
    """
    if is_identifier(text):
        return symbol(text)
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"not a dim: {len(text)} characters, at most {_LONGEST_TEXT} are read")
    try:
        value = _convert(ast.parse(text.strip(), mode="eval").body)
        if value.has(sympy.zoo, sympy.nan, sympy.oo):
            raise ValueError(f"not a dim: {text!r}")
        return fold(value)
    except (SyntaxError, TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not a dim: {text!r}") from error


def text(dims: Iterable[Dim]) -> tuple[int | str, ...]:
    """``dims`` as plain data: ints stay, expressions become text that :func:`parse` reads."""
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in dims)


def try_dims(value: ir.Value) -> tuple[Dim, ...] | None:
    """The dims of ``value``, or None if its rank or one of its dims is not known."""
    shape = value.shape
    if shape is None:
        return None
    result: list[Dim] = []
    for dim in shape.dims:
        if isinstance(dim, int):
            result.append(dim)
            continue
        try:
            result.append(parse(dim.value or ""))
        except ValueError:
            return None
    return tuple(result)


def dims(value: ir.Value) -> tuple[Dim, ...]:
    """The dims of ``value``.

    Raises:
        UnknownShapeError: Its rank or one of its dims is known only when the model runs.
    """
    known = try_dims(value)
    if known is None:
        shape = "unknown rank" if value.shape is None else str(value.shape)
        raise UnknownShapeError(
            f"the shape of `{value.name}` is not known before the model runs (it is {shape}); "
            "name the dims of the graph's inputs, or declare the shape in the model's value_info"
        )
    return known


def is_object(value: ir.Value) -> bool:
    """Whether a value is no tensor of numbers, but a tensor of strings, a sequence or an optional."""
    kind = value.type
    return kind is not None and not (isinstance(kind, ir.TensorType) and kind.dtype != ir.DataType.STRING)


LATE = "farcall.late"  # key in graph.meta: value -> the symbols of its dims that are known only when it runs


def late(value: ir.Value) -> tuple[str, ...]:
    """The symbols of dims of ``value`` that are known only when it has been computed, as after NonZero.

    Only a backend that allocates such values (:attr:`farcall.backends.base.Backend.allocates`) can make them.
    """
    producer = value.producer()
    graph = None if producer is None else producer.graph
    if not isinstance(graph, ir.Graph) or LATE not in graph.meta:  # its get() raises and catches an error
        return ()
    found: tuple[str, ...] = graph.meta[LATE].get(value, ())
    return found


def set_dims(value: ir.Value, dims: Iterable[Dim | None]) -> None:
    """Write dims to ``value.shape``; None stands for an unknown dim."""
    value.shape = shape_of(dims)


def shape_of(dims: Iterable[Dim | None], *, frozen: bool = False) -> ir.Shape:
    """The shape of an ``ir.Value``.

    Args:
        dims: its dims; None stands for one that is unknown.
        frozen: whether nobody may change it, so that many values may share it.

    Returns:
        The dims as onnx_ir writes them: ints, texts of formulas, and None.
    """
    return ir.Shape([dim if isinstance(dim, int) or dim is None else str(dim) for dim in dims], frozen=frozen)


_NUMPY_NAMES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT4E2M1": "float4_e2m1fn",
}


def dtype_name(dtype: ir.DataType) -> str:
    """The name of a dtype in numpy and farcall: ``float32``, ``bool``, ``bfloat16``."""
    return _NUMPY_NAMES.get(dtype.name, dtype.name.lower())
