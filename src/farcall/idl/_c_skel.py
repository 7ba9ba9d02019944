"""Writes the C skel of a file: it checks each call, unpacks it, and calls the implementation.

The bytes of a call are hostile. Helpers of fastrpc.h check every count, length and alignment, and remember
the first that is wrong; the implementation runs only if all were right.
"""

from __future__ import annotations

from farcall.idl._c_header import entry, made_from
from farcall.idl._c_stub import label
from farcall.idl._c_types import c_type, length, local, pointer, wrapped
from farcall.idl._declarations import Interface, Method, Unit
from farcall.idl._packing import Layout, Leaf, layout_of
from farcall.idl._types import Array, DmaHandle, Enum, Scalar, Sequence, Struct, Text, is_fixed

_BAD = "return FC_REMOTE_BAD_PARAMETER;"
_INCOMPLETE = f"if (!fc_remote_complete(_call)) {_BAD}"


def skel(unit: Unit) -> str:
    """The text of the skel."""
    stem = unit.stem.rpartition("/")[2]
    parts = [made_from(unit), f'#include "{stem}.h"']
    for interface in unit.interfaces:
        if interface.handle:
            parts.append(_opening(interface.name))
        parts += [_handler(interface, method) for method in interface.methods]
        parts.append(_entry(interface))
    return "\n\n".join(parts) + "\n"


def _opening(name: str) -> str:
    return f"""static int32_t fc_skel_{name}_open(fc_remote_call* _call) {{
  const uint8_t* _in = fc_remote_in(_call, 4, 1, 1);
  if (!_in) {_BAD}
  const char* _uri = fc_remote_text(_call, fc_remote_count(_call, _in), 1);
  fc_remote_arg* _opened = fc_remote_out_handle(_call);
  {_INCOMPLETE}
  return {name}_open(_uri, &_opened->handle);
}}

static int32_t fc_skel_{name}_close(fc_remote_call* _call) {{
  fc_remote_arg* _closed = fc_remote_in_handle(_call);
  {_INCOMPLETE}
  return {name}_close(_closed->handle);
}}"""


def _entry(interface: Interface) -> str:
    name, pass_on = interface.name, "_h, &_call" if interface.handle else "&_call"
    cases = [f"case {m.id}: return fc_skel_{name}_{m.name}({pass_on});" for m in interface.methods]
    if interface.handle:
        cases = [
            f"case FC_REMOTE_OPEN: return fc_skel_{name}_open(&_call);",
            f"case FC_REMOTE_CLOSE: return fc_skel_{name}_close(&_call);",
            *cases,
        ]
    unused = "  (void)_h;\n" if interface.handle and not interface.methods else ""
    body = "".join(f"    {case}\n" for case in [*cases, "default: return FC_REMOTE_UNSUPPORTED;"])
    return f"""{entry(interface)} {{
{unused}  fc_remote_call _call = fc_remote_begin(_scalars, _args);
  if (_call.bad) {_BAD}
  switch (_call.method) {{
{body}  }}
}}"""


def _handler(interface: Interface, method: Method) -> str:
    layout = layout_of(method)
    lines = []
    if layout.prim_in.slots:
        lines += [f"const uint8_t* _in = fc_remote_in(_call, {layout.prim_in.size}, 1, 1);"]
        used = any(slot.role != "id" for slot in layout.prim_in.slots)
        lines.append(f"if (!_in) {_BAD}" if used else "(void)_in;")
    if layout.prim_out.slots:
        lines.append(f"uint8_t* _out = fc_remote_out(_call, {layout.prim_out.size}, 1, 1);")
    lines += _structs(method)
    for leaf in layout.leaves:
        lines += _unpack(layout, leaf)
    lines.append(_INCOMPLETE)
    lines += [line for leaf in layout.leaves for line in _end_texts(leaf) if leaf.mode == "inrout"]
    call = wrapped(f"{interface.name}_{method.name}(", _arguments(interface, method))
    after = _after(layout)
    if after:
        lines += [f"int32_t _status = {call};", "if (_status != FC_REMOTE_OK) return _status;", *after]
        lines.append("return FC_REMOTE_OK;")
    else:
        lines.append(f"return {call};")
    head = "fc_remote_handle _h, " if interface.handle else ""
    body = "".join(f"  {line}\n" for text in lines for line in text.splitlines())
    return f"static int32_t fc_skel_{interface.name}_{method.name}({head}fc_remote_call* _call) {{\n{body}}}"


def _structs(method: Method) -> list[str]:
    """Variables for parameters that are structs with sequences; their fields are unpacked one by one."""
    return [
        line
        for parameter in method.parameters
        if isinstance(parameter.type, Struct) and not is_fixed(parameter.type)
        for line in (
            f"{parameter.type.c} {parameter.name};",
            f"fc_remote_zero(&{parameter.name}, sizeof {parameter.name});",
        )
    ]


def _unpack(layout: Layout, leaf: Leaf) -> list[str]:
    match leaf.type:
        case Scalar() | Enum() | Array() | Struct():
            return _unpack_fixed(layout, leaf)
        case DmaHandle():
            return [
                f"uint32_t {leaf.name}Size;",
                f"fc_remote_get(&{leaf.name}Size, _in + {layout.prim_in.slot(leaf).offset}, 4);",
                f"const fc_remote_arg* {leaf.name} = fc_remote_in_handle(_call);",
            ]
        case _:
            count = f"fc_remote_count(_call, _in + {layout.prim_in.slot(leaf).offset})"
            own = "" if leaf.field else "int32_t "
            return [f"{own}{length(leaf, own=True)} = {count};", *_unpack_buffer(leaf)]


def _unpack_fixed(layout: Layout, leaf: Leaf) -> list[str]:
    assert isinstance(leaf.type, Scalar | Enum | Array | Struct)  # noqa: S101
    lines, at = [], pointer(leaf, own=True)
    if leaf.field is None:
        lines.append(f"{local(leaf.type, leaf.name)};")
    if leaf.goes_in:
        slot = layout.prim_in.slot(leaf)
        lines.append(f"fc_remote_get({at}, _in + {slot.offset}, {slot.size});")
    elif leaf.field is None:
        lines.append(f"fc_remote_zero({at}, sizeof {leaf.name});")
    return lines


def _unpack_buffer(leaf: Leaf) -> list[str]:
    if leaf.nested:
        return _unpack_nested(leaf)
    size, align = leaf.unit
    at, count = pointer(leaf, own=True), length(leaf, own=True)
    if isinstance(leaf.type, Text) and leaf.mode == "in":
        value = f"fc_remote_text(_call, {count}, {size})"
    else:
        take = {"in": "in", "rout": "out", "inrout": "inrout"}[leaf.mode]
        value = f"fc_remote_{take}(_call, {count}, {size}, {align})"
    const = "const " if leaf.mode == "in" else ""
    own = "" if leaf.field else f"{const}{c_type(leaf.type)}* "
    return [f"{own}{at} = {value};"]


def _unpack_nested(leaf: Leaf) -> list[str]:
    assert isinstance(leaf.type, Sequence)  # noqa: S101
    name, count = leaf.name, length(leaf, own=True)
    size, align = leaf.unit
    if isinstance(leaf.type.element, Text) and leaf.mode == "in":
        take = f"fc_remote_text(_call, {name}[_i].dataLen, 1)"
    else:
        how = {"in": "in", "rout": "out", "inrout": "inrout"}[leaf.mode]
        take = f"fc_remote_{how}(_call, {name}[_i].dataLen, {size}, {align})"
    lengths = f"_{label(leaf)}_lengths"
    return [
        f"{c_type(leaf.type)} {name}[FC_REMOTE_BUFFERS_MAX];",
        f"fc_remote_check_few(&_call->bad, {count});",
        f"const uint8_t* {lengths} = fc_remote_in(_call, {count}, 4, 1);",
        f"for (int32_t _i = 0; _i < {count} && !_call->bad; ++_i) {{",
        f"  {name}[_i].dataLen = fc_remote_count(_call, {lengths} + 4 * _i);",
        f"  {name}[_i].data = {take};",
        "}",
    ]


def _end_texts(leaf: Leaf) -> list[str]:
    """End the strings that come back, which the method may have filled to the last byte."""
    if not leaf.comes_out:
        return []
    count = length(leaf, own=True)
    if isinstance(leaf.type, Text):
        return [f"fc_remote_end_text({pointer(leaf, own=True)}, {count}, {leaf.unit[0]});"]
    if isinstance(leaf.type, Sequence) and isinstance(leaf.type.element, Text):
        end = f"fc_remote_end_text({leaf.name}[_i].data, {leaf.name}[_i].dataLen, 1);"
        return [f"for (int32_t _i = 0; _i < {count}; ++_i) {end}"]
    return []


def _arguments(interface: Interface, method: Method) -> list[str]:
    found = ["_h"] if interface.handle else []
    for parameter in method.parameters:
        kind, name = parameter.type, parameter.name
        match kind:
            case DmaHandle():
                found += [f"{name}->dma.fd", f"{name}->dma.offset", f"{name}Size"]
            case Text() if parameter.mode == "in":
                found.append(name)
            case Text() | Sequence():
                found += [name, f"{name}Len"]
            case Array():
                found.append(name)
            case Struct():
                found.append(f"&{name}")
            case _:
                found.append(name if parameter.mode == "in" else f"&{name}")
    return found


def _after(layout: Layout) -> list[str]:
    """What follows a call that succeeded: fixed values are copied out, strings end."""
    lines = []
    for leaf in layout.leaves:
        lines += _end_texts(leaf)
        if leaf.comes_out and is_fixed(leaf.type):
            slot = layout.prim_out.slot(leaf)
            lines.append(f"fc_remote_put(_out + {slot.offset}, {pointer(leaf, own=True)}, {slot.size});")
    return lines
