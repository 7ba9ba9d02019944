"""The files of a server on one socket, computed from linked symbols and from #include."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from farcall.launch._server_build import server_sources

from ..wire.conftest import compiler
from .small_server import FLAGS, NATIVE

pytestmark = pytest.mark.long  # compiles the server

# What a server on one socket needs. One file more has to say why: each has to run on boards and DSPs.
CORE = ("session/server/serve.c", "session/posix/channel_fd.c")
FILES = 31  # with farcall.rpc.compute, which a phone needs of its DSP
LINES = 4500
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@pytest.fixture(scope="module")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, tuple[set[str], set[str]]]:
    """For each file of the server, the names that it defines and those that it needs."""
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    folder = tmp_path_factory.mktemp("closure")
    files = server_sources()
    objects = [folder / f"{i}.o" for i in range(len(files))]
    for source, thing in zip(files, objects, strict=True):
        subprocess.run([*compiler(), *FLAGS, "-O1", "-c", source, "-o", thing], check=True)
    return {source: _symbols(thing) for source, thing in zip(files, objects, strict=True)}


def _symbols(thing: Path) -> tuple[set[str], set[str]]:
    listed = subprocess.run(["nm", thing], capture_output=True, text=True, check=True).stdout
    pairs = [line.split()[-2:] for line in listed.splitlines()]
    defined = {name for kind, name in pairs if kind.isupper() and kind != "U"}
    return defined, {name for kind, name in pairs if kind == "U"}


def _included(files: list[Path]) -> set[Path]:
    """Headers of native/ that the files include, by way of others too."""
    seen: set[Path] = set()
    todo = list(files)
    while todo:
        for name in _INCLUDE.findall(todo.pop().read_text()):
            header = NATIVE / name
            if header not in seen:
                seen.add(header)
                todo.append(header)
    return seen


def _closure(symbols: dict[Path, tuple[set[str], set[str]]], *files: str) -> set[Path]:
    """The files, and all files that they link with."""
    home = {name: file for file, (defined, _) in symbols.items() for name in defined}
    reached: set[Path] = set()
    todo = [NATIVE / file for file in files]
    while todo:
        file = todo.pop()
        if file not in reached:
            reached.add(file)
            todo += [home[name] for name in symbols[file][1] if name in home]
    return reached


def test_a_server_on_one_socket_is_few_files(symbols: dict[Path, tuple[set[str], set[str]]]) -> None:
    core = _closure(symbols, *CORE)
    assert len(core) <= FILES
    assert sum(len(file.read_text().splitlines()) for file in core) <= LINES


def test_the_small_server_lists_what_it_needs(symbols: dict[Path, tuple[set[str], set[str]]]) -> None:
    assert set(symbols) == _closure(symbols, "server/main.c")


def test_it_needs_no_loader_and_nothing_of_the_system_outside_its_rooms(
    symbols: dict[Path, tuple[set[str], set[str]]],
) -> None:
    for file, (_, needed) in symbols.items():
        assert not {name for name in needed if re.match(r"_?Py|dl[a-z]+", name)}, file
        if file.parent.name not in ("platform", "posix"):
            assert not {
                name
                for name in needed
                if re.match(r"pthread_|eventfd|poll$|getentropy|clock_|timer_|fork", name)
            }, file


def test_no_room_of_it_includes_more_than_its_rooms() -> None:
    rooms = {header.relative_to(NATIVE).parent.as_posix() for header in _included(server_sources())}
    assert rooms == {
        "platform",
        "runtime",
        "runtime/graph",
        "runtime/image",
        "runtime/image/posix",
        "session",
        "session/relay",
        "session/server",
        "session/posix",
        "server",
        "server/posix",
    }
