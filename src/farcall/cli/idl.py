"""``farcall idl``: compiles an interface file of FastRPC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from farcall.idl._compile import StubLanguage


@click.command("idl")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder for the files. [default: this one]",
)
@click.option(
    "--stub",
    "stubs",
    type=click.Choice(["c", "python"]),
    multiple=True,
    default=("c",),
    help="Language of the stub; repeat it for both. [default: c]",
)
def command(file: Path, output: Path, stubs: tuple[StubLanguage, ...]) -> None:
    """Compile FILE.idl into a C header, a skel in C, and stubs.

    The skel is for the DSP, where the interface is implemented. The stub is for the program that calls it.

    \b
    farcall idl calculator.idl                     calculator.h, calculator_skel.c, calculator_stub.c
    farcall idl calculator.idl --stub python -o generated
    """
    from farcall.idl import compile as compile_idl

    for path in compile_idl(file, output, stubs=stubs):
        click.echo(path)
