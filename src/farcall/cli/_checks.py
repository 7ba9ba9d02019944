"""The checks of ``farcall doctor``. Each uses its part: compiles a file, opens a session."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import farcall
from farcall.cli._show import size

if TYPE_CHECKING:
    from farcall.toolchain import Compiler, Target

_SOURCE = "int farcall_doctor(int x) { return x + 1; }\n"
_DESCRIPTORS = 1024  # a server of 256 sessions needs about four for each
_MEMORY = _ROOM = 256 << 20  # a compiler, and a model's constants


class Missing(Exception):  # noqa: N818  it is not always an error
    """An optional part is not there."""

    def __init__(self, text: str, cure: str) -> None:
        super().__init__(text)
        self.cure = cure


class Check(NamedTuple):
    """One check.

    Attributes:
        part: its name.
        run: returns what it found; raises :class:`Missing`, or another error if the part is broken.
        cure: if it is broken.
        needed: whether farcall needs the part.
    """

    part: str
    run: Callable[[], str]
    cure: str
    needed: bool = False


# ---- the installation


def _native() -> str:
    from farcall import _core

    return f"farcall {farcall.__version__}, {Path(_core.__file__ or '').name}"


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}, {platform.platform(terse=True)}"


def _package(name: str, cure: str) -> Callable[[], str]:
    def check() -> str:
        try:
            importlib.import_module(name)
            return importlib.metadata.version(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise Missing("not installed", cure) from None

    return check


def _backends() -> str:
    from farcall._extras import require_compile
    from farcall.backends import get, names
    from farcall.errors import MissingExtraError

    try:
        require_compile()
    except MissingExtraError as error:
        raise Missing(str(error).partition(";")[0], f"to build models: {_COMPILE}") from None
    for name in names():
        get(name)
    return ", ".join(names())


# ---- compilers


def _compiler(language: str) -> Callable[[], str]:
    def check() -> str:
        from farcall.errors import ToolchainError
        from farcall.toolchain import find_compiler

        try:
            compiler = find_compiler(language=language)
        except ToolchainError as error:
            if "no C" not in str(error):
                raise
            raise Missing(
                "none found", "install gcc or clang, or run: pip install 'farcall[compile]'"
            ) from None
        with tempfile.TemporaryDirectory(prefix="farcall-") as folder:
            suffix = "c" if language == "c" else "cpp"
            Path(folder, f"doctor.{suffix}").write_text(_SOURCE)
            words = ["-shared", "-fPIC", f"doctor.{suffix}", "-o", "doctor.so"]
            compiler.run(words, Path(folder), "a library of one function")
        return compiler.version.splitlines()[0]

    return check


def _zig_targets() -> str:
    from farcall.errors import ToolchainError
    from farcall.toolchain import MACHINES, zig_compiler

    try:
        compiler = zig_compiler("code for other machines")
    except ToolchainError as error:
        raise Missing(
            "ziglang is not installed", "for other machines, run: pip install 'farcall[zig]'"
        ) from error
    with tempfile.TemporaryDirectory(prefix="farcall-") as folder:
        Path(folder, "doctor.c").write_text(_SOURCE)
        works = [machine.target.triple for machine in MACHINES if _compiles(compiler, machine.target, folder)]
    if not works:
        raise OSError("ziglang compiles for none of the targets that were tried")
    return ", ".join(works)


def _compiles(compiler: Compiler, target: Target, folder: str) -> bool:
    from farcall.errors import ToolchainError

    words = [*compiler.target_flags(target), "-c", "doctor.c", "-o", f"{target.arch}.o"]
    try:
        compiler.run(words, Path(folder), f"a function for {target}")
    except ToolchainError:
        return False
    return True


def _emulators() -> str:
    from farcall.toolchain import MACHINES

    found = {machine.name: words[0] for machine in MACHINES if (words := machine.emulate())}
    if not found:
        raise Missing("no qemu-user", "to try code for other machines here: apt install qemu-user")
    for program in found.values():
        subprocess.run([program, "--version"], capture_output=True, timeout=5, check=True)
    return ", ".join(found)


def _ssh() -> str:
    if shutil.which("ssh") is None:
        raise Missing("no ssh", "to launch servers on boards: apt install openssh-client")
    done = subprocess.run(["ssh", "-V"], capture_output=True, text=True, timeout=5, check=True)
    return done.stderr.strip()


def _adb() -> str:
    from farcall.errors import ConnectError
    from farcall.launch._adb_client import Adb

    try:
        known = Adb.known("adb://")
    except ConnectError as error:
        cure = "to launch servers on Android devices: apt install adb, and run: adb start-server"
        raise Missing(str(error).partition(": ")[2].partition(";")[0], cure) from None
    return ", ".join(f"{device.serial} ({device.state})" for device in known) or "no device"


# ---- sessions


def _loopback() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            peer, _ = listener.accept()
            with peer:
                client.sendall(b"x")
                if peer.recv(1) != b"x":
                    raise OSError("a byte to 127.0.0.1 did not arrive")
    return "127.0.0.1"


def _session() -> str:
    from farcall.rpc import Server, connect

    with Server() as server, connect(server.url, timeout=10) as session:
        session.upload(b"x", "doctor")
        return f"a server and its worker answer ({len(session.features)} features)"


def _tls() -> str:
    import ssl

    if not ssl.HAS_TLSv1_3:
        raise OSError(f"{ssl.OPENSSL_VERSION} has no TLS 1.3")
    trusted = ssl.create_default_context().cert_store_stats()["x509_ca"]
    folder = ssl.get_default_verify_paths().capath
    known = f"{trusted} trusted authorities" if trusted else f"authorities in {folder}"
    return f"{ssl.OPENSSL_VERSION}, {known}"


# ---- limits


def _descriptors() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS:
        raise OSError(f"{soft} open files at most; a server of 256 sessions needs {_DESCRIPTORS}")
    return f"{'unlimited' if soft == resource.RLIM_INFINITY else soft} (ulimit -n; hard limit {hard})"


def _memory() -> str:
    limits = {name: _bytes_of(Path(name)) for name in (
        "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")}  # fmt: skip
    limit = min((value for value in limits.values() if value is not None), default=None)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    usable = min(total, limit or total)
    if usable < _MEMORY:
        raise OSError(f"{size(usable)} of memory; compilers need {size(_MEMORY)}")
    return f"{size(usable)}{' (limit of the cgroup)' if usable < total else ''}"


def _bytes_of(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _room(folder: Callable[[], str | Path]) -> Callable[[], str]:
    def check() -> str:
        place = folder()
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
        free = shutil.disk_usage(place).free
        if free < _ROOM:
            raise OSError(f"{place}: only {size(free)} are free")
        return f"{place}: {size(free)} free"

    return check


def _cache() -> str:
    from farcall.toolchain import cache_folder

    folder = cache_folder()
    if folder.name.startswith("farcall-cache-"):  # each command would compile everything again
        raise OSError(f"the cache cannot be written; {folder} ends with this process")
    return _room(lambda: folder)()


def _shared_memory() -> str:
    os.close(os.memfd_create("farcall-doctor"))
    return _room(lambda: "/dev/shm")()  # noqa: S108


_COMPILE, _INSTALL = (
    "pip install 'farcall[compile]'",
    "install farcall again: pip install --force-reinstall farcall",
)
CHECKS = (
    Check("farcall", _native, _INSTALL, needed=True),
    Check("Python", _python, "install CPython 3.11 or later", needed=True),
    Check("loopback", _loopback, "allow connections to 127.0.0.1 (firewall, container)", needed=True),
    Check("session", _session, "run `farcall serve -v` and read its first error", needed=True),
    Check("temporary files", _room(tempfile.gettempdir), "set TMPDIR to a folder with room", needed=True),
    Check("cache", _cache, "set FARCALL_CACHE_DIR to a folder that you may write to", needed=True),
    Check("open files", _descriptors, "raise the limit: ulimit -n 4096"),
    Check("memory", _memory, "give the container more memory"),
    Check("shared memory", _shared_memory, "give the container more /dev/shm (docker run --shm-size=1g)"),
    Check("C compiler", _compiler("c"), "unset CC, or set it to a compiler that works", needed=True),
    Check("C++ compiler", _compiler("c++"), "unset CXX, or set it to a compiler that works"),
    Check("other targets", _zig_targets, "install ziglang again: pip install --force-reinstall ziglang"),
    Check("emulators", _emulators, "install qemu-user again"),
    Check("ssh", _ssh, "install openssh-client again"),
    Check("adb server", _adb, "run: adb kill-server; adb start-server"),
    Check("backends", _backends, "`farcall plugins list` shows which package is broken"),
    Check("numpy", _package("numpy", "pip install numpy"), "pip install --force-reinstall numpy"),
    Check("onnx", _package("onnx", _COMPILE), f"{_COMPILE} --force-reinstall"),
    Check("onnx-ir", _package("onnx_ir", _COMPILE), f"{_COMPILE} --force-reinstall"),
    Check("TLS", _tls, "use a Python whose ssl module has OpenSSL 1.1.1 or later"),
    Check("certificates", _package("cryptography", "for `farcall cert`: pip install 'farcall[tls]'"),
          "pip install --force-reinstall cryptography"),
    Check("WebSocket", _package("websockets", "for ws:// and wss://: pip install 'farcall[ws]'"),
          "pip install --force-reinstall websockets"),
    Check("rich", _package("rich", "for tables and progress on a terminal: pip install rich"),
          "pip install --force-reinstall rich"),
)  # fmt: skip
