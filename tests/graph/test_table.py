"""The table of a partition."""

from __future__ import annotations

import re

import pytest

from farcall.graph import Partition, Pattern, cut

from .graphs import FULL, C, OpBackend, chain, text_model

NET = """net (float[n,3,8,8] x, float[4,3,3,3] w, float[m,n] unused) => (float[n,4,3,3] y) {
c = Conv<pads=[1,1,1,1]>(x, w)  r = Relu(c)  y = MaxPool<kernel_shape=[3,3], strides=[2,2]>(r) }"""


def net() -> Partition:
    return cut(text_model(NET), [OpBackend("npu", "", [Pattern("conv_relu", "Relu(Conv(x, w, b?))")]), C])


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = str(net()).splitlines()
    assert lines[0] == "net: 3 nodes in 2 regions (npu: 2 nodes, c: 1 node)"
    assert lines[1].split() == ["region", "backend", "nodes", "operators", "inputs", "outputs"]
    assert lines[2].split()[:4] == ["npu_0", "npu", "2", "conv_relu"]
    assert "r: float32[n, 4, 8, 8]" in lines[2] and "r: float32[n, 4, 8, 8]" in lines[3]


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_the_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    whole = str(net())
    assert max(map(len, whole.splitlines())) <= columns
    assert set(re.findall(r"\w+", whole)) >= {"conv_relu", "MaxPool", "npu_0", "c_0", "float32"}
    assert ("r: float32[n, 4, 8, 8]" in whole) == (columns > 60)  # shapes are folded last


def test_a_long_table_ends_with_a_count_and_constraints_are_told() -> None:
    partition = cut(chain(400, foreign=4), FULL)
    assert str(partition).splitlines()[-1] == "... and 140 more regions"
    bound = cut(
        text_model("""g (float[n, 4] x, float[m] z) => (float y) <int64[1] s = {-1}> {
    a = Reshape(x, s)  y = MatMul(a, z) }"""),
        [C],
    )
    assert str(bound).splitlines()[-1] == "needs m == 4*n"
