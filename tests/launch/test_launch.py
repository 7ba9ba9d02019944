"""A launch on this machine and in emulators: what starts, what is used again, and what ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import farcall as fc
from farcall.errors import ArtifactError, ConnectError, MissingFileError, UsageError
from farcall.launch import _driver, _started, build_server
from farcall.launch._local import LocalLauncher

from ..native.small_server import named
from ..waiting import has_ended


def pid_of(device: fc.launch.LaunchedDevice) -> int:
    """The process of a device's server, by the name of its folder."""
    return int(Path(device.server_url).parent.name.split("-")[2])


def runs(folder: Path) -> list[Path]:
    return sorted(folder.glob("run-*"))


def test_an_emulated_server_answers_and_ends_with_its_statement(
    aarch64_server: Path, run_folder: Path
) -> None:
    events: list[fc.Progress] = []
    with fc.launch("emulator:aarch64", server=aarch64_server, progress=events.append) as device:
        assert device.url == "emulator:aarch64" and str(device.target) == "aarch64-linux-musl"
        with device.connect() as session:
            assert session.get_function("test.add")(2, 3) == 5
        pid = pid_of(device)
        assert [event.phase for event in events] == ["start", "start"]
    assert has_ended(pid)
    assert runs(run_folder) == []
    with pytest.raises(UsageError, match="emulator:aarch64: the device was stopped; launch it again"):
        device.connect()
    device.stop()  # again: nothing happens


def test_the_full_server_is_launched_on_this_machine(run_folder: Path) -> None:
    with fc.launch("local") as device, device.connect() as session:
        assert "files" in session.features
        assert "session 2: opened by" in device.logs()
    assert runs(run_folder) == []


def test_a_device_behind_a_device(own_server: Path) -> None:
    with (
        fc.launch("local:small", server=own_server) as dsp,
        fc.launch("local:small", server=own_server, devices={"dsp0": dsp.server_url}) as phone,
        phone.connect(via=["device:dsp0"]) as session,
    ):
        assert session.get_function("test.add")(2, 3) == 5
    for name, url in (("a b", "unix:/x"), ("dsp0", "unix:x")):
        with pytest.raises(UsageError, match="expected"):
            fc.launch("local:small", server=own_server, devices={name: url})


def test_two_launches_do_not_meet(own_server: Path, run_folder: Path) -> None:
    with fc.launch("local:small", server=own_server) as one:
        with fc.launch("local:small", server=own_server) as other:
            assert one.server_url != other.server_url
        with one.connect() as session:  # the end of the other left this one alone
            assert session.get_function("test.add")(1, 1) == 2
    assert runs(run_folder) == []


def test_files_go_there_and_back(own_server: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "data").chmod(0o640)
    with fc.launch("local:small", server=own_server) as device:
        device.push(tmp_path / "data", str(tmp_path / "there"))
        assert (tmp_path / "there").stat().st_mode & 0o777 == 0o640
        device.pull(str(tmp_path / "there"), tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (tmp_path / "data").read_bytes()
        with pytest.raises(MissingFileError, match=r"cannot push .*nothing"):
            device.push(tmp_path / "nothing", "x")
        with pytest.raises(ConnectError, match=r"cannot push 'data' to '/no/x': .*; name a folder"):
            device.push(tmp_path / "data", "/no/x")
        with pytest.raises(ConnectError, match="cannot pull '/no/x'"):
            device.pull("/no/x", tmp_path / "y")
        assert sorted(file.name for file in tmp_path.iterdir()) == ["back", "data", "there"]


def test_the_shell_tells_status_and_both_outputs(own_server: Path) -> None:
    with fc.launch("local:small", server=own_server) as device:
        done = device.shell("echo out; echo err >&2; exit 7")
        assert (done.code, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_a_killed_launcher_takes_its_server_along(own_server: Path, run_folder: Path) -> None:
    """By SIGKILL: no code of the launcher runs any more."""
    program = (
        "import farcall as fc, sys\n"
        f"device = fc.launch('local:small', server={str(own_server)!r})\n"
        "print(device.server_url, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.kill()
    assert has_ended(int(Path(url.removeprefix("unix://")).parent.name.split("-")[2]))


@pytest.mark.parametrize(
    "end", ["raise SystemExit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"]
)
def test_a_program_that_stops_nothing_leaves_nothing(end: str, own_server: Path, run_folder: Path) -> None:
    program = f"import farcall as fc\ndevice = fc.launch('local:small', server={str(own_server)!r})\n{end}"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert runs(run_folder) == []


def test_a_server_whose_watcher_was_killed_is_stale(own_server: Path, run_folder: Path) -> None:
    device = fc.launch("local:small", server=own_server)
    pid = pid_of(device)
    (watcher,) = run_folder.glob("run-*/watcher")
    os.kill(int(watcher.read_text().split()[0]), signal.SIGKILL)
    with fc.launch("local:small", server=own_server):
        assert has_ended(pid)
        assert len(runs(run_folder)) == 1
    device.stop()


def test_a_number_that_another_process_has_is_not_stopped(own_server: Path, run_folder: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        folder = _started.run_folder()
        (folder / f"run-0123-{other.pid}-1").mkdir()  # it began at another time
        with fc.launch("local:small", server=own_server):
            assert len(runs(run_folder)) == 1
        assert other.poll() is None
        other.kill()


def test_a_server_that_was_kept_is_used_again(own_server: Path, run_folder: Path) -> None:
    kept = _driver.start("local:small", server=own_server, timeout=60)
    url = kept.server_url
    kept.stop()  # ends what the launch holds, not the server
    with fc.launch("local:small", server=own_server) as device:
        assert device.server_url == url
    (record,) = _started.records()
    assert _driver.state(record, 60) == "running"
    assert _driver.start("local:small", server=own_server, timeout=60).server_url == url
    _driver.stop(record, 60)
    assert _driver.state(record, 60) == "ended"
    assert list(_started.records()) == [] and runs(run_folder) == []


def test_two_starts_at_once_start_one_server(own_server: Path, run_folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        starts = [pool.submit(_driver.start, "local:small", server=own_server, timeout=60) for _ in range(4)]
        urls = {start.result().server_url for start in starts}
    assert len(urls) == 1
    assert len(runs(run_folder)) == 1
    (record,) = _started.records()
    _driver.stop(record, 60)
    assert runs(run_folder) == []


def test_a_server_that_does_not_end_in_time_is_killed(own_server: Path, run_folder: Path) -> None:
    kept = _driver.start("local:small", server=own_server, timeout=60)
    os.kill(pid_of(kept), signal.SIGSTOP)  # it cannot even see that it must end
    (record,) = _started.records()
    _driver.stop(record, 60)
    assert has_ended(pid_of(kept))
    assert list(_started.records()) == [] and runs(run_folder) == []


def test_a_record_of_a_server_that_died_is_no_obstacle(own_server: Path, run_folder: Path) -> None:
    kept = _driver.start("local:small", server=own_server, timeout=60)
    os.kill(pid_of(kept), signal.SIGKILL)
    assert has_ended(pid_of(kept))
    with fc.launch("local:small", server=own_server) as device:
        assert device.server_url != kept.server_url
        assert device.shell("true").code == 0
    (record,) = _started.records()
    assert _driver.state(record, 60) == "ended"
    _driver.stop(record, 60)


def test_a_record_that_is_damaged_is_ignored(run_folder: Path) -> None:
    folder = _started.run_folder()
    (folder / "started-0123.json").write_text('{"device": 1}')
    (folder / "started-4567.json").write_bytes(b"\xff")
    assert list(_started.records()) == []


def test_a_folder_of_others_is_refused(run_folder: Path) -> None:
    run_folder.mkdir(mode=0o777)
    run_folder.chmod(0o777)
    with pytest.raises(UsageError, match="is not a folder that only you can enter; remove it"):
        fc.launch("local:small")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("emulatr:aarch64", r"there is no launcher 'emulatr'; did you mean `emulator`\?"),
        ("emulator:aarch46", r"no machine 'aarch46'; did you mean `aarch64`\?"),
        ("local:big", r"expected local \(the full server\) or local:small"),
        ("ssh://-oProxyCommand=x", r"expected ssh://\[USER@\]HOST\[:PORT\]"),
        ("ssh://me:secret@board", "a password is never part of it"),
        ("adb:fake", "expected adb://SERIAL"),
        (7, "a device's URL is text, not int"),
    ],
)
def test_a_wrong_url_names_the_form(url: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        fc.launch(url)


def test_a_missing_emulator_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="the emulator qemu-arm is not installed; run: apt install"):
        fc.launch("emulator:armv7")


def test_a_server_for_another_machine_is_refused(own_server: Path, aarch64_server: Path) -> None:
    with pytest.raises(ArtifactError, match="for emulator:aarch64, which is aarch64; run: farcall"):
        fc.launch("emulator:aarch64", server=own_server)
    with pytest.raises(MissingFileError, match="`farcall device build` makes one"):
        fc.launch("emulator:aarch64", server="nothing")


def test_a_machine_that_farcall_does_not_know(own_server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `uname -m` says there; whoever built a server for it knows better."""
    monkeypatch.setattr(LocalLauncher, "machine", lambda self, name: "e2k")
    with pytest.raises(UsageError, match="its machine is 'e2k', for which farcall has no server; build one"):
        fc.launch("local:small")
    with fc.launch("local:small", server=own_server) as device, device.connect() as session:
        assert device.target.arch == "e2k"
        assert session.get_function("test.add")(2, 3) == 5
    with pytest.raises(ArtifactError, match="is no program; `farcall device build` makes one"):
        fc.launch("local:small", server=__file__)


def test_a_board_without_memory(own_server: Path, run_folder: Path, tmp_path: Path) -> None:
    """The system ends the server when it starts."""
    (tmp_path / "killed.c").write_text(
        "#include <signal.h>\nint farcall_server_setup(void) { return raise(SIGKILL); }\n"
    )
    killed = build_server(named("x86_64").target, sources=[tmp_path / "killed.c"])
    with pytest.raises(ConnectError, match=r"did not start: the system killed it, .* memory is short"):
        fc.launch("local:small", server=killed)
    assert runs(run_folder) == []


def test_a_server_that_does_not_start_shows_its_log(
    own_server: Path, run_folder: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "server"
    broken.write_bytes(own_server.read_bytes()[:4096])  # truncated
    broken.chmod(0o755)
    with pytest.raises(ConnectError) as caught:
        fc.launch("local:small", server=broken)
    assert str(caught.value).startswith("local:small: the server did not start: it ended with status")
    assert runs(run_folder) == []


def test_a_shell_that_hangs_ends_at_the_limit(own_server: Path) -> None:
    with fc.launch("local:small", server=own_server, timeout=60) as device:
        device._timeout = 0.05
        with pytest.raises(fc.errors.ConnectTimeoutError, match=r"local:small: no answer within 0\.05 s"):
            device.shell("sleep 1000")
        device._timeout = 60
