"""Raw servers, which send answers that no honest server would."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from ..waiting import SECONDS
from .peers import packet, sequence

VOID = packet(4, sequence(struct.pack("<i", 0)))
ACCEPT = struct.pack("<ii", 0xFF271, 8) + b"server:k"


@contextlib.contextmanager
def impostor(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that passes its first connection to ``serve``; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(SECONDS)
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(SECONDS)


def until_closed(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def take_packet(connection: socket.socket) -> None:
    """Read one whole packet."""
    (size,) = struct.unpack("<Q", connection.recv(8, socket.MSG_WAITALL))
    connection.recv(size, socket.MSG_WAITALL)
