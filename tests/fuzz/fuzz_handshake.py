"""Both state machines of the handshake: they accept any bytes, or refuse them with one error."""

from __future__ import annotations

from farcall.errors import ConnectError, ProtocolError
from farcall.rpc.shared._handshake import ClientHandshake, ServerHandshake

from . import harness


def _drive(machine: ServerHandshake | ClientHandshake, data: bytes) -> object:
    try:
        while machine.needed and len(data) >= machine.needed:
            size = machine.needed
            assert size <= 65536, "a claim of length was believed"
            machine.feed(data[:size])
            data = data[size:]
    except (ProtocolError, ConnectError) as error:
        return str(error)
    return machine.hello if isinstance(machine, ServerHandshake) else machine.server_key


def one_input(data: bytes) -> None:
    """Feed both sides, twice."""
    assert _drive(ServerHandshake(), data) == _drive(ServerHandshake(), data)
    assert _drive(ClientHandshake("k"), data) == _drive(ClientHandshake("k"), data)


if __name__ == "__main__":
    harness.main("handshake", one_input)
