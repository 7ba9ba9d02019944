"""The walls between the rooms of native/: which room may include which, and which system headers it may use.

The rules are held by the text of the files, and by the symbols of the objects that zig makes of them. A
violation that is known stands in a list with its reason. The lists only shrink: an entry too many fails.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from ..tree import ROOT
from .rooms import NATIVE, Compiled, all_rooms, compile_room, compiled, files_of

# Room -> the rooms whose headers it may include and whose functions it may call, beside its own.
MAY_USE: dict[str, set[str]] = {
    "platform": set(),
    "runtime": {"platform"},
    "runtime/dl": {"platform", "runtime"},
    "runtime/graph": {"platform", "runtime"},
    "runtime/image": {"platform", "runtime"},
    "runtime/image/posix": {"platform", "runtime", "runtime/image"},
    "session": {"platform", "runtime"},
    "session/posix": {"platform", "runtime", "session"},
    "session/client": {"platform", "runtime", "session"},
    "session/server": {"platform", "runtime", "session"},
    "session/relay": {"platform", "runtime", "session", "session/client", "session/server"},
    "server": {
        "platform",
        "runtime",
        "session",
        "session/server",
        "session/posix",
        "session/relay",
        "server/posix",
    },
    "server/posix": {
        "platform",
        "runtime",
        "runtime/graph",
        "runtime/image",
        "runtime/image/posix",
        "session",
        "session/server",
        "session/posix",
        "server",
    },
    "server/bare": {"platform", "runtime", "session", "session/server", "server"},
    "server/dsp": {
        "platform",
        "runtime",
        "session",
        "session/server",
        "session/posix",
        "server",
        "server/posix",
    },
    "cxx": {"runtime"},
}
PYTHON = {"python", "python/abi", "python/rpc"}  # they hold each other; nobody else uses them
SERVERS = {"server", "server/posix", "server/bare", "server/dsp"}
MAY_USE |= {room: {*MAY_USE, *PYTHON} - {"cxx", *SERVERS} for room in PYTHON}

# R3: what only a few rooms may know.
SYSTEM = re.compile(
    r"(pthread|signal|dlfcn|link|elf|poll|unistd|fcntl|sched|termios)\.h|(sys|linux|net\w*|arpa)/.*\.h"
)
SYSTEM_ROOMS = {
    "platform",
    "runtime/dl",
    "runtime/image/posix",
    "session/posix",
    "server/posix",
    "server/dsp",
}
SYSTEM_SYMBOL = re.compile(
    r"pthread_\w+|dl(open|sym|addr\w*|close|error|info|_iterate_phdr)|timer_\w+|eventfd|p?poll|fork|socket\w*"
    r"|mmap|munmap|mprotect|madvise|clock_gettime|nanosleep|getentropy|getrandom|sigaction|syscall|open|read|write"
)
WITHOUT_PYTHON = sorted(MAY_USE.keys() - PYTHON - {"cxx"})

# ---- what is known, and only shrinks ----

# (file, header): includes that the table does not allow.
KNOWN_INCLUDES: dict[tuple[str, str], str] = {}
# (file, header): system headers outside their rooms.
KNOWN_SYSTEM: dict[tuple[str, str], str] = {}
# (room, function): system functions outside their rooms.
KNOWN_SYSTEM_SYMBOLS: dict[tuple[str, str], str] = {}
# (room, room, symbol): calls into a room that the table does not allow.
KNOWN_CALLS: dict[tuple[str, str, str], str] = {}
# Functions whose header is in another room than they are, or that have two.
KNOWN_DECLARATIONS: dict[str, str] = {}


def is_new(found: set[tuple[str, ...]] | set[str], known: object) -> None:
    """The violations are exactly the known ones."""
    assert isinstance(known, dict)
    assert found - known.keys() == set(), "new violations"
    assert known.keys() - found == set(), "these are mended: take them off the list"


def includes() -> list[tuple[str, str, str]]:
    """(room, file, header as it is written) of every #include below native/."""
    return [
        (str(path.parent.relative_to(NATIVE)), str(path.relative_to(NATIVE)), header)
        for path in sorted(NATIVE.rglob("*"))
        if path.suffix in {".c", ".h", ".cpp", ".hpp"}
        for header in re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)
    ]


def test_every_room_is_in_the_table() -> None:
    assert set(all_rooms()) == MAY_USE.keys()


def test_r1_and_r2_a_room_includes_only_what_it_may() -> None:
    found: set[tuple[str, ...]] = set()
    for room, file, header in includes():
        target = str(Path(header).parent)
        if not (NATIVE / header).is_file():
            continue
        if target != room and target not in MAY_USE[room]:
            found.add((file, header))
    is_new(found, KNOWN_INCLUDES)


def test_r1_only_the_extension_knows_python() -> None:
    strangers = {
        (file, header)
        for room, file, header in includes()
        if room not in PYTHON and re.match(r"Python\.h|structmember\.h|numpy/|python/", header)
    }
    assert strangers == set()


def test_includes_name_their_room() -> None:
    for path in NATIVE.rglob("*.[ch]"):
        for header in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            assert (NATIVE / header).is_file(), f"{path.name} includes {header}"


def test_r3_system_headers_stay_in_their_rooms() -> None:
    found: set[tuple[str, ...]] = {
        (file, header)
        for room, file, header in includes()
        if SYSTEM.fullmatch(header) and room not in SYSTEM_ROOMS | PYTHON
    }
    is_new(found, KNOWN_SYSTEM)


DECLARATION = re.compile(
    r"^(?:FC_COLD )?(?:extern )?[\w][\w* ]*?[ *](fc_\w+)\((?:[^;{}]*)\)[^;{}]*;", re.MULTILINE
)
DEFINITION = re.compile(r"^(?:FC_COLD )?[\w][\w* ]*?[ *](fc_\w+)\([^;{}]*\) \{", re.MULTILINE)


def places(pattern: re.Pattern[str], suffix: str) -> dict[str, set[Path]]:
    """Function -> the files that declare or define it for others."""
    found: dict[str, set[Path]] = defaultdict(set)
    for path in NATIVE.rglob(f"*{suffix}"):
        for match in pattern.finditer(path.read_text()):
            if not re.search(r"\bstatic\b|\btypedef\b|\breturn\b", match[0].partition("(")[0]):
                found[match[1]].add(path)
    return found


def test_r4_a_function_has_one_header_in_the_room_that_defines_it() -> None:
    declared, defined = places(DECLARATION, ".h"), places(DEFINITION, ".c")
    assert len(declared) > 300 and len(defined) > 300
    twice = {name for name, headers in declared.items() if len(headers) > 1}
    elsewhere = {
        name
        for name, headers in declared.items()
        if defined[name] and {path.parent for path in headers} != {path.parent for path in defined[name]}
    }
    by_hand = {
        f"{name} in {path.name}"
        for path in NATIVE.rglob("*.c")
        for name in DECLARATION.findall(path.read_text())
    }
    is_new(twice | elsewhere | by_hand, KNOWN_DECLARATIONS)


def test_r5_the_wire_is_freestanding() -> None:
    freestanding = {"stddef.h", "stdint.h", "stdbool.h", "c_api.h"}
    for header in [*(ROOT / "include/farcall").glob("wire*.h"), ROOT / "include/farcall/c_api.h"]:
        used = re.findall(r"^#include [<\"]([^>\"]+)", header.read_text(), re.MULTILINE)
        assert {name for name in used if not name.startswith("wire")} <= freestanding, header.name


# ---- the same by symbols ----


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    return compiled(WITHOUT_PYTHON, "x86_64-linux-musl", tmp_path_factory.mktemp("rooms"))


def test_a_room_calls_only_what_it_may(objects: dict[str, Compiled]) -> None:
    # server/bare and server/copy.c stand in for the C library, which belongs to no room.
    owner = {
        name: room
        for room, made in objects.items()
        for name in made.defined() - {"memcpy", "memmove", "memset"}
        if room != "server/bare" or name.startswith("fc_")
    }
    found: set[tuple[str, ...]] = {
        (room, owner[name], name)
        for room, made in objects.items()
        for name in made.wanted() & owner.keys()
        if owner[name] != room and owner[name] not in MAY_USE[room]
    }
    is_new(found, KNOWN_CALLS)


def circles(made: Compiled) -> list[set[str]]:
    """Files of a room that need each other, each circle as the names that they define."""
    home = {symbol.name: i for i, file in enumerate(made.objects) for symbol in file if symbol.defined}
    needs = [{home[symbol.name] for symbol in file if symbol.name in home} for file in made.objects]
    reached = [reach(i, needs) for i in range(len(needs))]
    together = {
        frozenset(j for j in reached[i] if i in reached[j]) for i in range(len(needs)) if i in reached[i]
    }
    return [{name for name, i in home.items() if i in circle} for circle in together if len(circle) > 1]


def reach(start: int, needs: list[set[int]]) -> set[int]:
    """The files that one needs, by way of others too."""
    seen: set[int] = set()
    todo = [start]
    while todo:
        new = needs[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def test_the_runtime_has_one_circle(objects: dict[str, Compiled]) -> None:
    """Errors are objects, and making an object may fail. All other files have an order."""
    (circle,) = circles(objects["runtime"])
    assert {"fc_error_set", "fc_decref_slow"} <= circle
    assert not {"fc_type_name", "fc_array_new", "fc_function_new", "fc_module_new"} & circle


def test_nothing_wants_python(objects: dict[str, Compiled]) -> None:
    wanted = {name for made in objects.values() for name in made.wanted()}
    assert {name for name in wanted if re.match(r"_?Py", name)} == set()
    defined = {name for made in objects.values() for name in made.defined()}
    assert {name for name in wanted - defined if name.startswith(("fc_", "TVMFFI"))} == set()


def test_only_some_rooms_want_the_system(objects: dict[str, Compiled]) -> None:
    found: set[tuple[str, ...]] = {
        (room, name)
        for room, made in objects.items()
        if room not in SYSTEM_ROOMS
        for name in made.wanted()
        if SYSTEM_SYMBOL.fullmatch(name)
    }
    is_new(found, KNOWN_SYSTEM_SYMBOLS)


# ---- machines with 32 bits, and without a system ----


@pytest.mark.parametrize("target", ["arm-linux-musleabihf", "hexagon-linux-musl"])
@pytest.mark.parametrize("room", WITHOUT_PYTHON)
def test_a_machine_of_32_bits(room: str, target: str, tmp_path: Path) -> None:
    compile_room(room, target, tmp_path, "-Wshorten-64-to-32", "-Werror")


def test_a_machine_without_a_system(tmp_path: Path) -> None:
    """FARCALL_BARE: one thread, no locks, and a server that needs only the C library."""
    wanted, defined = set(), set()
    for room in ("platform", "runtime", "session", "session/server"):
        archive = compile_room(room, "arm-linux-musleabihf", tmp_path, "-DFARCALL_BARE", "-Werror")
        made = Compiled.of(room, archive)
        wanted |= made.wanted()
        defined |= made.defined()
    assert {name for name in wanted - defined if SYSTEM_SYMBOL.fullmatch(name)} == set()
    assert not any(name.startswith("fc_") for name in wanted - defined)


def test_a_room_has_files() -> None:
    assert all(files_of(room, ".c", ".cpp") for room in MAY_USE)
