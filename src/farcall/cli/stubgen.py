"""``farcall stubgen``: writes typed stubs of a library's functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from farcall.ffi._exported import Exported


@click.command("stubgen")
@click.argument("library", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the stubs. [default: standard output]",
)
@click.option("--check", is_flag=True, help="Write nothing. If OUTPUT is out of date, print a diff and fail.")
def command(library: Path, output: Path | None, check: bool) -> None:
    """Write a .pyi file for the functions of LIBRARY, with names, types, defaults and docs of its metadata.

    A function without metadata takes and returns any value. The command reads an artifact without loading
    it, so it may be for another machine. It loads any other library.

    \b
    farcall stubgen kernels.so -o kernels.pyi
    farcall stubgen kernels.so -o kernels.pyi --check    in a project's tests
    """
    from farcall.ffi._stubs import stub

    if check and output is None:
        raise click.UsageError("--check compares with a file; name the file with -o FILE.pyi")
    text = stub(library.name, functions_of(library))
    if output is None:
        click.echo(text, nl=False)
    elif check:
        _compare(output, text)
    else:
        from farcall._files import write_beside

        write_beside(output, text.encode())


def functions_of(library: Path) -> list[Exported]:
    """Read the descriptions of the library's functions.

    Raises:
        UsageError: the file does not exist, or cannot be read.
        ArtifactError: the file is damaged, or a library that cannot be loaded here.
    """
    from farcall.errors import MissingFileError, UsageError
    from farcall.ffi._exported import read, read_module
    from farcall.library._loading import examine, load_module

    try:
        data = library.read_bytes()
    except FileNotFoundError:
        raise MissingFileError(
            f"no such file: {str(library)!r}; name a kernel library or an artifact"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot read {str(library)!r}: {error.strerror}; expected a shared library"
        ) from None
    _, manifest = examine(data, str(library))
    if manifest is None:
        return read_module(load_module(library))
    return [read(name, None, info.doc, info.signature) for name, info in manifest.functions.items()]


def _compare(path: Path, text: str) -> None:
    import difflib

    try:
        found = path.read_bytes().decode(errors="replace") if path.exists() else ""
    except OSError as error:
        raise click.ClickException(f"cannot read {str(path)!r}: {error.strerror}") from None
    if found == text:
        return
    lines = difflib.unified_diff(found.splitlines(True), text.splitlines(True), str(path), "up to date")
    click.echo("".join(lines), nl=False)
    raise click.ClickException(f"{path} is not up to date; run `farcall stubgen` without --check to write it")
