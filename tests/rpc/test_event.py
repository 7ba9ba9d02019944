"""The server without a connection: every request, however it is split, and forbidden requests."""

from __future__ import annotations

import random
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import farcall as fc
from farcall.errors import ProtocolError
from farcall.rpc import Limits
from farcall.rpc.server._dispatch import Rights
from farcall.rpc.server._event import EventServer
from farcall.rpc.server._scopes import Scope

from .peers import device, dl_tensor, integer, packet, pointer, sequence, text

HERE = Path(__file__).parent  # no file is touched here
INIT = packet(2, struct.pack("<Q", 5) + b"0.8.0" + sequence())
VOID = packet(4, sequence(struct.pack("<i", 0)))
Reply = tuple[int, bytes]


@pytest.fixture(autouse=True)
def exports() -> Iterator[None]:
    functions: dict[str, Callable[..., object]] = {
        "event.add": lambda a, b: a + b,
        "event.adder": lambda n: fc.ffi.Function(lambda x: x + n),
        "event.echo": lambda x: x,
        "event.fail": _fail,
        "event.array": lambda n: np.arange(n, dtype="float32"),
        "event.items": lambda: [1, "two"],
    }
    for name, function in functions.items():
        fc.register_global_func(name, function)
    yield
    for name in functions:
        fc.ffi.remove_global_func(name)


def _fail(text: str) -> None:
    raise ValueError(text)


class Client:
    """Asks an event server, and takes its answers apart."""

    def __init__(self, limits: Limits | None = None, rights: Rights | None = None) -> None:
        self.server = EventServer(workdir=HERE, limits=limits, rights=rights)
        assert self.server.feed(INIT) == VOID

    def ask(self, code: int, body: bytes = b"") -> Reply:
        (reply,) = split(self.server.feed(packet(code, body)))
        return reply

    def handle(self, code: int, *values: bytes) -> int:
        kind, body = self.ask(code, sequence(*values))
        assert kind == 4, body
        return int(struct.unpack_from("<Q", body, 8)[0])

    def function(self, name: str) -> int:
        return self.handle(9, text(name))

    def alloc(self, size: int) -> int:
        return self.handle(13, device(), integer(size), integer(64), struct.pack("<iBBHi", 5, 1, 8, 1, 0))

    def call(self, function: int, *values: bytes) -> Reply:
        return self.ask(3, struct.pack("<Q", function) + sequence(*values))

    def number(self, function: int, *values: bytes) -> int:
        code, body = self.call(function, *values)
        assert code == 4, body
        return int(struct.unpack_from("<q", body, len(body) - 8)[0])


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.server.close()


def split(data: bytes) -> list[Reply]:
    replies = []
    while data:
        size, code = struct.unpack_from("<Qi", data)
        replies.append((code, data[12 : 8 + size]))
        data = data[8 + size :]
    return replies


def error(reply: Reply) -> str:
    assert reply[0] == 5, reply
    return reply[1][16:].decode()


# ---- the stream


def requests(client: Client) -> bytes:
    """One of each kind, as a client sends them."""
    add, data = client.function("event.add"), client.alloc(4)
    view = struct.pack("<i", 7) + dl_tensor(data, (4,))
    return b"".join(
        [
            packet(3, struct.pack("<Q", add) + sequence(integer(1), integer(2))),
            packet(7, dl_tensor(data, (4,)) + struct.pack("<Q", 4) + b"abcd"),
            packet(6, dl_tensor(data, (4,)) + struct.pack("<Q", 4)),
            packet(16, sequence(view, view, pointer(0))),
            packet(12, sequence(device(), integer(0))),
            packet(3, struct.pack("<Q", 0) + sequence()),
            packet(21, sequence(device())),
            packet(14, sequence(device(), pointer(data))),
        ]
    )


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_pieces_give_the_same_answers(sizes: list[int]) -> None:
    client = Client()
    data = requests(client)
    answers, at = b"", 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        answers += client.server.feed(data[at : at + size])
        at += size
    codes = [code for code, _ in split(answers)]
    assert codes == [4, 4, 8, 4, 4, 5, 4, 4]
    assert split(answers)[2][1] == b"abcd"
    assert not client.server.closed


def test_a_goodbye_and_a_close(client: Client) -> None:
    assert client.server.feed(packet(1)) == b""
    assert client.server.closed
    assert client.server.error is None
    assert client.server.feed(b"more") == b""
    other = EventServer(workdir=HERE)
    assert other.feed(b"") == b""
    assert other.closed
    assert other.error is None


def test_what_cannot_be_read(client: Client) -> None:
    assert error(split(client.server.feed(packet(99)))[0]).startswith(
        "ProtocolError: the client sent a packet"
    )
    assert client.server.closed
    assert isinstance(client.server.error, ProtocolError)


def test_a_line_that_breaks_off() -> None:
    server = EventServer(workdir=HERE)
    server.feed(INIT[:7])
    server.feed(b"")
    assert server.closed
    assert "inside a packet" in str(server.error)


def hello(key: str) -> bytes:
    return struct.pack("<ii", 0xFF271, len(key)) + key.encode()


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_the_handshake(piece: int) -> None:
    server = EventServer(key="k", workdir=HERE)
    data = hello("client:k") + INIT
    answer = b"".join(server.feed(data[i : i + piece]) for i in range(0, len(data), piece))
    assert answer == struct.pack("<ii", 0xFF271, 8) + b"server:k" + VOID


def test_a_wrong_key_and_no_handshake() -> None:
    server = EventServer(key="k", workdir=HERE)
    assert server.feed(hello("client:other")) == struct.pack("<i", 0xFF273)
    assert server.closed
    server = EventServer(key="k", workdir=HERE)
    assert server.feed(b"GET / HTTP/1.1\r\n") == b""
    assert server.closed
    assert isinstance(server.error, ProtocolError)


# ---- handles


def owned(handle: int) -> bytes:
    return packet(10, sequence(pointer(handle)))


def test_a_million_guesses_name_nothing(client: Client) -> None:
    known = [client.function("event.add"), client.alloc(8), client.function("event.echo")]
    chance = random.Random(5)  # noqa: S311
    slots = [handle & 0xFFFFFFFF for handle in known]
    refused = 0
    for _ in range(20):
        guesses = [chance.getrandbits(64) for _ in range(25_000)]
        # The harder half: slots that are in use, with another generation.
        guesses += [chance.getrandbits(32) << 32 | chance.choice(slots) for _ in range(25_000)]
        wrong = b"".join(owned(guess) for guess in guesses if guess not in known)
        answer = client.server.feed(wrong)
        assert answer.count(b"InvalidHandleError: ") == len(wrong) // len(owned(0))
        refused += len(wrong) // len(owned(0))
    assert refused >= 999_990
    assert client.number(known[0], integer(1), integer(2)) == 3
    assert client.server.handles == 3


class Handles(RuleBasedStateMachine):
    """Two sessions; the model is the set of handles of each."""

    def __init__(self) -> None:
        super().__init__()
        fc.register_global_func("event.nop", lambda: None, override=True)
        self.clients = Client(), Client()
        self.functions: tuple[set[int], ...] = (set(), set())
        self.memory: tuple[set[int], ...] = (set(), set())
        self.dead: tuple[set[int], ...] = (set(), set())

    @rule(which=st.integers(0, 1))
    def get(self, which: int) -> None:
        handle = self.clients[which].function("event.nop")
        assert 0 < handle < 2**62
        assert handle not in self.functions[which] | self.memory[which] | self.dead[which]
        self.functions[which].add(handle)

    @rule(which=st.integers(0, 1), size=st.integers(0, 100))
    def allocate(self, which: int, size: int) -> None:
        handle = self.clients[which].alloc(size)
        assert handle not in self.functions[which] | self.memory[which] | self.dead[which]
        self.memory[which].add(handle)

    @precondition(lambda self: any(self.functions) or any(self.memory))
    @rule(which=st.integers(0, 1), data=st.data())
    def free(self, which: int, data: st.DataObject) -> None:
        live = sorted(self.functions[which] | self.memory[which])
        if not live:
            return
        handle = data.draw(st.sampled_from(live))
        function = handle in self.functions[which]
        free_function = 10, sequence(pointer(handle))
        free_memory = 14, sequence(device(), pointer(handle))
        right, wrong = (free_function, free_memory) if function else (free_memory, free_function)
        assert error(self.clients[which].ask(*wrong)).startswith("InvalidHandleError: ")
        assert self.clients[which].ask(*right)[0] == 4
        assert error(self.clients[which].ask(*right)).startswith("InvalidHandleError: ")
        (self.functions if function else self.memory)[which].discard(handle)
        self.dead[which].add(handle)

    @rule(which=st.integers(0, 1), data=st.data())
    def forge(self, which: int, data: st.DataObject) -> None:
        known = sorted(set().union(*self.functions, *self.memory, *self.dead))
        numbers = st.integers(0, 2**64 - 1)
        if known:
            near = st.tuples(st.sampled_from(known), st.integers(0, 63)).map(lambda v: v[0] ^ (1 << v[1]))
            numbers = st.one_of(numbers, st.sampled_from(known), near)
        guess = data.draw(numbers)
        client = self.clients[which]
        if guess not in self.functions[which]:
            assert error(client.call(guess)).startswith("InvalidHandleError: ")
        if guess not in self.memory[which]:
            view = dl_tensor(guess, (0,)) + struct.pack("<Q", 0)
            assert error(client.ask(6, view)).startswith("InvalidHandleError: ")

    @invariant()
    def agrees(self) -> None:
        for client, functions, memory in zip(self.clients, self.functions, self.memory, strict=True):
            assert client.server.handles == len(functions) + len(memory)
            for function in functions:
                assert client.call(function)[0] == 4

    def teardown(self) -> None:
        for client in self.clients:
            client.server.close()
        fc.ffi.remove_global_func("event.nop")


TestHandles = Handles.TestCase
TestHandles.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


def test_the_limit_of_handles() -> None:
    client = Client(limits=Limits(handles=2))
    first = client.function("event.add")
    client.alloc(1)
    assert "holds 2 handles, which is the limit" in error(client.ask(9, sequence(text("event.add"))))
    client.ask(10, sequence(pointer(first)))
    assert client.function("event.echo")


def test_a_returned_tensor_goes_with_its_owner(client: Client) -> None:
    code, body = client.call(client.function("event.array"), integer(4))
    assert (code, struct.unpack_from("<iiq", body)) == (4, (3, 1, 70))
    data, owner = struct.unpack_from("<Q", body, 20)[0], struct.unpack_from("<Q", body, len(body) - 8)[0]
    view = dl_tensor(data, (16,)) + struct.pack("<Q", 16)
    assert client.ask(6, view) == (8, np.arange(4, dtype="float32").tobytes())
    assert error(client.ask(14, sequence(device(), pointer(data)))).startswith("InvalidHandleError")
    assert client.ask(10, sequence(pointer(owner)))[0] == 4
    assert error(client.ask(6, view)).startswith("InvalidHandleError")


def test_no_address_travels(client: Client) -> None:
    """The peer gets a slot number for an object, never an address."""
    for name, args in [("event.array", [integer(3)]), ("event.items", []), ("event.adder", [integer(1)])]:
        body = client.call(client.function(name), *args)[1]
        handle = struct.unpack_from("<Q", body, len(body) - 8)[0]
        assert handle & 0xFFFFFFFF < 64
        assert handle >> 62 == 0


def test_the_same_random_numbers_give_the_same_handles() -> None:
    """Even after the table has grown; the random numbers of the system differ in each session."""

    def handles(entropy: Callable[[int], bytes] | None) -> list[int]:
        with EventServer(workdir=HERE, entropy=entropy) as server:
            server.feed(INIT)
            asked = packet(9, sequence(text("event.add"))) * 200
            return [struct.unpack_from("<Q", body, 8)[0] for _, body in split(server.feed(asked))]

    same = [handles(random.Random(1).randbytes) for _ in range(2)]  # noqa: S311
    assert same[0] == same[1]
    assert len(set(same[0])) == 200
    assert handles(None) != handles(None)


@pytest.mark.parametrize(
    ("entropy", "words"),
    [
        (lambda size: b"short", r"TypeError: entropy\(256\): expected 256 bytes, got b'short'"),
        (lambda size: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_no_handle_without_random_numbers(entropy: Callable[[int], bytes], words: str) -> None:
    with EventServer(workdir=HERE, entropy=entropy) as server:
        server.feed(INIT)
        (reply,) = split(server.feed(packet(9, sequence(text("event.add")))))
        assert re.match(words, error(reply))
        assert server.handles == 0


# ---- promises


def promise(id: int) -> bytes:
    return pointer(1 << 62 | id)


def function_value(handle: int) -> bytes:
    return struct.pack("<iQ", 68, handle)


def test_a_result_serves_as_argument_before_it_is_known(client: Client) -> None:
    keep, add = client.function("farcall.rpc.keep"), client.function("event.add")
    adder = client.function("event.adder")
    chain = [
        struct.pack("<Q", keep) + sequence(integer(1), function_value(add), integer(20), integer(1)),
        struct.pack("<Q", keep) + sequence(integer(2), function_value(add), promise(1), promise(1)),
        struct.pack("<Q", keep) + sequence(integer(3), function_value(adder), promise(2)),
        struct.pack("<Q", 1 << 62 | 3) + sequence(integer(100)),
        struct.pack("<Q", keep) + sequence(integer(4), promise(3), integer(1000)),
    ]
    replies = split(client.server.feed(b"".join(packet(3, body) for body in chain)))
    values = [struct.unpack_from("<q", body, len(body) - 8)[0] for _, body in replies]
    assert [code for code, _ in replies] == [4] * 5
    assert (values[0], values[1], values[3], values[4]) == (21, 42, 142, 1042)
    assert client.ask(10, sequence(promise(1)))[0] == 4
    assert "promise 1" in error(client.call(add, promise(1), integer(0)))
    assert error(client.ask(10, sequence(promise(1)))).startswith("InvalidHandleError: ")


def test_what_depends_on_a_failure_fails_with_it(client: Client) -> None:
    keep, fail = client.function("farcall.rpc.keep"), client.function("event.fail")
    echo = client.function("event.echo")
    failed = client.call(keep, integer(7), function_value(fail), text("not today"))
    assert error(failed) == "ValueError: not today"
    assert error(client.call(echo, promise(7))) == "ValueError: not today"
    assert client.ask(10, sequence(promise(7)))[0] == 4
    assert client.number(keep, integer(7), function_value(echo), integer(5)) == 5


def test_promises_that_are_refused(client: Client) -> None:
    keep, echo = client.function("farcall.rpc.keep"), client.function("event.echo")
    assert client.number(keep, integer(1), function_value(echo), integer(5)) == 5
    assert "already" in error(client.call(keep, integer(1), function_value(echo), integer(5)))
    for id in (0, -1, 1 << 62, -(1 << 63)):
        assert "between 1 and" in error(client.call(keep, integer(id), function_value(echo), integer(5)))
    assert "takes an id" in error(client.call(keep))
    assert "takes an id" in error(client.call(keep, text("x"), function_value(echo)))
    assert "not a function" in error(client.call(keep, integer(2), promise(1), integer(5)))
    assert "InvalidHandleError" in error(client.call(keep, integer(3), function_value(1), integer(5)))
    assert "only a client" in error(client.call(keep, integer(4), function_value(keep), integer(9)))
    few = Client(limits=Limits(handles=3))
    keep, echo = few.function("farcall.rpc.keep"), few.function("event.echo")
    assert few.number(keep, integer(1), function_value(echo), integer(5)) == 5
    assert "limit" in error(few.call(keep, integer(2), function_value(echo), integer(5)))


def test_functions_of_the_client_need_a_server_that_waits(client: Client) -> None:
    assert "never waits" in error(client.call(client.function("event.echo"), function_value(1 << 63)))
    code, body = client.call(client.function("farcall.rpc.hello"), integer(1), text("{}"))
    assert code == 4
    assert b'"promises"' in body
    assert b"callbacks" not in body


# ---- scopes

NEEDS = {
    "call": ["event.add", "runtime.RPCTimeEvaluator"],
    "load": ["tvm.rpc.server.load_module", "tvm.rpc.server.ModuleGetFunction"],
    "files": ["tvm.rpc.server.upload", "tvm.rpc.server.listdir", "tvm.rpc.server.remove"],
}


@pytest.mark.parametrize("scope", [*NEEDS, "copy"])
def test_a_token_gives_its_scopes_only(scope: str) -> None:
    client = Client(rights=Rights("night-job", Scope[scope.upper()]))
    for need, names in NEEDS.items():
        for name in names:
            code, body = client.ask(9, sequence(text(name)))
            if need != scope and (code == 5 or body[-8:] != bytes(8)):
                words = f"`{name}` needs the scope `{need}`, which token `night-job` does not have"
                assert words.replace("`" + name + "`", name) in error((code, body))
            elif need == scope:
                assert code == 4
    alloc = client.ask(13, sequence(device(), integer(8), integer(64), struct.pack("<iBBHi", 5, 1, 8, 1, 0)))
    copy = client.ask(7, dl_tensor(1, (4,)) + struct.pack("<Q", 4) + b"abcd")
    if scope == "copy":
        assert (alloc[0], error(copy)[:18]) == (4, "InvalidHandleError")
    else:
        assert error(alloc).startswith("PermissionDeniedError: ")
        assert error(copy).startswith("PermissionDeniedError: ")
    assert client.ask(9, sequence(text("farcall.rpc.hello")))[0] == 4


def test_the_folder_of_a_session_goes_with_it() -> None:
    with EventServer() as server:
        server.feed(INIT)
        (reply,) = split(server.feed(packet(9, sequence(text("tvm.rpc.server.upload")))))
        upload = struct.unpack_from("<Q", reply[1], 8)[0]
        blob = struct.pack("<iIQ", 66, 66, 3) + b"abc"
        answer = server.feed(packet(3, struct.pack("<Q", upload) + sequence(text("farcall-event.bin"), blob)))
        assert split(answer)[0][0] == 4
        (folder,) = [
            f.parent for f in Path(tempfile.gettempdir()).glob("farcall-session-*/farcall-event.bin")
        ]
    assert not folder.exists()


def test_a_function_cannot_serve_its_own_session(client: Client) -> None:
    fc.register_global_func("event.again", lambda: client.server.feed(b"x"))
    fc.register_global_func("event.close", client.server.close)
    again, close = client.function("event.again"), client.function("event.close")
    fc.ffi.remove_global_func("event.again")
    fc.ffi.remove_global_func("event.close")
    assert "cannot feed it" in error(client.call(again))
    assert "being served already" in error(client.call(close))
    client.server.close()
    assert client.server.handles == 0


class Held:
    """Counts the live objects."""

    count = 0

    def __init__(self) -> None:
        Held.count += 1

    def __call__(self) -> None: ...

    def __del__(self) -> None:
        Held.count -= 1


def test_closing_frees_what_the_client_held(client: Client) -> None:
    fc.register_global_func("event.make", lambda: fc.ffi.Function(Held()))
    for _ in range(3):
        client.call(client.function("event.make"))
    assert Held.count == 3
    client.server.close()
    assert Held.count == 0
    fc.ffi.remove_global_func("event.make")


def test_a_packet_that_no_memory_could_hold_is_refused_at_its_header() -> None:
    """Independent of the limits: sizes on the wire have 64 bits, and those of memory may have fewer."""
    client = Client(limits=Limits(call_bytes=2**64 - 1))
    said = client.server.feed(struct.pack("<Qi", 2**63 + 100, 3))
    ((code, body),) = split(said)
    assert code == 5
    assert b"cannot be read" in body
    assert b"the limit is 9223372036854775807" in body
