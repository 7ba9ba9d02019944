"""The eight probes of the scoreboard, against farcall's server and, for the README's table, TVM's."""

from __future__ import annotations

import importlib.util

import pytest

from .drivers import has_tvm, incumbent, ours, small
from .probes import PROBES
from .scoreboard import Row, markdown, stands


@pytest.mark.parametrize("name", PROBES)
def test_our_server_stands(name: str) -> None:
    assert stands(ours, name)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the package ziglang")
@pytest.mark.parametrize("name", PROBES)
def test_the_small_server_stands(name: str) -> None:
    assert stands(small, name)


@pytest.mark.slow
@pytest.mark.skipif(not has_tvm(), reason="needs Apache TVM: pip install apache-tvm==0.27.0.post1")
@pytest.mark.parametrize("name", PROBES)
def test_the_incumbent_falls_as_the_table_says(name: str) -> None:
    assert not stands(incumbent, name)


def test_a_table() -> None:
    rows = [Row("A", "Silence.", True, True, False), Row("B", "Frost.", False, True, None)]
    assert markdown(rows).splitlines()[2:] == [
        "| A | Silence. | stands | stands | falls |",
        "| B | Frost. | falls | stands | not installed |",
    ]
