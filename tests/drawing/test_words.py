"""Mermaid and DOT."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from farcall.drawing._diagram import Area, Box, Diagram, Value, Wire
from farcall.drawing._words import dot, mermaid

from .samples import demo, plan

NASTY = 'a "b" [c] {d} \\ e\n#f; <g> `h` & \x01 | end %%'


def nasty() -> Diagram:
    boxes = (Box((NASTY, "float32[n]"), -1), Box((NASTY,), 0), Box(("y",), -1, "", output=True))
    wires = (Wire(0, 1, 0), Wire(1, 2, 0))
    return Diagram(
        NASTY, boxes, wires, (Value(NASTY, "float32", (NASTY,)),), (Area(NASTY, NASTY, 1),), {NASTY: NASTY}
    )


def test_mermaid_has_regions_as_subgraphs_and_shapes_on_edges() -> None:
    text = plan().mermaid()
    assert text.startswith("flowchart TD\n")
    assert '  subgraph r0["npu_0 (npu)"]' in text
    assert '    n1["conv_relu<br>Conv<br>Relu"]' in text
    assert 'n0 -->|"float32[batch, 1, 8, 8]"| n1' in text
    assert text == mermaid(demo())


def test_mermaid_escapes_what_has_a_meaning() -> None:
    lines = mermaid(nasty()).splitlines()
    assert len(lines) == 8  # a new line in a name begins none here; a colour that is none is left out
    for line in lines:
        inside = line.split('"')[1::2]
        assert not any(char in part for part in inside for char in '"`')
    assert "#34;b#34;" in mermaid(nasty()) and "#60;g#62;" in mermaid(nasty())


def test_dot_has_regions_as_clusters_and_shapes_on_edges() -> None:
    text = plan().dot()
    assert text == dot(demo())
    assert '  subgraph cluster_0 { label="npu_0 (npu)"; color=' in text
    assert 'n0 -> n1 [label="float32[batch, 1, 8, 8]"];' in text


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("diagram", [demo(), nasty()], ids=["demo", "nasty names"])
def test_graphviz_reads_dot(diagram: Diagram) -> None:
    done = subprocess.run(["dot", "-Tsvg"], input=dot(diagram), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('class="edge"') == len(diagram.wires)
    assert done.stdout.count('class="cluster"') == len(diagram.regions)
