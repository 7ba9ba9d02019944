"""The data of modules of kind ``farcall.remote``: artifacts for another machine, and where they go.

A line of JSON (:class:`Head`), then the artifacts, one after the other. The backend ``remote`` writes it, and
the loader of the kind reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from farcall.errors import ArtifactError

KIND, VERSION = "farcall.remote", 2


class FarRegion(msgspec.Struct, frozen=True):
    """A region: ``main`` of an artifact takes its inputs, and returns its outputs."""

    inputs: int  # how many there are
    part: int  # the index of the artifact


class Head(msgspec.Struct, frozen=True):
    """What the artifacts are for."""

    on: str  # a URL, or the name of a device
    backend: str
    target: str
    regions: dict[str, FarRegion]
    sizes: tuple[int, ...]  # of the artifacts, in bytes


class Source(NamedTuple):
    """A region as the backend has it."""

    inputs: int  # how many there are
    artifact: bytes


def pack(on: str, backend: str, target: str, regions: Mapping[str, Source]) -> bytes:
    """The data for the regions of a place. Equal artifacts are stored once."""
    parts = list(dict.fromkeys(source.artifact for source in regions.values()))
    found = {name: FarRegion(source.inputs, parts.index(source.artifact)) for name, source in regions.items()}
    head = Head(on, backend, target, found, tuple(map(len, parts)))
    return b"".join([msgspec.json.encode(head), b"\n", *parts])


def unpack(data: bytes) -> tuple[Head, Sequence[bytes]]:
    """The head and the artifacts.

    Raises:
        ArtifactError: the data is damaged.
    """
    line, end, rest = data.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(f"its first line is no head: {error}") from None
    if not end or any(size < 0 for size in head.sizes) or sum(head.sizes) != len(rest):
        raise _damaged(f"its artifacts have {len(rest)} bytes, its head says {sum(head.sizes)}")
    for name, region in head.regions.items():
        if region.inputs < 0 or not 0 <= region.part < len(head.sizes):
            raise _damaged(f"region {name[:80]!r} has no artifact")
    bounds = pairwise(accumulate(head.sizes, initial=0))
    return head, [rest[begin:stop] for begin, stop in bounds]


def _damaged(problem: str) -> ArtifactError:
    return ArtifactError(f"a module of kind `{KIND}` is damaged: {problem}; build the artifact again")
