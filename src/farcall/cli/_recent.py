"""The servers that this user's commands have reached lately, for the completion of URLs by the shell."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_MOST = 20


def _file() -> Path:
    """The file, in farcall's cache. The shell waits for completions, so the toolchain is not imported."""
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    default = (caches if caches.is_absolute() else Path("~/.cache").expanduser()) / "farcall"
    return Path(os.environ.get("FARCALL_CACHE_DIR", default)).absolute() / "recent-urls"


def urls() -> list[str]:
    """The URLs, the last used first."""
    try:
        return _file().read_text(encoding="utf-8").splitlines()[:_MOST]
    except (OSError, UnicodeDecodeError):
        return []


def remember(url: str) -> None:
    """Put a URL first. A command line after ``pipe:`` may hold secrets, so it is not kept."""
    from farcall._files import write_beside
    from farcall.errors import UsageError

    known = urls()
    if url.startswith("pipe:") or known[:1] == [url]:
        return
    lines = [url, *(other for other in known if other != url)][:_MOST]
    with contextlib.suppress(UsageError, OSError):  # a cache that cannot be written is no reason to fail
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_beside(_file(), ("\n".join(lines) + "\n").encode(), mode=0o600)
