"""Writes the Python stub of a file: a class for each interface, whose methods pack calls."""

from __future__ import annotations

import builtins
import keyword

from farcall.idl._declarations import Constant, Interface, Method, Parameter, Unit
from farcall.idl._types import Array, Enum, Scalar, Sequence, Struct, Text, Type, is_fixed

_TAKEN = {*dir(builtins), *keyword.kwlist, "annotations", "idl", "IntEnum", "NamedTuple", "URI"}
_MEMBERS = {"open", "close", "handle", "transport", "self", *keyword.kwlist}


def python_stub(unit: Unit) -> str:
    """The text of the stub."""
    return _Writer(unit).text()


def _free(name: str, taken: set[str]) -> str:
    """A name that Python allows and nothing else has. Adds it to ``taken``."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class _Writer:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._taken = set(_TAKEN)
        self._names = dict[str, str]()
        self._types = list[str]()

    def text(self) -> str:
        own = [one for one in self._unit.declarations if isinstance(one, Constant)]
        constants = [f"{self._name(one.c)} = {one.value!r}" for one in own]
        classes = [self._interface(interface) for interface in self._unit.interfaces]
        file = f"{self._unit.stem.rpartition('/')[2]}.idl"
        parts = [
            f'"""Made by ``farcall idl`` from {file}. Change that file, not this one."""',
            "from __future__ import annotations",
            *self._imports(),
            "from farcall.idl import runtime as idl",
            *(["\n".join(constants)] if constants else []),
            *self._types,
            *classes,
        ]
        return "\n\n".join(parts) + "\n"

    def _imports(self) -> list[str]:
        wanted = [("enum", "IntEnum"), ("typing", "NamedTuple")]
        found = [
            f"from {module} import {name}"
            for module, name in wanted
            if any(f"({name}):" in text for text in self._types)
        ]
        return ["\n".join(found)] if found else []

    def _name(self, c: str) -> str:
        if c not in self._names:
            self._names[c] = _free(c, self._taken)
        return self._names[c]

    # ---- types: `_describe` is the expression of the model, `_hint` the annotation

    def _describe(self, kind: Type) -> str:
        match kind:
            case Scalar():
                return f"idl.scalar({kind.name!r})"
            case Enum() | Struct():
                return f"{self._declared(kind)}_type"
            case Text(unit):
                return f"idl.Text({unit})"
            case Array(element, count):
                return f"idl.Array({self._describe(element)}, {count})"
            case Sequence(element, _):
                return f"idl.Sequence({self._describe(element)})"
            case _:
                return "idl.DmaHandle()"

    def _declared(self, kind: Enum | Struct) -> str:
        """The class of an enum or a struct, which is written at its first use."""
        if kind.c in self._names:
            return self._names[kind.c]
        if isinstance(kind, Enum):
            name = self._name(kind.c)
            members, taken = "", {*keyword.kwlist, "mro", "name", "value"}
            for member, value in kind.members:
                members += f"    {_free(member, taken)} = {value}\n"
            self._types.append(
                f"class {name}(IntEnum):\n{members}\n\n{name}_type = idl.Enum({kind.name!r}, {kind.c!r}, ())"
            )
            return name
        described = [f"({field!r}, {self._describe(part)})" for field, part in kind.fields]
        taken = {*keyword.kwlist, "count", "index"}
        hints = [f"    {_free(field, taken)}: {self._hint(part)}" for field, part in kind.fields]
        name = self._name(kind.c)
        self._types.append(
            f"class {name}(NamedTuple):\n" + "\n".join(hints) + f"\n\n\n{name}_type = idl.Struct("
            f"{kind.name!r}, {kind.c!r}, ({', '.join(described)},), {name})"
        )
        return name

    def _hint(self, kind: Type, *, result: bool = False) -> str:
        match kind:
            case Scalar():
                return "float" if kind.code in "fd" else "int"
            case Enum() | Struct():
                name = self._declared(kind)
                return "int" if isinstance(kind, Enum) else name
            case Text():
                return "str"
            case Array(element, _):
                return f"list[{self._hint(element)}]"
            case Sequence(Scalar(size=1), _) if result:
                return "bytes"
            case Sequence(Scalar() | Enum(), _):
                return "idl.Numbers"
            case Sequence(element, _):
                return f"list[{self._hint(element, result=result)}]"
            case _:
                return "tuple[int, int, int]"

    # ---- interfaces

    def _interface(self, interface: Interface) -> str:
        taken = set(_MEMBERS)
        name = self._name(interface.name)
        tables, methods = "", ""
        for method in interface.methods:
            table = self._name(f"_{interface.name}_{method.name}")
            parameters = "".join(
                f"    idl.Parameter({one.mode!r}, {one.name!r}, {self._describe(one.type)}),\n"
                for one in method.parameters
            )
            tables += f"{table} = idl.Method({method.name!r}, {method.id}, (\n{parameters}))\n"
            methods += "\n" + self._method(method, _free(method.name, taken), table)
        return f"{tables}\n\nclass {name}(idl.Stub):\n    URI = {interface.uri!r}\n{methods}"

    def _method(self, method: Method, name: str, table: str) -> str:
        taken = {"self", *keyword.kwlist}
        arguments, passed = ["self"], [table]
        for parameter in method.parameters:
            hint = self._argument(parameter)
            if hint is None:
                continue
            own = _free(parameter.name, taken)
            arguments.append(f"{own}: {hint}")
            passed.append(own)
        results = [self._hint(one.type, result=True) for one in method.parameters if one.mode != "in"]
        result = (
            "None" if not results else results[0] if len(results) == 1 else f"tuple[{', '.join(results)}]"
        )
        call = f"self._invoke({', '.join(passed)})"
        body = f"return {call}  # type: ignore[no-any-return]" if results else call
        return f"    def {name}({', '.join(arguments)}) -> {result}:\n        {body}\n"

    def _argument(self, parameter: Parameter) -> str | None:
        """The annotation of what a method takes for a parameter; None if it takes nothing."""
        kind = parameter.type
        if parameter.mode == "inrout" and isinstance(kind, Text):
            return "tuple[str, int]"
        if parameter.mode != "rout":
            return self._hint(kind)
        if is_fixed(kind):
            return None
        nested = isinstance(kind, Sequence) and not is_fixed(kind.element)
        return "list[int]" if nested or isinstance(kind, Struct) else "int"
