"""``farcall device``: devices without Python, and the servers on them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from farcall.cli import _complete, _show
from farcall.cli._progress import shown
from farcall.cli._settings import setting

if TYPE_CHECKING:
    from farcall.launch._started import Started

_SECONDS = 60.0  # for each step on a device
_device = click.argument("device", shell_complete=_complete.devices)


@click.group("device")
def command() -> None:
    """Start servers on devices without Python: in emulators, by ssh, on Android.

    \b
    farcall device start ssh://pi@board
    farcall run model.so --input x=x.npy --on ssh://pi@board
    farcall device list
    farcall device stop ssh://pi@board
    """


@command.command()
@click.option(
    "--target",
    default=None,
    metavar="TARGET",
    shell_complete=_complete.machines,
    help="x86_64, aarch64, armv7, riscv64, s390x, hexagon, or a target such as x86-linux-musl. "
    "[default: this machine]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="Path of the program. [default: farcall-server, or farcall-dsp]",
)
@click.option("--dsp", is_flag=True, help="Build farcall-dsp: an emulated DSP, for fastrpc:/PATH.")
@setting("json")
def build(target: str | None, output: Path | None, dsp: bool, json_: bool) -> None:
    """Build farcall-server, a static program in C that serves sessions without Python.

    Copy it to the device and start it there: ./farcall-server --help lists its options.

    \b
    farcall device build --target aarch64
    scp farcall-server board:
    farcall device build --dsp --target hexagon
    """
    from farcall.launch._server_build import build_dsp, build_server
    from farcall.toolchain import static_target

    wanted = static_target(target)
    output = output or Path("farcall-dsp" if dsp else "farcall-server")
    with shown() as progress:
        (build_dsp if dsp else build_server)(wanted, output=output, progress=progress)
    size = output.stat().st_size
    if json_:
        _show.as_json("device build", {"program": str(output), "target": str(wanted), "bytes": size})
        return
    click.echo(f"{output}: {_show.size(size)}, for {wanted}")


@command.command()
@_device
@click.option(
    "--server",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Program to put there, of `farcall device build`. [default: built for the device]",
)
@setting("json")
def start(device: str, server: Path | None, json_: bool) -> None:
    """Put a server onto DEVICE, start it, and let it run. If one runs there already, nothing changes.

    DEVICE is local, local:small, emulator:ARCH, ssh://[USER@]HOST[:PORT], adb://SERIAL, or a URL of an
    installed launcher. `farcall run --on` takes the same URLs.

    \b
    farcall device start emulator:hexagon
    farcall device start adb://emulator-5554
    """
    from farcall.launch import _driver

    with shown() as progress:
        launched = _driver.start(device, server=server, progress=progress, timeout=_SECONDS)
    facts = {"device": device, "target": str(launched.target), "url": launched.server_url}
    if json_:
        _show.as_json("device start", facts)
        return
    click.echo(f"{device}: {launched.target}, serving at {launched.server_url}")


@command.command("list")
@setting("json")
def list_(json_: bool) -> None:
    """List the devices that you started, and whether their servers run.

    \b
    farcall device list
    farcall device list --json | jq -r '.devices[].url'
    """
    from farcall.launch import _driver, _started

    rows = [_row(started, _driver.state(started, _SECONDS)) for started in _started.records()]
    if json_:
        _show.as_json("device list", {"devices": rows})
        return
    columns = ("device", "target", "state", "since", "url")
    _show.table("Devices", columns, [[row[column] for column in columns] for row in rows])


@command.command()
@click.argument("devices", nargs=-1, metavar="DEVICE...", shell_complete=_complete.started)
@click.option("--all", "all_", is_flag=True, help="Stop all that `farcall device list` shows.")
@setting("json")
def stop(devices: tuple[str, ...], all_: bool, json_: bool) -> None:
    """Stop the server on DEVICE, and undo its forwards.

    \b
    farcall device stop emulator:hexagon
    farcall device stop --all
    """
    from farcall.launch import _driver, _started

    if bool(devices) == all_:
        raise click.UsageError("name the devices to stop, or pass --all")
    chosen = list(_started.records()) if all_ else [_found(device) for device in devices]
    for started in chosen:
        _driver.stop(started, _SECONDS)
    names = [started.device for started in chosen]
    if json_:
        _show.as_json("device stop", {"stopped": names})
        return
    for name in names:
        click.echo(f"stopped {name}")


@command.command()
@_device
@click.option("--lines", type=click.IntRange(min=1), default=100, show_default=True, help="How many at most.")
def logs(device: str, lines: int) -> None:
    """Print the last lines of the log of the server on DEVICE.

    \b
    farcall device logs emulator:hexagon
    """
    from farcall.cli import _talk
    from farcall.launch import _driver

    click.echo(_talk.safe(_driver.logs(_found(device), lines, _SECONDS)), nl=False)


@command.command(context_settings={"ignore_unknown_options": True})
@_device
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
def shell(device: str, words: tuple[str, ...]) -> None:
    """Run COMMAND in the shell of DEVICE. Its exit status is that of this command.

    No server needs to run there. An emulator has the shell of this machine.

    \b
    farcall device shell adb://emulator-5554 getprop ro.product.model
    farcall device shell ssh://pi@board 'dmesg | tail'
    """
    from farcall.launch import _driver

    done = _driver.shell(device, " ".join(words), _SECONDS)
    click.echo(done.stdout, nl=False)
    click.echo(done.stderr, nl=False, err=True)
    click.get_current_context().exit(done.code)


def _found(device: str) -> Started:
    from farcall._suggest import did_you_mean
    from farcall.errors import UsageError
    from farcall.launch import _started

    if (started := _started.find(device)) is not None:
        return started
    known = [started.device for started in _started.records()]
    raise UsageError(
        f"no server was started on {device!r}{did_you_mean(device, known)}; started: "
        f"{', '.join(known) or 'none'}; run: farcall device start {device}"
    )


def _row(started: Started, state: str) -> dict[str, Any]:
    since = datetime.datetime.fromtimestamp(started.since, datetime.UTC)
    return {
        "device": started.device,
        "target": started.target,
        "state": state,
        "since": since.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "url": started.place.url,
    }
