"""``farcall device``: devices without Python."""

from __future__ import annotations

from pathlib import Path

import click

from farcall.cli import _show
from farcall.cli._progress import shown
from farcall.cli._settings import setting


@click.group("device")
def command() -> None:
    """Build the server for devices without Python.

    \b
    farcall device build --target armv7 -o farcall-server
    """


@command.command()
@click.option(
    "--target",
    default=None,
    metavar="TARGET",
    help="Machine to build for: armv7, or aarch64-linux-musl. [default: this machine]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("farcall-server"),
    show_default=True,
    help="Path of the program.",
)
@setting("json")
def build(target: str | None, output: Path, json_: bool) -> None:
    """Build farcall-server: one static program in C, which serves sessions without Python.

    \b
    farcall device build --target aarch64-linux-musl -o farcall-server
    scp farcall-server board:  and there  ./farcall-server --listen tcp://127.0.0.1:9090
    """
    from farcall.launch import build_server
    from farcall.toolchain import static_target

    wanted = static_target(target)
    with shown() as progress:
        build_server(wanted, output=output, progress=progress)
    size = output.stat().st_size
    if json_:
        _show.as_json("device build", {"program": str(output), "target": str(wanted), "bytes": size})
        return
    click.echo(f"{output}: {_show.size(size)}, for {wanted}")
