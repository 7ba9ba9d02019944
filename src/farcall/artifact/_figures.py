"""Measured times, kept in a file by what was measured: the least of all measurements of each."""

from __future__ import annotations

import hashlib
import json
import os
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

from farcall._files import unusable, write_beside
from farcall.errors import UsageError
from farcall.toolchain._cache import user_cache

if TYPE_CHECKING:
    from farcall.backends.base import Backend
    from farcall.rpc import Session


class Figures:
    """Seconds by key. Other work on the machine only adds to a time, so that the least one counts.

    Args:
        path: the file; None: one in the user's cache. What is no time in it is ignored.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = Path(path) if path else user_cache("farcall") / "figures.json"
        self._seconds = self._read()

    def __contains__(self, key: str) -> bool:
        return key in self._seconds

    def __getitem__(self, key: str) -> float:
        return self._seconds[key]

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, key: str, seconds: float) -> None:
        """Take a measurement."""
        self._seconds[key] = min(seconds, self._seconds.get(key, seconds))

    def write(self) -> None:
        """Write the figures, and those that other processes have written meanwhile.

        Raises:
            UsageError: the file cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(
                error, f"cannot make the folder {str(self._path.parent)!r}: {error.strerror}"
            ) from None
        write_beside(self._path, json.dumps(self._read() | self._seconds, sort_keys=True).encode())

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return {
            key: float(value)
            for key, value in (found.items() if isinstance(found, dict) else ())
            if isinstance(value, (int, float)) and value >= 0
        }


def key_of(*texts: str) -> str:
    """The key of what these texts describe."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def check_measuring(on: object, budget_s: object) -> None:
    """Check what a user says about measurements.

    Raises:
        UsageError: ``on`` is no session, or ``budget_s`` is no number of seconds.
    """
    if on is not None and not hasattr(on, "route"):
        raise UsageError(f"on: expected a Session, such as farcall.connect(url), got {on!r}")
    if not isinstance(budget_s, Real) or not float(budget_s) >= 0:
        raise UsageError(f"budget_s: expected seconds, 0 or more, got {budget_s!r}")


def place_of(on: Session | str | None) -> str:
    """Where is measured: a device that a launcher started, by its URL, has the same name each time."""
    if on is None or isinstance(on, str):
        return on or "here"
    return on.device_url or " ".join(on.route)


def identity(backend: Backend) -> str:
    """Which code computes: the versions of farcall and of the backend, its class, name and options."""
    from farcall import __version__

    kind = type(backend)
    # Only a session has `device_url`; its own text tells the port, which is another one each time.
    options = sorted(
        (name, place_of(value) if hasattr(value, "device_url") else value)
        for name, value in backend.options.items()
    )
    version = getattr(backend, "version", "")
    return f"{__version__} {kind.__module__}.{kind.__qualname__} {backend.name} {version} {options}"
