"""The small server as the phone of a chain: its sessions go on to devices that its owner named.

What the full server does alike is tested beside that, in tests/rpc/test_device_hops.py.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from farcall.errors import (
    ArtifactError,
    ConnectError,
    ConnectionLostError,
    MissingFunctionError,
    PermissionDeniedError,
    RemoteError,
)
from farcall.rpc import connect
from farcall.rpc.tokens import TokenFile

from ..rpc.impostors import VOID, impostor, until_closed
from ..rpc.peers import Peer, integer, packet, pointer, sequence, text
from ..waiting import SECONDS
from .small_server import build_kernel, named, place, running, small_server

pytestmark = pytest.mark.long  # a DSP behind it is an emulated Hexagon


def test_two_emulated_machines_one_behind_the_other(tmp_path_factory: pytest.TempPathFactory) -> None:
    """This machine -> aarch64 -> Hexagon: both emulated, both small servers, with a mailbox between them."""
    box = tmp_path_factory.mktemp("mail") / "box"
    x = np.arange(300_000, dtype="float32")
    with (
        running(small_server(named("hexagon"), tmp_path_factory), "--mailbox", str(box)) as (_, device),
        running(small_server(named("aarch64"), tmp_path_factory), "--device", f"dsp0={device}") as (_, url),
        connect(url, via=["device:dsp0"], timeout=SECONDS) as session,
    ):
        there = session.tensor(x)
        session.get_function("test.twice")(there)
        np.testing.assert_array_equal(there.numpy(), 2 * x)
        assert session.get_function("test.call_back")(lambda n: n + 1) == 21
        with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\).*`test.segfault`"):
            session.get_function("test.segfault")()
        with connect(url, timeout=SECONDS) as near:
            there = near.tensor(x, "hexagon:0")
            near.get_function("test.twice", device="hexagon:0")(there)
            np.testing.assert_array_equal(there.numpy(), 2 * x)
            assert near.get_function("test.add")(20, 22) == 42


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return small_server(named("x86_64"), tmp_path_factory)


@pytest.mark.parametrize("way", ["tcp", "unix", "mailbox"])
def test_a_device_at_each_kind_of_address(small: list[str], tmp_path: Path, way: str) -> None:
    listen = f"unix:{tmp_path}/u" if way == "unix" else "tcp://127.0.0.1:0"
    words = ["--mailbox", str(tmp_path / "box")] if way == "mailbox" else []
    with (
        running(small, *words, listen=listen) as (_, device),
        running(small, "--device", f"a=unix:{tmp_path}/no", "--device", f"b={device}") as (_, url),
        connect(url, via=["device:b"], timeout=SECONDS) as session,
        connect(url, timeout=SECONDS) as near,
    ):
        assert session.get_function("test.add")(20, 22) == 42
        assert "relay" in near.features
        with pytest.raises(ConnectError, match=r"no device 'c'; its devices: a, b"):
            connect(url, via=["device:c"], timeout=SECONDS)


def test_the_device_of_a_device(small: list[str], tmp_path: Path) -> None:
    with ExitStack() as stack:
        _, url = stack.enter_context(running(small, listen=f"unix:{tmp_path}/last"))
        for name in ("middle", "first"):
            words = ("--device", f"next={url}")
            _, url = stack.enter_context(running(small, *words, listen=f"unix:{tmp_path}/{name}"))
        session = stack.enter_context(connect(url, via=["device:next", "device:next"], timeout=SECONDS))
        with pytest.raises(TypeError, match=r"hop 3 \(device:next\): expected one float32 tensor"):
            session.get_function("test.twice")(1)


def test_devices_that_cannot_be_reached(small: list[str], tmp_path: Path) -> None:
    def answers_http(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        until_closed(connection)

    with impostor(answers_http) as web, running(small, "--key", "secret") as (_, locked):
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            free = nobody.getsockname()[1]
        places = {
            "box": (f"mailbox:{tmp_path}/no", "No such file or directory; is `farcall-server --mailbox`"),
            "path": (f"unix:{tmp_path}/no", "No such file or directory; is `farcall-server` running there"),
            "port": (f"tcp://127.0.0.1:{free}", "Connection refused; is `farcall-server` running there"),
            "web": (web, "no RPC server answers there"),
            "locked": (locked, "wants a key, and a server has none for its devices"),
        }
        words = [word for name, (url, _) in places.items() for word in ("--device", f"{name}={url}")]
        with running(small, *words) as (_, url):
            for name, (_, message) in places.items():
                with pytest.raises(ConnectError, match=rf"hop 2 \(device:{name}\): .*{message}"):
                    connect(url, via=[f"device:{name}"], timeout=SECONDS)
            with connect(url, timeout=SECONDS) as session:
                assert session.get_function("test.add")(20, 22) == 42


def test_a_device_that_is_killed_in_a_call(small: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box"
    with (
        running(small, "--mailbox", str(box)) as (process, device),
        running(small, "--device", f"dsp0={device}") as (_, url),
    ):
        with connect(url, via=["device:dsp0"], timeout=SECONDS) as session:
            worker, spin = session.get_function("test.pid")(), session.get_function("test.spin")
            call = spin.submit()
            process.kill()
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\): .*lost"):
                call.result()
        with running(small, "--mailbox", str(box)), connect(url, via=["device:dsp0"]) as session:
            assert session.get_function("test.add")(20, 22) == 42  # as soon as it runs again


def dies_in_a_call(connection: socket.socket) -> None:
    """A device that exports `test.spin`, and ends when that is called."""
    connection.recv(15, socket.MSG_WAITALL)  # the hello, with an empty key
    connection.sendall(struct.pack("<ii", 0xFF271, 7) + b"server:")
    while True:
        size, code = struct.unpack("<Qi", connection.recv(12, socket.MSG_WAITALL))
        body = connection.recv(size - 4, socket.MSG_WAITALL)
        if code == 3:
            return
        handle = 5 if b"test.spin" in body else 0
        connection.sendall(packet(4, sequence(pointer(handle))) if code == 9 else VOID)


def test_the_error_for_a_device_that_ends_in_a_call_names_the_function(small: list[str]) -> None:
    with (
        impostor(dies_in_a_call) as device,
        running(small, "--device", f"dsp0={device}") as (_, url),
        connect(url, via=["device:dsp0"], timeout=SECONDS) as session,
        pytest.raises(ConnectionLostError, match=r"hop 2 \(device:dsp0\): `test.spin`: .*closed"),
    ):
        session.get_function("test.spin")()


def test_a_small_server_without_devices_goes_nowhere(small: list[str]) -> None:
    with running(small) as (_, url):
        with pytest.raises(ConnectError, match=r"no device 'dsp0'; it has none"):
            connect(url, via=["device:dsp0"], timeout=SECONDS)
        with connect(url, timeout=SECONDS) as session:
            assert "relay" not in session.features


HEXAGON = "tvm.contrib.hexagon.create_hexagon_session"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("rpc.Nowhere",), "there are rpc.LocalSession, rpc.Connect, farcall.rpc.Connect and tvm.contrib"),
        ((5,), "session constructor ''"),
        (("rpc.Connect", "127.0.0.1", 9090), "its 2 values are not those that it takes"),
        (("rpc.Connect", "h" * 2000, 9090, "", 0), "does not go on to tcp://hhh"),
        (("farcall.rpc.Connect", "device:" + "x" * 2000, "", "{}"), "no device 'xxxxx"),
        (("farcall.rpc.Connect", "device:", "", "{}"), "does not go on to device:"),
        (("farcall.rpc.Connect", "device:hexagon:1", "", "{}"), "no device 'hexagon:1'; it has none"),
        (("farcall.rpc.Connect", "device:hexagon:", "", "{}"), "no device 'hexagon:'; it has none"),
        ((HEXAGON, "name", 1, "", 1), "no device 'hexagon:0'; it has none"),
        ((HEXAGON, "name", "", 1, 1), "its 4 values are not those that it takes"),
    ],
)
def test_what_a_client_asks_for_in_vain(
    small: list[str], values: tuple[str | int, ...], message: str
) -> None:
    with running(small) as (_, url), Peer(place(url)) as peer:
        peer.shake(b"client:")
        code, body = peer.start(*(text(one) if isinstance(one, str) else integer(one) for one in values))
        assert code == 5
        assert message in body.decode(errors="replace")


def test_a_session_that_names_the_server_itself(small: list[str]) -> None:
    with running(small) as (_, url), Peer(place(url)) as peer:
        peer.shake(b"client:")
        assert peer.start(text("rpc.LocalSession"))[0] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dsp0"], "--device: expected NAME=URL, as dsp0=mailbox:/run/dsp0, got 'dsp0'"),
        (["a b=unix:/x"], "expected NAME=URL"),
        (["x" * 65 + "=unix:/x"], "expected NAME=URL"),
        (["a=unix:/x", "a=unix:/y"], "a name that no other device has"),
        ([f"d{number}=unix:/x" for number in range(17)], "16 devices at most"),
        (["a=pipe:qemu-hexagon dsp"], "expected mailbox:PATH, unix:PATH or tcp://NUMBER:PORT"),
        (["a=mailbox:"], "expected mailbox:PATH"),
        (["a=tcp://board:9090"], "expected mailbox:PATH"),
        (["a=device:dsp1"], "expected mailbox:PATH"),
        (["a=tcp://192.0.2.1:9090"], "in plain text. This server has no TLS: forward a port by `ssh -L`"),
    ],
)
def test_an_owners_mistakes(small: list[str], words: list[str], message: str) -> None:
    options = [option for word in words for option in ("--device", word)]
    done = subprocess.run([*small, *options], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stderr.startswith("farcall-server: ") and done.stderr.count("\n") == 1


def test_tokens_of_a_small_phone(small: list[str], tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    token = file.create("local", scopes=("call", "copy"))
    words = ("--token-file", str(file.path), "--device", f"dsp0=unix:{tmp_path}/no")
    with (
        running(small, *words, listen=f"unix:{tmp_path}/u") as (_, url),
        connect(url, token=token, timeout=SECONDS) as session,
    ):
        with pytest.raises(ConnectError, match="going on to device:dsp0 needs the scope `relay`, which"):
            connect(url, token=token, via=["device:dsp0"], timeout=SECONDS)
        with pytest.raises(PermissionDeniedError, match="needs the scope `relay`, which token `local`"):
            session.empty(3, device="hexagon:0")
        with pytest.raises(PermissionDeniedError, match="relay"):
            session.get_function("test.twice", device="hexagon:0")


NEGATE = """FARCALL_KERNEL(negate) {
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(args[0].v_obj);
  for (int64_t i = 0; i < x->shape[0]; ++i) ((float*)x->data)[i] *= -1;
  return 0;
}
"""


def test_a_model_that_the_device_loads(small: list[str], tmp_path: Path) -> None:
    """The client gives it to the phone, and the phone to the device."""
    kernel = build_kernel(tmp_path, NEGATE, "x86_64-linux-musl")
    folders = [tmp_path / "far", tmp_path / "near"]
    for folder in folders:
        folder.mkdir()
    far, near = (("--workpath", str(folder)) for folder in folders)
    x = np.arange(6, dtype="float32")
    with (
        running(small, *far, listen=f"unix:{tmp_path}/u") as (_, device),
        running(small, *near, "--device", f"dsp0={device}") as (_, url),
        connect(url, timeout=SECONDS) as session,
    ):
        module = session.load_module(kernel, device="hexagon:0")
        there = session.tensor(x, "hexagon:0")
        module["negate"](there)
        np.testing.assert_array_equal(there.numpy(), -x)
        assert module.function_names() == ["negate"]
        with pytest.raises(ArtifactError, match=r"hop 2 \(device:dsp0\): "):
            session.load_module(Path(__file__), device="hexagon:0")
        with pytest.raises(RemoteError, match="segfault"):
            session.get_function("test.segfault", device="hexagon:0")()
        with pytest.raises(RemoteError, match=r"`negate`: it is lost with the session .* load it again"):
            module["negate"](there)


def test_a_phone_or_a_device_without_files_loads_nothing(small: list[str], tmp_path: Path) -> None:
    kernel = build_kernel(tmp_path, NEGATE, "x86_64-linux-musl")
    with (
        running(small, listen=f"unix:{tmp_path}/u") as (_, device),
        running(small, "--workpath", str(tmp_path), "--device", f"dsp0={device}") as (_, url),
        connect(url, timeout=SECONDS) as session,
        pytest.raises(MissingFunctionError, match=r"device:dsp0 exports no function `tvm.rpc.server.upload`"),
    ):
        session.load_module(kernel, device="hexagon:0")
