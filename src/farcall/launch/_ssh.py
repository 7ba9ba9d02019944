"""The launcher ``ssh://[USER@]HOST[:PORT]``: the system's ``ssh``, with the user's own configuration.

Sessions run on the standard streams of a command, so that the device needs no open port. The commands of one
launch share a connection (``ControlMaster``), which saves half of their time.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from farcall.errors import AccessDeniedError, ConnectError, UsageError
from farcall.launch._launcher import Completed, ProcessLauncher

_FAILED = 255  # ssh's exit status when it is ssh that failed
_IDLE_SECONDS = 60  # after which a shared connection ends by itself, if this process was killed


class SshLauncher(ProcessLauncher):
    """Runs commands on a device by ``ssh``. ``FARCALL_SSH`` replaces the command, as ``ssh -F FILE``."""

    stdio = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._command = shlex.split(os.environ.get("FARCALL_SSH", "ssh"))
        self._destination = _destination(url)
        if not self._command or shutil.which(self._command[0]) is None:
            raise UsageError(
                f"{url}: the program {(self._command or ['ssh'])[0]!r} is not installed; "
                "run: apt install openssh-client"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="farcall-")

    def words(self, script: str) -> list[str]:
        return [
            *self._command,
            *("-T", "-o", "BatchMode=yes"),
            *("-o", "ControlMaster=auto", "-o", f"ControlPath={self._folder.name}/%C"),
            *("-o", f"ControlPersist={_IDLE_SECONDS}"),
            *self._destination,
            f"exec sh -c {shlex.quote(script)}",
        ]

    def session_url(self, script: str) -> str:
        return f"pipe:{shlex.join(self.words(script))}"

    def explain(self, done: Completed) -> None:
        if done.code != _FAILED:
            return
        said = done.stderr.strip()
        host = self._destination[-1]
        login = shlex.join([*self._command, *self._destination])
        for phrase, error, cure in (
            ("Host key verification failed", AccessDeniedError,
             f"the host's key is not known, or has changed; log in once and compare it: {login}"),
            ("Permission denied", AccessDeniedError,
             f"the host accepts none of your keys; put one there: ssh-copy-id {host}"),
            ("Could not resolve hostname", ConnectError,
             "there is no such host; check the name, or ~/.ssh/config"),
            ("Connection refused", ConnectError, "is sshd running there, at that port?"),
        ):  # fmt: skip
            if phrase in said:
                raise error(f"{self.url}: {said.splitlines()[-1]}: {cure}")
        raise ConnectError(f"{self.url}: ssh failed: {said or 'no reason given'}; try it in a shell: {login}")

    def close(self) -> None:
        if any(Path(self._folder.name).iterdir()):
            words = [*self._command, "-o", f"ControlPath={self._folder.name}/%C", "-O", "exit"]
            subprocess.run([*words, *self._destination], capture_output=True, check=False, timeout=10)
        self._folder.cleanup()


def _destination(url: str) -> list[str]:
    """The words of ssh for a URL. No part of it may look like an option."""
    example = "expected ssh://[USER@]HOST[:PORT], such as ssh://pi@board.local"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{url!r}: {example}") from None
    host, user = parts.hostname, parts.username
    odd = parts.password is not None or parts.path.strip("/") or parts.query or parts.fragment
    if not host or odd or host.startswith("-") or (user or "").startswith("-") or not url.isprintable():
        raise UsageError(f"{url!r}: {example}; a password is never part of it: use a key")
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{port}").strip("[]")  # urlsplit lowers its case
    return [*(("-p", str(port)) if port else ()), *(("-l", user) if user else ()), "--", host]
