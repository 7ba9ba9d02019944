"""Mistakes of users: each error says what was wrong, where, and the cure."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall import _core
from farcall.errors import (
    AccessDeniedError,
    ArgumentError,
    ConnectError,
    ConnectionLostError,
    UsageError,
)
from farcall.rpc import EventServer, Limits, Server, Session, Tls, connect
from farcall.rpc.tokens import TokenFile

from ..waiting import SECONDS, has_ended
from .servers import INIT

Wrong: Any = None  # an argument whose type no checker would let through


# ---- to connect


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("127.0.0.1", 9090), {}, r"'127\.0\.0\.1': it names no port; expected tcp://HOST:PORT"),
        (("htp://h:1",), {}, "no channel 'htp'; did you mean `tcp`?; expected tcp://HOST:PORT"),
        ((Wrong,), {}, "None: a server's URL is text, not NoneType"),
        (("h:1", 9090), {}, "key: expected a word, got 9090; put a port in the URL"),
        (("h:1",), {"timeout": "1"}, "timeout: expected a positive number of seconds, got '1'"),
        (("h:1",), {"timeout": None}, "timeout: expected a positive number of seconds, got None"),
        (("h:1",), {"call_timeout": -1}, "call_timeout: expected a positive number of seconds, got -1"),
        (("unix:///x",), {"token": b"a.b"}, "token: expected text, NAME.SECRET, got bytes"),
        (("tls://h:1",), {"tls": "certs/client"}, r"tls: expected Tls.of\('certs/client'\), say, got str"),
        (("h:1",), {"via": "g:2"}, r"via: expected a list of servers, got one text; write via=\['g:2'\]"),
        (("h:1",), {"via": ["g:2", "key"]}, r"via\[1\]: 'key': .* a server and its key are a tuple"),
        (("h:1",), {"via": [("g:2", "k", "t", 1)]}, r"via\[0\]: expected a URL, \(URL, key\)"),
    ],
)
def test_arguments_of_connect(arguments: tuple[Any, ...], options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("?", r"\?")):
        connect(*arguments, **options)


def test_a_command_that_ends_before_a_session_begins() -> None:
    with pytest.raises(ConnectError, match="`false` ended with status 1 before a session began"):
        connect("pipe:false", timeout=SECONDS)


def test_a_plain_client_at_a_server_for_something_else(tmp_path: Path) -> None:
    pytest.importorskip("websockets")
    with Server(urls=["ws://127.0.0.1:0"]) as server:
        plain = server.url.replace("ws://", "tcp://").rstrip("/")
        with pytest.raises(ConnectError, match="or one for tls:// or ws://"):
            connect(plain, timeout=SECONDS)
    with Server() as server, pytest.raises(ConnectError, match="does a server listen there for ws://"):
        connect(server.url.replace("tcp:", "ws:"), timeout=SECONDS)


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
def test_a_file_of_tls_that_is_missing_is_named(missing: str, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    for name, file in files.items():
        if name != missing:
            file.write_text("")
    with pytest.raises(UsageError, match=f"TLS: {missing} '.*/{missing}': No such file or directory; "):
        connect("tls://127.0.0.1:1", tls=Tls(**files))


# ---- to serve


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"call_seconds": -1}, "call_seconds is a number, not negative, got -1"),
        ({"sessions": 0}, "sessions must not be 0"),
        ({"sessions": 1.5}, "sessions is a whole number, not negative, got 1.5"),
        ({"lease_seconds": float("nan")}, "lease_seconds is a number"),
        ({"memory_bytes": "8G"}, "memory_bytes is a whole number, not negative, got '8G'"),
        ({"relay": "sometimes"}, "relay is 'off', 'loopback', 'any', or words HOST:PORT, got 'sometimes'"),
        ({"relay": ""}, "relay is 'off'"),
    ],
)
def test_limits_that_are_none(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Limits(**limits)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(rank=33), "rank is an int from 0 to 32, got 33"),
        (Limits(values=1 << 31), "values is an int from 0"),
    ],
)
def test_limits_that_no_reader_of_packets_has(limits: Limits, says: str) -> None:
    with pytest.raises(ValueError, match=f"limits: {says}"):
        _core.Endpoint(_core.MemoryChannel(), "test", limits, client=False)


def test_limits_that_are_some() -> None:
    assert Limits(relay="10.0.0.2:9090 /run/board.sock", spares=0, call_seconds=0.5).spares == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"host": "tcp://127.0.0.1:0"}, r"host .* for a URL, urls=\['tcp://127\.0\.0\.1:0'\]"),
        ({"urls": "tcp://127.0.0.1:0"}, r"urls: expected a list of URLs.* write urls=\['tcp:"),
        ({"init": print}, "init: expected the text 'PKG.MOD:FUNC', .* got builtin_function_or_method"),
        ({"limits": {"sessions": 3}}, r"limits: expected Limits\(sessions=3\), got dict"),
        ({"tls": "certs/server"}, r"tls: expected Tls\.of\('certs/server'\), got str"),
        ({"key": "a b"}, "a key has no blanks"),
    ],
)
def test_arguments_of_a_server(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Server(**arguments)


# ---- to call


def test_names_that_are_almost_right(session: Session, kernels: Path) -> None:
    with pytest.raises(AttributeError, match=r"no function `test\.ad`; did you mean `test\.add`\?"):
        session.get_function("test.ad")
    with pytest.raises(TypeError, match="expected the name of a function, got NoneType"):
        session.get_function(Wrong)
    with pytest.raises(ValueError, match=r"no function `test\.ad`; did you mean `test\.add`\?"):
        session.benchmark("test.ad", 1, 2)
    with pytest.raises(TypeError, match="no option `repeats`; did you mean `repeat`\\?; there are number,"):
        session.benchmark("test.add", 1, 2, repeats=3)
    module = session.load_module(kernels)
    with pytest.raises(AttributeError, match=r"has no function `add_on`; did you mean `add_one`\?"):
        module["add_on"]
    with pytest.raises(TypeError, match=r"got 'test\.add'; session\.get_function\(name\)"):
        session.pipeline()(Wrong or "test.add", 1)


def test_arguments_of_an_annotated_function_there(session: Session) -> None:
    norm = session.get_function("test.norm")
    with pytest.raises(ArgumentError) as caught:
        norm(np.ones((2, 3), "float64"))
    problem = "`_norm`: argument x: expected float32[n, 3], got float64[2, 3]"
    assert (str(caught.value), caught.value.problems) == (problem, (problem,))


def test_tensors_that_are_none(session: Session) -> None:
    with pytest.raises(TypeError, match=r"expected a tensor, got `list`; numpy\.asarray"):
        session.tensor([1, 2, 3])
    there = session.empty(3, "int8")
    assert there.shape == (3,)
    with pytest.raises(ValueError, match=re.escape("the target is int8[3], the source is int16[2, 2]")):
        session.copy(np.zeros((2, 2), "int16"), there)


def test_text_for_an_event_server() -> None:
    with EventServer() as server, pytest.raises(TypeError, match="takes bytes, got str"):
        server.feed(Wrong or "text")


def test_a_trace_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"), fc.trace(tmp_path / "no" / "trace.json"):
        raise AssertionError


# ---- at the end of a session


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of jax, where an earlier test has loaded it
def test_a_child_process_is_told_whose_the_session_is(session: Session) -> None:
    add, x = session.get_function("test.add"), session.tensor(np.ones(2))

    def attempts() -> None:
        for attempt in (lambda: add(1, 2), x.numpy, lambda: session.get_function("test.add")):
            try:
                attempt()
            except ConnectionLostError as error:
                assert "belongs to the parent process; connect again in this process" in str(error)
            else:
                raise AssertionError

    assert in_child(attempts) == 0
    assert add(1, 2) == 3


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked process that does some work."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_last_words_reach_a_client_that_releases_something(tmp_path: Path) -> None:
    """The errors are the replies to releases, which are sent before the request."""
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.create("alice")
    urls = [f"unix://{tmp_path}/u"]
    with (
        Server(init=INIT, urls=urls, tokens=tokens.path) as server,
        connect(server.url, token=token) as session,
    ):
        pid = session.get_function("test.pid")()
        session.get_function("test.add")
        tokens.revoke("alice")
        assert has_ended(pid)
        with pytest.raises(AccessDeniedError, match="the token 'alice' was revoked"):
            session.get_function("test.add")
        with pytest.raises(AccessDeniedError, match="the token 'alice' was revoked"):
            session.get_function("test.add")


# ---- what things say of themselves


def test_what_is_there_says_where(session: Session, server: Server, kernels: Path) -> None:
    url = re.escape(server.url)
    stream = session.cpu().stream()
    with EventServer() as quiet:
        expected = {
            rf"<farcall server at {url}>": server,
            rf"<farcall session with {url}>": session,
            rf"<farcall pipeline with {url}>": session.pipeline(),
            rf"<farcall\.Function test\.add on {url}>": session.get_function("test.add"),
            rf"<farcall\.Tensor int8\[3\] on cpu:0 of {url}>": session.empty(3, "int8"),
            rf"<device cpu:0 of {url}>": session.cpu(),
            rf"<stream 0x[0-9a-f]+ of <device cpu:0 of {url}>>": stream,
            rf"<module kernels\.so on {url}>": session.load_module(kernels),
            r"<farcall event server, 0 handles>": quiet,
        }
        for text, thing in expected.items():
            assert re.fullmatch(text, repr(thing)), repr(thing)
    stream.free()
    assert repr(stream).endswith(", freed>")
    assert repr(quiet) == "<farcall event server, closed>"


def test_a_chain_says_its_whole_way() -> None:
    with Server(init=INIT) as board, Server() as desk:
        with connect(board.url, via=[desk.url], timeout=SECONDS) as session:
            way = f"{desk.url} -> {board.url}"
            assert repr(session) == f"<farcall session with {way}>"
            assert repr(session.empty(3)).endswith(f"of {way}>")
            with pytest.raises(
                AttributeError, match=f"{way} exports no function `test.ad`; did you mean `test.add`"
            ):
                session.get_function("test.ad")
        assert repr(session) == f"<farcall session with {way}, closed>"
    assert repr(board) == f"<farcall server at {board.url}, closed>"
