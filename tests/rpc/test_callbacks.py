"""Callbacks to a raw client: nested, with handles, and never after their call has ended."""

from __future__ import annotations

import struct

from farcall.rpc import Server

from .peers import Peer, device, integer, message, packet, pointer, sequence, text
from .servers import works

MINE = 1 << 63
VOID = sequence(struct.pack("<i", 0))


def function(handle: int) -> bytes:
    return struct.pack("<iQ", 68, handle)


def returned(value: bytes) -> bytes:
    """A kReturn of the client: the type, then the value."""
    return packet(4, sequence(integer(struct.unpack_from("<i", value)[0]), value))


def begin(peer: Peer, name: str, *values: bytes) -> None:
    handle = peer.function(name)
    peer.send(packet(3, struct.pack("<Q", handle) + sequence(*values)))


def take_call(peer: Peer, handle: int, *values: bytes) -> None:
    assert peer.reply() == (3, struct.pack("<Q", handle) + sequence(*values))


def take_free(peer: Peer, handle: int) -> None:
    assert peer.reply() == (10, sequence(pointer(handle)))


def number(reply: tuple[int, bytes]) -> int:
    code, body = reply
    assert code == 4, body
    return int(struct.unpack_from("<q", body, len(body) - 8)[0])


def test_a_call_that_calls_back(peer: Peer) -> None:
    begin(peer, "test.call", function(MINE | 5), integer(20))
    take_call(peer, MINE | 5, integer(20))
    peer.send(returned(integer(42)))
    take_free(peer, MINE | 5)
    assert number(peer.reply()) == 42


def test_the_server_hears_the_error(peer: Peer) -> None:
    begin(peer, "test.call", function(MINE), integer(1))
    take_call(peer, MINE, integer(1))
    peer.send(packet(5, sequence(text("ValueError: not from me"))))
    take_free(peer, MINE)
    assert message(peer.reply()) == "ValueError: not from me"


def test_the_client_asks_before_it_answers(peer: Peer) -> None:
    call = peer.function("test.call")
    begin(peer, "test.call", function(MINE | 1), integer(3))
    take_call(peer, MINE | 1, integer(3))
    # While it is called, the client uses the session: a plain call, and one that calls back again.
    add = peer.function("test.add")
    assert number(peer.call(add, integer(1), integer(2))) == 3
    peer.send(
        packet(3, struct.pack("<Q", call) + sequence(function(MINE | 2), text("inner, and longer than")))
    )
    take_call(peer, MINE | 2, text("inner, and longer than"))
    peer.send(returned(text("inner result")))
    take_free(peer, MINE | 2)
    code, body = peer.reply()
    assert (code, body[-12:]) == (4, b"inner result")
    peer.send(returned(integer(9)))
    take_free(peer, MINE | 1)
    assert number(peer.reply()) == 9


def test_the_same_function_twice_is_freed_once(peer: Peer) -> None:
    begin(peer, "test.count", function(MINE | 7), function(MINE | 7))
    take_free(peer, MINE | 7)
    assert number(peer.reply()) == 2


def test_after_its_call_the_function_is_gone(peer: Peer) -> None:
    begin(peer, "test.hold", function(MINE | 3))
    take_free(peer, MINE | 3)
    assert peer.reply()[0] == 4
    begin(peer, "test.call_held", integer(1))
    assert message(peer.reply()).startswith(
        "InvalidHandleError: a function of the client can be called only while"
    )


def test_another_thread_may_call_while_the_call_is_open(peer: Peer) -> None:
    begin(peer, "test.call_in_thread", function(MINE | 4), integer(11))
    take_call(peer, MINE | 4, integer(11))
    peer.send(returned(integer(12)))
    take_free(peer, MINE | 4)
    assert number(peer.reply()) == 12


def test_tensors_and_functions_go_to_the_client_as_handles_that_it_frees(peer: Peer) -> None:
    begin(peer, "test.offer", function(MINE))
    code, body = peer.reply()
    assert code == 3
    kind, data = struct.unpack_from("<iQ", body, 12)
    assert kind == 7
    shape, dtype = struct.unpack_from("<q", body, 40)[0], body[36:40]
    assert (shape, dtype) == (3, struct.pack("<BBH", 2, 32, 1))
    kind, adder = struct.unpack_from("<iQ", body, 56)
    assert kind == 68
    tensor = struct.pack("<QiiiBBHqQ", data, 1, 0, 1, 2, 32, 1, 3, 0)
    assert peer.ask(6, tensor + struct.pack("<Q", 12)) == (8, struct.pack("<3f", 0, 1, 2))
    assert number(peer.call(adder, integer(5))) == 15
    # The result: the same tensor, which stays there when the client frees its data.
    peer.send(returned(struct.pack("<i", 7) + tensor))
    take_free(peer, MINE)
    assert number(peer.reply()) == 3
    assert peer.ask(14, sequence(device(), pointer(data)))[0] == 4
    assert peer.ask(10, sequence(pointer(adder)))[0] == 4


def test_a_client_that_leaves_in_its_function(server: Server) -> None:
    for last in (b"", packet(1), packet(4, sequence()), packet(5, sequence()), packet(99)):
        with Peer(server) as raw:
            raw.shake()
            raw.start()
            begin(raw, "test.call", function(MINE), integer(1))
            take_call(raw, MINE, integer(1))
            raw.send(last)
    assert works(server)


def test_a_result_with_a_forged_handle(peer: Peer) -> None:
    begin(peer, "test.call", function(MINE), integer(1))
    take_call(peer, MINE, integer(1))
    peer.send(returned(struct.pack("<iQ", 73, 12345)))
    take_free(peer, MINE)
    assert message(peer.reply()).startswith("InvalidHandleError: ")
