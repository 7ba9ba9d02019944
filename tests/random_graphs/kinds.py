"""All kinds of nodes, and the graph of a seed."""

from __future__ import annotations

import itertools

from . import control, images, larger, operators, others, quantized, signals
from .building import Builder, Graph, Skip
from .registry import MAKERS

__all__ = ["control", "images", "larger", "operators", "others", "quantized", "random_graph", "signals"]


def random_graph(seed: int, opset: int) -> Graph:
    """The graph of a seed: three to twelve nodes. The same seed gives the same graph."""
    for attempt in itertools.count():
        builder = Builder(seed, opset, attempt)
        wanted = int(builder.rng.integers(3, 13))
        for _ in range(5 * wanted):
            try:
                builder.one(MAKERS)(builder)
            except Skip:
                continue
            if len(builder.graph.steps) >= wanted:
                break
        graph = builder.finish()
        if graph.inputs:
            return graph
    raise AssertionError
