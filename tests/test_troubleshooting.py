"""The symptoms of the troubleshooting page are messages that farcall still gives."""

from __future__ import annotations

import re

import pytest

from .test_docs import DOCS
from .tree import ROOT

NOT_OURS = {"failed to map segment"}  # the dynamic linker's
SYMPTOMS = re.findall(r"^\| ([^|]*`[^|]*) \|", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
FILES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.[ch]"), *(ROOT / "native").rglob("*.[ch]")]


@pytest.fixture(scope="module")
def messages() -> str:
    """The sources, without the places where a text is cut into literals, and without back quotes."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in FILES)
    return re.sub(r"[\"']\s*\n\s*f?[\"']", "", text).replace("`", "")


@pytest.mark.parametrize("quoted", [text for row in SYMPTOMS for text in re.findall(r"`([^`]+)`", row)])
def test_a_quoted_message_is_in_the_source(quoted: str, messages: str) -> None:
    if " " in quoted and quoted not in NOT_OURS:
        assert quoted.removesuffix(" SIGSEGV") in messages
