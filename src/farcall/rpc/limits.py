"""What one server lets a peer ask of it: every number that bounds memory, time or count, in one place."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of a server and of each of its sessions. Sizes are bytes, times are seconds.

    Memory for a packet grows with the bytes that have arrived, so a lie about a length costs nothing.
    """

    # packets, see fc_wire_limits in include/farcall/wire.h
    control_bytes: int = 64 * KIB  # syscalls and headers of copies
    call_bytes: int = 1 * GIB  # calls and results: uploads of files are calls
    copy_bytes: int = 16 * GIB  # payload of one copy; streamed, never buffered
    string_bytes: int = 1 * GIB
    values: int = 4096  # arguments of one call
    rank: int = 32  # dims of a tensor; at most 32

    # one session
    tensor_bytes: int = 16 * GIB  # allocated by the client, in all
    handles: int = 1 << 20
    memory_bytes: int = 0  # private memory of its worker; 0: as much as the machine has
    file_bytes: int = 16 * GIB  # one file
    open_files: int = 1024
    session_seconds: float = 0  # it may last; 0: no limit
    call_seconds: float = 0  # one call may take; 0: no limit
    lease_seconds: float = 0  # without a byte from the client, between calls; 0: no limit
    relay: str = "loopback"  # where it may go on to: "off", "loopback", "any", or words HOST:PORT
    relay_seconds: float = 10.0  # until the next server has answered

    # the server
    key_bytes: int = 1024
    handshake_seconds: float = 5.0
    pending_peers: int = 64  # in a handshake at the same time; the oldest of the worst source has to go
    sessions: int = 256
    spares: int = 2  # workers that wait for their session
    abandoned_seconds: float = 10.0  # for a worker to finish when its client has left
    drain_seconds: float = 10.0  # for sessions to finish when the server is asked to stop
    spawn_seconds: float = 60.0  # until the first worker can be had

    @property
    def wire(self) -> tuple[int, int, int, int, int, int]:
        """As ``_core.Endpoint`` takes them."""
        return (
            self.control_bytes,
            self.call_bytes,
            self.copy_bytes,
            self.string_bytes,
            self.values,
            self.rank,
        )
