"""Sessions through relays: everything works over several hops, and each error names its hop."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    PermissionDeniedError,
    ProtocolError,
    UsageError,
    WorkerCrashedError,
)
from farcall.rpc import Limits, Server, Session, connect
from farcall.rpc.shared._hops import Hop, hop_values, parse_hop
from farcall.rpc.tokens import SCOPES, TokenFile

from ..waiting import SECONDS
from .peers import (
    Peer,
    constructor,
    device,
    dl_tensor,
    go_on,
    integer,
    message,
    packet,
    pointer,
    sequence,
    text,
)
from .servers import INIT, timeless_server, works

MINE = 1 << 63


@pytest.fixture
def far(servers: list[Server]) -> Iterator[Session]:
    """On the third server."""
    first, second, third = servers
    with connect(
        third.url, "third", via=[(first.url, "k"), (second.url, "second")], timeout=SECONDS
    ) as session:
        yield session


@pytest.fixture
def peer(servers: list[Server]) -> Iterator[Peer]:
    """A client of bytes on the second server."""
    with Peer(servers[0]) as raw:
        assert go_on(raw, (servers[1], "second"))[0] == 4
        yield raw


def number(reply: tuple[int, bytes]) -> int:
    code, body = reply
    assert code == 4, body
    return int(struct.unpack_from("<q", body, len(body) - 8)[0])


# ---- what a session does


def test_calls_and_values(far: Session) -> None:
    assert far.get_function("test.add")(20, 22) == 42
    echo = far.get_function("test.echo")
    for value in (None, True, -7, 1.5, "", "text", "long text " * 50, b"", b"a\0b", b"x" * 70000):
        assert echo(value) == value
    assert far.get_function("test.adder")(5)(1) == 6
    assert far.get_function("test.call")(far.get_function("test.adder")(5), 10) == 15


def test_each_hop_is_another_process(far: Session, servers: list[Server]) -> None:
    with connect(servers[0].url, "k", timeout=SECONDS) as near:
        assert near.get_function("test.pid")() != far.get_function("test.pid")()


@pytest.mark.parametrize("size", [0, 1, 1000, 262_144, 262_145, 3_000_001])
def test_copies(far: Session, size: int) -> None:
    x = np.random.default_rng(size).integers(0, 255, size, dtype="uint8")
    there = far.tensor(x)
    np.testing.assert_array_equal(there.numpy(), x)
    assert far.get_function("test.sum")(there) == x.sum()


def test_results_stay_there_and_are_freed(far: Session) -> None:
    scale = far.get_function("test.scale")
    for _ in range(3):
        y = scale(scale(np.arange(4, dtype="float32"), 2.0), 3.0)
        np.testing.assert_array_equal(y.numpy(), [0, 6, 12, 18])
        del y
    assert far.get_function("test.add")(1, 1) == 2


def test_files(far: Session) -> None:
    far.upload(b"data" * 100_000, "a.bin")
    assert far.download("a.bin") == b"data" * 100_000
    assert far.listdir() == ["a.bin"]


def test_requests_do_not_wait_for_replies(peer: Peer) -> None:
    """The pipeline is full, and refusals of the relay arrive in the order of the requests."""
    add, data = peer.function("test.add"), peer.alloc(8)
    good = [packet(3, struct.pack("<Q", add) + sequence(integer(i), integer(0))) for i in range(300)]
    forged = packet(3, struct.pack("<Q", 12345) + sequence())
    lost_copy = packet(7, dl_tensor(12345, (4,)) + struct.pack("<Q", 4) + b"abcd")
    copy = packet(7, dl_tensor(data, (8,)) + struct.pack("<Q", 8) + b"abcdefgh")
    back = packet(6, dl_tensor(data, (8,)) + struct.pack("<Q", 8))
    invalid = "InvalidHandleError: handle 0x3039 is not valid in this session"
    peer.send(b"".join(one + forged + lost_copy + copy + back for one in good))
    for i in range(300):
        assert number(peer.reply()) == i
        assert message(peer.reply()).startswith(f"{invalid} (expected: function)")
        assert message(peer.reply()).startswith(f"{invalid} (expected: returned tensor or allocation)")
        assert peer.reply()[0] == 4
        assert peer.reply() == (8, b"abcdefgh")


def test_promises_go_through(peer: Peer) -> None:
    keep, add = peer.function("farcall.rpc.keep"), peer.function("test.add")
    function = struct.pack("<iQ", 68, add)
    promise = pointer(1 << 62 | 1)
    peer.send(
        packet(3, struct.pack("<Q", keep) + sequence(integer(1), function, integer(20), integer(1)))
        + packet(3, struct.pack("<Q", add) + sequence(promise, promise))
        + packet(10, sequence(promise))
    )
    assert [number(peer.reply()), number(peer.reply()), peer.reply()[0]] == [21, 42, 4]


# ---- functions of the client


def function(handle: int) -> bytes:
    return struct.pack("<iQ", 68, handle)


def returned(value: bytes) -> bytes:
    return packet(4, sequence(integer(struct.unpack_from("<i", value)[0]), value))


def test_the_far_side_calls_the_client(peer: Peer) -> None:
    call, add = peer.function("test.call"), peer.function("test.add")
    # Behind the call stand two requests that are answered while it is open, one of them by the hop between.
    peer.send(
        packet(3, struct.pack("<Q", call) + sequence(function(MINE | 5), integer(20)))
        + packet(3, struct.pack("<Q", add) + sequence(integer(1), integer(1)))
        + packet(3, struct.pack("<Q", 99) + sequence())
    )
    assert peer.reply() == (3, struct.pack("<Q", MINE | 5) + sequence(integer(20)))
    assert number(peer.reply()) == 2
    assert message(peer.reply()).startswith("InvalidHandleError: ")
    inner = packet(3, struct.pack("<Q", call) + sequence(function(MINE | 6), integer(7)))
    peer.send(inner)
    assert peer.reply() == (3, struct.pack("<Q", MINE | 6) + sequence(integer(7)))
    peer.send(returned(integer(70)))
    assert peer.reply() == (10, sequence(pointer(MINE | 6)))
    assert number(peer.reply()) == 70
    peer.send(returned(integer(42)))
    assert peer.reply() == (10, sequence(pointer(MINE | 5)))
    assert number(peer.reply()) == 42


def test_handles_of_a_call_of_the_client_are_rewritten(peer: Peer) -> None:
    offer = peer.function("test.offer")
    peer.send(packet(3, struct.pack("<Q", offer) + sequence(function(MINE))))
    code, body = peer.reply()
    data, adder = struct.unpack_from("<Q", body, 16)[0], struct.unpack_from("<Q", body, 60)[0]
    tensor = struct.pack("<QiiiBBHqQ", data, 1, 0, 1, 2, 32, 1, 3, 0)
    assert code == 3
    assert peer.ask(6, tensor + struct.pack("<Q", 12)) == (8, struct.pack("<3f", 0, 1, 2))
    assert number(peer.call(adder, integer(5))) == 15
    peer.send(returned(struct.pack("<i", 7) + tensor))
    assert peer.reply() == (10, sequence(pointer(MINE)))
    assert number(peer.reply()) == 3
    assert peer.ask(14, sequence(device(), pointer(data)))[0] == 4
    assert message(peer.ask(14, sequence(device(), pointer(data)))).startswith("InvalidHandleError: ")


def test_an_answer_that_cannot_be_forwarded_is_an_error_there(peer: Peer) -> None:
    call = peer.function("test.call")
    peer.send(packet(3, struct.pack("<Q", call) + sequence(function(MINE), integer(1))))
    assert peer.reply()[0] == 3
    peer.send(returned(struct.pack("<iQ", 73, 12345)))
    assert peer.reply() == (10, sequence(pointer(MINE)))
    assert message(peer.reply()).startswith("InvalidHandleError: hop 2 ")


def test_an_answer_that_nobody_asked_for(peer: Peer) -> None:
    peer.send(returned(integer(1)))
    assert peer.rest() == b""


# ---- handles


def test_forged_handles_are_refused_on_the_way(peer: Peer) -> None:
    add, data = peer.function("test.add"), peer.alloc(8)
    guesses = [1, 2**32, add ^ 1, add ^ (1 << 40), data ^ (1 << 33), data, 2**61]
    for guess in guesses:
        for reply in (
            peer.call(guess) if guess != add else peer.call(1),
            peer.ask(10, sequence(pointer(guess))),
            peer.call(add, struct.pack("<iQ", 73, guess), integer(1)),
        ):
            text_of = message(reply)
            assert text_of.startswith("InvalidHandleError: ")
            assert "hop" not in text_of
    assert number(peer.call(add, integer(1), integer(1))) == 2


def test_copies_beyond_an_allocation_are_refused_at_the_end(peer: Peer) -> None:
    data = peer.alloc(100)
    for offset in (0, 1, 99, 100, 101, 2**31, 2**32, 2**63, 2**64 - 1):
        for nbytes in (0, 1, 99, 100, 101, 2**31, 2**63 - 1, 2**64 - 1):
            code = peer.copy_out(dl_tensor(data, (100,), offset), nbytes)[0]
            assert code == (8 if offset + nbytes <= 100 else 5), (offset, nbytes)


# ---- errors


def test_an_error_names_its_hop(servers: list[Server], far: Session) -> None:
    with pytest.raises(ValueError, match=rf"^hop 3 \({servers[2].url}\): reason$"):
        far.get_function("test.fail")("ValueError", "reason")
    session = connect(servers[1].url, "second", via=[(servers[0].url, "k")], timeout=SECONDS)
    with session, pytest.raises(KeyError, match=rf"hop 2 \({servers[1].url}\): reason"):
        session.get_function("test.fail")("KeyError", "reason")


@pytest.mark.parametrize("hop", [2, 3])
def test_a_crash_names_its_hop(servers: list[Server], hop: int) -> None:
    urls = [(server.url, key) for server, key in zip(servers, ("k", "second", "third"), strict=True)]
    session = connect(*urls[hop - 1], via=urls[: hop - 1], timeout=SECONDS)
    kill, add = session.get_function("test.kill"), session.get_function("test.add")
    with pytest.raises(
        WorkerCrashedError, match=rf"hop {hop} \({urls[hop - 1][0]}\): .*SIGKILL.*`test\.kill`"
    ):
        kill(int(signal.SIGKILL))
    with pytest.raises(WorkerCrashedError):
        add(1, 2)
    assert works(servers[0])


def test_a_hop_that_dies_while_nothing_is_asked(servers: list[Server]) -> None:
    with connect(servers[1].url, "second", via=[(servers[0].url, "k")], timeout=SECONDS) as session:
        add, pid = session.get_function("test.add"), session.get_function("test.pid")()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises((WorkerCrashedError, ConnectionLostError), match="hop 2"):
            add(1, 2)
    assert works(servers[0])


def test_all_that_was_asked_of_a_hop_that_dies_is_answered(peer: Peer) -> None:
    kill, add = peer.function("test.kill"), peer.function("test.add")
    peer.send(
        packet(3, struct.pack("<Q", kill) + sequence(integer(int(signal.SIGKILL))))
        + packet(3, struct.pack("<Q", add) + sequence(integer(1), integer(2))) * 3
    )
    assert message(peer.reply()).startswith("WorkerCrashedError: hop 2 ")
    for _ in range(3):
        assert message(peer.reply()).startswith(("ConnectionLostError: hop 2 ", "WorkerCrashedError: hop 2 "))
    assert "hop 2" in message(peer.call(add, integer(1), integer(2)))


def test_a_next_hop_that_is_not_there(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectError, match=rf"hop 2 \(tcp://127\.0\.0\.1:{port}\): .*Connection refused"):
        connect(f"tcp://127.0.0.1:{port}", via=[(server.url, "k")], timeout=SECONDS)
    with pytest.raises(ConnectError, match=r"hop 2 .* refused the key 'wrong'"):
        connect(server.url, "wrong", via=[(server.url, "k")], timeout=SECONDS)
    assert works(server)


def test_a_last_hop_that_refuses_the_session(servers: list[Server]) -> None:
    with Peer(servers[0]) as raw:
        raw.shake()
        values = constructor(servers[1], "second") + text("no.such.constructor")
        refused = raw.ask(2, struct.pack("<Q", 5) + b"0.8.0" + struct.pack("<i", 6) + values)
        assert message(refused).startswith("NotImplementedError: hop 2 ")


# ---- where a session may go


@pytest.mark.parametrize(
    ("allowed", "url", "goes"),
    [
        ("off", "tcp://127.0.0.1:{port}", False),
        ("loopback", "tcp://127.0.0.1:{port}", True),
        ("loopback", "tcp://192.0.2.1:9", False),
        ("192.0.2.1:9 127.0.0.1:{port}", "tcp://127.0.0.1:{port}", True),
        ("192.0.2.1:9", "tcp://127.0.0.1:{port}", False),
    ],
)
def test_where_a_session_may_go(servers: list[Server], allowed: str, url: str, goes: bool) -> None:
    port = servers[1].port
    limits = Limits(relay=allowed.format(port=port))
    with Server(init=INIT, limits=limits) as first:
        if goes:
            with connect(url.format(port=port), "second", via=[first.url], timeout=SECONDS) as session:
                assert session.get_function("test.add")(1, 2) == 3
        else:
            with pytest.raises((ConnectError, PermissionDeniedError), match="does not go on to"):
                connect(url.format(port=port), "second", via=[first.url], timeout=SECONDS)


@pytest.mark.parametrize("url", ["pipe:touch /tmp/x", "nonsense"])
def test_a_hop_starts_no_command(url: str) -> None:
    with Server(init=INIT, limits=Limits(relay="any"), key="k") as first, Peer(first) as raw:
        raw.shake()
        values = sequence(text("farcall.rpc.Connect"), text(url), text(""), text("{}"))
        refused = message(raw.ask(2, struct.pack("<Q", 5) + b"0.8.0" + values))
        assert refused.startswith(("PermissionDeniedError: ", "ProtocolError: the next hop"))


# ---- what a token allows there


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[[str], Session]]:
    """Sessions with a server that is open, through one whose token has a single scope beside ``relay``."""
    file = TokenFile(tmp_path / "tokens.json")
    with (
        Server(init=INIT) as far,
        Server(urls=[f"unix://{tmp_path}/u"], tokens=file.path) as near,
        contextlib.ExitStack() as stack,
    ):

        def open_session(scope: str) -> Session:
            way = [(near.url, "", file.create(scope, scopes=(scope, "relay")))]
            return stack.enter_context(connect(far.url, via=way, timeout=SECONDS))

        yield open_session


def test_only_a_token_with_the_scope_relay_goes_on_to_another_server(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    others = tuple(scope for scope in SCOPES if scope != "relay")
    with (
        Server(init=INIT) as far,
        Server(init=INIT, urls=[f"unix://{tmp_path}/u"], tokens=file.path) as near,
    ):
        local, going = file.create("local", scopes=others), file.create("going")
        with pytest.raises(ConnectError, match="needs the scope `relay`, which token `local`"):
            connect(far.url, via=[(near.url, "", local)], timeout=SECONDS)
        for via, token in (((), local), ([(near.url, "", going)], None)):
            with connect(far.url if via else near.url, via=via, token=token, timeout=SECONDS) as session:
                assert session.get_function("test.add")(1, 2) == 3


@pytest.mark.parametrize("allowed", [scope for scope in SCOPES if scope != "relay"])
def test_a_token_of_a_server_between_limits_what_goes_through(
    limited: Callable[[str], Session], allowed: str
) -> None:
    session = limited(allowed)
    attempts: dict[str, Callable[[], object]] = {
        "call": lambda: session.get_function("test.add")(20, 22),
        "copy": lambda: session.tensor(np.zeros(3)),
        "load": lambda: session.get_function("tvm.rpc.server.load_module"),
        "files": lambda: session.upload(b"x", "file"),
    }
    for scope, attempt in attempts.items():
        if scope == allowed:
            attempt()
        else:
            with pytest.raises(PermissionDeniedError, match=f"needs the scope `{scope}`"):
                attempt()


def test_no_name_means_another_function_on_the_next_hop(limited: Callable[[str], Session]) -> None:
    session = limited("call")
    with pytest.raises(ValueError, match="NUL byte"):  # a server in C would take the name up to there
        session.get_function("tvm.rpc.server.upload\0")


# ---- the arguments of kInitServer


@given(
    st.sampled_from(["tcp://127.0.0.1:{}", "tcp://[::1]:{}", "tls://board.local:{}", "unix:///run/x{}"]),
    st.integers(0, 65535),
    st.text("abc-._", max_size=8),
    st.none() | st.text(max_size=20),
)
def test_a_hop_is_read_as_it_was_written(form: str, port: int, key: str, token: str | None) -> None:
    hop = Hop(form.format(port), key, token)
    values = hop_values(hop)
    assert parse_hop((*values, "rpc.Connect", "next")) == (hop, len(values))


@pytest.mark.parametrize(
    "options", ["", "[]", "{", '{"token": 1}', '{"token": "a.b", "more": 1}', '{"key": "x"}', "1"]
)
def test_options_that_are_none(options: str) -> None:
    with pytest.raises(ProtocolError, match="its options are JSON"):
        parse_hop(("farcall.rpc.Connect", "tcp://127.0.0.1:1", "", options))


def test_a_token_of_a_far_server_does_not_cross_an_open_line(server: Server) -> None:
    """The client tells the first server, which passes it on."""
    with pytest.raises(UsageError, match=r"would travel in plain text"):
        connect("tls://127.0.0.1:1", token="a.b", via=[(server.url, "k")], timeout=SECONDS)
    with pytest.raises(UsageError, match=r"would travel in plain text"):
        connect(
            "tls://127.0.0.1:1", via=[(server.url, "k"), ("tls://127.0.0.1:2", "", "a.b")], timeout=SECONDS
        )


@given(
    st.lists(
        st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.floats(), st.booleans()), max_size=6
    )
)
def test_any_values_name_a_hop_or_are_refused(values: list[Any]) -> None:
    for first in ([], ["rpc.Connect"], ["farcall.rpc.Connect"]):
        with contextlib.suppress(ProtocolError, NotImplementedError):
            parse_hop([*first, *values])


def test_a_session_here_by_its_name() -> None:
    assert parse_hop([]) is None
    assert parse_hop(["rpc.LocalSession"]) is None


# ---- memory

BIG = """
import os
import re
from pathlib import Path

import numpy as np
from farcall.rpc import Server, connect
from tests.rpc.servers import INIT

def field(pid, name):
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return -1
    return int(next(line for line in lines if line.startswith(name)).split()[1])

def below(pid):
    everybody = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    children = [other for other in everybody if field(other, "PPid") == pid]
    return children + [d for child in children for d in below(child)]

with Server(init=INIT) as first, Server(init=INIT) as second:
    with connect(second.url, via=[first.url]) as session:
        far = session.get_function("test.pid")()
        session.tensor(np.zeros(1000, dtype="uint8")).numpy()
        before = {pid: field(pid, "VmHWM") for pid in below(os.getpid()) if pid != far}
        session.tensor(np.zeros(150_000_000, dtype="uint8")).numpy()
        print(max(field(pid, "VmHWM") - peak for pid, peak in before.items()) // 1024)
"""


def test_a_large_copy_is_not_stored_on_the_way() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BIG],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16  # MiB


# ---- what the supervisor sees


@pytest.mark.parametrize(("limit", "ends"), [("lease_seconds", False), ("call_seconds", True)])
def test_a_forwarded_call_is_work_of_this_server(server: Server, limit: str, ends: bool) -> None:
    """A client that waits for the last server is not silent; this server's limit of calls still holds."""
    with (
        timeless_server(**{limit: 60}) as (first, clock),
        connect(server.url, "k", via=[first.url], timeout=SECONDS) as session,
        connect(server.url, "k", timeout=SECONDS) as direct,
    ):
        name = f"forwarded-{ends}"
        call = session.get_function("test.meet").submit(name)
        direct.get_function("test.wait_for")(f"{name}.in")
        clock.advance(1)
        clock.advance(60)
        if not ends:
            direct.get_function("test.touch")(f"{name}.out")
            assert call.result(SECONDS) is None
            return
        with ThreadPoolExecutor() as threads:
            outcome = threads.submit(call.exception, SECONDS)
            while not outcome.done():  # a first look may be before the relay notes what it forwards
                clock.advance(60)
                concurrent.futures.wait([outcome], timeout=0.01)
        assert isinstance(error := outcome.result(), DeadlineExceededError)
        assert re.search(r"forwarding to tcp://.* ran for more than 60 s", str(error))
