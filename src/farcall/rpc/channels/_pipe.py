"""A child process serves on its standard input and output, without a handshake, as in TVM."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from farcall._core import Channel
from farcall.errors import ConnectError
from farcall.rpc.channels._connection import Connection

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address

_GRACE_SECONDS = 5.0  # for the child to exit after its input has ended


def dial_pipe(address: Address) -> Connection:
    """Start the command, which ends with the session. Uses pipes, because a shell takes a socket for a remote
    login.

    Raises:
        ConnectError: the command cannot be started.
    """
    read, child_write = os.pipe()
    child_read, write = os.pipe()
    try:
        process = subprocess.Popen(address.command, stdin=child_read, stdout=child_write)
    except OSError as error:
        os.close(read)
        os.close(write)
        name = address.command[0]
        raise ConnectError(f"{address}: {error.strerror}; is `{name}` installed, and on the PATH?") from None
    finally:
        os.close(child_read)
        os.close(child_write)
    channel = Channel(read, write)

    def trouble() -> ConnectError | None:
        code = process.poll()
        ended = f"`{address.command[0]}` ended with status {code} before a session began"
        return None if code is None else ConnectError(f"{ended}; run it in a shell to see why")

    return Connection(address, channel, shakes_hands=False, on_close=lambda: _end(process), trouble=trouble)


def _end(process: subprocess.Popen[bytes]) -> None:
    for stop in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
            return
        stop()
    process.wait()
