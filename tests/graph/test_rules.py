"""Who gets what, and why: overlaps, regions that backends refuse or cut, least sizes, pins, exclusions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farcall.errors import BackendError, UnsupportedOperatorError, UsageError
from farcall.graph import Match, Partition, Pattern, Region, Rules, cut
from farcall.graph._check import check_partition
from farcall.graph._why import interned
from farcall.library._why import matching

from .graphs import FULL, NPU, C, OpBackend, chain, diamonds, random_dag, text_model

Accept = Callable[[Region], "str | Sequence[Match] | None"]


class Picky(OpBackend):
    """A backend whose ``accept`` is given."""

    def __init__(self, name: str, accept: Accept, operators: str | None = None) -> None:
        super().__init__(name, operators)
        self._accept = accept

    def accept(self, region: Region) -> str | Sequence[Match] | None:
        return self._accept(region)


def owners(partition: Partition) -> str:
    """The first letters of the backends of all nodes, in order."""
    check_partition(partition)
    return "".join(why.backend[0] for why in partition.whys)


def said(partition: Partition, node: str) -> list[tuple[str, str, str]]:
    return [(one.backend, one.said, one.text) for one in partition.why(node).verdicts]


# ---- patterns that overlap

THREE = "g (float[4] x) => (float[4] y) { a = Exp(x) b = Neg(a) y = Relu(b) }"
PAIRS = [Pattern("front", "Neg(Exp(x))"), Pattern("back", "Relu(Neg(x))")]


def test_a_pattern_that_loses_is_told_who_won() -> None:
    partition = cut(text_model(THREE), [OpBackend("npu", "", PAIRS), C])
    assert owners(partition) == "nnc"
    names = [why.node for why in partition.whys]
    lost = f"pattern back: `npu` has taken `{names[1]}` before (pattern front)"
    assert said(partition, names[2]) == [
        ("npu", "lost", lost),
        ("npu", "refused", "takes no Relu"),
        ("c", "takes", "as a single node"),
    ]
    assert ("npu", "lost", lost) in said(partition, names[1])


def test_the_higher_priority_wins_and_then_the_order() -> None:
    first, second = PAIRS
    urgent = Pattern(second.name, second.text, priority=1)
    assert owners(cut(text_model(THREE), [OpBackend("npu", "", [first, urgent]), C])) == "cnn"
    assert owners(cut(text_model(THREE), [OpBackend("npu", "", [second, first]), C])) == "cnn"


def test_a_backend_that_comes_later_is_told_what_it_lost() -> None:
    partition = cut(text_model(THREE), [OpBackend("npu", "Neg"), OpBackend("dsp", "", PAIRS), C])
    assert owners(partition) == "cnc"
    relu = partition.whys[2]
    lost = f"pattern back: `npu` has taken `{partition.whys[1].node}` before (the single node)"
    assert ("dsp", "lost", lost) in said(partition, relu.node)


def test_what_is_left_of_a_chain_is_offered() -> None:
    chains = OpBackend("dsp", "", [Pattern("chain", "Relu+(x)")])
    partition = cut(chain(7), [OpBackend("npu", ""), chains, C], Rules(pin={"n3": "c"}))
    assert owners(partition) == "dddcddd"
    assert [len(region.matches) for region in partition.regions] == [1, 1, 1]


def test_only_the_longest_chain_is_offered() -> None:
    offered = []

    def check(match: Match) -> str | None:
        offered.append(len(match.nodes))
        return "too long"

    assert (
        owners(cut(chain(50), [OpBackend("dsp", "", [Pattern("chain", "Relu+(x)", check)]), C])) == "c" * 50
    )
    assert offered == [50]


# ---- accept


def test_a_refused_region_goes_to_the_next_backend_with_the_reason() -> None:
    npu = Picky("npu", lambda region: "only single nodes" if len(region.nodes) > 1 else None, "Relu")
    partition = cut(chain(6, foreign=3), [npu, C])
    assert owners(partition) == "cccccc"
    assert said(partition, "n0") == [
        ("npu", "gave up", "refuses the region of 2 nodes: only single nodes"),
        ("c", "takes", "as a single node"),
    ]


def test_a_region_is_cut_and_the_rest_goes_on() -> None:
    npu = Picky("npu", lambda region: region.matches[:2])
    dsp = Picky("dsp", lambda region: region.matches[1:])
    partition = cut(chain(6), [npu, dsp, C])
    assert owners(partition) == "nncddd" or owners(partition) == "nncccc"
    assert said(partition, "n2")[0] == ("npu", "gave up", "keeps 2 of the 6 matches of a region")


def test_a_backend_that_always_cuts_ends_with_nothing() -> None:
    npu = Picky("npu", lambda region: region.matches[1:])
    assert owners(cut(chain(40), [npu, C])).strip("c") == ""


def test_a_backend_is_asked_once_about_each_region() -> None:
    asked = []

    def accept(region: Region) -> str | None:
        asked.append(region.nodes)
        return None

    cut(chain(20, foreign=5), [Picky("npu", accept, "Relu"), Picky("dsp", lambda _: "no"), C])
    assert len(asked) == len(set(asked)) == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: 7, r"its accept\(\) of region `npu_0` gave 7; expected None, a reason"),
        (
            lambda _: ["n0"],
            r"its accept\(\) of region `npu_0` gave a list with a str; expected None, a reason as text",
        ),
        (lambda region: [replace(region.matches[0])], "gave matches of others; expected None"),
        (lambda _: {}["x"], r"its accept\(\) of region `npu_0` raised KeyError: 'x'"),
    ],
)
def test_a_wrong_answer_names_backend_and_region(answer: Accept, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        cut(chain(2), [Picky("npu", answer), C])


def test_what_nobody_accepts_is_an_error_with_the_reasons() -> None:
    with pytest.raises(UnsupportedOperatorError, match="npu: refuses the region of 2 nodes: not today"):
        cut(chain(2), [Picky("npu", lambda _: "not today")])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 50), st.floats(0, 1), st.integers(0, 1000), st.integers(1, 4), st.integers(1, 3))
def test_any_graph_and_any_rules_give_a_right_partition(
    count: int, foreign: float, seed: int, least: int, keep: int
) -> None:
    npu = Picky("npu", lambda region: region.matches[::keep], "Relu Add")
    dsp = OpBackend("dsp", "Mul Abs", [Pattern("run", "Relu?(Add|Mul+(x, _))")])
    rules = Rules(pin={"n0": "c"}, exclude={"npu": ["n1*"]} if count > 1 else {}, min_nodes={"dsp": least})
    partition = cut(random_dag(count, foreign, seed), [npu, dsp, C], rules)
    check_partition(partition)
    assert str(partition.why("n0"))
    whys = [str(why) for why in partition.whys]
    again = cut(random_dag(count, foreign, seed), [npu, dsp, C], rules)
    assert whys == [str(why) for why in again.whys]


# ---- sizes, pins, exclusions


def test_small_regions_go_to_the_next_backend() -> None:
    partition = cut(diamonds(40), FULL, Rules(min_nodes={"npu": 3}))
    assert all(len(region.nodes) >= 3 for region in partition.regions if region.backend == "npu")
    verdicts = {
        verdict.text for why in partition.whys for verdict in why.verdicts if verdict.said == "too small"
    }
    assert verdicts == {"a region of 2 nodes; at least 3 are wanted"}
    assert owners(cut(chain(6, foreign=3), FULL, Rules(min_nodes={"npu": 3}))) == "cccccc"


def test_a_backend_has_a_least_size_of_its_own() -> None:
    class Large(OpBackend):
        min_nodes = 3

    assert owners(cut(chain(8, foreign=4), [Large("npu", "Relu"), C])) == "nnncnnnc"
    assert owners(cut(chain(6, foreign=3), [Large("npu", "Relu"), C])) == "cccccc"
    free = Rules(min_nodes={"npu": 1})
    assert owners(cut(chain(6, foreign=3), [Large("npu", "Relu"), C], free)) == "nncnnc"


def test_a_small_region_stays_where_nobody_else_takes_it() -> None:
    partition = cut(chain(6, foreign=3), [NPU, OpBackend("c", "Abs")], Rules(min_nodes={"npu": 3}))
    assert owners(partition) == "nncnnc"
    kept = "although its region has fewer than 3 nodes: no other backend may take it"
    assert ("npu", "kept", kept) in said(partition, "n0")


def test_pins_and_exclusions_by_name_and_by_pattern() -> None:
    partition = cut(chain(12), FULL, Rules(pin={"n3": "c"}, exclude={"npu": ["n1?", "n0"]}))
    assert owners(partition) == "cnncnnnnnncc"
    assert said(partition, "n3") == [
        ("npu", "pinned", "the node is pinned to `c`"),
        ("c", "takes", "as a single node; the node is pinned to it"),
    ]
    assert said(partition, "n10")[0] == ("npu", "excluded", "the node is excluded")


def test_a_pinned_node_may_be_in_a_small_region() -> None:
    rules = Rules(pin={"n0": "npu"}, min_nodes={"npu": 3})
    assert owners(cut(chain(6, foreign=3), FULL, rules)) == "nncccc"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(pin={"n44": "c"}), "pin: no node is called `n44`; did you mean `n4`?"),
        (
            Rules(pin={"conv*": "c"}),
            r"pin: no node is called `conv\*`; the model's nodes are `n0`, `n1`, `n2`, ",
        ),
        (
            Rules(pin={"n1": "npv"}),
            r"pin: no backend `npv` takes part \(given: `npu`, `c`\); did you mean `npu`",
        ),
        (Rules(exclude={"npv": ["n1"]}), "exclude: no backend `npv` takes part"),
        (Rules(min_nodes={"d": 2}), "min_nodes: no backend `d` takes part"),
        (Rules(min_nodes={"npu": 0}), "min_nodes of backend `npu`: expected a number from 1, got 0"),
        (Rules(pin={"n1": "c", "n*": "npu"}), "node `n1` is pinned to `c` and to `npu`; expected one"),
    ],
)
def test_a_rule_about_what_is_not_there_has_the_name_that_is_near(rules: Rules, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cut(chain(5), FULL, rules)


@pytest.mark.parametrize(
    ("rules", "what"), [(Rules(pin={"two": "c"}), "pin"), (Rules(exclude={"c": ["two"]}), "exclude")]
)
def test_a_rule_about_a_node_that_was_computed_says_so(rules: Rules, what: str) -> None:
    model = text_model(
        "g (float[2] x) => (float[2] y) "
        "{ k = Constant <value_floats=[1.0, 2.0]> () [two] a = Abs(k) [add] y = Add(x, a) }"
    )
    with pytest.raises(
        UsageError, match=r"(pin|exclude): node `two` is in no region: when .*, it was computed"
    ):
        cut(model, FULL, rules)


def test_a_pin_to_a_backend_that_refuses_is_an_error_that_says_so() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        cut(chain(2), [OpBackend("npu", "Abs"), C], Rules(pin={"n1": "npu"}))
    assert "npu: takes no Relu" in str(caught.value)
    assert "c: the node is pinned to `npu`" in str(caught.value)


# ---- why


def test_why_as_text() -> None:
    partition = cut(chain(3, foreign=3), FULL)
    assert str(partition.why("n1")) == (
        "node `n1`: ai.onnx::Relu, opset 20, (v1: float32[4]) -> (v2: float32[4])\n"
        "  in region `npu_0` of backend `npu`\n"
        "  npu  takes: as a single node\n"
        "  c    not asked: `npu` has taken the node, and comes first"
    )
    with pytest.raises(UsageError, match="no node is called `n11`; did you mean `n1`"):
        partition.why("n11")
    with pytest.raises(UsageError, match="no node is called `conv`; did you mean `block/conv`"):
        matching("conv", {"convs": 0, "block/conv": 1})


def test_a_manifest_has_each_reason_once() -> None:
    texts, nodes = interned(cut(chain(200, foreign=10), FULL).answers)
    assert texts == ("npu refused: takes no Abs",)
    assert nodes == {f"n{index}": (0,) for index in range(9, 200, 10)}
