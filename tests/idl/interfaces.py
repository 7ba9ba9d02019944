"""Random interfaces: their text, values for them, and implementations in C that return what they get."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from farcall.idl._types import BUILTIN, Array, Enum, Scalar, Sequence, Struct, Text, Type

NUMBERS = [BUILTIN[name] for name in BUILTIN if name not in ("char", "boolean", "float", "double")]
FLOATS = [BUILTIN["float"], BUILTIN["double"]]


@dataclass
class Random:
    """A source of interfaces."""

    random: random.Random
    declarations: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def scalar(self) -> Scalar:
        return self.random.choice(NUMBERS + FLOATS)

    def fixed(self, depth: int = 0) -> tuple[Type, str, str]:
        """A fixed type: itself, and its text before and behind a name."""
        kind = self.random.random()
        if kind < 0.5 or depth > 2:
            scalar = self.scalar()
            return scalar, scalar.name, ""
        if kind < 0.75:
            element, before, behind = self.fixed(depth + 1)
            number = self.random.randint(1, 3)
            return Array(element, number), before, f"[{number}]{behind}"
        return self.struct(depth)

    def struct(self, depth: int) -> tuple[Type, str, str]:
        name, fields, texts = self.name("struct_"), [], []
        for index in range(self.random.randint(1, 4)):
            kind, before, behind = self.fixed(depth + 1)
            fields.append((f"f{index}", kind))
            texts.append(f"{before} f{index}{behind};")
        self.declarations.append(f"struct {name} {{ {' '.join(texts)} }};")
        return Struct(name, name, tuple(fields)), name, ""

    def any(self) -> tuple[Type, str, str]:
        """A type of a parameter."""
        kind = self.random.random()
        if kind < 0.4:
            return self.fixed()
        if kind < 0.5:
            return Text(1), "string", ""
        if kind < 0.55:
            return Text(2), "wstring", ""
        if kind < 0.65:
            return Sequence(Text(1)), "sequence<string>", ""
        element, before, behind = self.fixed(2) if kind < 0.9 else self.struct(2)
        if behind:
            element, before = self.scalar(), ""
        text = before or element.name  # type: ignore[union-attr]
        if kind < 0.8:
            return Sequence(element), f"sequence<{text}>", ""
        name = self.name("rows_")
        self.declarations.append(f"typedef sequence<{text}> {name};")
        return Sequence(Sequence(element, name)), f"sequence<{name}>", ""

    def value(self, kind: Type) -> object:
        match kind:
            case Scalar(code=code, size=size):
                if code in "fd":
                    return float(self.random.randint(-1000, 1000)) / 4
                low, high = (
                    (0, (1 << 8 * size) - 1)
                    if code.isupper()
                    else (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1)
                )
                return self.random.choice([low, high, self.random.randint(low, high)])
            case Array(element, number):
                return [self.value(element) for _ in range(number)]
            case Struct():
                return tuple(self.value(part) for _, part in kind.fields)
            case Text():
                return "".join(
                    self.random.choice("abc \u00e9\u4e16") for _ in range(self.random.randint(0, 9))
                )
            case Sequence(element, _):
                return [self.value(element) for _ in range(self.random.choice([0, 1, 2, 7]))]
        raise AssertionError(kind)


@dataclass
class Echo:
    """One method: the types of its `in` parameters, each of which has a `rout` twin."""

    name: str
    kinds: list[Type]
    flipped: Scalar | None


@dataclass
class Echoes:
    """An interface, and the C code of its implementation."""

    name: str
    text: str
    code: str
    methods: list[Echo]


def echoes(name: str, seed: int, *, methods: int, handle: bool) -> Echoes:
    """An interface whose methods return what they get."""
    source = Random(random.Random(seed))  # noqa: S311
    found, texts, code = [], [], [f'#include "{name}.h"\n#include <string.h>\n']
    if handle:
        code.append(
            f"int32_t {name}_open(const char* uri, fc_remote_handle* h) {{ *h = strlen(uri); return 0; }}"
        )
        code.append(f"int32_t {name}_close(fc_remote_handle h) {{ return h == 0 ? 14 : 0; }}")
    for number in range(methods):
        kinds = [source.any() for _ in range(source.random.randint(0, 4))]
        flipped = source.random.choice([None, *NUMBERS])
        echo = Echo(f"m{number}", [kind for kind, _, _ in kinds], flipped)
        texts.append(_method(echo, kinds))
        code.append(_implementation(name, echo, handle))
        found.append(echo)
    base = " : remote_handle64" if handle else ""
    text = '#include "AEEStdDef.idl"\n#include "remote.idl"\n' + "\n".join(source.declarations)
    text += f"\ninterface {name}{base} {{\n" + "\n".join(texts) + "\n};\n"
    return Echoes(name, text, "\n".join(code), found)


def _method(echo: Echo, kinds: list[tuple[Type, str, str]]) -> str:
    parts = [
        f"in {before} a{i}{behind}, rout {before} b{i}{behind}" for i, (_, before, behind) in enumerate(kinds)
    ]
    if echo.flipped:
        parts.append(f"inrout {echo.flipped.name} one, inrout sequence<{echo.flipped.name}> some")
    return f"  AEEResult {echo.name}({', '.join(parts)});"


def _implementation(interface: str, echo: Echo, handle: bool) -> str:
    from farcall.idl._c_types import c_type, elements

    parameters, body = ["fc_remote_handle h"] if handle else [], ["(void)h;"] if handle else []
    for i, kind in enumerate(echo.kinds):
        c, a, b = c_type(kind), f"a{i}", f"b{i}"
        match kind:
            case Scalar() | Enum():
                parameters += [f"{c} {a}", f"{c}* {b}"]
                body.append(f"*{b} = {a};")
            case Struct():
                parameters += [f"const {c}* {a}", f"{c}* {b}"]
                body.append(f"*{b} = *{a};")
            case Array():
                parameters += [f"const {c} {a}[{elements(kind)}]", f"{c} {b}[{elements(kind)}]"]
                body.append(f"memcpy({b}, {a}, {elements(kind)} * sizeof *{b});")
            case Text(unit):
                parameters += [f"const {c}* {a}", f"{c}* {b}", f"int32_t {b}Len"]
                body.append(f"memcpy({b}, {a}, (size_t){b}Len * {unit});")
            case Sequence(Text() | Sequence(), _):
                parameters += [f"const {c}* {a}, int32_t {a}Len", f"{c}* {b}, int32_t {b}Len"]
                body.append(
                    f"if ({a}Len != {b}Len) return 1;\n  for (int32_t i = 0; i < {a}Len; ++i) "
                    f"if ({b}[i].dataLen) memcpy({b}[i].data, {a}[i].data, "
                    f"(size_t){b}[i].dataLen * sizeof *{b}[i].data);"
                )
            case Sequence():
                parameters += [f"const {c}* {a}, int32_t {a}Len", f"{c}* {b}, int32_t {b}Len"]
                body.append(
                    f"if ({a}Len != {b}Len) return 1;\n"
                    f"  if ({b}Len) memcpy({b}, {a}, (size_t){b}Len * sizeof *{b});"
                )
    if echo.flipped:
        c = echo.flipped.c
        parameters += [f"{c}* one", f"{c}* some", "int32_t someLen"]
        body += [f"*one = ({c})~*one;", f"for (int32_t i = 0; i < someLen; ++i) some[i] = ({c})~some[i];"]
    text = ", ".join(parameters) or "void"
    return f"int32_t {interface}_{echo.name}({text}) {{\n  " + "\n  ".join([*body, "return 0;"]) + "\n}"
