"""Generates the C of what regions keep between calls: the tables that ``entry_state.c`` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from farcall import _core
from farcall.backends._ctext import c_string
from farcall.backends._kernels import HIDDEN
from farcall.backends.base import RegionModule
from farcall.ffi import Device

if TYPE_CHECKING:
    import numpy as np

    from farcall.backends.base import Code
    from farcall.graph import Region

Place: TypeAlias = tuple[int, int]  # a DLPack device
CPU: Place = (1, 0)
KERNEL = "void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result"

_LOOKUP = f"""
/* The loader stores the library's module here. */
FARCALL_VISIBLE void* __tvm_ffi__library_ctx;
static int lookup(const char* name, TVMFFIObjectHandle* out) {{
  return TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, name, out);
}}
static int call_module({KERNEL}) {{
  return TVMFFIFunctionGetCellPtr(self)->safe_call(self, args, num_args, result);
}}
"""

# Objects that modules keep may be views of the library's constants, whose deleter is in the library's code.
_UNLOADS = """
/* With a runtime, the entries make no object with a deleter of their own: the library may be unloaded. */
FARCALL_VISIBLE const char __farcall_unloads = 1;
"""


def place_text(region: Region) -> str:
    """The text with which errors name a region."""
    return f"region `{region.name}` of backend `{region.backend}`"


def place(region: Region) -> str:
    """The C literal of that text."""
    return c_string(place_text(region))


def device(code: Code) -> Place:
    """The DLPack device of a region: its type, and its number."""
    found = Device(code.device)
    return found.dlpack_device_type(), found.index


def has_state(code: Code) -> bool:
    """Whether a region keeps something between calls."""
    return isinstance(code, RegionModule) or code.state


def region_function(region: Region, code: Code) -> str:
    """The name in an artifact of the function that a backend generated for a region.

    Regions of modules share one function, which calls the function object in their state.
    """
    if isinstance(code, RegionModule):
        return "call_module"
    return f"farcall_region_{code.function or region.name}"


def module_function(region: Region, code: RegionModule) -> str:
    """The name in its module of a region's function."""
    return code.function or region.name


def constant_names(region: Region, code: RegionModule) -> list[str]:
    """The C identifiers of the constants of a region of a module, in their order."""
    return [f"farcall_constant_{region.name}_{k}" for k in range(len(code.constants))]


def declarations(regions: Sequence[Region], codes: Mapping[str, Code]) -> str:
    """The C text of the functions of all regions, and of their states."""
    modules = any(isinstance(code, RegionModule) for code in codes.values())
    parts = [_LOOKUP if modules else _UNLOADS]
    declared = {region_function(region, codes[region.name]): None for region in regions}
    parts += [f"{HIDDEN} int {name}({KERNEL});\n" for name in declared if name != "call_module"]
    made = [_region(region, codes[region.name]) for region in regions]
    rows = "".join(row for _, row in made) or "{0}"
    parts += [*(text for text, _ in made), f"const struct fc_code farcall_codes[] = {{\n{rows}}};\n"]
    states = "".join(f"&state_{region.name}, " for region in regions if has_state(codes[region.name]))
    parts.append(f"struct fc_state* const farcall_states[] = {{{states}NULL}};\n")
    return "".join(parts)


def code_places(regions: Iterable[Region]) -> dict[str, str]:
    """The C expression of the ``fc_code`` of each region, by its name."""
    return {region.name: f"farcall_codes + {k}" for k, region in enumerate(regions)}


def _region(region: Region, code: Code) -> tuple[str, str]:
    """The tables of what one region keeps, and its row in the table of ``fc_code``."""
    text, table = "", "NULL"
    if isinstance(code, RegionModule):
        text = _module_state(region, code)
    elif code.state:
        function = region_function(region, code)
        text = "".join(f"{HIDDEN} int {function}_{part}({KERNEL});\n" for part in ("init", "destroy"))
        text += _state(region, {"init": f"{function}_init", "destroy": f"{function}_destroy"})
    elif code.table and code.constants:
        table = f"table_{region.name}"
        text = "".join(f"extern const unsigned char {name}[];\n" for name in code.constants)
        text += f"static const void* const {table}[] = {{{', '.join(code.constants)}}};\n"
    state = f"&state_{region.name}" if has_state(code) else "NULL"
    fields = [c_string(region.name), place(region), region_function(region, code), state, table]
    kind, index = device(code)
    fields += [f"{{{kind}, {index}}}", "true" if code.bounded else "false"]
    return text, f"  {{{', '.join(fields)}}},\n"


def _module_state(region: Region, code: RegionModule) -> str:
    names = constant_names(region, code)
    text, rows = "", []
    for k, (name, data) in enumerate(zip(names, code.constants.values(), strict=True)):
        text += f"extern const unsigned char {name}[];\n"
        shape = f"shape_{region.name}_{k}"
        if data.ndim:
            numbers = ", ".join(map(str, (*data.shape, *_strides(data))))
            text += f"static const int64_t {shape}[] = {{{numbers}}};\n"
        place = (f"(int64_t*){shape}", f"(int64_t*){shape} + {data.ndim}") if data.ndim else ("NULL", "NULL")
        kind = _core.dtype(data.dtype)
        element = f"{{{kind.code}, {kind.bits}, {kind.lanes}}}"
        rows.append(f"{{(void*){name}, {{kDLCPU, 0}}, {data.ndim}, {element}, {place[0]}, {place[1]}, 0}}")
    fields = {
        "kind": c_string(code.kind),
        "function": c_string(module_function(region, code)),
        "lookup": "lookup",
    }
    if rows:
        table = "".join(f"  {row},\n" for row in rows)
        text += f"static const DLTensor constants_{region.name}[] = {{\n{table}}};\n"
        fields |= {"constants": f"constants_{region.name}", "num_constants": str(len(rows))}
    return text + _state(region, fields)


def _strides(data: np.ndarray[Any, Any]) -> list[int]:
    strides = [1] * data.ndim
    for axis in range(data.ndim - 2, -1, -1):
        strides[axis] = strides[axis + 1] * data.shape[axis + 1]
    return strides


def _state(region: Region, fields: Mapping[str, str]) -> str:
    items = {"place": place(region), **fields}
    table = "".join(f"  .{name} = {text},\n" for name, text in items.items())
    return f"static struct fc_state state_{region.name} = {{\n{table}}};\n"
