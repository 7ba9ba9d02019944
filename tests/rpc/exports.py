"""The functions that the test servers export. ``register`` is their ``--init``."""

from __future__ import annotations

import builtins
import ctypes
import errno
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import farcall as fc
from farcall.abi import annotated

HELD: list[Any] = []
SAID: list[str] = []
THREAD_OF: list[int] = []


def _fail(kind: str, text: str) -> None:
    raise {**vars(builtins), **vars(fc.errors)}[kind](text)


def _segfault() -> None:
    ctypes.string_at(0)


def _leave() -> None:
    raise SystemExit(3)


def _scribble(name: str) -> None:
    with Path(name).open("r+b") as file:
        file.write(b"scribble")


def _scale(x: Any, factor: float) -> Any:
    return (x.numpy() * factor).astype(x.numpy().dtype)


def _load_served(blob: fc.Blob) -> fc.Module:
    """A kind of module that this server loads, whose text its function gives."""
    return fc.ffi.new_module("served", {"text": blob.data.decode}, source=lambda format: "served")


def _call_in_thread(f: Any, x: Any) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(f(x)))
    thread.start()
    thread.join()
    return results[0]


def _call_kept(x: Any) -> Any:
    return HELD[-1](x)


def _offer(f: Any) -> int:
    """Pass a tensor and a function to a function of the client; return the size of its result."""
    return len(f(np.arange(3, dtype="float32"), _adder(10)))


def _truncate_page() -> None:
    for entry in Path("/proc/self/fd").iterdir():
        if "farcall-page" in str(entry.readlink() if entry.is_symlink() else ""):
            os.ftruncate(int(entry.name), 0)


def _stay(name: str) -> None:
    """Create a file beside the session's folder, to show that the call has begun; never return."""
    Path("..", name).touch()
    threading.Event().wait()


def _meet(name: str) -> None:
    """The same, but return when another file exists."""
    Path("..", f"{name}.in").touch()
    _wait_for(f"{name}.out")


def _wait_for(name: str) -> None:
    """Wait until a file of that name exists beside the session's folder."""
    while not Path("..", name).exists():
        time.sleep(0.001)


def _call_later(f: Any, name: str) -> None:
    """Call a function of the client when a file exists, and note what came of it."""
    _wait_for(name)
    try:
        SAID.append(f"returned {f(name)}")
    except Exception as error:
        SAID.append(f"{type(error).__name__}: {error}")


def _adder(n: int) -> Any:
    return fc.ffi.Function(lambda x: x + n)


def _grab(mib: int) -> int:
    HELD.append(bytes(mib << 20))
    return mib


def _start(way: str) -> int:
    """Start a process that would live for ever, and return its id."""
    if way == "daemon":
        command = "setsid sleep 1000 >&2 & echo $!"
        return int(subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=True).stdout)
    return subprocess.Popen(["sleep", "1000"], start_new_session=way == "session").pid


def _begin_line(by_python: str, by_c: str) -> None:
    print(by_python, end="")
    ctypes.CDLL(None).printf(by_c.encode())


def _flood(size: int) -> None:
    """Print so many bytes, without the end of a line."""
    while size > 0:
        size -= os.write(1, b"x" * min(size, 65536))


def _print(text: str, by: str) -> None:
    if by == "python":
        print(text)
    elif by == "c":
        ctypes.CDLL(None).puts(text.encode())
    else:
        subprocess.run(["sh", "-c", 'echo "$0" >&2', text], check=True)


def _open_files(count: int) -> None:
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
    for file in files:
        os.close(file)


@annotated
def _norm(x: Annotated[np.ndarray, "float32[n, 3]"]) -> float:
    return float(np.linalg.norm(x))


def register() -> None:
    """Register everything."""
    exports: dict[str, Any] = {
        "add": lambda a, b: a + b,
        "adder": _adder,
        "begin_line": _begin_line,
        "call": lambda f, x: f(x),
        "call_held": _call_kept,
        "call_later": _call_later,
        "call_in_thread": _call_in_thread,
        "count": lambda *args: len(args),
        "echo": lambda x: x,
        "exit": os._exit,
        "fail": _fail,
        "first": lambda x: x[0],
        "flood": _flood,
        "get": lambda x, key: x[key],
        "grab": _grab,
        "hang": lambda: ctypes.PyDLL(None).pause(),  # it keeps the GIL
        "forever": lambda: threading.Event().wait(),
        "here": os.getcwd,
        "hold": HELD.append,
        "kill": lambda number: os.kill(os.getpid(), number),
        "leave": _leave,
        "length": len,
        "meet": _meet,
        "module": lambda: fc.ffi.new_module("test", {"answer": lambda: 42}),
        "nop": lambda: None,
        "norm": _norm,
        "numbers": lambda n: [str(i) for i in range(n)],
        "object": lambda: {1: 2},
        "offer": _offer,
        "open_files": _open_files,
        "parent": os.getppid,
        "pid": os.getpid,
        "print": _print,
        "range": lambda n: np.arange(n, dtype="float32"),
        "said": lambda: SAID,
        "scale": _scale,
        "scribble": _scribble,
        "segfault": _segfault,
        "several": lambda x: (x, 7, "text", _scale(x, 2.0)),
        "thread_of": lambda: THREAD_OF[0],
        "wait": time.sleep,
        "start": _start,
        "stay": _stay,
        "sum": lambda x: float(x.numpy().sum()),
        "truncate_page": _truncate_page,
        "exists": lambda name: Path("..", name).exists(),
        "touch": lambda name: Path("..", name).touch(),
        "wait_for": _wait_for,
        "write": lambda data: os.write(1, data),
        "transpose": lambda x: x.numpy().T,
    }
    for name, function in exports.items():
        fc.register_global_func(f"test.{name}", function)
    fc.module_kind("served")(_load_served)


def broken() -> None:
    """An ``--init`` that fails."""
    raise RuntimeError("no such board")


def hang() -> None:
    """An ``--init`` that never ends; it prints to standard error when it begins."""
    os.write(2, b"begun\n")
    threading.Event().wait()


def register_with_a_thread() -> None:
    """An ``--init`` that starts a thread, which a fork would lose."""
    register()
    THREAD_OF[:] = [os.getpid()]
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def register_without_processes() -> None:
    """As on a machine that cannot fork, except for the process that checks for threads."""
    register()
    forks = iter([os.fork])

    def fork() -> int:
        for real in forks:
            return real()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    os.fork = fork


def register_with_small_packets() -> None:
    """A server with packets of at most 1,024 bytes, as on small devices."""
    register()
    fc.register_global_func("tvm.rpc.server.GetCRTMaxPacketSize", lambda: 1024)
