"""The command ``farcall``. Each subcommand is a module, which is imported when the user names it."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

import farcall
from farcall.cli import _exit, _talk
from farcall.errors import FarcallError, MissingExtraError, help_url

__all__ = ["main"]
__dir__ = __all__.copy

# The names and their lines of `--help`, which imports none of the modules.
_COMMANDS = {
    "demo": "Take a real model through all steps.",
    "build": "Build an ONNX model into one file.",
    "explain": "Say which backend gets which node, and why.",
    "convert": "Write a model in another opset.",
    "run": "Run a model or an artifact on .npy files.",
    "inspect": "Show what an artifact, a library or a model is.",
    "idl": "Compile an interface of FastRPC into stubs and skels.",
    "new": "Write a package to begin with.",
    "stubgen": "Write typed stubs of a library's functions.",
    "serve": "Offer this machine to sessions.",
    "ping": "See who answers at a URL, and how fast.",
    "ls": "List the functions of a server.",
    "call": "Call a function of a server or of a library.",
    "sessions": "List the open sessions of a server.",
    "cp": "Copy a file to a server or from it.",
    "trace": "Summarize a trace.",
    "device": "Start servers on devices without Python.",
    "token": "Manage the tokens that admit clients to a server.",
    "cert": "Make certificates for a trial of TLS.",
    "plugins": "See what installed packages add to farcall.",
    "doctor": "Try what farcall needs from this machine.",
    "config": "Show settings, and the flags for a build of kernels.",
}


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
        return _talk.with_options(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        options = click.Command.shell_complete(self, ctx, incomplete)
        names = [name for name in _COMMANDS if name.startswith(incomplete)]
        return [CompletionItem(name, help=_COMMANDS[name]) for name in names] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_exit.epilog())
@click.version_option(farcall.__version__, prog_name="farcall")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Call compiled kernels across every boundary.

    \b
    farcall demo                                   take a real model through all steps
    farcall build model.onnx                       build a model into one file
    farcall run model.so --input x=x.npy           run it on this machine
    farcall serve                                  offer this machine to sessions
    farcall run model.so --input x=x.npy --on tcp://board:9090
    """
    from farcall.cli import _settings

    files = _settings.from_files()
    ctx.default_map = _settings.default_map(files)
    _talk.set_color(files["color"].value if "color" in files else None)
    if "cache-dir" in files:
        os.environ.setdefault("FARCALL_CACHE_DIR", files["cache-dir"].value)


_talk.with_options(cli)


def main() -> NoReturn:
    """Run the command line. ``farcall --help`` lists the exit codes."""
    debug = "--debug" in sys.argv[1:]  # known before click reads the options, since that may fail too
    try:
        sys.exit(cli.main(prog_name="farcall", standalone_mode=False))
    except click.ClickException as error:
        click.echo(_talk.safe(_refusal(error)), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(_exit.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)  # the reader of the output has closed the pipe, as `| head` does
    except Exception as error:
        if debug:
            raise
        click.echo(_talk.safe(_explain(error)), err=True)
        sys.exit(_exit.exit_code(error))


def _refusal(error: click.ClickException) -> str:
    """click's error in the style of all others. Wrong usage also shows how the command is typed."""
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        from farcall._suggest import did_you_mean

        text = f"no option `{error.option_name}`{did_you_mean(error.option_name, error.possibilities or ())}"
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    lines = [f"error: {text.rstrip('.')}"]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        path, pieces = error.ctx.command_path, error.ctx.command.collect_usage_pieces(error.ctx)
        lines += [f"usage: {path} {' '.join(pieces)}", f"see: {path} --help"]
    return "\n".join(lines)


def _explain(error: Exception) -> str:
    """The text for the user: the error and the page about it, or that it is a bug."""
    if isinstance(error, FarcallError | TypeError | ValueError | OSError):
        page = help_url(error)
        return f"error: {error}" + (f"\nsee: {page}" if page else "")
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("farcall"):
        package = error.name.partition(".")[0]
        text = f"error: the package {package} is not installed; run: pip install {package}"
        return f"{text}\nsee: {MissingExtraError.url}"
    if isinstance(error, ImportError):
        return f"error: a package cannot be imported: {error}\n`farcall doctor` tries all that farcall uses."
    return (
        f"error: this is a bug in farcall: {type(error).__name__}: {error}\n"
        "Run the command again with --debug, and report the traceback that it shows."
    )
