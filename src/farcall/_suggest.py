"""Texts that many messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``; did you mean `main`?`` if the name resembles an existing one; otherwise empty."""
    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean `{close[0]}`?" if close else ""
