"""The handle table: what was freed, forged or is of another kind or session names nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from farcall.errors import InvalidHandleError
from farcall.rpc.handles import HandleTable, Kind

KINDS = list(Kind)


class Tables(RuleBasedStateMachine):
    """Two sessions; a dict each is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = HandleTable(), HandleTable()
        self.live: tuple[dict[int, tuple[Kind, int]], ...] = ({}, {})
        self.dead: tuple[set[int], ...] = (set(), set())
        self.serial = 0

    @rule(which=st.integers(0, 1), kind=st.sampled_from(KINDS))
    def add(self, which: int, kind: Kind) -> None:
        self.serial += 1
        handle = self.tables[which].add(kind, self.serial)
        assert 0 < handle < 2**63
        assert handle not in self.live[which]
        assert handle not in self.dead[which]
        self.live[which][handle] = (kind, self.serial)

    @rule(which=st.integers(0, 1), data=st.data())
    def remove(self, which: int, data: st.DataObject) -> None:
        if not self.live[which]:
            return
        handle = data.draw(st.sampled_from(sorted(self.live[which])))
        kind, value = self.live[which].pop(handle)
        assert self.tables[which].remove(handle, kind) == value
        self.dead[which].add(handle)

    @rule(which=st.integers(0, 1), data=st.data())
    def forge(self, which: int, data: st.DataObject) -> None:
        known = sorted(self.live[0] | self.live[1]) + sorted(self.dead[0] | self.dead[1])
        numbers = st.integers(0, 2**64 - 1)
        if known:
            near = st.tuples(st.sampled_from(known), st.integers(0, 63)).map(lambda v: v[0] ^ (1 << v[1]))
            numbers = st.one_of(numbers, st.sampled_from(known), near)
        handle = data.draw(numbers)
        if handle in self.live[which]:
            return
        for kind in KINDS:
            with pytest.raises(InvalidHandleError):
                self.tables[which].get(handle, kind)

    @invariant()
    def agrees(self) -> None:
        for table, live in zip(self.tables, self.live, strict=True):
            assert len(table) == len(live)
            for handle, (kind, value) in live.items():
                assert table.get(handle, kind) == value
                for other in KINDS:
                    if other is not kind:
                        with pytest.raises(InvalidHandleError):
                            table.get(handle, other)


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=1000)
def test_a_guess_names_nothing(guess: int) -> None:
    table = HandleTable()
    handle = table.add(Kind.FUNCTION, "f")
    if guess != handle:
        with pytest.raises(InvalidHandleError, match="no function of this session"):
            table.get(guess, Kind.FUNCTION)


def test_a_slot_that_is_used_again_has_another_handle() -> None:
    table = HandleTable()
    seen = set()
    for _ in range(1000):
        handle = table.add(Kind.OBJECT, None)
        seen.add(handle)
        table.remove(handle, Kind.OBJECT)
    assert len(seen) == 1000
    assert len({handle & 0xFFFFFFFF for handle in seen}) == 1


def test_the_limit() -> None:
    table = HandleTable(limit=2)
    first = table.add(Kind.OBJECT, 1)
    table.add(Kind.OBJECT, 2)
    with pytest.raises(MemoryError, match="2 handles"):
        table.add(Kind.OBJECT, 3)
    table.remove(first, Kind.OBJECT)
    table.add(Kind.OBJECT, 3)
