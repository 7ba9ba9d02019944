"""The picture as text: what is drawn, folded and escaped. test_browser.py looks at it in a browser."""

from __future__ import annotations

import time
from dataclasses import replace
from xml.etree import ElementTree

import msgspec
import pytest

from farcall.drawing._diagram import Area, Box, Diagram, Value, Wire
from farcall.drawing._heat import Heat
from farcall.drawing._outline import outline
from farcall.drawing._scene import scene
from farcall.drawing._svg import svg
from farcall.graph import cut
from tests.graph.graphs import C, text_model

from .image import IMAGE
from .samples import alternating, dag, demo, plan, transformer

SVG = "{http://www.w3.org/2000/svg}"


def drawn(diagram: Diagram) -> ElementTree.Element:
    return ElementTree.fromstring(svg(diagram))  # noqa: S314


def texts(root: ElementTree.Element, tag: str = "text") -> list[str]:
    return [item.text or "" for item in root.iter(f"{SVG}{tag}")]


def of_class(root: ElementTree.Element, *names: str) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{SVG}g") if set(names) <= set((group.get("class") or "").split())]


def test_nodes_regions_colours_legend_types_and_tooltips_are_drawn() -> None:
    diagram = demo()
    root = drawn(diagram)
    shown = texts(root)
    assert shown[0] == "digits: 12 nodes in 4 regions"
    for text in (
        "npu: 2 regions, 6 nodes",
        "npu_0",
        "conv_relu",
        "Conv \u2192 Relu",
        "MaxPool",
        "image",
        "logits",
    ):
        assert text in shown
    assert "float32[batch, 1, 8, 8]" in shown  # of an input
    assert "batch\u00d732\u00d74\u00d74" in shown  # on an edge
    fills = [card.find(f"{SVG}rect[@class='frame']") for card in of_class(root, "region")]
    assert [rect.get("fill") for rect in fills if rect is not None] == [
        diagram.colors[area.backend] for area in diagram.regions
    ]
    assert any("ai.onnx::Conv" in tooltip for tooltip in texts(root, "title"))


def test_the_picture_is_described_in_words() -> None:
    root = drawn(demo())
    assert (root.get("role"), root.get("aria-label")) == ("img", "digits: 12 nodes in 4 regions")
    description = root.findtext(f"{SVG}desc") or ""
    assert "input image: float32[batch, 1, 8, 8]" in description
    assert "region npu_0, backend npu: 4 nodes" in description


def test_names_from_the_model_and_colours_are_escaped() -> None:
    proto = text_model("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    proto.graph.name = "a < b & \x01 ]]> c"
    partition = replace(cut(proto, [C]), colors={"c": 'red" onload="evil()'})
    root = drawn(partition.diagram())
    assert texts(root)[0].startswith("a < b & \ufffd ]]> c")
    assert not any(item.get("onload") for item in root.iter())


@pytest.mark.parametrize("count", [0, 1, 30, 400])
def test_every_node_is_drawn(count: int) -> None:
    empty = cut(text_model("g (float[4] x) => (float[4] x) {}"), [C]).diagram()
    assert len(of_class(drawn(dag(count) if count else empty), "box")) == count


def test_repeated_blocks_are_folded_after_the_first() -> None:
    root = drawn(transformer(12))
    assert "block \u00d7 12" in texts(root)
    assert "11 more like this" in texts(root)
    [rest] = of_class(root, "card", "rest")
    level = rest.find(f"{SVG}g[@class='level']")
    assert level is not None and level.get("display") == "none"
    assert len(of_class(root, "box")) == 12 * 9 + 1


def test_repeated_regions_are_folded_too() -> None:
    assert "block \u00d7 20" in texts(drawn(alternating(1000, foreign=50)))


def test_a_small_graph_is_never_folded() -> None:
    assert not any(group.folded or group.kind == "repeat" for group in outline(transformer(3)).walk())


def test_a_long_region_without_repetition_is_cut_into_parts() -> None:
    groups = list(outline(dag(1200, foreign=0.0)).walk())
    assert sum(group.kind == "section" for group in groups) >= 5
    assert all(group.folded for group in groups if group.kind == "section")
    assert 10 < groups[0].shown() <= 420


def test_many_inputs_are_one_group() -> None:
    boxes = (*(Box((f"x{i}", "float32[4]"), -1) for i in range(40)), Box(("Concat",), 0))
    wires = tuple(Wire(i, 40, i) for i in range(40))
    values = tuple(Value(f"x{i}", "float32", ("4",)) for i in range(40))
    root = drawn(Diagram("g", boxes, wires, values, (Area("c_0", "c", 1),), {"c": "#123456"}))
    assert "40 inputs" in texts(root) and "40 values" in texts(root)


def test_the_same_model_gives_the_same_picture() -> None:
    assert svg(dag(60)) == svg(dag(60))


def test_heat_colours_regions_by_their_share_and_shows_their_time() -> None:
    text = svg(demo(), {"npu_0": Heat(0.9, "1.2 ms, 90 %"), "c_0": Heat(0.1, "0.1 ms, 10 %")})
    root = ElementTree.fromstring(text)  # noqa: S314
    assert "1.2 ms, 90 %" in texts(root)
    assert Heat(0.9, "").color in text and Heat(0.9, "").color != Heat(0.1, "").color


def test_a_diagram_survives_json() -> None:
    diagram = demo()
    assert msgspec.json.decode(msgspec.json.encode(diagram), type=Diagram) == diagram


def test_the_layout_of_5000_nodes_takes_seconds() -> None:
    diagram = dag(5000, foreign=0.0)
    start = time.process_time()  # does not count what other processes do meanwhile
    scene(diagram)
    assert time.process_time() - start < 30  # 2.6 s on the machine that this was written on


def test_notebooks_get_a_picture_and_text_where_there_are_none() -> None:
    bundle = plan()._repr_mimebundle_()
    assert bundle["text/html"].startswith("<svg ") and bundle["image/svg+xml"].startswith("<svg ")
    assert "npu_0" in bundle["text/plain"] and "<" not in bundle["text/plain"]


def test_the_picture_of_the_readme_is_that_of_the_demo() -> None:
    assert IMAGE.read_text(encoding="utf-8") == plan().svg(), "run: python -m tests.drawing.image"
