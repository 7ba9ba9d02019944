"""The checksum of artifacts, against its specification (docs/spec/artifact.md) in Python."""

import random

import pytest

from farcall._core import checksum

WORD = (1 << 64) - 1
MULTIPLIER = 0x9E3779B97F4A7C15


def mix(lane: int, word: int) -> int:
    lane = (lane ^ word) * MULTIPLIER & WORD
    return lane ^ lane >> 32


def specified(data: bytes) -> bytes:
    lanes = [(i + 1) * MULTIPLIER & WORD for i in range(8)]
    padded = data + bytes(-len(data) % 64)
    for at in range(0, len(padded), 8):
        lanes[at // 8 % 8] = mix(lanes[at // 8 % 8], int.from_bytes(padded[at : at + 8], "little"))
    result = b""
    for half in (0, 1):
        total = mix(half, len(data))
        for lane in lanes:
            total = mix(total, lane)
        result += total.to_bytes(8, "little")
    return result


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 127, 128, 1000])
def test_it_is_as_specified_however_the_bytes_are_cut(size: int) -> None:
    rng = random.Random(size)  # noqa: S311 - no secret
    data = rng.randbytes(size)
    expected = specified(data)
    assert checksum(data) == expected
    for _ in range(20):
        first, second = sorted(rng.randrange(size + 1) for _ in range(2))
        assert checksum(data[:first], memoryview(data)[first:second], data[second:]) == expected


def test_two_changed_signs_do_not_cancel() -> None:
    data = bytearray(4096)
    found = {checksum(data)}
    for step in (64, 128, 512):
        changed = bytearray(data)
        changed[7] ^= 0x80
        changed[7 + step] ^= 0x80
        found.add(checksum(changed))
    assert len(found) == 4


def test_zeros_more_or_less_are_another_sum() -> None:
    assert len({checksum(bytes(size)) for size in range(200)}) == 200


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        checksum(b"a", 1)  # type: ignore[arg-type]
