"""``farcall config``: what a build of kernels needs to know."""

from __future__ import annotations

from pathlib import Path

import click

from farcall.errors import UsageError


def cmake_dir() -> Path:
    """The folder of farcall's CMake package.

    Raises:
        UsageError: it is not there (a broken installation).
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "cmake", package.parents[1] / "cmake"):  # a wheel, a checkout
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
    help="The folder of farcall/kernel.hpp.",
)
@click.option("--cflags", "wanted", flag_value="cflags", help="Flags to compile C++ kernels.")
@click.option("--ldflags", "wanted", flag_value="ldflags", help="Flags to link a kernel library.")
@click.option("--cmakedir", "wanted", flag_value="cmakedir", help="The folder for CMake's farcall_DIR.")
def command(wanted: str | None) -> None:
    """Print what a build of kernels needs.

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
