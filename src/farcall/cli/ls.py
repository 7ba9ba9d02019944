"""``farcall ls``: lists the functions that a server exports."""

from __future__ import annotations

from typing import Any

import click

from farcall.cli import _show, _talk
from farcall.cli._access import Access, access_options, url_argument
from farcall.cli._settings import setting


@click.command("ls")
@url_argument
@access_options
@setting("json")
def command(url: str, access: Access, json_: bool) -> None:
    """List the functions that the server at URL exports, one name a line, and the devices that it has.

    \b
    farcall ls tcp://board:9090
    farcall ls tcp://board:9090 | grep temperature
    """
    with access.connect(url) as session:
        names = session.function_names()
        devices = [name for name in _DEVICES if session.device(name).exist]
    if json_:
        facts: dict[str, Any] = {"url": url, "functions": names, "devices": devices}
        _show.as_json("ls", facts)
        return
    for name in names:
        click.echo(_talk.safe(name))
    none = "" if names else "; the server registers functions in the function of --init"
    _show.note(f"{len(names)} functions on {url}{none}; devices: {', '.join(devices)}")


_DEVICES = ("cpu:0", "cuda:0", "opencl:0", "vulkan:0", "metal:0", "rocm:0", "hexagon:0", "ext_dev:0")
