"""``farcall new``: writes a package to begin with."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from pathlib import Path

import click

from farcall.cli._new_backend import KINDS, files
from farcall.errors import UsageError


@click.group("new")
def command() -> None:
    """Write a package to begin with."""


@command.command("backend")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
    default="c",
    show_default=True,
    help="What the backend gives: C code; modules with a loader; calls of a library.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for the package; it must not exist. [default: NAME-backend]",
)
def backend(name: str, kind: str, output: Path | None) -> None:
    """Write a package with the backend NAME: its code, its entry points, a README, and a test.

    The test checks that the backend keeps farcall's contract. It passes before you change anything.

    \b
    farcall new backend npu --kind module
    cd npu-backend
    pip install -e ".[test]"
    pytest
    """
    _check(name)
    folder = output or Path(f"{name}-backend")
    made = files(name, kind)
    _write(folder, made)
    for path in sorted(made):
        click.echo(folder / path)


def _check(name: str) -> None:
    from farcall.backends import RESERVED, names

    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} is no name for a backend; expected a lower-case letter, then at most 30 lower-case "
            "letters, digits and _, such as `npu`"
        )
    if name in (*RESERVED, *names()):
        raise UsageError(f"a backend is called `{name}` already; choose another name")


def _write(folder: Path, made: dict[str, str]) -> None:
    """Write the files beside the folder, and rename: the folder is whole, or not there."""
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{str(folder)!r} exists already; name another folder with --output")
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"cannot write {str(folder)!r}: {error.strerror}") from None
    try:
        for path, text in made.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        work.chmod(0o755)
        work.rename(folder)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise UsageError(f"cannot write {str(folder)!r}: {error.strerror}") from None
