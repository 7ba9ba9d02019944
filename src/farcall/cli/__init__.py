"""The command ``farcall``: one thin module a command, loaded when it is named."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

import farcall
from farcall.errors import FarcallError

_COMMANDS = ("demo", "build", "run", "inspect", "stubgen", "serve", "token", "cert", "config")


class _Commands(click.Group):
    """Finds a command in the module of its name, so that ``--help`` and a typo cost no heavy import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            from farcall._suggest import did_you_mean

            meant = did_you_mean(cmd_name, _COMMANDS)
            raise click.UsageError(f"no command `{cmd_name}`{meant}; there are {', '.join(_COMMANDS)}", ctx)
        command: click.Command = importlib.import_module(f"farcall.cli.{cmd_name}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(farcall.__version__, prog_name="farcall")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Call compiled kernels across every boundary.

    \b
    farcall demo                                   see it all at work
    farcall build model.onnx -o model.so           one file out of a model
    farcall run model.so --input x=x.npy           run it here
    farcall serve                                  offer this machine to others
    farcall run model.so --input x=x.npy --on tcp://board:9090
    """


def main() -> NoReturn:
    """Run the command line: exit code 0 for success, 1 for work that failed, 2 for wrong usage."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")  # it may stand anywhere
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)  # the reader of our output left, as `| head` does
    except Exception as error:
        if debug:
            raise
        click.echo(_explain(error), err=True)
        sys.exit(1)


def _explain(error: Exception) -> str:
    """One message: ours as it is; any other with its type, and how to see more."""
    if isinstance(error, FarcallError | TypeError | ValueError | OSError):
        return f"error: {error}"
    return f"error: {type(error).__name__}: {error} (--debug shows where)"
