"""The ways of convolutions, which ``Plan.build(tune=True)`` measures: each computes the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from farcall.backends.base import RegionCode
from farcall.backends.c import CBackend
from farcall.backends.c._ways import choose, fastest
from farcall.graph import Region
from farcall.toolchain import Target

from .cases import Case, compare
from .harness import compile_regions, whole_region
from .test_windows import normal


def conv(x: Sequence[int], outs: int, kernel: Sequence[int], group: int = 1, **more: Any) -> Case:
    operands = [normal(*x), normal(outs, x[1] // group, *kernel, seed=1), normal(outs, seed=2)]
    attributes = {"group": group, **more.pop("attributes", {})}
    return Case("Conv", operands, attributes, [1, 2], rtol=3e-4, atol=3e-4, **more)


CASES = {
    "3x3": conv((2, 9, 17, 18), 10, (3, 3), attributes={"pads": [1, 1, 1, 1]}),
    "any number of images": conv(
        (2, 9, 6, 40), 8, (3, 3), symbolic={0: ["n", 9, 6, 40]}, attributes={"pads": [1, 0, 1, 0]}
    ),
    "1x1": conv((1, 13, 25, 30), 18, (1, 1)),
    "1x1 in groups": conv((2, 12, 3, 31), 10, (1, 1), group=2),
    "strided": conv((1, 5, 40, 41), 7, (5, 2), attributes={"strides": [2, 1], "pads": [2, 1, 1, 0]}),
    "depthwise": conv((2, 6, 11, 13), 12, (3, 3), group=6, attributes={"strides": [1, 2]}),
    "1-d": conv((2, 5, 700), 6, (1,)),
    "3-d": conv((1, 3, 5, 6, 70), 5, (2, 1, 3), attributes={"pads": [1, 0, 0, 0, 0, 1]}),
}


class Told(CBackend):
    """Takes the ways of a table by the names of regions."""

    def __init__(self, ways: Mapping[str, Mapping[str, str]]) -> None:
        self._ways = ways

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        return super().compile(region, target, {"ways": self._ways[region.name]})


def choices(region: Region) -> Mapping[str, Sequence[str]]:
    code = CBackend().compile(region, Target.host(), {"profile": True})
    found = [work.choice for work in code.work if work.choice]
    return {choice.problem: choice.ways for choice in found}


@pytest.mark.parametrize("name", CASES)
def test_all_ways_of_a_convolution_compute_the_same(name: str) -> None:
    case = CASES[name]
    first = whole_region(case.model())
    ((problem, ways),) = choices(first).items()
    assert len(ways) > 1
    regions = [dataclasses.replace(first, name=f"c_{number}") for number in range(len(ways))]
    told = {region.name: {problem: way} for region, way in zip(regions, ways, strict=True)}
    made = compile_regions(regions, Told(told))
    assert len({"".join(one.code.texts.values()).replace(one.region.name, "") for one in made}) == len(ways)
    for one in made:
        compare(case, one(*case.feeds()), case.expected())


def test_a_convolution_without_an_alternative_has_no_choice() -> None:
    assert choices(whole_region(conv((1, 6, 7, 9), 8, (7, 9)).model())) == {}


def test_a_way_that_there_is_not_is_passed_over() -> None:
    with fastest({"p": "old", "q": "b"}):
        assert choose("p", ["a", "b"]).way == "a"
        assert choose("q", ["a", "b"]).way == "b"
    assert choose("q", ["a", "b"]).way == "a"


def test_a_problem_names_no_tensor_and_all_that_takes_time() -> None:
    (problem,) = choices(whole_region(CASES["strided"].model()))
    assert problem == (
        "Conv FLOAT['1', '5', '40', '41'] FLOAT['7', '5', '5', '2'] constant FLOAT['7'] constant "
        "group=1 pads=(2, 1, 1, 0) strides=(2, 1)"
    )


def test_images_that_are_too_few_for_the_way_take_another_one() -> None:
    case = CASES["any number of images"]
    region = whole_region(case.model())
    ((problem, ways),) = choices(region).items()
    way = next((one for one in ways if one.startswith("winograd")), "")
    assert way, ways
    (made,) = compile_regions([region], Told({region.name: {problem: way}}))
    for count in (1, 3, 70):
        x = normal(count, 9, 6, 40, seed=count)
        (expected,) = case.expected([x, *case.operands[1:]])
        np.testing.assert_allclose(made(x)[0], expected, rtol=3e-4, atol=3e-4)
