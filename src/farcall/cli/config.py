"""``farcall config``: prints the flags and folders for a build of kernels, and the settings of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from farcall.cli import _settings, _show
from farcall.cli._settings import setting
from farcall.errors import UsageError


def cmake_dir() -> Path:
    """The folder of farcall's CMake package.

    Raises:
        UsageError: the folder is missing, since the installation is broken.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "cmake", package.parents[1] / "cmake"):  # in a wheel, in a checkout
        if (folder / "farcall-config.cmake").is_file():
            return folder
    raise UsageError(f"farcall's CMake package is not in {package / 'cmake'}; install farcall again")


def _answers() -> dict[str, str]:
    from farcall.cpp._job import CPP_FLAGS, LINK_FLAGS
    from farcall.toolchain import include_dir

    include = str(include_dir())
    return {
        "includedir": include,
        "cflags": " ".join((*CPP_FLAGS, f"-I{include}")),
        "ldflags": " ".join(LINK_FLAGS),
        "cmakedir": str(cmake_dir()),
    }


@click.group(invoke_without_command=True)
@click.option(
    "--includedir",
    "wanted",
    flag_value="includedir",
    multiple=True,
    help="Print the folder that contains farcall/kernel.hpp.",
)
@click.option(
    "--cflags", "wanted", flag_value="cflags", multiple=True, help="Print the flags to compile C++ kernels."
)
@click.option(
    "--ldflags",
    "wanted",
    flag_value="ldflags",
    multiple=True,
    help="Print the flags to link a kernel library.",
)
@click.option(
    "--cmakedir",
    "wanted",
    flag_value="cmakedir",
    multiple=True,
    help="Print the folder for CMake's farcall_DIR.",
)
@click.pass_context
def command(ctx: click.Context, wanted: tuple[str, ...]) -> None:
    """Print the flags and folders for a build of kernels: all of them, or those of the options in one line.

    \b
    c++ $(farcall config --cflags) scale.cpp $(farcall config --ldflags) -o scale.so
    c++ scale.cpp $(farcall config --cflags --ldflags) -o scale.so
    cmake -S . -B build -Dfarcall_DIR=$(farcall config --cmakedir)
    farcall config show --origin                       the settings of all commands
    """
    if ctx.invoked_subcommand is not None:
        return
    answers = _answers()
    if wanted:
        click.echo(" ".join(answers[name] for name in wanted))
        return
    for name, value in answers.items():
        click.echo(f"{name}: {value}")


@command.command()
@click.option("--origin", is_flag=True, help="Also show the place that each value came from.")
@setting("json")
def show(origin: bool, json_: bool) -> None:
    """Show the settings that commands use when an option is left out.

    Options win over variables of the environment, those over `farcall.toml` and `[tool.farcall]` of
    `pyproject.toml` in this folder or above it, and those over the user's file. A token is never shown.

    \b
    farcall config show --origin
    """
    found = _settings.effective(_settings.from_files())
    if json_:
        rows = {name: {"value": _plain(entry.value), "origin": entry.place} for name, entry in found.items()}
        _show.as_json("config show", {"user_file": str(_settings.user_file()), "settings": rows})
        return
    columns = ("setting", "value", *(("origin",) if origin else ()))
    _show.table(
        "Settings",
        columns,
        [(name, _text(entry.value), entry.place)[: len(columns)] for name, entry in found.items()],
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    """A value as a file of settings has it, without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, list | tuple) else "" if value is None else str(value)
