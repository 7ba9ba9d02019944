"""Raw signatures: the flat arguments and results of a function of IREE's 2020 ABI, ``I6!S3!t6R4!B1!``.

They have twelve dtypes, and no names, symbols, booleans, structure or access.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from farcall.abi._leaves import DYNAMIC, Leaf, RefSpec, ScalarSpec, TensorSpec, is_plain
from farcall.abi.iree import _lexer as lexer
from farcall.abi.iree._lexer import Field, Source
from farcall.errors import SignatureError

# the index is the code of the field `t`; 0 is left out when written
_DTYPES = (
    "float32",
    "float16",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
# What compilers write of a buffer. The group has no possessive quantifier: in CPython before 3.11.5 the match
# would include the start of an item that fails, such as the last `d` of `d1d` (gh-106052).
_USUAL = re.compile(r"(?:t([0-9]|1[01]))?((?:d-?[0-9]{1,9}+){0,64})")
_SHORT = 64  # bytes of a descriptor that is remembered
_REFERENCE = RefSpec("", "object")

# reading


def parse(text: str | bytes) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
    """The arguments and results of a raw signature.

    Raises:
        SignatureError: the text is malformed. The message has the position and an excerpt.
    """
    source = lexer.source(text, "raw signature")
    inputs, results = lexer.halves(source, "span")
    return _leaves(source, inputs), _leaves(source, results)


def _leaves(source: Source, half: Field) -> tuple[Leaf, ...]:
    return tuple([_leaf(source, field) for field in lexer.fields(source, half[2], half[3])])


def _leaf(source: Source, field: Field) -> Leaf:
    tag, _, start, end = field
    try:
        return (
            _known_leaf(tag, source.data[start:end]) if end - start <= _SHORT else _read_leaf(source, field)
        )
    except SignatureError:
        return _read_leaf(source, field)  # raises again, with the position in the whole


@lru_cache(maxsize=1024)
def _known_leaf(tag: str, payload: str) -> Leaf:
    """The leaf of a descriptor, cached, since the many arguments of a long signature have few types."""
    return _read_leaf(Source(payload, ""), (tag, 0, 0, len(payload)))


def _read_leaf(source: Source, field: Field) -> Leaf:
    tag, at, start, end = field
    if tag == "B":
        dtype, shape = _buffer(source, start, end)
        return TensorSpec("", dtype, shape)
    if tag == "S":
        return ScalarSpec("", _scalar(source, start, end))
    if tag == "O":
        for _, at_inside, _, _ in lexer.fields(source, start, end):
            raise source.error(at_inside, "Unrecognized ref object field tag: a reference has no fields")
        return _REFERENCE
    problem = "expected `B` (buffer), `S` (scalar) or `O` (reference)"
    if tag == "U":
        problem = "the compiler had no raw type for this value (`U`); build the function with another dtype"
    raise source.error(at, f"Unrecognized raw tag: {problem}")


def _buffer(source: Source, start: int, end: int) -> tuple[str, tuple[int | str, ...]]:
    if usual := _USUAL.fullmatch(source.data, start, end):
        code, run = usual.groups(default="0")
        sizes = map(int, run.split("d")[1:])
        return _DTYPES[int(code)], tuple([size if size >= 0 else DYNAMIC for size in sizes])
    dtype, dims = _DTYPES[0], list[int | str]()
    for tag, at, value, _ in lexer.fields(source, start, end):
        if tag == "d":
            dims.append(value if value >= 0 else DYNAMIC)
        elif tag == "t":
            dtype = _dtype(source, at, value)
        else:
            raise source.error(at, "Unrecognized buffer field tag: expected `t` (dtype) or `d` (dim)")
    return dtype, tuple(dims)


def _scalar(source: Source, start: int, end: int) -> str:
    dtype = _DTYPES[0]
    for tag, at, value, _ in lexer.fields(source, start, end):
        if tag != "t":
            raise source.error(at, "Unrecognized scalar field tag: expected `t` (dtype)")
        dtype = _dtype(source, at, value)
    return dtype


def _dtype(source: Source, at: int, code: int) -> str:
    if not 0 <= code < len(_DTYPES):
        raise source.error(at, f"Illegal ScalarType code: {code} is not in 0..{len(_DTYPES) - 1}")
    return _DTYPES[code]


# writing


def emit(inputs: Iterable[Leaf], outputs: Iterable[Leaf]) -> str:
    """Write a raw signature. It leaves names out, and a symbolic dim becomes a dynamic one.

    Raises:
        SignatureError: a raw signature cannot express a leaf.
    """
    halves = (("I", inputs), ("R", outputs))
    return b"".join(lexer.span(tag, b"".join(map(_emit, leaves))) for tag, leaves in halves).decode()


def _emit(leaf: Leaf) -> bytes:
    if isinstance(leaf, TensorSpec):
        if leaf.shape is not None and is_plain(leaf):
            dims = [lexer.integer("d", dim if isinstance(dim, int) else -1) for dim in leaf.shape]
            return lexer.span("B", _emit_dtype(leaf) + b"".join(dims))
    elif isinstance(leaf, ScalarSpec) and not leaf.optional:
        return lexer.span("S", _emit_dtype(leaf))
    elif isinstance(leaf, RefSpec) and leaf == RefSpec(leaf.name, _REFERENCE.kind):
        return lexer.span("O", b"")
    raise SignatureError(
        f"`{leaf}` cannot be written as a raw signature, which knows tensors of known rank that are read, "
        "scalars and object references, none of them optional; Signature.to_iree_json() may know it"
    )


def _emit_dtype(leaf: TensorSpec | ScalarSpec) -> bytes:
    code = _CODES.get(leaf.dtype)
    if code is None:
        raise SignatureError(
            f"`{leaf}`: the dtype has no code in a raw signature; expected one of {', '.join(_DTYPES)}"
        )
    return lexer.integer("t", code) if code else b""


# printing


def text(inputs: Iterable[Leaf], outputs: Iterable[Leaf]) -> str:
    """The text of a raw signature as IREE prints it: ``(Buffer<float32[?x64]>) -> (RefObject<?>)``."""
    sides = [", ".join(map(_text, leaves)) for leaves in (inputs, outputs)]
    return f"({sides[0]}) -> ({sides[1]})"


def _text(leaf: Leaf) -> str:
    if isinstance(leaf, TensorSpec) and leaf.shape is not None:
        dims = "x".join(str(dim) if isinstance(dim, int) else DYNAMIC for dim in leaf.shape)
        return f"Buffer<{_dtype_text(leaf.dtype)}[{dims}]>"
    if isinstance(leaf, ScalarSpec):
        return _dtype_text(leaf.dtype)
    return "RefObject<?>" if leaf == _REFERENCE else leaf.type


def _dtype_text(dtype: str) -> str:
    return f"s{dtype}" if dtype.startswith("int") else dtype
