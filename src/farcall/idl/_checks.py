"""Checks of structs, parameters and methods, beyond their grammar."""

from __future__ import annotations

from farcall.idl._declarations import Method, Parameter
from farcall.idl._packing import BUFFERS_MAX, HANDLES_MAX, layout_of
from farcall.idl._source import Place
from farcall.idl._types import SIZE_MAX, Array, DmaHandle, Sequence, Struct, Text, Type, is_fixed


def check_struct(struct: Struct, place: Place) -> None:
    """Refuse a struct that has no layout."""
    if not struct.fields:
        raise place.error(f"struct {struct.name} has no fields, which C does not allow; add one")
    lengths = {f"{name}Len" for name, kind in struct.fields if not is_fixed(kind)}
    for name, kind in struct.fields:
        if name in lengths:
            raise place.error(
                f"field `{name}` is the C name of the length of `{name[:-3]}`; rename one of them"
            )
        if _holds_sequences(kind):
            raise place.error(
                f"field `{name}` is itself a struct with sequences, or has sequences in sequences; pass it "
                "as a parameter of its own"
            )
        if isinstance(kind, DmaHandle):
            raise place.error(f"field `{name}` is a handle, which must be a parameter of its own")
    if is_fixed(struct) and struct.size > SIZE_MAX:
        raise place.error(
            f"struct {struct.name} has {struct.size} bytes, and at most {SIZE_MAX} can be passed by value; "
            "use sequences for its large fields"
        )


def _holds_sequences(kind: Type) -> bool:
    match kind:
        case Struct() | Array():
            return not is_fixed(kind)
        case Sequence(element, _):
            return not is_fixed(element)
        case _:
            return False


def check_parameter(parameter: Parameter, names: set[str], place: Place) -> None:
    """Refuse a parameter whose mode or name cannot be. Adds its names in C to ``names``."""
    kind, mode = parameter.type, parameter.mode
    if isinstance(kind, DmaHandle) and mode != "in":
        raise place.error(f"a dmahandle cannot be {mode}: the memory is the caller's; write `in`")
    if isinstance(kind, Struct) and not is_fixed(kind) and mode == "inrout":
        raise place.error("a struct with sequences is in or rout; write two parameters")
    mine = {parameter.name}
    if isinstance(kind, DmaHandle):
        mine |= {f"{parameter.name}Offset", f"{parameter.name}Size"}
    if isinstance(kind, Sequence) or (isinstance(kind, Text) and mode != "in"):
        mine.add(f"{parameter.name}Len")
    if clash := mine & names:
        raise place.error(f"two parameters are called `{min(clash)}` in C; rename one")
    names |= mine


def check_call_size(method: Method, place: Place) -> None:
    """Refuse a method whose calls have more buffers, or more fixed bytes, than a call can have."""
    layout = layout_of(method)
    if max(layout.in_buffers, layout.out_buffers) > BUFFERS_MAX:
        raise place.error(
            f"a call has at most {BUFFERS_MAX} buffers in each direction; join some of the sequences"
        )
    if layout.handles > HANDLES_MAX:
        raise place.error(
            f"a call has at most {HANDLES_MAX} handles, this one {layout.handles}; split the method"
        )
    if max(layout.prim_in.size, layout.prim_out.size) > SIZE_MAX:
        raise place.error(
            f"the fixed values of a call have at most {SIZE_MAX} bytes; pass the large ones as sequences"
        )
