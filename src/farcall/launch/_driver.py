"""The steps of a launch, the same for all launchers: probe, choose the server, put it there, start, check."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import farcall
from farcall._files import unusable
from farcall._logs import Log
from farcall._progress import Phase, Report
from farcall.errors import ArtifactError, ConnectError, RemoteError, UsageError
from farcall.launch import _scripts, _started
from farcall.launch._device import LaunchedDevice, with_log
from farcall.launch._launcher import Completed, Launcher, Stream
from farcall.launch._launchers import find_launcher
from farcall.launch._pushing import push
from farcall.launch._server_build import build_server
from farcall.launch._started import Place, Started
from farcall.rpc import connect
from farcall.rpc.channels import parse_address
from farcall.toolchain import MACHINES, Machine, Target, content_key

_KEPT = 4  # servers on a device: the one in use, and a few of other versions
_HASH = 16  # hexadecimal digits in names
_CHECK_SECONDS = 10.0
_KILLED = 128 + 9  # a shell's status of a process that SIGKILL ended
_NAMES = {"armv7l": "armv7", "armv8l": "armv7", "arm64": "aarch64", "amd64": "x86_64"}  # of uname -m


def launch(
    url: str,
    *,
    server: str | os.PathLike[str] | None = None,
    devices: Mapping[str, str] | None = None,
    progress: Report | None = None,
    timeout: float = 60.0,
) -> LaunchedDevice:
    """Put a server onto a device and start it.

    ::

        with fc.launch("ssh://pi@board") as device, device.connect() as remote:
            remote.load_module("model.so")

    The device needs no Python: it gets ``farcall-server``, built for its instruction set, unless it has that
    already. If `farcall device start` keeps a server there, that one is used, unless there are ``devices``.

    Args:
        url: of the device: ``"local"`` (the full server on this machine), ``"local:small"``,
            ``"emulator:ARCH"``, ``"ssh://[USER@]HOST[:PORT]"``, ``"adb://SERIAL"``, or one that an installed
            package adds.
        server: the program to use instead, a ``farcall-server`` for the device.
        devices: what is behind the device, such as its DSP: name -> URL, as the device reaches it. Clients
            go on by ``device.connect(via=["device:NAME"])``.
        progress: told about the phases ``compile``, ``link``, ``push`` and ``start``.
        timeout: maximum seconds for each step on the device.

    Returns:
        The device. It ends with its ``with`` statement, or at ``stop()``.

    Raises:
        UsageError: the URL is not valid, or a program is missing here; the message names the cure.
        ToolchainError: the server cannot be built.
        ArtifactError: ``server`` is not a program for that device.
        AccessDeniedError: the device does not let this user in.
        ConnectError: the device cannot be reached, or the server does not start there; the message ends with
            its log. Nothing is left running.
    """
    return _launch(url, server, progress, timeout, devices or {}, keep=False)


def start(
    url: str, *, server: str | os.PathLike[str] | None = None, progress: Report | None = None, timeout: float
) -> LaunchedDevice:
    """As :func:`launch`, but the server stays when this process ends, and a record of it is kept."""
    with _started.lock(url):  # two at once would start two servers, and keep a record of one
        return _launch(url, server, progress, timeout, {}, keep=True)


class _Program(NamedTuple):
    """A server: the words that start it on the device, its file here if it must be put there, its hash."""

    words: list[str]
    file: Path | None
    hash: str
    target: Target
    options: str = ""


class _Facts(NamedTuple):
    """What the device says about itself."""

    folder: str
    machine: str
    programs: frozenset[str]
    running: frozenset[str]


def _launch(
    url: str,
    server: str | os.PathLike[str] | None,
    progress: Report | None,
    timeout: float,
    devices: Mapping[str, str],
    *,
    keep: bool,
) -> LaunchedDevice:
    if not isinstance(timeout, int | float) or not 0 < timeout < 1e9:
        raise UsageError(f"timeout: expected a positive number of seconds, got {timeout!r:.80}")
    for name, behind in devices.items():
        parse_address(f"device:{name}")
        parse_address(behind)
    with contextlib.ExitStack() as undo:  # what is undone if a step fails, and else by the device
        launcher = find_launcher(url)
        undo.callback(launcher.close)
        facts = _probe(launcher, timeout)
        program = _choose(launcher, facts, server, progress)
        for name, behind in devices.items():
            program.words.extend(("--device", f"{name}={behind}"))
        known = None if devices else _still_running(url, facts, program)
        _place_program(launcher, facts, program, progress, timeout)
        phase = Phase(progress, "start", 1, "steps", f"starting a server on {url}")
        server_end = undo.enter_context(contextlib.ExitStack())
        if known:
            running = _Running(known.place, lambda: None)
        else:
            running = _start(launcher, facts, program, timeout, server_end)
        _check(launcher, running.place, timeout)
        if keep and known is None:
            if (old := _started.find(url)) is not None:
                stop(old, timeout)
            running.release()
            server_end.pop_all()
            _started.remember(Started(url, str(program.target), program.hash, time.time(), running.place))
        phase.end(f"a server runs on {url}")
        return LaunchedDevice(launcher, program.target, running.place, timeout, undo.pop_all().close)


# ---- the steps


def _probe(launcher: Launcher, timeout: float) -> _Facts:
    done = launcher.run(_scripts.prepare(launcher.folder), timeout=timeout)
    said: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        word, _, value = line.partition(" ")
        said.setdefault(word, []).append(value.strip())
    if done.code or not said.get("folder") or not said.get("machine"):
        raise ConnectError(
            f"{launcher.url}: cannot use {launcher.folder}: {done.stderr.strip() or done.stdout!r}; "
            "it needs a shell, and a folder that you may write to"
        )
    Log("launch").info("%s: %s, pages of %s", launcher.url, said["machine"][0], said.get("page", ["?"])[0])
    running, programs = said.get("running", []), said.get("program", [])
    return _Facts(said["folder"][0], said["machine"][0], frozenset(programs), frozenset(running))


def _choose(
    launcher: Launcher, facts: _Facts, server: str | os.PathLike[str] | None, progress: Report | None
) -> _Program:
    if server is None and (words := launcher.program()) is not None:
        return _Program(words, None, content_key([*words, farcall.__version__])[:_HASH], Target.host())
    name = launcher.machine(facts.machine)
    machine = next((m for m in MACHINES if _NAMES.get(name, name) in (m.name, m.target.arch)), None)
    target = machine.target if machine else Target(f"{name}-linux-musl")
    if server is None:
        file = build_server(_known(launcher, name, machine).target, progress=progress)
    else:
        file = Path(server).absolute()
    try:
        with file.open("rb") as opened:
            _check_machine(launcher, file, opened.read(20), machine)
            opened.seek(0)
            hash_ = hashlib.file_digest(opened, "sha256").hexdigest()[:_HASH]
    except OSError as error:
        raise unusable(
            error, f"server {str(file)!r}: {error.strerror}; `farcall device build` makes one"
        ) from None
    place = str(file) if launcher.same_files else f"./server-{hash_}"
    options = '--workpath "$PWD/$run/files"'
    return _Program(
        [*launcher.emulator, place], None if launcher.same_files else file, hash_, target, options
    )


def _known(launcher: Launcher, name: str, machine: Machine | None) -> Machine:
    if machine is None:
        raise UsageError(
            f"{launcher.url}: its machine is {name!r}, for which farcall has no server; build one with "
            "`farcall device build --target`, and pass it as server= (--server)"
        )
    return machine


def _check_machine(launcher: Launcher, file: Path, head: bytes, machine: Machine | None) -> None:
    """Refuse a program of another machine. Of a ``machine`` that farcall does not know, any may be one."""
    number = int.from_bytes(head[18:20], "big" if head[5:6] == b"\2" else "little")
    if head[:4] != b"\x7fELF":
        raise ArtifactError(f"{str(file)!r} is no program; `farcall device build` makes one")
    if machine and number != machine.elf:
        raise ArtifactError(
            f"{str(file)!r} is no program for {launcher.url}, which is {machine.name}; run: "
            f"farcall device build --target {machine.name}"
        )


def _place_program(
    launcher: Launcher, facts: _Facts, program: _Program, progress: Report | None, timeout: float
) -> None:
    """Put the program there, unless the device has it already: its name is its content's hash."""
    name = f"server-{program.hash}"
    if program.file is None or name in facts.programs:
        return
    phase = Phase(
        progress, "push", program.file.stat().st_size, "bytes", f"putting the server onto {launcher.url}"
    )
    push(launcher, program.file, f"{facts.folder}/{name}", timeout=timeout)
    launcher.run(_scripts.prune(facts.folder, _KEPT), timeout=timeout)
    phase.end(f"the server is on {launcher.url}")


def _still_running(url: str, facts: _Facts, program: _Program) -> Started | None:
    """The server that `farcall device start` keeps there, if it is of this program."""
    known = _started.find(url)
    running = known is not None and known.place.run in facts.running and known.program == program.hash
    return known if running else None


class _Running(NamedTuple):
    """A server that was started: where it runs, and a call that lets it outlive this process."""

    place: Place
    release: Callable[[], None]


def _start(
    launcher: Launcher, facts: _Facts, program: _Program, timeout: float, undo: contextlib.ExitStack
) -> _Running:
    if launcher.stdio:
        return _on_streams(launcher, facts, program, timeout, undo)
    deadline = time.monotonic() + timeout
    script = _scripts.start(facts.folder, program.words, program.hash, launcher.listens_at, program.options)
    stream = launcher.open(script)
    undo.callback(stream.close)
    run, there = _listening(launcher, facts, stream, deadline)
    url = launcher.forward(there)
    undo.callback(launcher.unforward, url)
    place = Place(url, there, facts.folder, run, f"{run}/log")
    return _Running(place, lambda: stream.close(b"keep\n"))


def _listening(launcher: Launcher, facts: _Facts, stream: Stream, deadline: float) -> tuple[str, str]:
    """The name of the server's folder, and where it listens; a ConnectError with its log if it ends."""
    run = stream.read_line(deadline)
    line = stream.read_line(deadline) if run else ""
    if "listening on " in line:
        return run, line.rpartition(" ")[2]
    log = ""
    if run:
        script = _scripts.tail(f"{facts.folder}/{run}/log", 8)
        log = launcher.run(script, timeout=_CHECK_SECONDS).stdout
    said = "; ".join(filter(None, (stream.complaint().strip(), _ending(line))))
    raise ConnectError(
        with_log(f"{launcher.url}: the server did not start{f': {said}' if said else ''}", log)
    )


def _ending(line: str) -> str:
    """What a server's last line says about its end."""
    word, _, status = line.partition(" ")
    if word != "ended" or not status.isdigit():
        return line
    if int(status) == _KILLED:
        return "the system killed it, as it does when memory is short; free memory there"
    return f"it ended with status {status}"


def _on_streams(
    launcher: Launcher, facts: _Facts, program: _Program, timeout: float, undo: contextlib.ExitStack
) -> _Running:
    """Nothing runs between sessions: each starts a server of its own."""
    log = f"log-{secrets.token_hex(8)}"
    url = launcher.session_url(_scripts.serve_standard_streams(facts.folder, program.words, log))

    def remove_log() -> None:
        with contextlib.suppress(RemoteError):
            launcher.run(_scripts.remove(f"{facts.folder}/{log}"), timeout=timeout)

    undo.callback(remove_log)
    return _Running(Place(url, "", facts.folder, "", log), lambda: None)


def _check(launcher: Launcher, place: Place, timeout: float) -> None:
    """Open a session and close it: the server is only healthy if one can be opened."""
    try:
        connect(place.url, timeout=min(timeout, _CHECK_SECONDS)).close()
    except RemoteError as error:
        log = launcher.run(_scripts.tail(f"{place.folder}/{place.log}", 8), timeout=timeout).stdout
        raise type(error)(with_log(f"{launcher.url}: the server opens no session: {error}", log)) from None


# ---- servers that stay


def stop(started: Started, timeout: float) -> None:
    """Stop a server that was kept, exactly that one, and drop its record.

    Raises:
        ConnectError, UsageError: the device cannot be reached.
    """
    launcher = find_launcher(started.device)
    try:
        launcher.run(_scripts.stop(started.place), timeout=timeout)
        launcher.unforward(started.place.url)
    finally:
        launcher.close()
    _started.forget(started.device)


def state(started: Started, timeout: float) -> str:
    """``running``, ``ended``, ``ready`` (sessions start their own server), or why the device cannot tell."""
    try:
        launcher = find_launcher(started.device)
        try:
            if launcher.stdio:
                return "ready" if launcher.run("true", timeout=timeout).code == 0 else "unreachable"
            alive = launcher.run(_scripts.is_alive(started.place.run), timeout=timeout).code == 0
            return "running" if alive else "ended"
        finally:
            launcher.close()
    except (RemoteError, UsageError) as error:
        return f"unreachable: {str(error).splitlines()[0]}"


def logs(started: Started, lines: int, timeout: float) -> str:
    """The last lines of the log of a server that was kept."""
    path = f"{started.place.folder}/{started.place.log}"
    return shell(started.device, _scripts.tail(path, lines), timeout).stdout


def shell(url: str, command: str, timeout: float) -> Completed:
    """Run a command of a device's shell; no server needs to run there."""
    launcher = find_launcher(url)
    try:
        return launcher.run(command, timeout=timeout)
    finally:
        launcher.close()
