"""``farcall doctor``: tries what farcall needs from this machine, and names the cure for what fails."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from farcall.cli import _show
from farcall.cli._settings import setting

if TYPE_CHECKING:
    from farcall.cli._checks import Check

SECONDS = 20.0  # that one check may take


@click.command()
@setting("json")
def command(json_: bool) -> None:
    """Try compilers, targets, emulators, TLS, sessions and limits, and show the cure for each that fails.

    A part is `ok`, `broken`, or `missing`: only the features that use it do not work. The exit code is 1 if a
    part that farcall needs is broken.

    \b
    farcall doctor
    farcall doctor --json | jq '.checks[] | select(.state != "ok")'
    """
    from farcall.cli._checks import CHECKS

    found = [_outcome(check) for check in CHECKS]
    healthy = not any(outcome.state == "broken" and outcome.needed for outcome in found)
    if json_:
        _show.as_json("doctor", {"ok": healthy, "checks": [vars(outcome) for outcome in found]})
    else:
        _show.table(
            f"farcall doctor: {'all that farcall needs works' if healthy else 'something is broken'}",
            ("part", "state", "found"),
            [(outcome.part, outcome.state, outcome.found) for outcome in found],
        )
        _print_cures(found)
    if not healthy:
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check.

    Attributes:
        part: of the machine or the installation.
        state: "ok", "missing" or "broken".
        needed: whether farcall needs the part, so that its failure is the command's.
        found: what the check found: a version, a size, or the error.
        cure: what to do about it; empty where nothing is to be done.
    """

    part: str
    state: str
    needed: bool
    found: str
    cure: str


def _print_cures(found: list[Outcome]) -> None:
    cures = [outcome for outcome in found if outcome.cure]
    if cures:
        click.echo()
    for outcome in cures:
        click.echo(f"{outcome.part}: {outcome.cure}")


def _outcome(check: Check) -> Outcome:
    """Run a check in a thread of its own, since a broken machine may not answer at all."""
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(_tried(check)), daemon=True)
    thread.start()
    thread.join(SECONDS)
    late = Outcome(check.part, "broken", check.needed, f"no answer within {SECONDS:g} s", check.cure)
    return outcomes[0] if outcomes else late


def _tried(check: Check) -> Outcome:
    from farcall.cli._checks import Missing

    try:
        return Outcome(check.part, "ok", check.needed, check.run(), "")
    except Missing as missing:
        return Outcome(check.part, "missing", check.needed, str(missing), missing.cure)
    except Exception as error:
        text = next(iter(str(error).splitlines()), "") or type(error).__name__
        return Outcome(check.part, "broken", check.needed, text, check.cure)
