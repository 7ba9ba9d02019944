"""The zygote: a process that has imported the workers' modules and run ``--init``; it forks the workers.

``python -m farcall.rpc.server._zygote CONTROL_FD OPTIONS``, started by the supervisor. A fork takes less than
a millisecond and shares the memory of the imported modules: sessions start fast and cost little. The zygote
reads nothing that a client sends. When its control socket closes, the supervisor is gone: the zygote ends its
workers, removes their folders and exits. The kernel ends the workers if the zygote dies
(``PR_SET_PDEATHSIG``). There are no orphans: when a worker ends, its child processes become children of the
zygote (``PR_SET_CHILD_SUBREAPER``), which ends them.

A process with threads cannot be forked safely. Libraries with fork handlers (OpenBLAS) end their threads at a
fork, so the zygote makes a trial fork after ``--init`` and counts the threads that are left. If there are
any, the supervisor starts a *late* zygote, which leaves ``--init`` to each worker.

Messages are JSON, one in each packet of the control socket (SOCK_SEQPACKET)::

    supervisor -> zygote   {"fork": ID} with the worker's end of a socket pair, its status page, and a
                           pipe for the text it prints; {"kill": ID}
    zygote -> supervisor   {"ready": true}, {"threads": N}, {"error": TEXT}; then
                           {"forked": ID, "pid": PID}, {"ended": ID, "status": N}; the latter with
                           "error": TEXT when the fork failed
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from farcall.errors import UsageError
from farcall.rpc.server import _worker as worker
from farcall.rpc.server._relay import Devices
from farcall.rpc.shared._limits import Limits

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MESSAGE_BYTES = 65536
_IOLBF = 1  # the value in stdio.h of glibc and musl


def threads() -> int:
    """The number of other threads in this process after a trial fork: a real fork would lose them."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(list(Path("/proc/self/task").iterdir())) - 1


def _set_death_signal(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process, not of process 1."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> set[int]:
    """The children of this single-threaded process; empty where the kernel was built without that list."""
    try:
        return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    except OSError:
        return set()


def die_with_parent(parent: int) -> None:
    """Make the kernel end this process when ``parent`` ends; exit now if it has already ended."""
    _set_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Zygote:
    """Forks workers, ends them, and tells the supervisor how they ended.

    Args:
        control: the socket to the supervisor.
        root: the folder that holds the sessions' folders.
        limits: of a session.
        late_init: the ``--init`` that each worker runs before its session; None: it has already run.
        devices: the devices of the server.
    """

    def __init__(
        self, control: socket.socket, root: Path, limits: Limits, late_init: str | None, devices: Devices
    ) -> None:
        self._control = control
        self._root = root
        self._limits = limits
        self._late_init = late_init
        self._devices = devices
        self._children: dict[int, int] = {}  # process id -> the supervisor's number
        self._helpers = _children()  # processes that --init started
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serve the supervisor until it is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the pipe below is written
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        open_line = True
        while open_line:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                    self._reap()
                else:
                    open_line = self._order()
        self._end()

    def _say(self, **message: object) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone: the next read shows it
            self._control.sendall(json.dumps(message).encode())

    def _order(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 3)
        except ConnectionResetError:  # the supervisor ended without reading all our messages
            return False
        if not data:
            return False
        order: dict[str, int] = json.loads(data)
        if "fork" in order:
            try:
                self._fork(order["fork"], *fds)
            finally:  # only in the zygote: the child never returns from _fork
                for fd in fds:
                    os.close(fd)
        else:
            for pid in [pid for pid, number in self._children.items() if number == order["kill"]]:
                os.kill(pid, signal.SIGKILL)  # our child and not reaped, so the id is still its own
        return True

    def _fork(self, number: int, control_fd: int, page_fd: int, output_fd: int) -> None:
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._say(ended=number, status=1, error=f"could not be forked: {error.strerror}")
            return
        if pid == 0:
            self._become_worker(zygote, number, control_fd, page_fd, output_fd)
        self._children[pid] = number
        self._say(forked=number, pid=pid)

    def _become_worker(
        self, zygote: int, number: int, control_fd: int, page_fd: int, output_fd: int
    ) -> NoReturn:
        try:
            die_with_parent(zygote)
            os.dup2(output_fd, 1)
            os.dup2(output_fd, 2)
            os.close(output_fd)
            _adopt_orphans()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            self._control.close()
            os.close(self._wake)
            os.close(self._woken)
            control, workdir = socket.socket(fileno=control_fd), self._root / str(number)
            worker.main(control, page_fd, workdir, self._limits, self._late_init, self._devices)
        except BaseException as error:
            print(f"farcall worker: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # no children are left
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if (number := self._children.pop(pid, None)) is not None:
                    self._say(ended=number, status=os.waitstatus_to_exitcode(status))
        for pid in _children() - self._children.keys() - self._helpers:
            os.kill(pid, signal.SIGKILL)  # an orphan of a session; its SIGCHLD runs _reap again

    def _end(self) -> None:
        ending = self._children.keys() | _children()
        while ending:
            for pid in ending:
                os.kill(pid, signal.SIGKILL)
            for pid in ending:
                os.waitpid(pid, 0)
            ending = _children()  # the orphans of those that ended
        shutil.rmtree(self._root, ignore_errors=True)


def _print_whole_lines() -> None:
    """Make Python and C flush standard output after each line: a worker that crashes or is ended would lose
    buffered text, and a fork would copy it.
    """
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, ctypes.c_size_t(0))


def main(control_fd: int, options: dict[str, Any]) -> NoReturn:
    """Run ``--init``, report the outcome to the supervisor, and serve its requests."""
    die_with_parent(options["parent"])  # while --init runs, nobody reads the control socket
    # Ctrl-C and a terminal's end (SIGHUP) reach the whole process group. The supervisor decides when the
    # zygote ends, which must remove the sessions' folders first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _print_whole_lines()
    control = socket.socket(fileno=control_fd)
    init, late = options["init"], options["late"]
    answer: dict[str, object] = {"ready": True}
    if not late:
        try:
            worker.run_init(init)
            if count := threads():
                answer = {"threads": count}
        except UsageError as error:
            answer = {"error": str(error)}
    # The garbage collector must not touch today's objects, so that forks keep sharing their pages.
    gc.collect()
    gc.freeze()
    limits, devices = Limits(**options["limits"]), options["devices"]
    zygote = Zygote(control, Path(options["root"]), limits, init if late else None, devices)
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(answer).encode())
    if "ready" in answer:
        _adopt_orphans()
        _set_death_signal(0)  # from here on, the control socket's end leaves time to clean up
        zygote.run()
    sys.stderr.flush()
    os._exit(0)  # a thread of --init must not keep the process alive


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
