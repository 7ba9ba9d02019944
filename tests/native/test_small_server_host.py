"""The small server's host: it listens, reads handshakes, and gives each session a process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import farcall as fc
from farcall.errors import (
    AccessDeniedError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    PermissionDeniedError,
    RemoteError,
    ServerBusyError,
    UsageError,
    WorkerCrashedError,
)
from farcall.launch import build_server
from farcall.rpc import Session, connect
from farcall.rpc.tokens import TokenFile
from farcall.toolchain import MACHINES
from farcall.toolchain._cache import user_cache

from ..abuse.drivers import resident, within
from ..pages import check
from ..rpc.peers import Peer
from ..tree import ROOT
from ..waiting import SECONDS, has_ended
from .small_server import named, place, running, small_server


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that start this machine's server."""
    return small_server(named("x86_64"), tmp_path_factory)


def opened(url: str, **options: object) -> contextlib.AbstractContextManager[Session]:
    return connect(url, timeout=SECONDS, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(program: list[str]) -> Iterator[str]:
    with running(program, "--key", "k") as (_, url):
        yield url


def test_sessions_at_the_same_time(server: str) -> None:
    with opened(server, key="k") as one, opened(server, key="k") as other:
        pids = {session.get_function("test.pid")() for session in (one, other)}
        assert len(pids) == 2


MARKS = {
    "riscv64": [pytest.mark.slow],
    "s390x": [pytest.mark.slow],
}


@pytest.mark.parametrize(
    "machine",
    [pytest.param(each, marks=MARKS.get(each.name, [])) for each in MACHINES],
    ids=lambda each: each.name,
)
def test_every_machine_listens(machine: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        running(small_server(machine, tmp_path_factory)) as (_, url),  # type: ignore[arg-type]
        opened(url) as session,
    ):
        with pytest.raises(WorkerCrashedError, match="ended by signal 11"):
            session.get_function("test.segfault")()
        with opened(url) as after:
            assert after.get_function("test.add")(20, 22) == 42


def test_a_wrong_key(server: str) -> None:
    with pytest.raises(AccessDeniedError, match="refused the key"), opened(server, key="x"):
        pass


def test_one_session_too_many(program: list[str]) -> None:
    with running(program, "--sessions", "3") as (_, url), contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(opened(url)).get_function("test.pid")()
        with pytest.raises(ServerBusyError, match="3 sessions open"), opened(url) as session:
            session.get_function("test.pid")()


def test_sessions_of_one_address(program: list[str]) -> None:
    with running(program, "--sessions-per-peer", "1") as (_, url), opened(url) as one:
        one.get_function("test.pid")()
        busy = pytest.raises(ServerBusyError, match=r"127\.0\.0\.1 has 1 session open")
        with busy, opened(url) as session:
            session.get_function("test.pid")()


def test_sessions_of_one_user_or_token(program: list[str], tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = TokenFile(file)
    one, other = tokens.create("one"), tokens.create("other")
    words = ("--token-file", str(file), "--sessions-per-token", "1", "--sessions-per-peer", "2")
    with running(program, *words, listen=f"unix:{tmp_path}/s") as (_, url), contextlib.ExitStack() as stack:
        stack.enter_context(opened(url, token=one)).get_function("test.pid")()
        with (
            pytest.raises(ServerBusyError, match="the token 'one' has 1 session open"),
            opened(url, token=one) as session,
        ):
            session.get_function("test.pid")()
        stack.enter_context(opened(url, token=other)).get_function("test.pid")()
        tokens.create("third")
        with (
            pytest.raises(ServerBusyError, match=rf"user {os.getuid()} has 2 sessions open"),
            opened(url, token=tokens.create("fourth")) as session,
        ):
            session.get_function("test.pid")()


def test_a_crash_ends_one_session(server: str) -> None:
    with opened(server, key="k") as other:
        with (
            opened(server, key="k") as session,
            pytest.raises(WorkerCrashedError, match=r"in `test\.segfault`"),
        ):
            session.get_function("test.segfault")()
        assert other.get_function("test.add")(1, 2) == 3


def test_slow_peers_hold_nobody_up(server: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):  # more than may be in a handshake
            stack.enter_context(Peer(place(server)))
        with opened(server, key="k") as session:
            assert session.get_function("test.add")(1, 2) == 3


def test_a_signal_ends_all(program: list[str]) -> None:
    with running(program) as (process, url), opened(url) as session:
        pid = session.get_function("test.pid")()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        with pytest.raises(ConnectionLostError, match="shutting down"):
            session.get_function("test.pid")()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def refuses(url: str) -> bool:
    """Whether nobody listens there any more."""
    try:
        opened(url).__enter__().close()
    except (ConnectError, ConnectionLostError):
        return True
    return False


def test_a_running_call_finishes_before_the_server_ends(program: list[str]) -> None:
    with running(program) as (process, url), opened(url) as session, opened(url) as idle:
        pid = idle.get_function("test.pid")()

        def stop(number: int) -> int:
            process.send_signal(signal.SIGTERM)
            assert within(SECONDS, lambda: refuses(url))
            assert has_ended(pid)
            with pytest.raises(ConnectionLostError, match="shutting down"):
                idle.get_function("test.pid")()
            return number + 1

        assert session.get_function("test.call_back")(stop) == 21
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("drain", ["0.1", "3600"])
def test_a_call_that_goes_on_is_ended(program: list[str], drain: str) -> None:
    """After --drain, or at once after a second signal."""
    with running(program, "--drain", drain) as (process, url), opened(url) as session:

        def stop(number: int) -> int:
            process.send_signal(signal.SIGTERM)
            assert within(SECONDS, lambda: refuses(url))
            if drain == "3600":
                process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
            return number

        with pytest.raises(ConnectionLostError, match="shutting down"):
            session.get_function("test.call_back")(stop)


def test_a_unix_socket(program: list[str], tmp_path: Path) -> None:
    path = tmp_path / "board.sock"
    for _ in range(2):  # the second one finds the socket of a server that was killed
        with running(program, listen=f"unix:{path}") as (process, url):
            assert url == f"unix://{path}"
            assert path.stat().st_mode & 0o077 == 0
            with opened(url) as session:
                assert session.get_function("test.add")(1, 2) == 3
            process.kill()


def test_tokens(program: list[str], tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = TokenFile(file)
    full, caller, old = (
        tokens.create("all"),
        tokens.create("caller", ("call",)),
        tokens.create("old", days=1, now=0),
    )
    place = f"unix:{tmp_path}/s"
    with running(program, "--token-file", str(file), listen=place) as (_, url):
        for token, words in (
            (None, "wants a token"),
            (f"{full}x", "not known here"),
            ("nobody.x", "not known here"),
            (old, "'old' has expired"),
        ):
            with pytest.raises(AccessDeniedError, match=words), opened(url, token=token) as session:
                session.get_function("test.pid")()
        with opened(url, token=full) as session:
            assert session.empty((4,)).shape == (4,)
        with opened(url, token=caller) as session:
            assert session.get_function("test.add")(1, 2) == 3
            with pytest.raises(PermissionDeniedError, match="`copy`"):
                session.empty((4,))
            tokens.revoke("caller")
            with pytest.raises(AccessDeniedError, match="'caller' was revoked"):
                session.get_function("test.spin")()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "tcp://0.0.0.0:0"], "no TLS"),
        (["--listen", "udp://1.2.3.4:5"], "expected tcp://"),
        (["--listen", "tcp://board:9090"], "expected tcp://NUMBER:PORT"),
        (["--memory", "5Q"], "expected a size"),
        (["--sessions", "0"], "expected a number"),
        (["--packet", "63"], "--packet: expected 64 or more, got '63'"),
        (["--memory", "0"], "--memory: expected 1 or more, got '0'"),
        (["--sessions-per-peer", "-1"], "expected a number from 0 to 1024"),
        (["--drain", "soon"], "--drain: expected seconds, got 'soon'"),
        (["--key"], "expected a value"),
        (["--nonsense"], "there is no option '--nonsense'; --help lists the options"),
        (["--workpath", "/no/folder"], "--workpath /no/folder: No such file or directory; name a folder"),
    ],
)
def test_wrong_options(program: list[str], words: list[str], message: str) -> None:
    done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stderr.startswith("farcall-server: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("mode", "content", "message"),
    [
        (None, "", "t.json is missing, so no client gets in; make it by `farcall token create`"),
        (0o644, "{}", "t.json: others can read or change it; run chmod 600 on it"),
        (0o600, "x", "t.json: no token file; make one by `farcall token create`"),
    ],
)
def test_a_token_file_of_no_use_is_told_at_the_start(
    program: list[str], tmp_path: Path, mode: int | None, content: str, message: str
) -> None:
    """The server listens all the same: it reads the file again when that has changed."""
    file = tmp_path / "t.json"
    if mode is not None:
        file.write_text(content)
        file.chmod(mode)
    words = [*program, "--listen", f"unix:{tmp_path}/u", "--token-file", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith(f"{message}\n")
        process.terminate()


def test_a_port_that_is_taken(program: list[str]) -> None:
    with running(program) as (_, url):
        done = subprocess.run(
            [*program, "--listen", url], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 1 and "another program listens there" in done.stderr


def test_nobody_listens_any_more(program: list[str]) -> None:
    with running(program) as (_, url):
        pass
    with pytest.raises(ConnectError), opened(url):
        pass


@contextlib.contextmanager
def limited(program: list[str], option: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server under a limit of the system: an option of the shell's `ulimit`."""
    with running(["sh", "-c", f'ulimit {option} && exec "$0" "$@"', *program], *words) as server:
        yield server


def test_few_descriptors(program: list[str]) -> None:
    """There are fewer than the host has slots for peers."""
    with limited(program, "-n 16") as (process, url), contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(Peer(place(url)))
        with opened(url) as session:
            assert session.get_function("test.add")(1, 2) == 3
        process.terminate()
        assert process.wait(SECONDS) == 0


def test_a_file_that_the_system_finds_too_large(program: list[str], tmp_path: Path) -> None:
    words = ("--workpath", str(tmp_path))
    with limited(program, "-f 1024", *words) as (_, url), opened(url) as session:
        with pytest.raises(OSError, match="File too large"):
            session.upload(bytes(2 << 20), "large.bin")
        session.upload(b"small", "small.bin")
        assert session.download("small.bin") == b"small"


def test_a_client_that_sends_on_after_its_session_ended_is_cut_off(program: list[str]) -> None:
    """It fills the window of a socket that nobody reads; a plain end would leave it waiting for minutes."""
    with running(program, "--memory", "1M") as (_, url), Peer(place(url)) as peer:
        peer.shake(b"client:")
        peer.socket.settimeout(SECONDS / 4)
        with pytest.raises(ConnectionError):
            peer.socket.sendall(struct.pack("<Q", 1 << 40) + bytes(64 << 20))


def test_a_refused_peer_that_stays_is_cut_off(program: list[str]) -> None:
    """A plain end would not reach one that waits for room to send."""
    with running(program, "--key", "k") as (_, url), Peer(place(url)) as peer:
        peer.hello(b"client:wrong")
        assert peer.rest()
        poll = select.poll()
        poll.register(peer.socket, 0)
        assert [event & select.POLLERR for _, event in poll.poll(SECONDS * 1000)] == [select.POLLERR]


@pytest.mark.parametrize("memory", ["256K", "1M"])
def test_files_travel_in_pieces_for_which_there_is_memory(
    program: list[str], tmp_path: Path, memory: str
) -> None:
    """The client asks the server how long a call may be."""
    data = os.urandom(100 << 10 if memory == "256K" else 700 << 10)
    words = ("--workpath", str(tmp_path), "--memory", memory)
    with running(program, *words) as (_, url), opened(url) as session:
        session.upload(data, "a.bin")
        assert session.download("a.bin") == data


# ---- what a session has


@pytest.fixture(scope="module")
def full(program: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL and the workpath of a server with files and a small budget."""
    folder = tmp_path_factory.mktemp("work")
    with running(program, "--workpath", str(folder), "--memory", "64M") as (_, url):
        yield url, folder


def test_hello_says_what_it_has(full: tuple[str, Path]) -> None:
    with opened(full[0]) as session:
        assert session.features == {"promises", "callbacks", "trace", "deadlines", "files"}
        assert session.server_limits["memory_bytes"] == 64 << 20
        assert {"test.add", "test.echo"} <= set(session.function_names())


def test_files(full: tuple[str, Path]) -> None:
    url, folder = full
    data = os.urandom(1 << 20)
    with opened(url) as session:
        session.upload(data, "a.bin")
        session.upload(b"small", "b.bin")
        assert session.download("a.bin") == data
        assert session.get_function("tvm.rpc.server.listdir")("") == "a.bin,b.bin"
        session.get_function("tvm.rpc.server.remove")("b.bin")
        for name in ("../x", "/etc/passwd", "a/b", "~root", "", ".hidden", "x" * 256):
            with pytest.raises(UsageError, match="plain name"):
                session.upload(b"x", name)
        with pytest.raises(FileNotFoundError, match=r"no file 'b\.bin'"):
            session.download("b.bin")
        (pid,) = {session.get_function("test.pid")()}
        (folder / f"session-{pid}" / "link").symlink_to("/etc/passwd")
        with pytest.raises(FileNotFoundError, match="no file 'link'"):
            session.download("link")
        with pytest.raises(MemoryError, match="the limit is 67108864"):
            session.upload(bytes(64 << 20), "c.bin")
    with opened(url) as session:  # the content is known: its bytes are not sent again
        session.upload(data, "other.bin")
        assert session.download("other.bin") == data
        assert session.get_function("tvm.rpc.server.listdir")("") == "other.bin"


@pytest.mark.parametrize("name", ["remove", "workpath", "size", "known", "have", "share"])
def test_wrong_arguments_are_told(full: tuple[str, Path], name: str) -> None:
    prefix = "tvm.rpc.server" if name in ("remove", "workpath") else "farcall.rpc"
    with opened(full[0]) as session, pytest.raises(TypeError, match=r"expected \(\w+.*\), got 0 arguments"):
        session.get_function(f"{prefix}.{name}")()


def test_what_is_no_file(full: tuple[str, Path]) -> None:
    url, folder = full
    hint = f"5-{'a' * 32}"
    with opened(url) as session, fc.deadline(SECONDS):
        own = folder / f"session-{session.get_function('test.pid')()}"
        (own / "folder").mkdir()
        with pytest.raises(OSError, match="Is a directory"):
            session.upload(b"x", "folder")
        assert [each.name for each in own.iterdir()] == ["folder"]
        os.mkfifo(own / "pipe")
        session.get_function("farcall.rpc.share")("pipe", hint)
        assert not session.get_function("farcall.rpc.have")("x", "0" * 64, hint)


def test_folders_end_with_their_sessions(full: tuple[str, Path]) -> None:
    url, folder = full
    with opened(url) as session:
        session.upload(b"x", "a.bin")
        with pytest.raises(WorkerCrashedError):
            session.get_function("test.segfault")()
    assert within(SECONDS, lambda: not list(folder.glob("session-*")))


def test_a_budget_is_kept(full: tuple[str, Path]) -> None:
    with opened(full[0]) as session:
        allocate, held = session.get_function("test.allocate"), []
        with pytest.raises(MemoryError):
            for _ in range(100):
                held.append(session.empty((1 << 20,), "uint8"))
        assert 50 < len(held) < 64
        assert not allocate(16 << 20)
        del held
        assert allocate(16 << 20)
        assert not allocate(65 << 20)
        assert session.get_function("test.add")(1, 2) == 3


def test_deadlines(full: tuple[str, Path]) -> None:
    with opened(full[0]) as session:
        late = pytest.raises(DeadlineExceededError, match=r"`test\.spin` did not end")
        with late, fc.deadline(0.2):
            session.get_function("test.spin")()


def test_the_system_library_and_its_times(full: tuple[str, Path]) -> None:
    with opened(full[0]) as session:
        library = session.get_function("ffi.SystemLib")()
        x = session.tensor(np.ones(4, "float32"))
        library["lib_twice"](x)
        np.testing.assert_array_equal(x.numpy(), np.full(4, 2, "float32"))
        times = library.benchmark("lib_twice", x, number=2, repeat=3, min_repeat_ms=0)
        assert len(times.results) == 3 and min(times.results) >= 0


def test_a_chain_of_diamonds_is_walked_once(full: tuple[str, Path]) -> None:
    """A client makes 2**40 ways from one module to another; the server's lookups stay short."""
    with opened(full[0]) as session, fc.deadline(SECONDS):
        first = last = session.system_lib("top_")
        for level in range(40):
            left, right, below = (session.system_lib(f"{name}{level}_") for name in ("l", "r", "b"))
            for side in (left, right):
                last.import_module(side)
                side.import_module(below)
            last = below
        assert not first.implements_function("nothing", query_imports=True)
        last.import_module(session.system_lib("lib_"))
        assert first.implements_function("twice", query_imports=True)


def test_a_trace_shows_its_spans(full: tuple[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    with opened(full[0]) as session, fc.trace(file):
        session.get_function("test.add")(1, 2)
    events = json.loads(file.read_text())["traceEvents"]
    assert any(event.get("name") == "test.add" and event.get("cat") == "compute" for event in events)


def test_dicts_are_read(full: tuple[str, Path]) -> None:
    mixed = {i: f"v{i}" for i in range(300)} | {"bytes": b"x", 2.5: None}  # JSON has no bytes
    with opened(full[0]) as session:
        echo = session.get_function("test.echo")
        assert echo({"a": 1, "b": [1, 2]})["a"] == 1
        assert dict(echo({"x": 1, 2: None, "y": 0.5})) == {"x": 1, 2: None, "y": 0.5}
        assert dict(echo(mixed)) == mixed
        assert dict(echo({})) == {}
        assert dict(session.get_function("test.dict")(3000)) == dict.fromkeys(range(3000), b"")
        assert np.isnan(echo({"n": float("nan")})["n"])
        items = session.get_function("farcall.rpc.items")
        for arguments in ((), (1, 0), ({"a": 1}, 2), ({"a": 1}, -1)):
            with pytest.raises((TypeError, ValueError), match="expected"):
                items(*arguments)


def test_what_it_does_not_keep(full: tuple[str, Path]) -> None:
    with opened(full[0]) as session, pytest.raises(RemoteError, match=r"small server.*device logs"):
        session.output()


def test_a_client_that_holds_its_session_keeps_it(program: list[str]) -> None:
    """It sends heartbeats for the lease that the server tells. A stranger who sends none is ended."""
    with running(program, "--lease", "0.9") as (_, url), Peer(place(url)) as stranger:
        stranger.shake(b"client:")
        stranger.start()
        with opened(url) as session:
            assert session.server_limits["lease_seconds"] == 0.9
            pid = session.get_function("test.pid")()
            assert b"nothing was heard for 0.9 s" in stranger.rest()
            assert session.get_function("test.pid")() == pid


def test_a_packet_of_fixed_size(program: list[str]) -> None:
    x = np.random.default_rng(0).random(100_000, dtype="float32")
    with running(program, "--packet", "4K") as (_, url), opened(url) as session:
        assert "packets" in session.features
        np.testing.assert_array_equal(session.tensor(x).numpy(), x)
        with pytest.raises(RemoteError, match="packet length out of bounds"):
            session.get_function("test.echo")(bytes(8192))


# ---- TVM's own client


def test_a_client_of_tvm(full: tuple[str, Path]) -> None:
    pytest.importorskip("tvm")
    script = Path(__file__).with_name("tvm_small.py")
    host, _, port = full[0].removeprefix("tcp://").partition(":")
    done = subprocess.run(
        [sys.executable, script, host, port], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.stdout.endswith("all is well\n"), done.stdout + done.stderr


def test_a_client_of_tvm_sends_pieces(program: list[str]) -> None:
    pytest.importorskip("tvm")
    script = Path(__file__).with_name("tvm_small.py")
    with running(program, "--packet", "4K") as (_, url):
        host, _, port = url.removeprefix("tcp://").partition(":")
        done = subprocess.run(
            [sys.executable, script, host, port, "copies"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.stdout.endswith("all is well\n"), done.stdout + done.stderr


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):  # a reader has no empty cache for long
        monkeypatch.setenv(name, os.environ.get(name) or str(user_cache("zig")))
    check(ROOT / "docs/small_server.md", tmp_path)


# ---- sizes


@pytest.mark.parametrize("name", ["armv7", "hexagon"])
def test_a_program_is_small(name: str) -> None:
    pytest.importorskip("ziglang")
    assert build_server(named(name).target).stat().st_size <= 300 << 10


def test_at_rest_it_takes_little_memory(program: list[str]) -> None:
    if os.environ.get("SANITIZED_SERVER"):
        pytest.skip("a sanitizer takes memory of its own")
    with running(program) as (process, url), opened(url) as session:
        assert resident(process.pid) <= 2 << 20
        assert resident(session.get_function("test.pid")()) <= 2 << 20
