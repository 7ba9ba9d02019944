"""Modules that libraries embed: the tree of them, and the frame of each, read in Python and in C."""

from __future__ import annotations

import functools
import struct
import zlib

from farcall import _core, ffi
from farcall.errors import ArtifactError
from farcall.library import Blob
from farcall.library._blob import MAGIC

from . import harness


@functools.cache
def _register() -> None:
    ffi.register_loader("echo", lambda data: ffi.new_module("echo", {"data": lambda: data}), override=True)


def _sealed(data: bytes) -> bytes:
    """With the length and the checksum of a frame, so that what is behind them is read, too."""
    rest = struct.pack("<Q", len(data)) + data[24:]
    return MAGIC + data[8:12] + struct.pack("<I", zlib.crc32(rest)) + rest


def _frame(data: bytes) -> None:
    try:
        blob = Blob.parse(data)
    except ArtifactError:
        try:
            _core._parse_frame("echo", data)
        except ArtifactError:
            return
        raise AssertionError("C reads what Python refuses") from None
    assert _core._parse_frame(blob.kind, data)[:4] == (blob.version, blob.data, blob.features, blob.producer)
    assert Blob.parse(blob.frame()) == blob


def _tree(data: bytes) -> None:
    try:
        root = _core._module_from_bin(data)
    except (ArtifactError, RuntimeError):  # a cycle is a RuntimeError, as in every import
        return
    assert root.kind in ("library", "echo")


def one_input(data: bytes) -> None:
    """Any bytes are a module, or give an ArtifactError."""
    _register()
    _frame(data)
    if len(data) >= 24:
        _frame(_sealed(data))
    _tree(data)
    _tree(struct.pack("<Q", max(len(data) - 8, 0)) + data[8:])


if __name__ == "__main__":
    harness.main("blob", one_input)
