"""Sockets and child processes: names with several addresses, files that a dead server left, commands."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from farcall.errors import ConnectError, UsageError
from farcall.rpc.channels import Connection, dial, listen

from ..waiting import SECONDS, soon
from .places import MakePlace, accept, take

ECHO = "import os; [os.write(1, b) for b in iter(lambda: os.read(0, 99), b'')]"
STUBBORN = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.write(1, b'k'); time.sleep(99)"


def exchanged(connection: Connection) -> bytes:
    connection.channel.send(b"hello", soon())
    connection.channel.finish()
    data = b""
    while piece := connection.channel.receive(100, soon()):
        data += piece
    connection.close()
    return data


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_localhost_is_tried_at_all_its_addresses(family: socket.AddressFamily) -> None:
    address = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}[family]
    with socket.create_server((address, 0), family=family) as listener:
        connection = dial(f"tcp://localhost:{listener.getsockname()[1]}", soon())
        accepted, _ = listener.accept()
        accepted.close()
        connection.close()


def test_tcp_is_tuned(place: MakePlace) -> None:
    """Small packets at once; a machine that is gone is noticed within 20 s."""
    connection, accepted = place("tcp").meet()
    ours = accepted.socket
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    wait = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    each, count = (ours.getsockopt(socket.IPPROTO_TCP, x) for x in (socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT))
    assert wait + each * count <= 20
    accepted.close()
    connection.close()


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:{}", "ws://127.0.0.1:{}", "tls://127.0.0.1:{}"])
def test_nobody_listens(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectError, match="Connection refused; is `farcall serve` running there"):
        dial(url.format(port), soon())


@pytest.mark.parametrize("kind", ["unix", "shm"])
def test_no_such_path(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="No such file or directory; is `farcall serve` running there"):
        dial(f"{kind}://{tmp_path}/none", soon())


def test_a_name_that_is_none() -> None:
    with pytest.raises(ConnectError, match="is the host's name right"):
        dial("tcp://no.such.host.invalid:1", soon())


def test_a_socket_that_a_dead_server_left_is_replaced(place: MakePlace, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    at = place("unix")
    connection, accepted = at.meet()
    assert path.stat().st_mode & 0o777 == 0o600
    accepted.close()
    connection.close()
    at.listener.close()
    assert not path.exists()


def test_a_path_that_is_taken(place: MakePlace, tmp_path: Path) -> None:
    at = place("unix")
    with pytest.raises(UsageError, match="another server does"):
        listen(at.listener.url)
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(UsageError, match="is no socket"):
        listen(f"unix://{file}")
    assert file.read_text() == "mine"
    with pytest.raises(UsageError, match="No such file or directory"):
        listen(f"unix://{tmp_path}/no/folder")


def test_ports(place: MakePlace) -> None:
    taken = place("tcp").listener.url
    with pytest.raises(UsageError, match="choose another port, or 0 for any"):
        listen(taken)
    with pytest.raises(UsageError, match="run code here, in plain text"):
        listen("tcp://0.0.0.0:0")
    listen("tcp://0.0.0.0:0", insecure=True).close()


def test_who_comes_over_a_unix_socket_is_known(place: MakePlace) -> None:
    at = place("unix")
    arriving = at.loop.start(accept(at.listener))
    connection = dial(at.listener.url, soon())
    accepted = arriving.result(SECONDS)
    assert accepted.peer.startswith("process ")
    take(accepted).close()
    connection.close()


# ---- child processes


def test_a_child_process() -> None:
    assert exchanged(dial(f'pipe:{sys.executable} -c "{ECHO}"', soon())) == b"hello"


def test_a_child_that_will_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farcall.rpc.channels._pipe._GRACE_SECONDS", 0.05)
    connection = dial(f'pipe:{sys.executable} -c "{STUBBORN}"', soon())
    assert connection.channel.receive(1, soon()) == b"k"
    connection.close()


def test_a_command_that_is_none() -> None:
    with pytest.raises(ConnectError, match="is `no-such-command` installed, and on the PATH"):
        dial("pipe:no-such-command --stdio", soon())


def test_a_pipe_is_not_listened_at() -> None:
    with pytest.raises(UsageError, match="its client starts the server"):
        listen("pipe:cat")
