"""Launches on Android: a fake adb server, which the real `adb` client finds honest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import farcall as fc
from farcall.errors import AccessDeniedError, ConnectError, UsageError
from farcall.launch._adb_client import Adb

from .adb_server import AdbServer


def test_a_session_runs_through_a_forward(adb: AdbServer, aarch64_server: Path, tmp_path: Path) -> None:
    with fc.launch("adb://fake-1", server=aarch64_server) as device:
        ((port, _),) = adb.forwards.items()
        assert device.server_url == f"tcp://127.0.0.1:{port[0] if isinstance(port, tuple) else port}"
        with device.connect() as session:
            assert session.get_function("test.add")(2, 3) == 5
        assert device.shell("exit 5").code == 5
        (tmp_path / "x").write_bytes(bytes(200_000))
        device.push(tmp_path / "x", "x")
        device.pull("x", tmp_path / "y")
        assert (tmp_path / "y").read_bytes() == bytes(200_000)
    assert adb.forwards == {}
    names = sorted(file.name.partition("-")[0] for file in (adb.folder / "farcall").iterdir())
    assert names == ["server", "x"]


def test_forwards_of_others_stay(adb: AdbServer, aarch64_server: Path) -> None:
    mine = Adb("adb://fake-1", "fake-1")
    port = mine.forward("tcp:9")
    with fc.launch("adb://", server=aarch64_server):
        assert len(mine.forwards()) == 2
    assert mine.forwards() == [("fake-1", f"tcp:{port}", "tcp:9")]
    mine.remove_forward(port)


@pytest.mark.parametrize(
    ("state", "kind", "problem"),
    [
        ("unauthorized", AccessDeniedError, "the device is unauthorized; unlock the device, and accept"),
        ("offline", ConnectError, "the device is offline; unplug the device"),
        ("no permissions; see x", ConnectError, "add a udev rule"),
    ],
)
def test_a_device_that_cannot_be_used(
    state: str, kind: type[ConnectError], problem: str, adb: AdbServer
) -> None:
    adb.state = state
    with pytest.raises(kind, match=f"adb://fake-1: .*{problem}"):
        fc.launch("adb://fake-1")


def test_an_unknown_device_lists_the_known_ones(adb: AdbServer) -> None:
    with pytest.raises(ConnectError, match=r"knows no such device; it knows: fake-1 \(device\)"):
        fc.launch("adb://fake-2")


def test_an_old_android_is_refused(adb: AdbServer) -> None:
    adb.features = "cmd"
    with pytest.raises(UsageError, match="it needs Android 7 or later"):
        fc.launch("adb://fake-1")


def test_no_adb_server_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "1")
    with pytest.raises(ConnectError, match=r"no adb server at 127.0.0.1:1 .*run: adb start-server"):
        fc.launch("adb://fake-1")
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "x")
    with pytest.raises(UsageError, match="ANDROID_ADB_SERVER_PORT='x': expected a port"):
        fc.launch("adb://fake-1")


def test_a_full_disk_leaves_nothing(adb: AdbServer, aarch64_server: Path) -> None:
    adb.push_limit = 100_000
    with pytest.raises(ConnectError, match="No space left on device; free space there"):
        fc.launch("adb://fake-1", server=aarch64_server)
    assert list((adb.folder / "farcall").iterdir()) == []


def test_a_truncated_push_is_noticed_and_leaves_nothing(adb: AdbServer, aarch64_server: Path) -> None:
    adb.lose = 100_000
    size = aarch64_server.stat().st_size
    with pytest.raises(ConnectError, match=f"only 100000 of {size} bytes arrived"):
        fc.launch("adb://fake-1", server=aarch64_server)
    assert list((adb.folder / "farcall").iterdir()) == []


def test_the_real_client_finds_the_fake_honest(adb: AdbServer, tmp_path: Path) -> None:
    """Its requests, not ours: the fake was not made to fit our client alone."""
    program = shutil.which("adb")
    if program is None:
        pytest.skip("needs adb: apt install adb")

    def client(*words: str) -> subprocess.CompletedProcess[str]:
        command = [program, "-P", str(adb.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    assert "fake-1\tdevice" in client("devices").stdout
    done = client("shell", "echo out; echo err >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "out\n", "err\n")
    (tmp_path / "x").write_bytes(bytes(range(256)) * 1000)
    assert client("push", str(tmp_path / "x"), "/data/local/tmp/x").returncode == 0
    assert (adb.folder / "x").read_bytes() == (tmp_path / "x").read_bytes()
    assert client("pull", "/data/local/tmp/x", str(tmp_path / "y")).returncode == 0
    assert (tmp_path / "y").read_bytes() == (tmp_path / "x").read_bytes()
    port = client("forward", "tcp:0", "tcp:9").stdout.strip()
    ours = Adb("adb://fake-1", "fake-1")
    assert ours.forwards() == [("fake-1", f"tcp:{port}", "tcp:9")]
    assert client("forward", "--remove", f"tcp:{port}").returncode == 0
    mine = ours.forward("tcp:9")
    assert f"fake-1 tcp:{mine} tcp:9" in client("forward", "--list").stdout
    ours.remove_forward(mine)
    assert ours.version() == 41
