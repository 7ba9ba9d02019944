"""Writes the C stub of a file: functions that pack their parameters into a call."""

from __future__ import annotations

from farcall.idl._c_header import made_from
from farcall.idl._c_types import c_type, length, pointer, prototype
from farcall.idl._declarations import Interface, Method, Unit
from farcall.idl._packing import Layout, Leaf, layout_of
from farcall.idl._types import DmaHandle, Sequence, Text, is_fixed


def stub(unit: Unit) -> str:
    """The text of the stub."""
    stem = unit.stem.rpartition("/")[2]
    parts = [made_from(unit), f'#include "{stem}.h"']
    for interface in unit.interfaces:
        parts.append(_opening(interface))
        parts += [_function(interface, method) for method in interface.methods]
    return "\n\n".join(parts) + "\n"


def _opening(interface: Interface) -> str:
    name = interface.name
    if not interface.handle:
        return f"fc_remote_handle {name}_handle;"
    return (
        f"int32_t {name}_open(const char* uri, fc_remote_handle* h) {{ return fc_remote_open(uri, h); }}\n\n"
        f"int32_t {name}_close(fc_remote_handle h) {{ return fc_remote_close(h); }}"
    )


def _function(interface: Interface, method: Method) -> str:
    layout = layout_of(method)
    handle = "_h" if interface.handle else f"{interface.name}_handle"
    if not layout.in_buffers + layout.out_buffers + layout.handles:
        send = f"fc_remote_invoke({handle}, fc_remote_scalars({method.id}, 0, 0, 0, 0), 0)"
        return f"{prototype(interface, method)} {{\n  return {send};\n}}"
    lines = [*_variables(layout), *_prim_in(layout), *_ins(layout), *_outs(layout)]
    lines += [
        f"fc_remote_add_dma(&_request, {leaf.name}, {leaf.name}Offset);"
        for leaf in layout.leaves
        if isinstance(leaf.type, DmaHandle)
    ]
    send = f"fc_remote_send(&_request, {handle}, {method.id})"
    after = _after(layout)
    if after:
        lines += [f"int32_t _status = {send};", "if (_status != FC_REMOTE_OK) return _status;", *after]
        lines.append("return FC_REMOTE_OK;")
    else:
        lines.append(f"return {send};")
    body = "".join(f"  {line}\n" for line in lines)
    return f"{prototype(interface, method)} {{\n{body}}}"


def _variables(layout: Layout) -> list[str]:
    lines = []
    if layout.prim_in.slots:
        lines.append(f"uint8_t _in[{layout.prim_in.size}] = {{0}};")
    if layout.prim_out.slots:
        lines.append(f"uint8_t _out[{layout.prim_out.size}] = {{0}};")
    lines += [
        f"uint32_t _{label(leaf)}_lengths[FC_REMOTE_BUFFERS_MAX];" for leaf in layout.leaves if leaf.nested
    ]
    fixed = layout.in_buffers + layout.out_buffers + layout.handles
    room = "2 * FC_REMOTE_BUFFERS_MAX" if layout.nested else ""
    room = f"{room} + {layout.handles}" if room and layout.handles else room or str(fixed)
    lines.append(f"fc_remote_arg _args[{room}];")
    lines.append("fc_remote_request _request = {_args, sizeof _args / sizeof *_args, 0, 0, 0, false};")
    return lines


def label(leaf: Leaf) -> str:
    """A name for what belongs to a leaf, unique in its method."""
    return leaf.name if leaf.field is None else f"{leaf.name}_{leaf.field}"


def _count(leaf: Leaf) -> str:
    """The variable or field that has a leaf's count."""
    in_text = isinstance(leaf.type, Text) and leaf.mode == "in" and leaf.field is None
    return f"{leaf.name}Len" if in_text else length(leaf, own=False)


def _prim_in(layout: Layout) -> list[str]:
    lines = []
    for leaf in layout.leaves:
        if isinstance(leaf.type, Text) and leaf.mode == "in" and leaf.field is None:
            count = f"fc_remote_text_count(&_request, {leaf.name}, {leaf.unit[0]})"
            lines.append(f"int32_t {leaf.name}Len = {count};")
    for slot in layout.prim_in.slots:
        at = f"_in + {slot.offset}"
        match slot.role, slot.leaf:
            case "id", _:
                lines.append(f"fc_remote_put({at}, &(uint32_t){{{layout.id}}}, 4);")
            case "value", Leaf() as leaf:
                lines.append(f"fc_remote_put({at}, {pointer(leaf, own=False)}, {slot.size});")
            case _, Leaf(type=DmaHandle()) as leaf:
                lines.append(f"fc_remote_put({at}, &{leaf.name}Size, 4);")
            case _, Leaf() as leaf:
                lines.append(f"fc_remote_put({at}, &{_count(leaf)}, 4);")
    if layout.prim_in.slots:
        lines.append(f"fc_remote_add_in(&_request, _in, {layout.prim_in.size}, 1);")
    return lines


def _ins(layout: Layout) -> list[str]:
    lines = []
    for leaf in layout.leaves:
        if leaf.nested:
            lines += _nested_in(leaf)
        elif isinstance(leaf.type, Sequence | Text) and leaf.goes_in:
            at, unit = pointer(leaf, own=False), _unit(leaf)
            lines.append(f"fc_remote_add_in(&_request, {at}, {_count(leaf)}, {unit});")
    return lines


def _unit(leaf: Leaf) -> str:
    if isinstance(leaf.type, Sequence) and not leaf.nested and c_type(leaf.type) != "uint8_t":
        return f"sizeof({c_type(leaf.type)})"
    return str(leaf.unit[0])


def _nested_in(leaf: Leaf) -> list[str]:
    """The lengths or capacities of the elements, then those elements that go in."""
    at, count, lengths = leaf.name, length(leaf, own=False), f"_{label(leaf)}_lengths"
    lines = [
        f"fc_remote_check_few(&_request.bad, {count});",
        "if (_request.bad) return FC_REMOTE_BAD_PARAMETER;",
        f"for (int32_t _i = 0; _i < {count}; ++_i) {lengths}[_i] = (uint32_t){at}[_i].dataLen;",
        f"fc_remote_add_in(&_request, {lengths}, {count}, 4);",
    ]
    if leaf.goes_in:
        element = f"{at}[_i].data, {at}[_i].dataLen, {leaf.unit[0]}"
        lines += [
            f"for (int32_t _i = 0; _i < {count}; ++_i) {{",
            f"  fc_remote_add_in(&_request, {element});",
            "}",
        ]
    return lines


def _outs(layout: Layout) -> list[str]:
    lines = []
    if layout.prim_out.slots:
        lines.append(f"fc_remote_add_out(&_request, _out, {layout.prim_out.size}, 1);")
    for leaf in layout.leaves:
        if not isinstance(leaf.type, Sequence | Text) or not leaf.comes_out:
            continue
        if leaf.nested:
            at = leaf.name
            element = f"{at}[_i].data, {at}[_i].dataLen, {leaf.unit[0]}"
            lines += [
                f"for (int32_t _i = 0; _i < {length(leaf, own=False)}; ++_i) {{",
                f"  fc_remote_add_out(&_request, {element});",
                "}",
            ]
        else:
            at = pointer(leaf, own=False)
            lines.append(f"fc_remote_add_out(&_request, {at}, {_count(leaf)}, {_unit(leaf)});")
    return lines


def _after(layout: Layout) -> list[str]:
    """What follows a call that succeeded."""
    lines = []
    for leaf in layout.leaves:
        if not leaf.comes_out:
            continue
        if is_fixed(leaf.type):
            slot = layout.prim_out.slot(leaf)
            lines.append(f"fc_remote_get({pointer(leaf, own=False)}, _out + {slot.offset}, {slot.size});")
        elif isinstance(leaf.type, Text):
            lines.append(
                f"fc_remote_end_text({pointer(leaf, own=False)}, {length(leaf, own=False)}, {leaf.unit[0]});"
            )
        elif leaf.nested and isinstance(leaf.type, Sequence) and isinstance(leaf.type.element, Text):
            element = f"{leaf.name}[_i].data, {leaf.name}[_i].dataLen, 1"
            lines.append(
                f"for (int32_t _i = 0; _i < {length(leaf, own=False)}; ++_i) fc_remote_end_text({element});"
            )
    return lines
