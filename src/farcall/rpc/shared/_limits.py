"""The limits of a server: every number that bounds the memory, time or count that a peer can ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

from farcall._suggest import did_you_mean
from farcall.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_MAY_BE_ZERO = {
    "memory_bytes",
    "session_seconds",
    "call_seconds",
    "lease_seconds",
    "spares",
    "abandoned_seconds",
    "drain_seconds",
    "sessions_per_token",
    "sessions_per_peer",
}


@dataclass(frozen=True)
class Limits:
    """Limits of a server and of each of its sessions. Sizes are bytes, times are seconds.

    Memory for a packet grows with the bytes that have arrived, so a lie about a length costs nothing.

    Raises:
        TypeError: there is no such limit.
        UsageError: a number is out of its range, or ``relay`` names no place.
    """

    # packets, see fc_wire_limits in include/farcall/wire.h
    control_bytes: int = 64 * KIB  # syscalls and headers of copies
    call_bytes: int = 1 * GIB  # calls and results; uploads of files are calls
    copy_bytes: int = 16 * GIB  # payload of one copy; streamed, never buffered
    string_bytes: int = 1 * GIB
    values: int = 4096  # arguments of one call
    rank: int = 32  # dims of a tensor; at most 32

    # one session
    tensor_bytes: int = 16 * GIB  # all tensors that the client allocates
    handles: int = 1 << 20
    memory_bytes: int = 0  # private memory of its worker; 0: as much as the machine has
    file_bytes: int = 16 * GIB  # one file
    files_bytes: int = 32 * GIB  # all files in the session's folder
    output_bytes: int = 16 * MIB  # printed output; the rest is dropped
    open_files: int = 1024
    session_seconds: float = 0  # maximum duration of a session; 0: no limit
    call_seconds: float = 0  # maximum duration of a call; 0: no limit
    lease_seconds: float = 0  # silence of the client between calls; 0: no limit
    relay: str = "loopback"  # servers that it may go on to: "off", "loopback", "any", or words HOST:PORT
    relay_seconds: float = 10.0  # to wait for the next server's answer

    # the server
    key_bytes: int = 1024
    handshake_seconds: float = 5.0
    pending_peers: int = 64  # in a handshake at a time; the oldest of the worst source is dropped
    sessions: int = 256
    sessions_per_token: int = 0  # 0: only the server's limit
    sessions_per_peer: int = 0  # of one IP address, or one user of this machine; 0: only the server's limit
    spares: int = 2  # workers that wait for a session
    abandoned_seconds: float = 10.0  # for a worker to finish after its client has hung up
    drain_seconds: float = 5.0  # for running calls to finish when the server is asked to stop
    spawn_seconds: float = 60.0  # until the first worker is ready

    def __new__(cls, *args: object, **limits: object) -> Self:
        """Refuse an unknown name; the generated ``__init__`` would not suggest the right one."""
        known = [field.name for field in fields(cls)]
        for name in limits.keys() - set(known):
            raise TypeError(f"Limits: there is no limit `{name}`{did_you_mean(name, known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "relay":
                _check_number(field.name, getattr(self, field.name), whole=field.type == "int")
        if self.relay not in ("off", "loopback", "any") and not all(
            map(_is_place, self.relay.split() or [""])
        ):
            raise UsageError(
                f"Limits: relay is 'off', 'loopback', 'any', or words HOST:PORT, got {self.relay!r}"
            )


def _check_number(name: str, value: object, *, whole: bool) -> None:
    kind = "a whole number" if whole else "a number"
    if not isinstance(value, int if whole else int | float) or not 0 <= value < math.inf:
        raise UsageError(f"Limits: {name} is {kind}, not negative, got {value!r:.40}")
    if value == 0 and name not in _MAY_BE_ZERO:
        raise UsageError(f"Limits: {name} must not be 0: nothing could be served")


def _is_place(word: str) -> bool:
    """HOST:PORT, or the path of a socket."""
    host, _, port = word.rpartition(":")
    return word.startswith("/") or (bool(host) and port.isdigit())
