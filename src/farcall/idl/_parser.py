"""Parses interface files, and checks what they declare.

The language is small, and every name is declared before it is used. So one pass reads it, by recursive
descent, and errors show the token at fault. Cyclic types cannot be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from farcall._suggest import did_you_mean
from farcall._texts import count
from farcall.idl._checks import check_call_size, check_parameter, check_struct
from farcall.idl._declarations import (
    Constant,
    Declared,
    Interface,
    Method,
    Mode,
    Parameter,
    Typedef,
    Unit,
)
from farcall.idl._includes import Includes
from farcall.idl._literals import literal
from farcall.idl._names import is_word, why_reserved
from farcall.idl._source import Place, Source
from farcall.idl._tokens import Token, tokens
from farcall.idl._types import (
    BUILTIN,
    SIZE_MAX,
    STANDARD,
    Array,
    DmaHandle,
    Enum,
    Scalar,
    Sequence,
    Struct,
    Text,
    Type,
    is_fixed,
)

PARAMETERS_MAX = 64
METHODS_MAX = 1 << 16
_RESULTS = ("AEEResult", "long", "int32")
_MODES: dict[str, Mode] = {"in": "in", "rout": "rout", "inrout": "inrout"}
_MODES_MEANT = {"out": "rout", "inout": "inrout"}
_ABSENT = {
    "module": "there are no modules; put its name before the names of its interfaces, as in `module_name`",
    "union": "there are no unions; write a struct with one field for each case",
    "exception": "there are no exceptions; return a status",
    "attribute": "there are no attributes; write a method that returns the value",
    "any": "there is no type `any`; write the type, or sequence<octet>",
}


class Parser:
    """Parses one file. Files that it includes get a parser of their own, with the same names."""

    def __init__(self, source: Source, stem: str, includes: Includes) -> None:
        self.unit = Unit(source.name, stem)
        self._tokens = tokens(source)
        self._at = 0
        self._includes = includes
        self._names = includes.names
        self._scope: Interface | None = None

    def parse(self) -> Unit:
        """Read the file.

        Raises:
            IdlError: the file is not valid.
        """
        while self._token.kind != "end":
            if self._token.kind == "include":
                self._include()
            elif self._token.text == "interface":
                self._interface()
            else:
                self.unit.declarations.append(self._declaration())
        return self.unit

    # ---- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._token
        self._at += token.kind != "end"
        return token

    def _accept(self, text: str) -> bool:
        if self._token.text != text or self._token.kind not in ("mark", "name"):
            return False
        self._at += 1
        return True

    def _expect(self, text: str, where: str) -> Token:
        if not self._accept(text):
            self._fail(f"expected `{text}` {where}")
        return self._tokens[self._at - 1]

    def _fail(self, problem: str, token: Token | None = None) -> NoReturn:
        token = token or self._token
        found = "the file ends" if token.kind == "end" else f"found `{token.text:.40}`"
        raise token.place.error(f"{problem}; {found}")

    def _new_name(self, what: str, *, top_level: bool = True) -> Token:
        """The name of something new, which may be used in C."""
        token = self._next()
        if token.kind != "name":
            self._fail(f"expected a name for {what}", token)
        if reason := why_reserved(token.text, top_level=top_level and self._scope is None):
            raise token.place.error(f"{reason}; choose another name for {what}")
        return token

    # ---- names

    def _c_name(self, name: str) -> str:
        return f"{self._scope.name}_{name}" if self._scope else name

    def _declare(self, token: Token, what: Declared) -> None:
        self._reserve(token.text if isinstance(what, Interface) else what.c, token.place)
        names = self._scope.types if self._scope else self._names.declared
        if token.text in names:
            raise token.place.error(f"`{token.text}` is declared twice; choose another name")
        names[token.text] = what

    def _reserve(self, c_name: str, place: Place) -> None:
        """Note a name of the generated C code; two declarations cannot share one."""
        first = self._names.in_c.setdefault(c_name, place)
        if first is not place:
            line = first.source.text.count("\n", 0, first.start) + 1
            raise place.error(
                f"`{c_name}` exists in the C code already, line {line} of {Path(first.source.name).name};"
                " choose another name"
            )

    def _find(self, name: str) -> Declared | None:
        if self._scope and name in self._scope.types:
            return self._scope.types[name]
        return self._names.declared.get(name)

    # ---- declarations

    def _include(self) -> None:
        token = self._next()
        found = self._includes.find(token, self.unit.name)
        if found is None:
            return
        path, stem, source = found
        self.unit.includes.append(stem)
        if source is not None:
            with self._includes.inside(path, token):
                self._includes.units.append(Parser(source, stem, self._includes).parse())

    def _declaration(self) -> Declared:
        token = self._token
        match token.text if token.kind == "name" else "":
            case "typedef":
                declared: Declared = self._typedef()
            case "struct":
                declared = self._struct()
            case "enum":
                declared = self._enum()
            case "const":
                declared = self._constant()
            case word if word in _ABSENT:
                raise token.place.error(_ABSENT[word])
            case word:
                words = ("interface", "typedef", "struct", "enum", "const")
                self._fail(f"expected a declaration ({', '.join(words)}){did_you_mean(word, words)}")
        self._expect(";", "behind the declaration")
        return declared

    def _typedef(self) -> Typedef:
        self._next()
        kind = self._type()
        token = self._new_name("the type")
        kind = self._dimensions(kind)
        c = self._c_name(token.text)
        if isinstance(kind, Sequence) and not kind.c:
            kind = Sequence(kind.element, c)
        typedef = Typedef(token.text, c, kind)
        self._declare(token, typedef)
        return typedef

    def _struct(self) -> Struct:
        self._next()
        token = self._new_name("the struct")
        self._expect("{", "before the fields of the struct")
        fields = dict[str, Type]()
        while not self._accept("}"):
            if self._token.kind == "end":
                self._fail(f"expected a field or `}}` in struct {token.text}")
            self._field(token.text, fields)
        struct = Struct(token.text, self._c_name(token.text), tuple(fields.items()))
        check_struct(struct, token.place)
        self._declare(token, struct)
        return struct

    def _field(self, struct: str, fields: dict[str, Type]) -> None:
        if self._token.text == struct and self._find(struct) is None:
            raise self._token.place.error(
                f"struct {struct} contains itself, and would have no end; use a sequence of another struct"
            )
        base = self._type()
        while True:
            token = self._new_name("the field", top_level=False)
            if token.text in fields:
                raise token.place.error(f"struct {struct} has two fields `{token.text}`; rename one")
            fields[token.text] = self._dimensions(base)
            if not self._accept(","):
                break
        self._expect(";", "behind the field")

    def _enum(self) -> Enum:
        self._next()
        token = self._new_name("the enum")
        self._expect("{", "before the members of the enum")
        members, value = list[tuple[str, int]](), 0
        while True:
            member = self._new_name("the member")
            if self._accept("="):
                value = self._integer(-(1 << 31), (1 << 31) - 1, "the value of a member")
            c = self._c_name(member.text)
            self._declare(member, Constant(member.text, c, STANDARD["int32"], value))
            members.append((c, value))
            value += 1
            if value >= 1 << 31:
                value = -(1 << 31)
            if not self._accept(",") or self._token.text == "}":
                break
        self._expect("}", "behind the members of the enum")
        enum = Enum(token.text, self._c_name(token.text), tuple(members))
        self._declare(token, enum)
        return enum

    def _constant(self) -> Constant:
        self._next()
        kind_token = self._token
        kind = self._type()
        if not isinstance(kind, Scalar | Enum | Text) or kind == Text(2):
            raise kind_token.place.error("a constant is a number, a boolean, a char or a string")
        token = self._new_name("the constant")
        self._expect("=", "before the value of the constant")
        value = self._value(kind)
        constant = Constant(
            token.text, self._c_name(token.text), None if isinstance(kind, Text) else kind, value
        )
        self._declare(token, constant)
        return constant

    def _value(self, kind: Scalar | Enum | Text) -> int | float | str:
        negative = self._accept("-")
        token = self._next()
        found = self._find(token.text) if token.kind == "name" else None
        if token.kind == "name" and not isinstance(found, Constant) and token.text not in ("TRUE", "FALSE"):
            raise token.place.error(f"no constant `{token.text}`; declare it before this line")
        return literal(token, found.value if isinstance(found, Constant) else None, kind, negative=negative)

    def _integer(self, low: int, high: int, what: str) -> int:
        token = self._token
        value = self._value(BUILTIN["long long"])
        if not isinstance(value, int) or not low <= value <= high:
            raise token.place.error(f"{what} is from {low} to {high}, not {value}")
        return value

    # ---- types

    def _type(self, depth: int = 0) -> Type:
        token = self._next()
        if token.kind != "name":
            self._fail("expected a type", token)
        match token.text:
            case "sequence":
                return self._sequence(token, depth)
            case "string" | "wstring":
                return Text(1 if token.text == "string" else 2)
            case "dmahandle":
                return DmaHandle()
            case "unsigned" | "long":
                return self._number(token)
            case name if name in BUILTIN:
                return BUILTIN[name]
            case _:
                return self._named_type(token)

    def _number(self, token: Token) -> Scalar:
        """``unsigned`` or ``long`` was read; further words may follow."""
        words = [token.text]
        if token.text == "unsigned":
            if self._token.text not in ("short", "long"):
                self._fail("expected `short` or `long` behind `unsigned` (a byte is an `octet`)")
            words.append(self._next().text)
        if words[-1] == "long" and self._accept("long"):
            words.append("long")
        return BUILTIN[" ".join(words)]

    def _named_type(self, token: Token) -> Type:
        name = token.text
        if name in _ABSENT:
            raise token.place.error(_ABSENT[name])
        if name in STANDARD:
            if "AEEStdDef.idl" not in self._names.standard:
                raise token.place.error(
                    f'`{name}` is declared by AEEStdDef.idl; add #include "AEEStdDef.idl"'
                )
            return STANDARD[name]
        match self._find(name):
            case Typedef(_, _, kind):
                return kind
            case (Enum() | Struct()) as kind:
                return kind
            case Interface():
                raise token.place.error(f"`{name}` is an interface; a value of that type cannot be passed")
            case Constant():
                raise token.place.error(f"`{name}` is a constant; expected a type")
        known = (*BUILTIN, *STANDARD, "string", "sequence", *self._names.declared)
        hint = (
            "; write octet"
            if name == "byte"
            else "; write long"
            if name == "int"
            else did_you_mean(name, known)
        )
        raise token.place.error(f"no type `{name}`{hint or '; declare it before this line'}")

    def _sequence(self, token: Token, depth: int) -> Sequence:
        self._expect("<", "behind `sequence`")
        if depth == 1:
            raise token.place.error(
                "a sequence inside a sequence has the name of a typedef; declare that first"
            )
        element_token = self._token
        element = self._type(depth + 1)
        if isinstance(element, Sequence) and not element.c:
            raise element_token.place.error(
                "the inner sequence needs a name: `typedef sequence<octet> row;`, then `sequence<row>`"
            )
        if isinstance(element, Sequence) and not is_fixed(element.element):
            raise element_token.place.error("sequences nest twice at most; join the inner ones")
        if element == Text(2) or not (is_fixed(element) or isinstance(element, Sequence | Text)):
            raise element_token.place.error(
                "the elements of a sequence are numbers, structs without sequences, strings, named sequences"
            )
        if self._token.text == ",":
            self._fail("a sequence has no bound here: check its length in the method, and write `>`")
        self._expect(">", "behind the element of the sequence")
        return Sequence(element)

    def _dimensions(self, kind: Type) -> Type:
        """The dimensions of a fixed array, if any."""
        counts = []
        while self._token.text == "[":
            bracket = self._next()
            counts.append(self._integer(1, SIZE_MAX, "the length of an array"))
            self._expect("]", "behind the length of the array")
            if not is_fixed(kind):
                raise bracket.place.error("an array of sequences, strings or handles; use a sequence of them")
        for number in reversed(counts):
            kind = Array(kind, number)
            if kind.size > SIZE_MAX:
                raise self._token.place.error(
                    f"an array has at most {SIZE_MAX} bytes, this one {kind.size}; pass it as a sequence"
                )
        return kind

    # ---- interfaces

    def _interface(self) -> None:
        self._next()
        token = self._new_name("the interface")
        interface = Interface(token.text)
        if self._accept(":"):
            self._inherit(interface)
        self._expect("{", "before the methods of the interface")
        self._declare(token, interface)
        self._names.claim(interface, self._reserve, token.place)
        self._scope = interface
        while not self._accept("}"):
            if self._token.text in ("typedef", "struct", "enum", "const"):
                self.unit.declarations.append(self._declaration())
            else:
                self._method(interface)
        self._scope = None
        self.unit.declarations.append(interface)
        self._expect(";", "behind the interface")

    def _inherit(self, interface: Interface) -> None:
        token = self._next()
        if token.text == "remote_handle64":
            if "remote.idl" not in self._names.standard:
                raise token.place.error(
                    '`remote_handle64` is declared by remote.idl; add #include "remote.idl"'
                )
            interface.handle = True
        else:
            base = self._names.declared.get(token.text)
            if not isinstance(base, Interface):
                interfaces = [
                    name for name, one in self._names.declared.items() if isinstance(one, Interface)
                ]
                hint = did_you_mean(token.text, interfaces) or "; declare it before this line"
                raise token.place.error(f"no interface `{token.text}`{hint}")
            interface.handle = base.handle
            interface.types = dict(base.types)
            interface.methods = list(base.methods)
        if self._token.text == ",":
            self._fail("an interface has one base; inherit from one, and repeat the methods of the other")

    def _method(self, interface: Interface) -> None:
        result = self._token
        if result.kind == "end":
            self._fail(f"expected a method or `}}` in interface {interface.name}")
        if result.text in _ABSENT:
            raise result.place.error(_ABSENT[result.text])
        if result.text not in _RESULTS:
            self._fail("a method returns a status: write AEEResult (or long) before its name")
        self._type()
        token = self._new_name("the method", top_level=False)
        if token.text in ("open", "close") and interface.handle:
            raise token.place.error(
                f"remote_handle64 has a method `{token.text}` already; choose another name"
            )
        if any(method.name == token.text for method in interface.methods):
            raise token.place.error(
                f"interface {interface.name} has a method `{token.text}` already; rename it"
            )
        self._reserve(f"{interface.name}_{token.text}", token.place)
        parameters = self._parameters(token)
        number = len(interface.methods) + (2 if interface.handle else 0)
        if number >= METHODS_MAX:
            raise token.place.error(f"an interface has at most {METHODS_MAX} methods; begin another")
        method = Method(token.text, number, parameters)
        check_call_size(method, token.place)
        interface.methods.append(method)
        self._expect(";", "behind the method")

    def _parameters(self, method: Token) -> tuple[Parameter, ...]:
        self._expect("(", "before the parameters")
        found, names = list[Parameter](), set[str]()
        while not self._accept(")"):
            if found:
                self._expect(",", "between parameters")
            found.append(self._parameter(method.text, names))
            if len(found) > PARAMETERS_MAX:
                raise method.place.error(
                    f"a method has at most {count(PARAMETERS_MAX, 'parameter')}; put them into a struct"
                )
        return tuple(found)

    def _parameter(self, method: str, names: set[str]) -> Parameter:
        mode_token = self._next()
        mode = _MODES.get(mode_token.text)
        if mode is None:
            meant = _MODES_MEANT.get(mode_token.text)
            cure = f"write `{meant}`" if meant else "write its mode first: in, rout or inrout"
            self._fail(f"a parameter of `{method}` without a mode; {cure}", mode_token)
        kind = self._type()
        token = self._new_name("the parameter", top_level=False)
        kind = self._dimensions(kind)
        if is_word(token.text):
            self._fail("expected a name", token)
        check_parameter(Parameter(mode, token.text, kind), names, token.place)
        return Parameter(mode, token.text, kind)
