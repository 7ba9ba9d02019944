"""A device on which a server was started: sessions with it, its log, its files, and its end."""

from __future__ import annotations

import os
import shlex
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from farcall._files import check_folder, unusable
from farcall.errors import ConnectError, UsageError
from farcall.launch import _scripts
from farcall.launch._launcher import Completed, Launcher
from farcall.launch._pushing import push
from farcall.launch._started import Place
from farcall.rpc import Session, connect
from farcall.toolchain import Target


class LaunchedDevice:
    """A device with a running server. Made by :func:`farcall.launch`. Use it in a ``with`` statement.

    The server ends with the statement, at :meth:`stop`, and at the latest with this process, even if that is
    killed. Its files go with it.

    Attributes:
        url: of the device: ``"ssh://pi@board"``.
        server_url: of the server, for :func:`farcall.connect` and `farcall run --on`.
        target: the machine that its programs are built for.
    """

    def __init__(
        self,
        launcher: Launcher,
        target: Target,
        place: Place,
        timeout: float,
        end: Callable[[], None],
    ) -> None:
        self.url = launcher.url
        self.server_url = place.url
        self.target = target
        self._launcher = launcher
        self._place = place
        self._timeout = timeout
        self._stop = weakref.finalize(self, end)

    def connect(self, **options: Any) -> Session:
        """Open a session with the device's server.

        Args:
            options: as :func:`farcall.connect` takes them, after the URL.

        Raises:
            ConnectError: no session could be opened; the message ends with the server's log.
            UsageError: the device was stopped, or an option is not valid.
        """
        self._check()
        options.setdefault("timeout", self._timeout)
        try:
            session = connect(self.server_url, **options)
        except ConnectError as error:
            raise type(error)(with_log(str(error), self.logs(8))) from None
        if len(session.route) == 1:  # further servers are on other machines
            session.device_url, session.target = self.url, str(self.target)
        return session

    def logs(self, lines: int = 100) -> str:
        """The last lines of the server's log; empty if it wrote none."""
        self._check()
        script = _scripts.tail(f"{self._place.folder}/{self._place.log}", lines)
        return self._launcher.run(script, timeout=self._timeout).stdout

    def push(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a file of this machine to the device. It has its name only when all of it is there.

        Args:
            source: the file here; its permission bits are kept.
            path: there: absolute, or in the folder of farcall on the device.

        Raises:
            MissingFileError, UsageError: the file cannot be read.
            ConnectError: the device refused it: no room, no folder, no permission.
        """
        self._check()
        push(self._launcher, Path(source), self._there(path), timeout=self._timeout)

    def pull(self, path: str, target: str | os.PathLike[str]) -> None:
        """Copy a file of the device to this machine. It has its name only when all of it is there.

        Args:
            path: there: absolute, or in the folder of farcall on the device.
            target: the file here, in an existing folder.

        Raises:
            ConnectError: the device has no such file, or lets nobody read it.
            UsageError: the file cannot be written here.
        """
        self._check()
        check_folder(target)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=Path(target).parent)
        os.close(descriptor)
        try:
            try:
                self._launcher.get(self._there(path), Path(name), timeout=self._timeout)
            except ConnectError as error:
                raise type(error)(f"{self.url}: cannot pull {path!r}: {error}") from None
            Path(name).replace(target)
        except OSError as error:
            raise unusable(error, f"cannot write {str(target)!r}: {error.strerror or error}") from None
        finally:
            Path(name).unlink(missing_ok=True)

    def shell(self, command: str) -> Completed:
        """Run a command of the device's shell, in the folder of farcall there.

        Returns:
            Its exit status, and what it wrote: ``code``, ``stdout``, ``stderr``.

        Raises:
            ConnectError: the device cannot be reached, or the command did not end in time.
        """
        self._check()
        script = f"cd {shlex.quote(self._place.folder)} || exit 1\n{command}"
        return self._launcher.run(script, timeout=self._timeout)

    def stop(self) -> None:
        """Stop the server that this launch started, and undo its forwards. Further calls do nothing."""
        self._stop()

    def __enter__(self) -> LaunchedDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "" if self._stop.alive else ", stopped"
        return f"<farcall device {self.url}, {self.target}{state}>"

    def _there(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._place.folder}/{path}"

    def _check(self) -> None:
        if not self._stop.alive:
            raise UsageError(f"{self.url}: the device was stopped; launch it again")


def with_log(message: str, log: str) -> str:
    """An error's message, with the end of the server's log."""
    return f"{message}\nthe end of its log:\n{log.rstrip()}" if log.strip() else message
