"""Launches by ssh, on a real sshd."""

from __future__ import annotations

from pathlib import Path

import pytest

import farcall as fc
from farcall.errors import AccessDeniedError, ConnectError, UsageError

from .conftest import Sshd


def test_a_session_runs_on_the_streams_of_ssh(ssh: Sshd, own_server: Path, tmp_path: Path) -> None:
    events: list[fc.Progress] = []
    with fc.launch(ssh.url, server=own_server, progress=events.append) as device:
        with device.connect() as session:
            assert session.get_function("test.add")(2, 3) == 5
        folder = Path(device.shell("pwd").stdout.strip())
        assert own_server.read_bytes() in [program.read_bytes() for program in folder.glob("server-*")]
        (tmp_path / "x").write_text("x")
        device.push(tmp_path / "x", "x")
        device.pull("x", tmp_path / "y")
        assert (tmp_path / "y").read_text() == "x"
    assert [event.phase for event in events] == ["push", "push", "start", "start"]
    events.clear()
    with fc.launch(ssh.url, server=own_server, progress=events.append):
        assert [event.phase for event in events] == ["start", "start"]  # the program is there already
    assert [file.name for file in folder.iterdir() if not file.name.startswith("server-")] == ["x"]


def test_a_host_whose_key_is_unknown_is_refused(ssh: Sshd) -> None:
    known = (ssh.folder / "known_hosts").read_text()
    ssh.know("")
    try:
        with pytest.raises(AccessDeniedError, match=r"Host key verification failed.*log in once"):
            fc.launch(ssh.url)
    finally:
        (ssh.folder / "known_hosts").write_text(known)


def test_a_key_that_the_host_does_not_know_is_refused(ssh: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARCALL_SSH", ssh.command("host"))
    with pytest.raises(AccessDeniedError, match=r"accepts none of your keys; put one there: ssh-copy-id"):
        fc.launch(ssh.url)


def test_a_port_where_no_sshd_listens(ssh: Sshd) -> None:
    with pytest.raises(ConnectError, match=r"Connection refused: is sshd running there"):
        fc.launch("ssh://127.0.0.1:1")


def test_a_missing_ssh_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARCALL_SSH", "/nowhere/ssh")
    with pytest.raises(UsageError, match="'/nowhere/ssh' is not installed; run: apt install openssh-client"):
        fc.launch("ssh://board")


def test_a_server_that_does_not_run_there_shows_its_log(ssh: Sshd, own_server: Path, tmp_path: Path) -> None:
    broken = tmp_path / "server"
    broken.write_bytes(own_server.read_bytes()[:4096])
    broken.chmod(0o755)
    with pytest.raises(ConnectError, match="the server opens no session") as caught:
        fc.launch(ssh.url, server=broken)
    assert "the end of its log:" in str(caught.value)
