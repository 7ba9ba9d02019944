"""Admission: which peers may wait in a handshake, how long, and which goes first; on a manual clock."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from farcall.rpc.server._admission import Admission

Task = asyncio.Task[None]


class Peer:
    """Stands for the task of a handshake."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def enter(admission: Admission, source: str) -> Any:
    peer = Peer()
    admission.enter(cast(Task, peer), source)
    return peer


def test_the_oldest_goes_when_all_are_alike() -> None:
    admission = Admission(2, 10.0, Clock())
    first, second, third = (enter(admission, source) for source in "abc")
    assert (first.cancelled, second.cancelled, third.cancelled) == (True, False, False)


def test_the_worst_source_goes_first() -> None:
    admission = Admission(2, 10.0, Clock())
    admission.penalise("bad")
    good, bad, late = (enter(admission, source) for source in ("good", "bad", "late"))
    assert (good.cancelled, bad.cancelled, late.cancelled) == (False, True, False)


def test_the_only_one_stays() -> None:
    admission = Admission(0, 10.0, Clock())
    assert not enter(admission, "a").cancelled


def test_who_has_left_makes_no_room_again() -> None:
    admission = Admission(1, 10.0, Clock())
    first = enter(admission, "a")
    admission.leave(first)
    assert not enter(admission, "b").cancelled
    assert not first.cancelled


def test_scores_halve_with_time_and_shorten_the_handshake() -> None:
    clock = Clock()
    admission = Admission(8, 10.0, clock)
    assert admission.seconds("a") == 10.0
    for _ in range(8):
        admission.penalise("a")
    assert admission.score("a") == 8.0
    assert admission.seconds("a") == pytest.approx(10 / 1.8)
    for expected in (4.0, 2.0, 1.0):
        clock.now += 10
        assert admission.score("a") == pytest.approx(expected)
    assert admission.seconds("a") == pytest.approx(10 / 1.1)
    assert admission.seconds("b") == 10.0
    admission.penalise("a", 1e9)
    assert admission.seconds("a") == 0.5  # the shortest


def test_sources_are_not_remembered_without_end() -> None:
    admission = Admission(8, 10.0, Clock())
    for i in range(1025):
        admission.penalise(f"{i}")
    assert (admission.score("0"), admission.score("1")) == (0.0, 1.0)
