"""Frames of custom modules: written and read in Python, and read by the runtime in C."""

from __future__ import annotations

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall import _core
from farcall.errors import ArtifactError, UsageError
from farcall.library._blob import Blob, is_frame

names = st.text("abcXYZ019_.-", min_size=1, max_size=64)
blobs = st.builds(
    Blob,
    names,
    st.integers(0, 2**32 - 1),
    st.binary(max_size=200),
    st.lists(names, max_size=64).map(tuple),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=255),
)
NPU = Blob("npu", 3, b"weights", ("int4", "farcall.threads"), "farcall-npu 1.2")


def resealed(frame: bytes) -> bytes:
    """The frame with the length and the checksum of its bytes."""
    rest = struct.pack("<Q", len(frame)) + frame[24:]
    return frame[:12] + struct.pack("<I", zlib.crc32(rest)) + rest


def in_c(frame: bytes, kind: str) -> Blob:
    version, data, features, producer, _ = _core._parse_frame(kind, frame)
    return Blob(kind, version, data, features, producer)


@given(blobs, st.integers(0, 10**6))
def test_both_parsers_read_what_was_written(blob: Blob, at: int) -> None:
    frame = blob.frame(at)
    assert is_frame(frame)
    assert (at + len(frame) - len(blob.data)) % 64 == 0
    assert Blob.parse(frame) == blob == in_c(frame, blob.kind)
    assert _core._parse_frame(blob.kind, frame)[4] == (blob.package() or "")


def test_the_bytes_are_those_of_the_specification() -> None:
    frame = bytes(Blob("npu", 3, b"data", ("int4",), "me 1"))
    head = b"\x89FCBLOB\n" + struct.pack("<IIQII", 1, zlib.crc32(frame[16:]), 68, 3, 64)
    assert frame == head + b"\3\0npu\4\0me 1\1\0\4\0int4" + bytes(13) + b"data"


@given(blobs, st.data())
def test_a_frame_cut_or_changed_anywhere_is_refused_by_both(blob: Blob, data: st.DataObject) -> None:
    frame = bytes(blob)
    cut = data.draw(st.integers(0, len(frame) - 1))
    at = data.draw(st.integers(0, len(frame) - 1))
    flipped = bytes([*frame[:at], frame[at] ^ data.draw(st.integers(1, 255)), *frame[at + 1 :]])
    for bad in (frame[:cut], frame + b"\0", flipped):
        with pytest.raises(ArtifactError):
            Blob.parse(bad)
        with pytest.raises(ArtifactError):
            in_c(bad, blob.kind)


@given(blobs, st.data())
def test_both_parsers_agree_on_frames_with_a_good_checksum(blob: Blob, data: st.DataObject) -> None:
    """The checks behind the checksum: texts, counts, the place of the data."""
    frame = bytes(blob)
    at = data.draw(st.integers(24, len(frame)))
    patch = data.draw(st.binary(max_size=6))
    changed = resealed(frame[:at] + patch + frame[at + data.draw(st.integers(0, 8)) :])
    results: list[Blob | None] = [None, None]
    kind = blob.kind
    with contextlib.suppress(ArtifactError):
        results[0] = Blob.parse(changed)
        kind = results[0].kind
    with contextlib.suppress(ArtifactError):
        results[1] = in_c(changed, kind)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"", "first 8 bytes"),
        (bytes(NPU)[:20], "in its head"),
        (bytes(NPU)[:8] + b"\2" + bytes(NPU)[9:], "frame has version 2, and this farcall reads version 1"),
        (bytes(NPU)[:-1], "it has 134 bytes, and its frame states 135"),
        (bytes(NPU)[:-1] + b"S", "checksum"),
        (resealed(bytes(NPU)[:32] + b"\xff\xff" + bytes(NPU)[34:]), "longer than the frame"),
        (resealed(bytes(NPU)[:34] + b"n/u" + bytes(NPU)[37:]), "kind of 1 to 64 letters"),
        (resealed(bytes(NPU)[:-8] + b"\1" + bytes(NPU)[-7:]), "does not follow its head"),
    ],
)
def test_a_refusal_says_what_is_wrong(frame: bytes, text: str) -> None:
    with pytest.raises(ArtifactError, match=text) as caught:
        Blob.parse(frame, "model.so")
    assert str(caught.value).startswith("model.so: ")
    with pytest.raises(ArtifactError, match="kind `npu`"):
        in_c(frame, "npu")


def test_the_kind_beside_the_frame_must_be_its_own() -> None:
    with pytest.raises(ArtifactError, match="stored as kind `dsp`, and its frame says `npu`"):
        in_c(bytes(NPU), "dsp")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": ""}, "kind of 1 to 64"),
        ({"kind": "n" * 65}, "kind of 1 to 64"),
        ({"version": -1}, "its version is -1"),
        ({"version": 2**32}, "its version is 4294967296"),
        ({"features": ("a b",)}, "feature 'a b'"),
        ({"features": ("f",) * 65}, "65 features, expected at most 64"),
        ({"producer": "é 1"}, "printable ASCII"),
    ],
)
def test_a_blob_that_no_frame_can_hold(fields: dict[str, object], text: str) -> None:
    values: dict[str, object] = {"kind": "npu", "version": 1, "data": b"", **fields}
    with pytest.raises(UsageError, match=text):
        Blob(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("producer", "package"),
    [
        ("farcall-npu 1.2", "farcall-npu"),
        ("x", "x"),
        ("", None),
        ("-x 1", None),
        ("a;b", None),
        ("a. 1", None),
    ],
)
def test_the_package_of_a_producer(producer: str, package: str | None) -> None:
    assert Blob("npu", 1, b"", (), producer).package() == package
    assert _core._parse_frame("npu", bytes(Blob("npu", 1, b"", (), producer)))[4] == (package or "")
