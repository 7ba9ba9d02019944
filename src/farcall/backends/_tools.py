"""Runs the tools of backends, such as a vendor's compiler, within a time."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

_LINES = 10  # of what a tool wrote, that an error quotes


def run_tool(
    command: Sequence[str | os.PathLike[str]],
    *,
    seconds: float = 300.0,
    folder: str | os.PathLike[str] | None = None,
) -> bytes:
    """Run a tool of a backend, such as a vendor's compiler, and return what it wrote to stdout.

    If ``compile`` or ``finish`` lets an error of it pass, the build ends with a BackendError that names the
    backend and the region.

    Args:
        command: the program and its arguments. No shell reads them.
        seconds: how long it may run. Then it ends, with the processes that it has started.
        folder: where it runs; default: the current folder.

    Raises:
        TimeoutError: the tool took longer.
        RuntimeError: it cannot be started, or failed; the message ends with what it wrote last.
    """
    words = [os.fspath(word) for word in command]
    try:
        tool = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise RuntimeError(f"the tool `{words[0]}` cannot be started: {error.strerror}") from None
    try:
        out, err = tool.communicate(timeout=seconds)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(tool.pid, signal.SIGKILL)
        tool.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise TimeoutError(f"the tool `{shlex.join(words)}` has not ended after {seconds:g} s") from None
    if tool.returncode:
        last = "\n".join((err or out).decode(errors="replace").splitlines()[-_LINES:])
        raise RuntimeError(f"the tool `{shlex.join(words)}` failed with status {tool.returncode}:\n{last}")
    return out
