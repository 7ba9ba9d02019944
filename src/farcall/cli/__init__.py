"""The command ``farcall``. Each subcommand is a module, which is imported when the user names it."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

import farcall
from farcall.errors import FarcallError

__all__ = ["main"]
__dir__ = __all__.copy

_COMMANDS = ("demo", "build", "run", "inspect", "stubgen", "serve", "token", "cert", "config")


class _Commands(click.Group):
    """Imports the module of a command only when the user names it, so that ``--help`` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            from farcall._suggest import did_you_mean

            meant = did_you_mean(cmd_name, _COMMANDS)
            raise click.UsageError(
                f"no command `{cmd_name}`{meant}; the commands are {', '.join(_COMMANDS)}", ctx
            )
        command: click.Command = importlib.import_module(f"farcall.cli.{cmd_name}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(farcall.__version__, prog_name="farcall")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Call compiled kernels across every boundary.

    \b
    farcall demo                                   take a real model through all steps
    farcall build model.onnx -o model.so           build a model into one file
    farcall run model.so --input x=x.npy           run it on this machine
    farcall serve                                  offer this machine to sessions
    farcall run model.so --input x=x.npy --on tcp://board:9090
    """


def main() -> NoReturn:
    """Run the command line. The exit code is 0 for success, 1 for a failure, and 2 for wrong usage."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")  # the user may write it anywhere
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)  # the reader of the output has closed the pipe, as `| head` does
    except Exception as error:
        if debug:
            raise
        click.echo(_explain(error), err=True)
        sys.exit(1)


def _explain(error: Exception) -> str:
    """The text for the user. An unexpected error also shows its type, and how to see the traceback."""
    if isinstance(error, FarcallError | TypeError | ValueError | OSError):
        return f"error: {error}"
    return f"error: {type(error).__name__}: {error} (--debug shows where)"
