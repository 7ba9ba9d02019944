"""The page of the environment has every variable that farcall reads, and no other."""

from __future__ import annotations

import re

from farcall.cli._settings import SETTINGS

from .test_docs import DOCS
from .tree import ROOT

PAGE = (DOCS / "environment.md").read_text()
READ = re.compile(r"""(?:environ(?:\.get\(|\.setdefault\(|\[)|getenv\(|envvar=)["'](\w+)["']""")
BY_NAME = {
    "CC",
    "CXX",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
}  # in tables of the code
OF_SYSTEM = {"NO_COLOR", "COLUMNS", "TMPDIR"}  # rich and tempfile read these


def variables() -> set[str]:
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "native").rglob("*.[ch]"),
        *(ROOT / "src").rglob("*.[ch]"),
    ]
    return {name for file in sources for name in READ.findall(file.read_text(encoding="utf-8"))}


def test_every_variable_is_on_the_page() -> None:
    found = variables()
    assert {"FARCALL_CACHE_DIR", "FARCALL_BACKTRACE", "FARCALL_PLUGINS"} <= found
    table = {setting.variable for setting in SETTINGS}  # written into the page by docs/_commands.py
    shown = set(re.findall(r"\b[A-Z][A-Z_]{3,}\b|\bC[CI]\b|\bCXX\b|\bTERM\b", PAGE)) | table
    assert (found | BY_NAME) - shown == set()


def test_every_variable_on_the_page_is_read() -> None:
    shown = {name for name in re.findall(r"\bFARCALL_[A-Z_]+\b", PAGE) if name != "FARCALL_TIMEOUT"}
    assert shown <= variables() | {setting.variable for setting in SETTINGS}
