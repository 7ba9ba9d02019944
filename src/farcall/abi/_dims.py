"""The dims of a tensor parameter: numbers, names, expressions over names, or any size."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache

from farcall._core import OPERATIONS
from farcall.abi._leaves import DYNAMIC
from farcall.ffi import _dims

# the nodes of a linear expression
_LINEAR = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.USub, ast.Load)


@lru_cache(maxsize=4096)
def is_symbol(dim: int | str) -> bool:
    """Whether a dim is a name, which a call binds to a size. So is a text that is not an expression."""
    if not isinstance(dim, str) or dim == DYNAMIC:
        return False
    if dim.isidentifier():
        return True
    try:
        _dims.names(dim)
    except ValueError:
        return True
    return False


def is_expression(dim: int | str) -> bool:
    """Whether a dim is an expression over names, such as ``2*n``."""
    return isinstance(dim, str) and dim != DYNAMIC and not is_symbol(dim)


def symbols(shape: Iterable[int | str] | None) -> list[str]:
    """The names in the dims, each once, in order."""
    found: dict[str, None] = {}
    for dim in shape or ():
        if is_symbol(dim):
            found[str(dim)] = None
        elif is_expression(dim):
            found.update(dict.fromkeys(sorted(_dims.names(str(dim)))))
    return list(found)


def known_text(shape: Iterable[int | str] | None, known: Mapping[str, int]) -> str:
    """The names in the dims whose sizes are known, for a message: `` with batch=4, n=7``, or empty."""
    sizes = ", ".join(f"{name}={known[name]}" for name in symbols(shape) if name in known)
    return f" with {sizes}" if sizes else ""


def fits(shape: Sequence[int | str] | None, sizes: Sequence[int], known: MutableMapping[str, int]) -> bool:
    """Whether a tensor has these dims. :func:`expressions_hold` checks the dims that are expressions.

    Names without a size get one from the tensor.
    """
    return shape is None or (len(shape) == len(sizes) and first_misfit(shape, sizes, known) is None)


def first_misfit(
    shape: Sequence[int | str], sizes: Sequence[int], known: MutableMapping[str, int]
) -> tuple[int, int, str] | None:
    """The first axis whose size differs from its dim: the axis, the required size, and the name of the dim.

    The ranks are equal. Names without a size get one from the tensor. Expressions accept any size here.
    """
    for axis, (dim, size) in enumerate(zip(shape, sizes, strict=True)):
        name = str(dim) if is_symbol(dim) else ""
        wanted = known.setdefault(name, size) if name else dim
        if isinstance(wanted, int) and wanted != size:
            return axis, wanted, name
    return None


def size_of(dim: int | str, known: Mapping[str, int]) -> int | None:
    """The size of a dim; None if it contains a name without a size.

    Raises:
        ValueError: the size is negative, or the dim divides by zero.
    """
    if isinstance(dim, int):
        return dim
    if not is_expression(dim):
        return known.get(dim)
    if not _dims.names(dim) <= known.keys():
        return None
    size = evaluate(dim, known)
    if size < 0:
        raise ValueError(f"the dim {dim} evaluates to {size}")
    return size


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """The value of an expression, given the sizes of its names.

    Raises:
        ValueError: the text is not an expression over sizes, or it divides by zero.
    """
    return int(_dims.evaluate(text, sizes))


def expressions_hold(
    shape: Sequence[int | str] | None, sizes: Sequence[int], known: MutableMapping[str, int]
) -> bool:
    """Whether the dims that are expressions have these sizes. Call this when all other names have sizes.

    If a name appears only inside a linear expression, its size is computed from the size of that dim: if
    ``2*n`` is 14, ``n`` is 7. An expression with several unknown names accepts any size.
    """
    axes = zip(shape or (), sizes, strict=False)
    return all(_holds(str(dim), size, known) for dim, size in axes if is_expression(dim))


def _holds(text: str, size: int, known: MutableMapping[str, int]) -> bool:
    name = linear_in(text)
    if name is not None and name not in known:
        return _solve(text, name, size, known)
    try:
        return size_of(text, known) in (None, size)
    except ValueError:
        return False


def _solve(text: str, name: str, size: int, known: MutableMapping[str, int]) -> bool:
    at_0, at_1 = (evaluate(text, {name: value}) for value in (0, 1))
    if at_0 == at_1:
        return size == at_0
    value, rest = divmod(size - at_0, at_1 - at_0)
    if rest or value < 0:
        return False
    known[name] = value
    return True


@lru_cache(maxsize=4096)
def linear_in(text: str) -> str | None:
    """The name in which an expression is linear, if that is its only name and appears once."""
    nodes = list(ast.walk(_dims.parse(text)))
    found = [node.id for node in nodes if isinstance(node, ast.Name)]
    return found[0] if len(found) == 1 and all(isinstance(node, _LINEAR) for node in nodes) else None


# ---- for the native core: native/python/abi/dims.c

_CONSTANT, _SYMBOL, _END = OPERATIONS["constant"], OPERATIONS["symbol"], OPERATIONS["end"]
_OPERATORS: Mapping[type[ast.operator], int] = {
    ast.Add: OPERATIONS["add"],
    ast.Sub: OPERATIONS["subtract"],
    ast.Mult: OPERATIONS["multiply"],
    ast.FloorDiv: OPERATIONS["floor_divide"],
}
_LARGER, _SMALLER = OPERATIONS["larger"], OPERATIONS["smaller"]
_CALLS = {"Max": _LARGER, "max": _LARGER, "Min": _SMALLER, "min": _SMALLER}
_DEEPEST = OPERATIONS["max_stack"]
_INT64 = range(-(1 << 63), 1 << 63)


def compile_expression(text: str, places: Mapping[str, int]) -> list[int] | None:
    """The place of the name that a dim can be solved for (-1: none), then the dim in postfix notation.

    None: the core cannot compute a part of the dim, such as a ratio.
    """
    code: list[int] = []
    solved = linear_in(text)
    try:
        if not _emit(_dims.parse(text), places, code, 1):
            return None
    except RecursionError:
        return None
    return [-1 if solved is None else places[solved], *code, _END]


def _emit(node: ast.expr, places: Mapping[str, int], code: list[int], depth: int) -> bool:
    """Append the code of one value. False: the core cannot compute it."""
    if depth > _DEEPEST:
        return False
    match node:
        case ast.Constant(value=int() as number) if number in _INT64:
            code += (_CONSTANT, number)
            return True
        case ast.Name(id=name) if name in places:
            code += (_SYMBOL, places[name])
            return True
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _emit_both(ast.Constant(0), operand, _OPERATORS[ast.Sub], places, code, depth)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _emit_both(left, right, _OPERATORS[type(op)], places, code, depth)
        case ast.Call(func=ast.Name(id="floor"), args=[ast.BinOp(left=left, op=ast.Div(), right=right)]):
            return _emit_both(left, right, _OPERATORS[ast.FloorDiv], places, code, depth)
        case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in _CALLS:
            return _emit_both(left, right, _CALLS[name], places, code, depth)
    return False


def _emit_both(
    left: ast.expr, right: ast.expr, operator: int, places: Mapping[str, int], code: list[int], depth: int
) -> bool:
    if not (_emit(left, places, code, depth) and _emit(right, places, code, depth + 1)):
        return False
    code.append(operator)
    return True
