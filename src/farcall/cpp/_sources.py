"""Sources: the functions that a text exports, and the language of a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farcall._suggest import did_you_mean
from farcall.cpp._job import Unit
from farcall.errors import UsageError

if TYPE_CHECKING:
    from farcall.cpp._parameters import Declarations, Parameter

_LANGUAGES = {
    ".c": "c",
    ".cc": "c++",
    ".cpp": "c++",
    ".cxx": "c++",
    ".cu": "cuda",
    ".o": "object",
}


def as_list(sources: Sequence[str] | str | None) -> list[str]:
    """The texts of an argument: one text, several, or None."""
    return [sources] if isinstance(sources, str) else list(sources or ())


def as_functions(functions: Mapping[str, str] | Sequence[str] | str | None) -> dict[str, str]:
    """Function names and their docstrings.

    Raises:
        UsageError: a name is not a C identifier, so it cannot be a symbol.
    """
    table = dict(functions) if isinstance(functions, Mapping) else dict.fromkeys(as_list(functions), "")
    for name in table:
        if not name.isidentifier() or not name.isascii():
            raise UsageError(
                f"functions: {name!r} is not a C identifier; export it with FARCALL_EXPORT(name, {name})"
            )
    return table


def exports(functions: Mapping[str, str], source: str) -> str:
    """The lines that export ``functions`` at the end of ``source``."""
    from farcall.cpp._parameters import Declarations  # takes 5 ms, so only a build imports it

    declared = Declarations(source)
    return "\n" + "".join(_export(name, doc, declared) for name, doc in functions.items())


def undeclared(unit: Unit) -> str:
    """The beginning of a message, if a function that the unit is to export does not occur in its text."""
    from farcall.cpp._parameters import Declarations

    words = set(re.findall(r"\w+", unit.text or ""))
    for name in unit.functions:
        if name not in words:
            declared = Declarations(unit.text or "").names()
            meant = did_you_mean(name, declared) or f"; it declares {', '.join(declared[:8]) or 'none'}"
            return f"functions: the source has no function `{name}`{meant}"
    return ""


def _export(name: str, doc: str, declared: Declarations) -> str:
    options, before = [name, name], ""
    if doc:
        options.append(f"::farcall::doc({_literal(doc)})")
    if parameters := declared.parameters(name):
        options.append(f"::farcall::detail::guess({', '.join(map(_argument, parameters))})")
        if any(one.is_own for one in parameters):
            before = f"FARCALL_SHORT_CALLS_({name});\n"
            options.append(f"::farcall::detail::short_calls<decltype(&{name})>(farcall_short_{name})")
    return f"{before}FARCALL_EXPORT({', '.join(options)});\n"


def _argument(parameter: Parameter) -> str:
    if parameter.default is None:
        return f"::farcall::arg({_literal(parameter.name)})"
    value = "::farcall::detail::OwnDefault{}" if parameter.is_own else parameter.default
    return f"::farcall::arg({_literal(parameter.name)}, {value})"


def _literal(text: str) -> str:
    """A C++ string literal of the text in UTF-8. It uses octal escapes, which end after three digits."""
    plain = {ord(" "), ord("!"), *range(ord("#"), ord("\\")), *range(ord("]"), ord("~") + 1)}
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()) + '"'


def file_units(
    files: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None, language: str | None = None
) -> list[Unit]:
    """The files of an argument, as units.

    Args:
        files: one path, several, or None.
        language: the language of files with an unknown extension; None: such files are an error.

    Raises:
        UsageError: the extension of a file names no language.
    """
    paths = [files] if isinstance(files, str | os.PathLike) else list(files or ())
    return [Unit(str(Path(path).absolute()), _language(Path(path), language)) for path in paths]


def _language(path: Path, default: str | None) -> str:
    known = _LANGUAGES.get(path.suffix)
    if default == "cuda" and known in ("c", "c++"):
        return "cuda"
    if language := known or default:
        return language
    raise UsageError(
        f"{str(path)!r}: its extension names no language; expected one of {', '.join(_LANGUAGES)}"
    )
