"""``farcall config``: prints the flags and folders for a build of kernels."""

from __future__ import annotations

from pathlib import Path

import click

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


@click.command()
@click.option(
    "--includedir",
    "wanted",
    flag_value="includedir",
    help="Print the folder that contains farcall/kernel.hpp.",
)
@click.option("--cflags", "wanted", flag_value="cflags", help="Print the flags to compile C++ kernels.")
@click.option("--ldflags", "wanted", flag_value="ldflags", help="Print the flags to link a kernel library.")
@click.option("--cmakedir", "wanted", flag_value="cmakedir", help="Print the folder for CMake's farcall_DIR.")
def command(wanted: str | None) -> None:
    """Print the flags and folders for a build of kernels. Without an option, print all of them.

    \b
    c++ $(farcall config --cflags) scale.cpp $(farcall config --ldflags) -o scale.so
    cmake -S . -B build -Dfarcall_DIR=$(farcall config --cmakedir)
    """
    answers = _answers()
    if wanted:
        click.echo(answers[wanted])
        return
    for name, value in answers.items():
        click.echo(f"{name}: {value}")
