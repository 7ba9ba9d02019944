"""What one core of a machine can do at most, measured there by a small library that is built for it."""

from __future__ import annotations

import hashlib
import platform
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from farcall._files import write_beside
from farcall._logs import Log
from farcall.errors import FarcallError
from farcall.library import load_module

if TYPE_CHECKING:
    from farcall.rpc.client._session import Session

_known: dict[str, Roof] = {}  # by the URL of a server


@dataclass(frozen=True)
class Roof:
    """The most that one core does in a second.

    Attributes:
        operations: of float32; a multiply-add is two.
        bandwidth: bytes that it reads from memory.
    """

    operations: float
    bandwidth: float

    def seconds(self, operations: int, traffic: int) -> float:
        """The least time of a step: the longer one of its arithmetic and of its reads and writes.

        Args:
            operations: additions and multiplications of elements.
            traffic: the bytes that it reads and writes.
        """
        return max(operations / self.operations, traffic / self.bandwidth)

    def __str__(self) -> str:
        return f"{self.operations / 1e9:.0f} GFLOP/s, {self.bandwidth / 1e9:.1f} GB/s"


def roof(triple: str, session: Session | None) -> Roof | None:
    """The roof of this machine, or of the machine of ``session``, which runs libraries for ``triple``.

    Each machine is measured once: this one's roof is kept in a file of the cache, a server's in this process.
    None: no compiler makes the library, or it does not run there; a log says why.
    """
    try:
        return _there(triple, session) if session is not None else _here(triple)
    except (FarcallError, OSError) as error:
        Log("profile").warning("the machine's peak is not measured: %s", error)
        return None


def _here(triple: str) -> Roof:
    from farcall.toolchain import cache_folder

    known = hashlib.sha256(f"{_machine()}{_source()}".encode()).hexdigest()
    file = cache_folder() / f"roof-{known[:16]}.json"
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=Roof)
    with tempfile.TemporaryDirectory(prefix="farcall-roof-") as folder:
        found = _measured(load_module(_library(triple, Path(folder))))
    write_beside(file, msgspec.json.encode(found))
    return found


def _there(triple: str, session: Session) -> Roof:
    if session.url not in _known:
        with tempfile.TemporaryDirectory(prefix="farcall-roof-") as folder:
            _known[session.url] = _measured(session.load_module(_library(triple, Path(folder))))
    return _known[session.url]


def _measured(module: Any) -> Roof:
    return Roof(float(module["operations_per_second"]()), max(float(module["bytes_per_second"]()), 1.0))


def _library(triple: str, folder: Path) -> Path:
    from farcall.toolchain import Source, Target, compile_shared

    source = Source("roof.c", _source(), ("-ffp-contract=fast",))
    compile_shared([source], folder / "roof.so", Target.parse(triple))
    return folder / "roof.so"


def _source() -> str:
    """The C that measures."""
    return resources.files(__package__).joinpath("roof.c").read_text(encoding="utf-8")


def _machine() -> str:
    """What tells this machine's CPU from that of another one with the same home."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(
            line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))
        )
    return f"{platform.machine()} {platform.processor()}"
