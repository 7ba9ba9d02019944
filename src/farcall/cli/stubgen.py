"""``farcall stubgen``: typed stubs of a library's functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from farcall.ffi._exported import Exported


@click.command("stubgen", short_help="Write typed stubs of a library's functions.")
@click.argument("library", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; default: printed."
)
@click.option("--check", is_flag=True, help="Write nothing; fail, with a diff, unless OUTPUT is up to date.")
def command(library: Path, output: Path | None, check: bool) -> None:
    """Write a .pyi for the functions of LIBRARY: names, types, defaults and texts, from its metadata.

    A function that its library says nothing of takes and gives anything. An artifact is read, never loaded:
    it may be for another machine. Any other library is loaded.

    \b
    farcall stubgen kernels.so -o kernels.pyi
    farcall stubgen kernels.so -o kernels.pyi --check    in a project's tests
    """
    from farcall.ffi._stubs import stub

    if check and output is None:
        raise click.UsageError("--check compares with a file: name it by -o FILE.pyi")
    text = stub(library.name, functions_of(library))
    if output is None:
        click.echo(text, nl=False)
    elif check:
        _compare(output, text)
    else:
        from farcall._files import write_beside

        write_beside(output, text.encode())


def functions_of(library: Path) -> list[Exported]:
    """What the library says of its functions.

    Raises:
        UsageError: there is no such file.
        ArtifactError: it is damaged, or a plain library that cannot be loaded here.
    """
    from farcall.errors import UsageError
    from farcall.ffi._exported import read, read_module
    from farcall.library._loading import examine, load_module

    try:
        data = library.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"no such file: {str(library)!r}; name a kernel library or an artifact") from None
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
