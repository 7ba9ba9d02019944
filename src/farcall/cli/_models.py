"""Models that commands take: files of ONNX, and programs that torch.export saved (``.pt2``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farcall.errors import MissingFileError

if TYPE_CHECKING:
    import onnx_ir as ir


def source(path: Path) -> Path | ir.Model:
    """What :func:`farcall.partition` takes for a file.

    Raises:
        MissingFileError: there is no such file.
        MissingExtraError: it is a program of torch, and torch or its exporter is not installed.
        ModelError: torch cannot read or export the program.
    """
    if path.suffix != ".pt2":
        return path
    if not path.is_file():
        raise MissingFileError(
            f"no such file: `{path}`; expected what torch.export.save(program, path) writes"
        )
    from farcall.torch import load_program

    return load_program(path)
