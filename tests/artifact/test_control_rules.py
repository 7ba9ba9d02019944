"""Rules and measurements reach the graphs inside of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.artifact import Plan
from farcall.backends.c import CBackend
from farcall.errors import UnsupportedOperatorError, UsageError
from farcall.graph._annotate import Answer

from ..graph.graphs import text_model

MODEL = """g (float[4] x, bool c, bool d) => (float[4] y) {
  a = Abs(x)
  [if] b = If (c) <
    then_branch = one () => (float[4] p) {
      [deep] p = If (d) <
        then_branch = two () => (float[4] q) { [cos] e = Cos(a) [sin] q = Sin(e) },
        else_branch = three () => (float[4] r) { [neg] r = Neg(a) }>
    },
    else_branch = four () => (float[4] s) { [abs] s = Abs(a) }>
  y = Exp(b)
}"""
DEEP = "if/then_branch/deep"
SIN, COS = f"{DEEP}/then_branch/sin", f"{DEEP}/then_branch/cos"


class Npu(CBackend):
    name = "npu"


def backends_of(**rules: Any) -> dict[str, str]:
    """The backend of each node."""
    plan = fc.partition(text_model(MODEL), [Npu(), "c"], **rules)
    return {why.node: why.backend for why in plan.partition.whys}


@pytest.mark.parametrize(
    ("rules", "on_c"),
    [
        ({"pin": {SIN: "c"}}, {SIN}),
        ({"exclude": {"npu": [SIN, f"{DEEP}/else*"]}}, {SIN, f"{DEEP}/else_branch/neg"}),
        ({"pin": {f"{DEEP}/*": "c"}}, {SIN, COS, f"{DEEP}/else_branch/neg"}),
        ({"min_nodes": {"npu": 2}}, {"Abs_0", "Exp_1", f"{DEEP}/else_branch/neg", "if/else_branch/abs"}),
    ],
)
def test_a_rule_may_mean_nodes_inside(rules: dict[str, Any], on_c: set[str]) -> None:
    assert {name for name, backend in backends_of(**rules).items() if backend == "c"} == on_c


def test_a_pattern_that_means_all_leaves_the_nodes_with_graphs_to_control() -> None:
    found = backends_of(pin={"*": "c"})
    assert {name for name, backend in found.items() if backend == "control"} == {"if", DEEP}
    assert set(found.values()) == {"c", "control"}


def test_rules_are_checked_against_all_nodes() -> None:
    for rules in ({"pin": {"if/then_branch/dep": "c"}}, {"exclude": {"npu": ["if/then_branch/dep"]}}):
        with pytest.raises(UsageError, match="no node is called `if/then_branch/dep`; did you mean"):
            backends_of(**rules)
    with pytest.raises(UnsupportedOperatorError, match=f"`{DEEP}`: .*`{SIN}`.*: the node is excluded"):
        backends_of(exclude={"npu": [SIN], "c": [SIN]})
    assert backends_of(exclude={"control": ["Abs*"]})["Abs_0"] == "npu"


def test_what_is_inside_is_placed_by_measurement(tmp_path: Path) -> None:
    """Each node costs 1 on `c`, and 10 on `npu`."""
    plans = []

    def meter(plan: Plan) -> Mapping[str, float]:
        plans.append(plan)
        return {one.name: len(one.nodes) * (10.0 if one.backend == "npu" else 1.0) for one in plan.regions}

    for count in (True, False):
        plans.clear()
        choose = fc.measured(meter=meter, figures=tmp_path / "f.json")
        found = fc.partition(text_model(MODEL), [Npu(), "c"], choose=choose)
        assert bool(plans) is count
        assert {region.backend for region in found.regions} == {"c", "control"}
        assert {name for name in found.figures if name.startswith("control")} == {"control_0"}


def test_a_plan_keeps_its_cut_when_others_are_proposed() -> None:
    def choose(propose: Any) -> Plan:
        plan: Plan = propose({})
        deep = next(one for one in plan.regions if one.backend == "npu" and len(one.nodes) == 2)
        nobody = [Answer(backend, "measured", "slow") for backend in ("npu", "c")]
        with pytest.raises(UnsupportedOperatorError, match="slow"):
            propose(dict.fromkeys(deep.nodes, nobody))
        return plan

    main = fc.partition(text_model(MODEL), [Npu(), "c"], choose=choose).build().load()["main"]
    want = np.exp(np.sin(np.cos(np.float32(1))))
    np.testing.assert_allclose(main(np.ones(4, np.float32), np.array(True), np.array(True)), want, rtol=1e-6)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"pin": ["*"]}, "pin: expected a dict such as"),
        ({"exclude": ["npu"]}, "exclude: expected a dict such as"),
        ({"exclude": {"npu": 5}}, "exclude: expected names of nodes for `npu`, got 5"),
        ({"min_nodes": 3}, "min_nodes: expected a dict such as"),
    ],
)
def test_what_is_no_rule(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        backends_of(**rules)
