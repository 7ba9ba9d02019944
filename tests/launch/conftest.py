"""Devices for the tests of launchers: a server's program, an sshd on loopback, a fake adb server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..native.small_server import named, small_server
from ..waiting import has_ended
from .adb_server import AdbServer


@pytest.fixture(autouse=True)
def run_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of running servers, of this test alone; short, since a socket's path is."""
    with tempfile.TemporaryDirectory(prefix="fc-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder) / "farcall"
        assert all(has_ended(pid) for pid in processes_in(Path(folder))), "a test left servers running"


def processes_in(folder: Path) -> list[int]:
    """The processes whose command lines name a file in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words:
            found.append(int(process.parent.name))
    return found


@pytest.fixture(scope="session")
def aarch64_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small server with the functions of the tests, for aarch64. Skips without its emulator."""
    return Path(small_server(named("aarch64"), tmp_path_factory)[-1])


@pytest.fixture(scope="session")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for this machine."""
    return Path(small_server(named("x86_64"), tmp_path_factory)[-1])


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdbServer]:
    """A fake adb server with one aarch64 device, `fake-1`, and the environment that leads to it."""
    with AdbServer(tmp_path / "phone", named("aarch64").emulate()) as server:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
        monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
        yield server
        assert not server.forwards
    assert all(has_ended(pid) for pid in processes_in(server.folder)), "a test left servers running"


class Sshd:
    """A real sshd on loopback, which admits one key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        for name in ("host", "user"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        self.home = folder / "home"
        self.home.mkdir()
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {folder}/host\n"
            f"AuthorizedKeysFile {folder}/authorized\n"
            f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
            f"SetEnv HOME={self.home} XDG_CACHE_HOME={self.home}/.cache\n"
        )
        self.know(_text_of(folder / "host.pub"))

    def know(self, key: str) -> None:
        """Let the client know this host key."""
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}\n" if key else "")

    def command(self, identity: str = "user") -> str:
        """The client's command."""
        config = self.folder / f"config-{identity}"
        config.write_text(
            f"IdentityFile {self.folder}/{identity}\nIdentitiesOnly yes\nStrictHostKeyChecking yes\n"
            f"UserKnownHostsFile {self.folder}/known_hosts\nGlobalKnownHostsFile none\n"
        )
        return f"ssh -F {config}"

    @property
    def url(self) -> str:
        return f"ssh://{os.environ.get('USER', 'root')}@127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd. Skips the test where there is none."""
    program = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
    if program is None or shutil.which("ssh") is None:
        pytest.skip("needs ssh and sshd: apt install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it separates its privileges
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    process = subprocess.Popen(
        [program, "-D", "-e", "-f", server.folder / "sshd_config"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        if "Server listening" not in line:
            pytest.skip(f"sshd does not start here: {line}")
        yield server
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def ssh(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Sshd:
    """The sshd, and the environment in which `ssh` knows its way."""
    monkeypatch.setenv("FARCALL_SSH", sshd.command())
    return sshd


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _text_of(file: Path) -> str:
    return " ".join(file.read_text().split()[:2])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
