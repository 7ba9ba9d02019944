"""A graph runtime as a kind of module, like TVM's ExampleJSON runtime; ``examplejson.c`` is the same in C.

The data is text. Each function has its own table of entries: first its inputs, then its nodes, one a line::

    function f 2
    add 0 1
    mul 2 0
    outputs 3 2

A call has the inputs and then the outputs, which it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import farcall as fc
from farcall import ffi

KIND = "examplejson"
OPERATORS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@dataclass(frozen=True)
class Graph:
    inputs: int
    nodes: list[tuple[str, int, int]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


class State:
    """What the functions of a module share; counts the living ones."""

    living = 0

    def __init__(self, text: str) -> None:
        self.graphs = parse(text)
        State.living += 1

    def __del__(self) -> None:
        State.living -= 1

    def run(self, name: str, *tensors: Any) -> None:
        graph = self.graphs[name]
        if len(tensors) != graph.inputs + len(graph.outputs):
            raise TypeError(f"`{name}` takes {graph.inputs} inputs and {len(graph.outputs)} outputs")
        entries = [np.from_dlpack(tensor) for tensor in tensors[: graph.inputs]]  # the table of this call
        for operator, left, right in graph.nodes:
            entries.append(OPERATORS[operator](entries[left], entries[right]))
        for tensor, entry in zip(tensors[graph.inputs :], graph.outputs, strict=True):
            np.from_dlpack(tensor)[...] = entries[entry]


def parse(text: str) -> dict[str, Graph]:
    graphs: dict[str, Graph] = {}
    for line in text.splitlines():
        word, *rest = line.split()
        if word == "function":
            graphs[rest[0]] = graph = Graph(int(rest[1]))
        elif word == "outputs":
            graph.outputs.extend(map(int, rest))
        else:
            graph.nodes.append((word, int(rest[0]), int(rest[1])))
    return graphs


def load(blob: fc.Blob) -> fc.Module:
    state = State(blob.data.decode())
    functions = {name: partial(state.run, name) for name in state.graphs}
    return ffi.new_module(KIND, functions, save=lambda: bytes(blob), source=lambda format: blob.data.decode())
