"""The frame around the bytes of a custom module: its kind, versions, producer, checksum and features.

docs/spec/blob.md specifies the frame. The runtime has the same parser in C (native/runtime/frame.c), which
checks a frame before any loader gets it.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from mmap import mmap
from typing import NoReturn

from farcall.errors import ArtifactError, UsageError

MAGIC = b"\x89FCBLOB\n"
FRAME_VERSION = 1
ALIGNMENT = 64  # of the data

# Magic, version of the frame, CRC-32, length, version of the kind, offset of the data.
_HEAD = struct.Struct("<8sIIQII")
_CHECKED_FROM = 16  # the CRC-32 is that of the bytes from here on
_LARGEST = 0xFFFFFFFF
_MOST_FEATURES = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PRODUCER = re.compile(r"[ -~]{0,255}")
_PACKAGE = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?: .*)?")


@dataclass(frozen=True)
class Blob:
    """A custom module as it is stored: bytes that the loader of its kind understands, and what it needs.

    ``bytes(blob)`` is its frame, and :meth:`parse` reads one.

    Attributes:
        kind: selects the loader: the global function ``ffi.Module.load_from_bytes.<kind>``. 1 to 64 letters,
            digits and ``_.-``.
        version: of the format of ``data``, 0 to 2**32 - 1. A loader states which versions it reads.
        data: the bytes of the module.
        features: what its loader must be able to do, by name, at most 64; those that begin with ``farcall.``
            are asked of the runtime.
        producer: the package that made it and its version, such as ``"farcall-npu 1.2"``. Errors tell the
            user to install that package. Printable ASCII, at most 255 characters.

    Raises:
        UsageError: a field does not follow these rules.
    """

    kind: str
    version: int
    data: bytes
    features: tuple[str, ...] = ()
    producer: str = ""

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise UsageError(f"a module of kind {self.kind!r}: {problem} (docs/spec/blob.md)")

    def _problem(self) -> str | None:
        if not _NAME.fullmatch(self.kind):
            return "expected a kind of 1 to 64 letters, digits and `_.-`"
        if not 0 <= self.version <= _LARGEST:
            return f"its version is {self.version}, expected 0 to {_LARGEST}"
        if len(self.features) > _MOST_FEATURES:
            return f"it needs {len(self.features)} features, expected at most {_MOST_FEATURES}"
        for feature in self.features:
            if not _NAME.fullmatch(feature):
                return f"feature {feature!r}: expected 1 to 64 letters, digits and `_.-`"
        if not _PRODUCER.fullmatch(self.producer):
            return f"producer {self.producer!r}: expected at most 255 characters of printable ASCII"
        return None

    def __bytes__(self) -> bytes:
        """The frame."""
        return self.frame()

    def frame(self, at: int = 0) -> bytes:
        """The frame, padded so that the data is aligned to 64 bytes.

        Args:
            at: the offset, in aligned memory, at which the frame will be stored.
        """
        texts = b"".join(map(_text, (self.kind, self.producer)))
        texts += struct.pack("<H", len(self.features)) + b"".join(map(_text, self.features))
        end = _HEAD.size + len(texts)
        start = end + -(at + end) % ALIGNMENT
        rest = struct.pack("<QII", start + len(self.data), self.version, start) + texts
        rest += bytes(start - end) + self.data
        return MAGIC + struct.pack("<II", FRAME_VERSION, zlib.crc32(rest)) + rest

    @classmethod
    def parse(cls, data: bytes, what: str = "a module's bytes") -> Blob:
        """Read a frame.

        Args:
            data: exactly the frame.
            what: the name of the bytes in errors.

        Raises:
            ArtifactError: the bytes are not a frame, of a newer version of it, or damaged.
        """
        return _Parser(data, what).parse()

    def package(self) -> str | None:
        """The package that made it, by its producer; None if that names none."""
        found = _PACKAGE.fullmatch(self.producer)
        return found[1] if found else None


def is_frame(data: bytes | mmap) -> bool:
    """Whether bytes claim to be a frame. Those of other kinds, such as TVM's own, do not."""
    return data[: len(MAGIC)] == MAGIC


def asks_runtime(feature: str) -> bool:
    """Whether a feature is one of the runtime, which checked it, and not of a loader."""
    return feature.startswith("farcall.")


def _text(value: str) -> bytes:
    return struct.pack("<H", len(value)) + value.encode("ascii")


class _Parser:
    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = _HEAD.size

    def parse(self) -> Blob:
        data = self._data
        if not is_frame(data):
            self._refuse("expected a frame, whose first 8 bytes are `\\x89FCBLOB\\n`")
        if len(data) < _HEAD.size:
            self._refuse(f"cut off after {len(data)} bytes, in its head")
        _, frame, crc, length, version, start = _HEAD.unpack_from(data)
        if frame != FRAME_VERSION:
            raise ArtifactError(
                f"{self._what}: its frame has version {frame}, and this farcall reads "
                f"version {FRAME_VERSION}; install a newer farcall"
            )
        if length != len(data):
            self._refuse(f"it has {len(data)} bytes, and its frame states {length}")
        if crc != zlib.crc32(memoryview(data)[_CHECKED_FROM:]):
            self._refuse("its checksum does not match")
        kind, producer = self._text(), self._text()
        count = self._number()
        if count > _MOST_FEATURES:
            self._refuse(f"it states {count} features, expected at most {_MOST_FEATURES}")
        features = tuple(self._text() for _ in range(count))
        if not self._at <= start < self._at + ALIGNMENT or start > length or any(data[self._at : start]):
            self._refuse("its data does not follow its head")
        try:
            return Blob(kind, version, data[start:], features, producer)
        except UsageError as error:
            raise ArtifactError(f"{self._what}: {error}; build it again") from None

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            self._refuse("a text in its head is longer than the frame")
        self._at += size
        return taken

    def _number(self) -> int:
        return int.from_bytes(self._take(2), "little")

    def _text(self) -> str:
        return self._take(self._number()).decode("latin-1")

    def _refuse(self, problem: str) -> NoReturn:
        raise ArtifactError(f"{self._what}: truncated or corrupted: {problem}; copy or build it again")
