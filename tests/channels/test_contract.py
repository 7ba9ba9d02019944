"""Every channel keeps the contract of farcall.testing.check_channel, which detects faults."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from farcall._core import Channel
from farcall.testing import CHANNEL_RULES, check_channel

from .places import KINDS, Box, MakePlace, pipe_pair, socket_pair


@pytest.mark.parametrize("rule", CHANNEL_RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_url(kind: str, rule: str, place: MakePlace) -> None:
    check_channel(place(kind).pair, rules=[rule])


@pytest.mark.parametrize("rule", CHANNEL_RULES)
def test_a_mailbox(rule: str, tmp_path: Path) -> None:
    """Without the server's thread that moves its bytes to a socket."""
    check_channel(Box(tmp_path).pair, rules=[rule])


@pytest.mark.parametrize("rule", CHANNEL_RULES)
@pytest.mark.parametrize("pair", [socket_pair, pipe_pair])
def test_descriptors(
    pair: Callable[[], contextlib.AbstractContextManager[tuple[Channel, Channel]]], rule: str
) -> None:
    check_channel(pair, rules=[rule])
