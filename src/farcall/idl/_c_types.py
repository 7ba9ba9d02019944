"""Types, values and parameters in C."""

from __future__ import annotations

from farcall.idl._declarations import Constant, Interface, Method, Parameter
from farcall.idl._packing import Leaf
from farcall.idl._types import (
    Array,
    DmaHandle,
    Enum,
    Fixed,
    Scalar,
    Sequence,
    Struct,
    Text,
    Type,
    is_fixed,
)

_WIDTH = 110
_PLAIN = frozenset(" _-+/.:,;=&()[]<>" + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def c_type(kind: Type) -> str:
    """The name of a type; of an array's or sequence's elements for those."""
    match kind:
        case Scalar() | Enum() | Struct() | Text():
            return kind.c
        case Array(element, _):
            return c_type(element)
        case Sequence(Text(), _):
            return "fc_remote_string"
        case Sequence(Sequence(_, name), _):
            return name
        case Sequence(element, _):
            return c_type(element)
        case _:
            return "int32_t"


def elements(kind: Type) -> int:
    """The number of elements of an array of any rank; 0 for other types."""
    if not isinstance(kind, Array):
        return 0
    return kind.count * (elements(kind.element) or 1)


def declarator(kind: Type, name: str) -> str:
    """A variable or field: ``int32_t grid[2][3]``."""
    dims, inner = "", kind
    while isinstance(inner, Array):
        dims += f"[{inner.count}]"
        inner = inner.element
    return f"{c_type(inner)} {name}{dims}"


def local(kind: Fixed, name: str) -> str:
    """A local variable that can be passed as a parameter: arrays have one dimension there."""
    return f"{c_type(kind)} {name}" + (f"[{n}]" if (n := elements(kind)) else "")


def parameters(method: Method) -> list[str]:
    """The parameters of a method's function."""
    return [text for parameter in method.parameters for text in _parameter(parameter)]


def _parameter(parameter: Parameter) -> list[str]:
    kind, name = parameter.type, parameter.name
    const = "const " if parameter.mode == "in" else ""
    match kind:
        case DmaHandle():
            return [f"int32_t {name}", f"uint32_t {name}Offset", f"uint32_t {name}Size"]
        case Text() if parameter.mode == "in":
            return [f"const {kind.c}* {name}"]
        case Text() | Sequence():
            return [f"{const}{c_type(kind)}* {name}", f"int32_t {name}Len"]
        case Array():
            return [f"{const}{c_type(kind)} {name}[{elements(kind)}]"]
        case Struct():
            return [f"{const}{kind.c}* {name}"]
        case _:
            return [f"{c_type(kind)} {name}" if const else f"{c_type(kind)}* {name}"]


def prototype(interface: Interface, method: Method) -> str:
    """The declaration of a method's function, without a semicolon."""
    first = ["fc_remote_handle _h"] if interface.handle else []
    return wrapped(f"int32_t {interface.name}_{method.name}(", [*first, *parameters(method)] or ["void"])


def wrapped(start: str, parts: list[str], end: str = ")") -> str:
    """A list in parentheses, in as many lines as it needs."""
    if not parts:
        return start + end
    lines, indent = [start], " " * start.rfind("(") + " "
    for index, part in enumerate(parts):
        text = part + ("," if index + 1 < len(parts) else end)
        if index and len(lines[-1]) + 1 + len(text) > _WIDTH:
            lines.append(indent + text)
        else:
            lines[-1] += (" " if index else "") + text
    return "\n".join(lines)


def pointer(leaf: Leaf, *, own: bool) -> str:
    """An expression for a leaf's address: of its first byte, character or element.

    Args:
        leaf: a leaf.
        own: whether its parameter is a local variable, as in a skel, or a parameter, as in a stub.
    """
    if leaf.field is not None:
        path = f"{leaf.name}{'.' if own else '->'}{leaf.field}"
        return path if not is_fixed(leaf.type) or isinstance(leaf.type, Array) else f"&{path}"
    if isinstance(leaf.type, Array | Sequence | Text):
        return leaf.name
    by_value = own or (leaf.mode == "in" and not isinstance(leaf.type, Struct))
    return f"&{leaf.name}" if by_value else leaf.name


def length(leaf: Leaf, *, own: bool) -> str:
    """An expression for a leaf's count."""
    if leaf.field is not None:
        return f"{leaf.name}{'.' if own else '->'}{leaf.field}Len"
    return f"{leaf.name}Len"


def constant(declared: Constant) -> str:
    """The definition of a constant."""
    name, value = declared.c, declared.value
    if isinstance(value, str):
        return f"static const char {name}[] = {c_text(value)};"
    if isinstance(value, float):
        letter = "f" if isinstance(declared.type, Scalar) and declared.type.c == "float" else ""
        return f"static const {c_type(declared.type or Text(1))} {name} = {value!r}{letter};"
    if -(1 << 31) <= value < 1 << 31:
        return f"enum {{ {name} = {c_integer(value)} }};"
    kind = "uint64_t" if value >= 0 else "int64_t"
    number = f"UINT64_C({value})" if value >= 0 else f"(-INT64_C({-(value + 1)}) - 1)"
    return f"static const {kind} {name} = {number};"


def c_integer(value: int) -> str:
    """A literal of type int."""
    return "(-2147483647 - 1)" if value == -(1 << 31) else str(value)


def c_text(text: str) -> str:
    """A string literal that cannot end early."""
    plain = _PLAIN if text.count("?") > 1 else _PLAIN | {"?"}  # two question marks may begin a trigraph
    return '"' + "".join(c if c in plain else f"\\{ord(c):03o}" for c in text) + '"'
