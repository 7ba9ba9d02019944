"""The C that every artifact has, whatever its model: what each call goes through, and what all entries share.

An installation brings their objects for its own machine, so that a first build has less to compile. When
farcall is built, ``scripts/fixed_objects.py`` makes them. It loads this file by its path, since the packages
that the rest of this room needs are not there: this file imports nothing but the toolchain.
"""

from __future__ import annotations

from pathlib import Path

from farcall.toolchain import Compiler, Source

_SUPPORT = ("errors", "memory", "state", "device", "region")


def support_text(name: str) -> str:
    """The C text in a file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def call_source() -> str:
    """The C text of what every call goes through."""
    return "\n".join([support_text("entry.h"), support_text("entry_call.c")])


def support_source() -> str:
    """The C text of the rest that all entries share."""
    return "\n".join([support_text("entry.h"), *(support_text(f"entry_{part}.c") for part in _SUPPORT)])


def fixed_sources(compiler: Compiler) -> list[Source]:
    """The sources that are the same in every artifact."""
    return [
        Source("farcall_entry.c", support_source(), compiler.flags_for_cold_code, fixed=True),
        Source("farcall_call.c", call_source(), ("-O2",), fixed=True),
    ]
