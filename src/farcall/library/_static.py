"""Libraries that are linked into a program: of a model or of kernels, and a header with their table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from farcall.errors import BackendError, ToolchainError, UsageError
from farcall.library._archive import archive, members_of, rename_symbols
from farcall.library._elf import Elf
from farcall.library._manifest import DIGEST_SECTION, DIGEST_SIZE, compute_digest
from farcall.toolchain import Source, Target

_PREFIX = "__tvm_ffi_"
_LISTED = 5
_REGISTER = re.compile(r"farcall_\w+_register")
_CXX = re.compile(r"_Z|__cxa_|__gxx_|_Unwind_")
_LOADER = re.compile(r"dl(open|sym|vsym|close|error|addr|_iterate_phdr)$|__tls_get_addr$")

_STRUCT = """\
#ifndef FARCALL_STATIC_LIBRARY_
#define FARCALL_STATIC_LIBRARY_
/* A function by the name under which it is registered. It is a TVMFFISafeCallType of <farcall/c_api.h>. */
typedef struct FarcallSymbol {
  const char* name;
  void (*function)(void);
} FarcallSymbol;

/* A library that is linked into a program. */
typedef struct FarcallLibrary {
  const char* prefix;           /* of its functions in the system library */
  const FarcallSymbol* symbols; /* the last one has no name */
  const char* manifest;         /* JSON, without a zero at its end; of kernels: NULL */
  size_t manifest_size;
  const unsigned char* digest; /* SHA-256 of the library's file, with zeros in its place; of kernels: NULL */
} FarcallLibrary;
#endif
"""


class Contents(NamedTuple):
    """What the table of a library tells."""

    name: str  # of the library, a C identifier
    target: str
    producer: str
    functions: Mapping[str, str]  # that the header describes: name -> Signature, or ""
    symbols: Sequence[str]  # all functions
    manifest_size: int | None  # None: there is no manifest


def identifier(model: str) -> str:
    """The name of a model as part of C names."""
    return re.sub(r"\W", "_", model, flags=re.ASCII) or "model"


def check_name(name: str) -> str:
    """The name that a user gives a library.

    Raises:
        UsageError: it cannot be part of C names.
    """
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise UsageError(f"name {name!r}: expected letters, digits and `_`, since C names begin with it")
    return name


def header(contents: Contents) -> str:
    """The text of the header: what a program declares to link the library."""
    name = contents.name
    guard = f"FARCALL_LIBRARY_{name.upper()}_H_"
    functions = "".join(f" *     {f}{signature}\n" for f, signature in contents.functions.items())
    return f"""\
/*
 * The functions of `{name}`, for {contents.target}, by {contents.producer}:
 *
{functions.replace("*/", "* /")} *
 * They are in the system library behind the prefix `{name}_` after farcall_{name}_register().
 */
#ifndef {guard}
#define {guard}

#include <stddef.h>

#ifdef __cplusplus
extern "C" {{
#endif

{_STRUCT}
extern const FarcallLibrary farcall_{name};

/* Registers the functions in the system library. Call it once, at the start. -1 with an error: no memory. */
int farcall_{name}_register(void);

#ifdef __cplusplus
}}
#endif

#endif /* {guard} */
"""


def table_source(contents: Contents) -> Source:
    """The C source of the table."""
    name, size = contents.name, contents.manifest_size
    declared = "".join(f"extern void {_PREFIX}{function}(void);\n" for function in contents.symbols)
    rows = "".join(
        f'  {{"{_PREFIX}{name}_{function}", {_PREFIX}{function}}},\n' for function in contents.symbols
    )
    data = "NULL, 0, NULL" if size is None else f"farcall_manifest, {size}, farcall_digest"
    text = f"""\
#include <string.h>

{header(contents)}
int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* symbol);
extern const char farcall_manifest[];
extern const unsigned char farcall_digest[];
{declared}
static const FarcallSymbol symbols[] = {{
{rows}  {{NULL, NULL}}}};

__attribute__((visibility("default"))) const FarcallLibrary farcall_{name} = {{
  "{name}_", symbols, {data}}};

__attribute__((visibility("default"))) int farcall_{name}_register(void) {{
  for (const FarcallSymbol* symbol = symbols; symbol->name; ++symbol) {{
    void* address;
    memcpy(&address, &symbol->function, sizeof address);
    if (TVMFFIEnvModRegisterSystemLibSymbol(symbol->name, address) != 0) return -1;
  }}
  return 0;
}}
"""
    return Source("farcall_table.c", text, ("-O1",))


def exported_functions(objects: Iterable[Path]) -> list[str]:
    """The functions that the objects export, sorted."""
    symbols = {symbol for path in objects for symbol in Elf(path.read_bytes(), path.name).object_symbols()}
    names = {symbol.name for symbol in symbols if symbol.defined and symbol.name.startswith(_PREFIX)}
    return sorted(name.removeprefix(_PREFIX) for name in names if not name.startswith(_PREFIX + "_"))


def symbols_of(data: bytes, what: str) -> list[str]:
    """The symbols that the objects of a static library define, without the library's name before them.

    Raises:
        ArtifactError: the bytes are no such library.
    """
    elves = [Elf(member, what) for _, member in members_of(data, what)]
    names = {symbol.name for elf in elves for symbol in elf.object_symbols() if symbol.defined}
    own = next((name.removesuffix("register") for name in names if _REGISTER.fullmatch(name)), "")
    return sorted(name.removeprefix(own) for name in names)


def check_distinct(libraries: Iterable[Path]) -> None:
    """Refuse two libraries of one name in a program: a linker would take one of them for both.

    Raises:
        UsageError: two files have the same name inside.
    """
    owners: dict[str, Path] = {}
    for path in libraries:
        for _, data in members_of(path.read_bytes(), str(path)):
            for symbol in Elf(data, str(path)).object_symbols():
                if not symbol.defined or not _REGISTER.fullmatch(symbol.name):
                    continue
                name = symbol.name.removesuffix("_register")
                if owners.setdefault(name, path) != path:
                    raise UsageError(
                        f"{str(owners[name])!r} and {str(path)!r} are both the library "
                        f"{name.removeprefix('farcall_')!r}; build one of them with another name="
                    )


def static_library(name: str, objects: Sequence[Path], target: Target, *, sealed: bool = True) -> bytes:
    """The static library of the objects, with its digest where ``sealed``: then one of them has room for it.

    All symbols get the library's name, so that several libraries fit into one program.

    Raises:
        ToolchainError: the objects need what a program without C++ and without a loader lacks.
    """
    elves = [Elf(path.read_bytes(), path.name) for path in objects]
    _check(name, elves, target)
    kept = {f"farcall_{name}", f"farcall_{name}_register"}
    defined = {symbol.name for elf in elves for symbol in elf.object_symbols() if symbol.defined}
    names = {old: f"farcall_{name}_{old}" for old in sorted(defined - kept)}
    members = [rename_symbols(bytes(elf.data), names) for elf in elves]
    data, places = archive(members)
    return _sealed(bytearray(data), members, places) if sealed else data


def _check(name: str, elves: Iterable[Elf], target: Target) -> None:
    wanted: set[str] = set()
    defined: set[str] = set()
    for elf in elves:
        if any(section.name.startswith((".tdata", ".tbss")) for section in elf.sections):
            raise ToolchainError(
                f"the static library {name!r} for {target.triple} has thread-local storage, which a firmware "
                'lacks; write its code without it, or build with link="shared"'
            )
        for symbol in elf.object_symbols():
            (defined if symbol.defined else wanted).add(symbol.name)
    _refuse(name, _CXX, wanted - defined, "the C++ runtime", "write its code in C, or without exceptions")
    _refuse(name, _LOADER, wanted - defined, "a dynamic loader", "do without them")


def _refuse(name: str, pattern: re.Pattern[str], wanted: Iterable[str], what: str, cure: str) -> None:
    found = sorted(filter(pattern.match, wanted))
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise ToolchainError(
            f"the static library {name!r} needs {what}, which a firmware lacks: "
            f'{", ".join(found[:_LISTED])}{more}; {cure}, or build with link="shared"'
        )


def _sealed(data: bytearray, members: Sequence[bytes], places: Sequence[int]) -> bytes:
    """The library with its digest: SHA-256 of the file, computed with the digest itself as zeros."""
    for member, place in zip(members, places, strict=True):
        section = Elf(member, "an object").section(DIGEST_SECTION)
        if section is not None and section.size == DIGEST_SIZE:
            at = place + section.offset
            data[at : at + DIGEST_SIZE] = compute_digest(bytes(data), at)
            return bytes(data)
    raise BackendError(f"the static library lost its section {DIGEST_SECTION}; build it again")
