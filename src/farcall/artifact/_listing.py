"""The generated code of regions as files that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farcall.artifact._generate import generate

if TYPE_CHECKING:
    from farcall.artifact._plan import Plan
    from farcall.backends.base import Code
    from farcall.toolchain import Target

_HEAD = 256  # bytes of a binary file that a text shows
_ROW = 16


def listings(plan: Plan, target: Target) -> dict[str, dict[str, bytes]]:
    """For each region, its generated files: sources, objects, or the bytes of a module and their text."""
    return {name: _files(name, code) for name, code in generate(plan, target).items()}


def text(files: dict[str, bytes]) -> str:
    """The files of a region as one text; of binary files, the first bytes."""
    shown = {name: _shown(data) for name, data in files.items()}
    if len(shown) == 1:
        return next(iter(shown.values()))
    return "\n".join(f"---- {name}\n{content}" for name, content in shown.items())


def _files(name: str, code: Code) -> dict[str, bytes]:
    from farcall.backends.base import RegionModule

    if isinstance(code, RegionModule):
        source = {f"{name}.txt": code.source.encode()} if code.source else {}
        return {**source, f"{name}.{code.kind}.bin": code.data}
    return {**{file: content.encode() for file, content in code.sources.items()}, **code.objects}


def _shown(data: bytes) -> str:
    try:
        found = data.decode()
        if all(character.isprintable() or character in "\n\t" for character in found):
            return found
    except UnicodeDecodeError:
        pass
    rows = [data[at : at + _ROW] for at in range(0, min(len(data), _HEAD), _ROW)]
    lines = [f"{at * _ROW:08x}  {row.hex(' ')}" for at, row in enumerate(rows)]
    more = [f"... {len(data):,} bytes in all"] if len(data) > _HEAD else []
    return "\n".join([*lines, *more]) + "\n"
