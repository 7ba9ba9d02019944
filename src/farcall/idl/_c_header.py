"""Writes the C header of a file: its constants and types, and the functions of its interfaces."""

from __future__ import annotations

import re

from farcall.idl._c_types import c_integer, c_text, c_type, constant, declarator, prototype
from farcall.idl._declarations import Constant, Declared, Interface, Typedef, Unit
from farcall.idl._types import Array, Enum, Sequence, Struct, Text, Type, is_fixed


def header(unit: Unit) -> str:
    """The text of the header."""
    guard = "FARCALL_IDL_" + re.sub(r"\W", "_", unit.stem).upper() + "_H_"
    includes = ["#include <farcall/fastrpc.h>"]
    includes += [f'#include "{_up(unit)}{stem}.h"' for stem in dict.fromkeys(unit.includes)]
    interfaces = [part for interface in unit.interfaces for part in _interface(interface)]
    parts = [
        made_from(unit),
        f"#ifndef {guard}\n#define {guard}",
        "\n".join(includes),
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        *(text for declared in unit.declarations if (text := _declaration(declared))),
        *interfaces,
        "#ifdef __cplusplus\n}\n#endif",
        f"#endif /* {guard} */",
    ]
    return "\n\n".join(parts) + "\n"


def made_from(unit: Unit) -> str:
    """The first line of a generated file."""
    file = f"{unit.stem.rpartition('/')[2]}.idl"
    return f"/* Made by `farcall idl` from {file}. Change that file, not this one. */"


def _up(unit: Unit) -> str:
    """The way from the folder of a unit to that of all."""
    return "../" * unit.stem.count("/")


def _declaration(declared: Declared) -> str:
    match declared:
        case Constant():
            return constant(declared)
        case Enum():
            members = "".join(f"  {name} = {c_integer(value)},\n" for name, value in declared.members)
            return f"typedef int32_t {declared.c};\nenum {{\n{members}}};"
        case Struct():
            return _struct(declared)
        case Typedef():
            return _typedef(declared)
        case _:
            return ""


def _struct(struct: Struct) -> str:
    fields = "".join(f"  {line};\n" for name, kind in struct.fields for line in _field(name, kind))
    text = f"typedef struct {struct.c} {{\n{fields}}} {struct.c};"
    if is_fixed(struct):
        lines = [
            f'_Static_assert(sizeof({struct.c}) == {struct.size}, "{struct.c} has its size on the wire");'
        ]
        text += "\n#ifndef __cplusplus\n" + "\n".join(lines) + "\n#endif"
    return text


def _field(name: str, kind: Type) -> list[str]:
    match kind:
        case Text():
            return [f"{kind.c}* {name}", f"int32_t {name}Len"]
        case Sequence():
            return [f"{c_type(kind)}* {name}", f"int32_t {name}Len"]
        case _:
            return [("FC_REMOTE_ALIGN8 " if _is_wide(kind) else "") + declarator(kind, name)]


def _is_wide(kind: Type) -> bool:
    """Whether a field has numbers of 8 bytes, which 32-bit x86 would align to 4."""
    return False if isinstance(kind, Struct) else _alignment(kind) == 8


def _alignment(kind: Type) -> int:
    return _alignment(kind.element) if isinstance(kind, Array) else getattr(kind, "align", 1)


def _typedef(typedef: Typedef) -> str:
    kind = typedef.type
    if isinstance(kind, Sequence) and kind.c == typedef.c:
        inner = f"{c_type(kind)}* data"
        return f"typedef struct {typedef.c} {{\n  {inner};\n  int32_t dataLen;\n}} {typedef.c};"
    if is_fixed(kind):
        return f"typedef {declarator(kind, typedef.c)};"
    return ""  # a second name of a string or sequence exists in the interface file only


def _interface(interface: Interface) -> list[str]:
    name = interface.name
    lines = [f"/* ---- {name} ---- */", "", f"#define {name}_URI {c_text(interface.uri)}", ""]
    if interface.handle:
        lines += [
            f"int32_t {name}_open(const char* uri, fc_remote_handle* h);",
            f"int32_t {name}_close(fc_remote_handle h);",
        ]
    else:
        lines += [
            "/* The stub's handle: open it by fc_remote_open before the first call. The skel has none. */",
            f"extern fc_remote_handle {name}_handle;",
        ]
    lines += [f"{prototype(interface, method)};" for method in interface.methods]
    lines += ["", "/* The entry of the skel, which checks a call and passes it to the functions above. */"]
    lines.append(f"{entry(interface)};")
    return ["\n".join(lines)]


def entry(interface: Interface) -> str:
    """The declaration of a skel's entry, without a semicolon."""
    if interface.handle:
        return (
            f"int32_t {interface.name}_skel_handle_invoke(fc_remote_handle _h, uint32_t _scalars, "
            "fc_remote_arg* _args)"
        )
    return f"int32_t {interface.name}_skel_invoke(uint32_t _scalars, fc_remote_arg* _args)"
