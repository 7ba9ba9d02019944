"""The contract of a launcher: one way to run commands on a device, and to move files there and back.

The steps of a launch are the same for all of them (``_driver.py``), and are built from these few operations.
"""

from __future__ import annotations

import abc
import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from farcall.errors import ConnectError, ConnectTimeoutError

_GRACE_SECONDS = 5.0  # for a command to end after its input has ended


@dataclass(frozen=True)
class Completed:
    """What a command on the device wrote, and its exit status.

    Attributes:
        code: the exit status; 0 means success.
        stdout: what it wrote to standard output.
        stderr: what it wrote to standard error.
    """

    code: int
    stdout: str
    stderr: str


class Stream(Protocol):
    """A command that runs on the device until its input ends."""

    def read_line(self, deadline: float) -> str:
        """The next line of its output, without the newline; empty if the output has ended.

        Args:
            deadline: of ``time.monotonic``.

        Raises:
            ConnectTimeoutError: no line arrived in time.
        """

    def complaint(self) -> str:
        """What it has written to standard error so far."""

    def close(self, last_words: bytes = b"") -> None:
        """Write ``last_words``, end its input, and wait until it has ended."""


class Launcher(abc.ABC):
    """One way to a device. A package adds another by an entry point in the group ``farcall.launchers``.

    The entry point names a callable that takes the URL and returns a Launcher; its name is the URL's scheme.

    Attributes:
        url: of the device, as the user wrote it.
        folder: on the device, for the server and its files: an absolute path, or text that its shell expands.
        stdio: whether each session starts a server of its own, on the standard streams of a command.
        same_files: whether the device has the files of this machine, so that no program is copied.
        emulator: the words before a program that run it there.
    """

    folder = '"${XDG_CACHE_HOME:-$HOME/.cache}"/farcall/device'
    stdio = False
    same_files = False
    emulator: tuple[str, ...] = ()

    def __init__(self, url: str) -> None:
        self.url = url

    @abc.abstractmethod
    def run(self, script: str, *, timeout: float) -> Completed:
        """Run a script of the device's ``sh`` to its end.

        Raises:
            ConnectError: the device cannot be reached, or the script did not end within ``timeout`` seconds.
        """

    @abc.abstractmethod
    def open(self, script: str) -> Stream:
        """Start a script of the device's ``sh``, whose input ends when this process does."""

    @abc.abstractmethod
    def put(self, source: Path, path: str, *, timeout: float) -> None:
        """Copy the file ``source`` of this machine to ``path`` on the device, within ``timeout`` seconds.

        Raises:
            ConnectError: the device refused it, with its reason.
        """

    @abc.abstractmethod
    def get(self, path: str, target: Path, *, timeout: float) -> None:
        """Copy the file ``path`` of the device to ``target`` here, within ``timeout`` seconds.

        Raises:
            ConnectError: the device refused it, with its reason.
        """

    def machine(self, name: str) -> str:
        """The machine whose programs run there, by the name that ``uname -m`` gave."""
        return name

    def program(self) -> list[str] | None:
        """The words of a server that is installed there; None: the small server is put there."""
        return None

    @property
    def listens_at(self) -> str:
        """Where the server listens, on the device. ``{run}`` stands for its folder there."""
        return "unix://{run}/socket"

    def forward(self, url: str) -> str:
        """The URL on this machine that reaches ``url`` on the device."""
        return url

    def unforward(self, url: str) -> None:  # noqa: B027  most have nothing to undo
        """Undo a :meth:`forward` of this or an earlier process; ``url`` is what that returned."""

    def session_url(self, script: str) -> str:
        """The URL of sessions on the standard streams of a script, for a launcher with :attr:`stdio`."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027  most hold nothing open
        """Close what this launcher holds open itself."""


class ProcessLauncher(Launcher):
    """A launcher that runs scripts by starting a program on this machine."""

    @abc.abstractmethod
    def words(self, script: str) -> list[str]:
        """The program and its arguments that run ``script`` there."""

    def explain(self, done: Completed) -> None:
        """Raise a ConnectError if ``done`` says that the program itself failed, not the script."""

    def run(self, script: str, *, timeout: float) -> Completed:
        return self._finish(self._start(script), timeout)

    def open(self, script: str) -> Stream:
        return _ProcessStream(self, self._start(script, stdin=subprocess.PIPE))

    def put(self, source: Path, path: str, *, timeout: float) -> None:
        """Copy the file ``source`` to ``path`` on the device by `cat`, within ``timeout`` seconds."""
        with source.open("rb") as file:
            done = self._finish(self._start(f"cat > {shlex.quote(path)}", stdin=file), timeout)
        if done.code:
            raise ConnectError(done.stderr.strip() or f"`cat` ended with status {done.code}")

    def get(self, path: str, target: Path, *, timeout: float) -> None:
        """Copy the file ``path`` of the device to ``target`` by `cat`, within ``timeout`` seconds."""
        with target.open("wb") as file:
            done = self._finish(self._start(f"cat {shlex.quote(path)}", stdout=file), timeout)
        if done.code:
            raise ConnectError(done.stderr.strip() or f"`cat` ended with status {done.code}")

    def _start(
        self,
        script: str,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
    ) -> _Process:
        words = self.words(script)
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        try:  # a group of its own: Ctrl-C reaches this process alone, which then ends the others in order
            process = subprocess.Popen(
                words, stdin=stdin, stdout=stdout, stderr=complaints, start_new_session=True
            )
        except OSError as error:
            complaints.close()
            raise ConnectError(
                f"{self.url}: {words[0]!r}: {error.strerror}; is it installed, and on the PATH?"
            ) from None
        return _Process(process, complaints)

    def _finish(self, started: _Process, timeout: float) -> Completed:
        process, _ = started
        try:
            stdout, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            _kill(process)
            said = started.complaint()
            started.complaints.close()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise ConnectTimeoutError(
                f"{self.url}: no answer within {timeout:g} s; allow more with timeout=; it said: {said!r}"
            ) from None
        done = Completed(process.returncode, _text(stdout or b""), started.complaint())
        started.complaints.close()
        self.explain(done)
        return done


class _Process(NamedTuple):
    process: subprocess.Popen[bytes]
    complaints: IO[bytes]

    def complaint(self) -> str:
        self.complaints.seek(0)
        return _text(self.complaints.read())


class _ProcessStream:
    def __init__(self, launcher: ProcessLauncher, started: _Process) -> None:
        self._launcher = launcher
        self._started = started
        self._rest = b""

    def read_line(self, deadline: float) -> str:
        pipe = self._started.process.stdout
        assert pipe is not None  # noqa: S101  it was asked for
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(deadline - time.monotonic(), 0)):
                    raise ConnectTimeoutError(f"{self._launcher.url}: the server did not start in time")
                piece = os.read(pipe.fileno(), 4096)
                if not piece:
                    return ""
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return _text(line)

    def complaint(self) -> str:
        said = self._started.complaint()
        code = self._started.process.poll()
        if code is not None:
            self._launcher.explain(Completed(code, "", said))
        return said

    def close(self, last_words: bytes = b"") -> None:
        process = self._started.process
        if process.returncode is None:
            assert process.stdin is not None  # noqa: S101  it was asked for
            with contextlib.suppress(OSError):
                process.stdin.write(last_words)
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)  # not for its output to end: a server that stays holds that open
            if process.poll() is None:
                _kill(process)
        for pipe in (process.stdin, process.stdout, self._started.complaints):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it started: they have a process group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
