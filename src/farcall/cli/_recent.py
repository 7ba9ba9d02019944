"""The servers that this user's commands have reached lately, for the completion of URLs by the shell."""

from __future__ import annotations

import contextlib
from pathlib import Path

_MOST = 20


def _file() -> Path:
    from farcall.toolchain import cache_folder

    return cache_folder() / "recent-urls"


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
    with contextlib.suppress(UsageError):  # a cache that cannot be written is no reason to fail
        write_beside(_file(), ("\n".join(lines) + "\n").encode(), mode=0o600)
