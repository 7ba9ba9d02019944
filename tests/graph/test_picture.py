"""The picture, its layout, and the table."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.graph import Partition, Pattern, cut
from farcall.graph._layout import layered, spread

from .graphs import FULL, C, OpBackend, chain, random_dag, text_model

SVG = "{http://www.w3.org/2000/svg}"
NET = """net (float[n,3,8,8] x, float[4,3,3,3] w, float[m,n] unused) => (float[n,4,3,3] y) {
c = Conv<pads=[1,1,1,1]>(x, w)  r = Relu(c)  y = MaxPool<kernel_shape=[3,3], strides=[2,2]>(r) }"""


def net() -> Partition:
    return cut(text_model(NET), [OpBackend("npu", "", [Pattern("conv_relu", "Relu(Conv(x, w, b?))")]), C])


def drawn(partition: Partition) -> ElementTree.Element:
    return ElementTree.fromstring(partition.svg())  # noqa: S314


def texts(root: ElementTree.Element, tag: str = "text") -> list[str]:
    return [item.text or "" for item in root.iter(f"{SVG}{tag}")]


def regions(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == "region"]


def test_nodes_regions_colours_legend_and_tooltips_are_drawn() -> None:
    partition = net()
    root = drawn(partition)
    shown = texts(root)
    for label in ("npu_0", "c_0", "conv_relu", "Conv", "Relu", "MaxPool", "x", "y", "float32[n, 3, 8, 8]"):
        assert label in shown
    assert "net: 3 nodes in 2 regions" in shown
    assert "npu: 1 region, 2 nodes" in shown
    fills = [rect.get("fill") for group in regions(root) for rect in group.iter(f"{SVG}rect")]
    assert fills == [partition.colors["npu"], partition.colors["c"]]
    tooltips = texts(root, "title")
    assert any("ai.onnx::Conv" in tooltip and "float32[4, 3, 3, 3]" in tooltip for tooltip in tooltips)
    assert "r: float32[n, 4, 8, 8]" in tooltips
    assert partition._repr_svg_() == partition.svg()


def test_names_from_the_model_and_colours_are_escaped() -> None:
    proto = text_model("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    proto.graph.name = "a < b & \x01 c"
    partition = replace(cut(proto, [C]), colors={"c": 'red" onload="evil()'})
    root = drawn(partition)
    assert texts(root)[0].startswith("a < b & \ufffd c")
    assert not any(item.get("onload") for item in root.iter())


@pytest.mark.parametrize("count", [0, 1, 30, 200])
def test_every_node_is_drawn_up_to_200(count: int) -> None:
    root = drawn(
        cut(random_dag(count, 0.3, 1) if count else text_model("g (float[4] x) => (float[4] x) {}"), FULL)
    )
    boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "node"]
    assert len(boxes) == count


def test_large_graphs_show_regions_and_huge_ones_the_first_of_them() -> None:
    partition = cut(chain(1000, foreign=50), FULL)
    root = drawn(partition)
    assert len(regions(root)) == len(partition.regions) == 40
    assert "Relu x49" in texts(root)
    partition = cut(chain(1000, foreign=4), FULL)
    root = drawn(partition)
    assert len(regions(root)) == 200 < len(partition.regions)
    assert any("(the first 200 are drawn)" in text for text in texts(root))


def test_the_same_partition_gives_the_same_picture() -> None:
    assert cut(random_dag(60, 0.3, 2), FULL).svg() == cut(random_dag(60, 0.3, 2), FULL).svg()


@st.composite
def boxes(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    count = draw(st.integers(1, 15))
    sizes = [(draw(st.floats(1, 90)), draw(st.floats(1, 50))) for _ in range(count)]
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda ab: ab[0] < ab[1])
    return sizes, draw(st.lists(pairs, max_size=20)) if count > 1 else []


@given(boxes())
def test_boxes_do_not_overlap_and_edges_run_downwards(
    graph: tuple[list[tuple[float, float]], list[tuple[int, int]]],
) -> None:
    sizes, edges = graph
    layout = layered(sizes, edges)
    places = [
        (center - width / 2, top, center + width / 2, top + height)
        for (width, height), center, top in zip(sizes, layout.centers, layout.tops, strict=True)
    ]
    slack = 1e-6
    for index, (left, top, right, bottom) in enumerate(places):
        assert left >= -slack and top >= -slack
        assert right <= layout.width + slack and bottom <= layout.height + slack
        for other in places[index + 1 :]:
            apart = right <= other[0] + slack or other[2] <= left + slack
            assert apart or bottom <= other[1] + slack or other[3] <= top + slack
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert route[0] == (layout.centers[source], places[source][3])
        assert route[-1] == (layout.centers[target], places[target][1])
        assert all(a[1] <= b[1] + slack for a, b in pairwise(route))


@given(st.lists(st.tuples(st.floats(-99, 99), st.floats(0.1, 5), st.floats(1, 20)), min_size=1, max_size=12))
def test_spreading_keeps_order_and_gaps_and_the_weighted_mean(
    items: list[tuple[float, float, float]],
) -> None:
    wishes, weights, widths = (list(column) for column in zip(*items, strict=True))
    centers = spread(wishes, weights, widths, gap=3)
    for (a, b), (w, v) in zip(pairwise(centers), pairwise(widths), strict=True):
        assert b - a >= (w + v) / 2 + 3 - 1e-6
    moved = sum(
        weight * (center - wish) for weight, center, wish in zip(weights, centers, wishes, strict=True)
    )
    assert moved == pytest.approx(0, abs=1e-5)


def test_the_table() -> None:
    lines = str(net()).splitlines()
    assert lines[0] == "net: 3 nodes in 2 regions (npu: 2 nodes, c: 1 node)"
    assert lines[1].split() == ["region", "backend", "nodes", "operators", "inputs", "outputs"]
    assert lines[3].split()[:4] == ["npu_0", "npu", "2", "conv_relu"]
    assert "r: float32[n, 4, 8, 8]" in lines[3] and "r: float32[n, 4, 8, 8]" in lines[4]


def test_a_long_table_ends_with_a_count_and_constraints_are_told() -> None:
    partition = cut(chain(400, foreign=4), FULL)
    assert str(partition).splitlines()[-1] == "... and 140 more regions"
    bound = cut(
        text_model("""g (float[n, 4] x, float[m] z) => (float[?] y) <int64[1] s = {-1}> {
    a = Reshape(x, s)  y = Add(a, z) }"""),
        [C],
    )
    assert str(bound).splitlines()[-1] == "needs m == 4*n"
