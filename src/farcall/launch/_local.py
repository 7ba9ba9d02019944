"""Launchers of this machine: a server process, or a server of another instruction set in an emulator."""

from __future__ import annotations

import shlex
import sys

from farcall._suggest import did_you_mean
from farcall.errors import UsageError
from farcall.launch._launcher import ProcessLauncher
from farcall.launch._started import run_folder
from farcall.toolchain import MACHINES


class LocalLauncher(ProcessLauncher):
    """``local``: the full server on this machine; ``local:small``: the small one."""

    same_files = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        if url not in ("local", "local:small"):
            raise UsageError(f"{url!r}: expected local (the full server) or local:small (farcall-server)")
        self.folder = shlex.quote(str(run_folder()))

    def words(self, script: str) -> list[str]:
        return ["sh", "-c", script]

    def program(self) -> list[str] | None:
        return [sys.executable, "-m", "farcall", "serve"] if self.url == "local" else None


class EmulatorLauncher(ProcessLauncher):
    """``emulator:ARCH``: the small server of another machine, in a user-mode emulator of QEMU."""

    same_files = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        name = url.partition(":")[2]
        names = [machine.name for machine in MACHINES]
        found = [m for m in MACHINES if name in (m.name, m.target.arch)]
        if not found:
            raise UsageError(
                f"{url!r}: there is no machine {name!r}{did_you_mean(name, names)}; expected emulator:ARCH, "
                f"with {', '.join(names)}"
            )
        self._machine = found[0]
        words = self._machine.emulate()
        if words is None:
            raise UsageError(
                f"{url}: the emulator {self._machine.emulator} is not installed; run: apt install qemu-user"
            )
        self.emulator = tuple(words)
        self.folder = shlex.quote(str(run_folder()))

    def words(self, script: str) -> list[str]:
        return ["sh", "-c", script]

    def machine(self, name: str) -> str:
        return self._machine.name
