"""Compiles interface files: reads one, and writes what was asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from farcall._files import check_folder, write_beside
from farcall.errors import IdlError, UsageError
from farcall.idl._c_header import header
from farcall.idl._c_skel import skel
from farcall.idl._c_stub import stub
from farcall.idl._declarations import Unit
from farcall.idl._includes import Includes
from farcall.idl._parser import Parser
from farcall.idl._python import python_stub
from farcall.idl._source import Source, read_source

StubLanguage: TypeAlias = Literal["c", "python"]

_STEM = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:/[A-Za-z][A-Za-z0-9_]*)*")


def parse_text(source: Source) -> Unit:
    """Parse a text, which can include the standard files only.

    Raises:
        IdlError: the text is not valid.
    """
    return Parser(source, "text", Includes(None)).parse()


def parse_file(path: str | os.PathLike[str]) -> tuple[Unit, list[Unit]]:
    """Parse a file. Returns its unit, and those of all files that it includes.

    Raises:
        MissingFileError: the file does not exist.
        UsageError: a file cannot be read.
        IdlError: a file is not valid.
    """
    first = Path(path)
    source = read_source(first)
    includes = Includes(first.resolve().parent)
    includes.begin(first.resolve())
    unit = Parser(source, first.stem, includes).parse()
    for one in (unit, *includes.units):
        if not _STEM.fullmatch(one.stem):
            raise IdlError(
                f"{one.name}: the names of files and folders become parts of the code; rename it to letters, "
                "digits and `_`, beginning with a letter",
                one.name,
                1,
                1,
            )
    return unit, includes.units


def generate(path: str | os.PathLike[str], stubs: Sequence[StubLanguage] = ("c",)) -> dict[str, str]:
    """The files that :func:`compile` writes: their names, relative to its output folder, and texts."""
    unit, included = parse_file(path)
    if not unit.interfaces:
        raise IdlError(
            f"{unit.name}: no interface; declare one, or compile a file that does", unit.name, 1, 1
        )
    files = {f"{one.stem}.h": header(one) for one in (*included, unit)}
    files[f"{unit.stem}_skel.c"] = skel(unit)
    if "c" in stubs:
        files[f"{unit.stem}_stub.c"] = stub(unit)
    if "python" in stubs:
        files[f"{unit.stem}_stub.py"] = python_stub(unit)
    return files


def compile(  # the verb of the language's other compilers
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    stubs: Sequence[StubLanguage] = ("c",),
) -> list[Path]:
    """Compile an interface file into headers, a skel, and stubs.

    Args:
        path: the file, ``NAME.idl``. It can include files of its own folder and below.
        output: the folder to write to, which must exist.
        stubs: languages of the stubs: ``"c"``, ``"python"``, or both.

    Returns:
        The files: ``NAME.h`` (and a header for each included file), ``NAME_skel.c``, ``NAME_stub.c``,
        ``NAME_stub.py``.

    Raises:
        MissingFileError: the file does not exist.
        IdlError: a file is not valid. Nothing was written.
        UsageError: a file cannot be read or written, or a language is unknown.
    """
    for language in stubs:
        if language not in ("c", "python"):
            raise UsageError(f"no stubs in {language!r}; the languages are c and python")
    folder, written = Path(output), list[Path]()
    files = generate(path, stubs)
    check_folder(folder / "file")
    for name, text in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_beside(target, text.encode())
        written.append(target)
    return written
