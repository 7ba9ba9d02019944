"""The checker itself finds each kind of fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from farcall.graph import Partition, cut
from farcall.graph._check import check_partition, violations

from .graphs import FULL, text_model

MODEL = """g (float[4] x) => (float[4] y, float[4] z) {
a = Relu(x)  b = Exp(a)  y = Add(b, a)  z = Relu(x) }"""


def partition() -> Partition:
    return cut(text_model(MODEL), FULL)


def broken(change: Callable[[Partition], Partition]) -> str:
    return "\n".join(violations(change(partition())))


def test_a_right_partition_has_no_faults() -> None:
    check_partition(partition())


def test_it_finds_a_missing_node() -> None:
    assert "is in no region" in broken(lambda p: replace(p, regions=p.regions[1:]))


def test_it_finds_a_node_in_two_regions() -> None:
    assert "and in npu_0" in broken(lambda p: replace(p, regions=(*p.regions, p.regions[0])))


def test_it_finds_a_wrong_order() -> None:
    assert "too early" in broken(lambda p: replace(p, regions=p.regions[::-1]))


def test_it_finds_a_region_that_is_not_convex_or_not_connected() -> None:
    def join(p: Partition) -> Partition:
        npu = [region for region in p.regions if region.backend == "npu"]
        matches = tuple(match for region in npu for match in region.matches)
        others = tuple(region for region in p.regions if region.backend != "npu")
        return replace(p, regions=(replace(npu[0], matches=matches), *others))

    text = broken(join)
    assert "is not convex" in text
    assert "is not connected" in text


@pytest.mark.parametrize("field", ["inputs", "outputs"])
def test_it_finds_a_wrong_border(field: str) -> None:
    def forget(p: Partition) -> Partition:
        first, *others = p.regions
        less = replace(first, inputs=()) if field == "inputs" else replace(first, outputs=())
        return replace(p, regions=(less, *others))

    assert f"{field} of {partition().regions[0].name}" in broken(forget)
    with pytest.raises(AssertionError, match="expected"):
        check_partition(forget(partition()))
