"""Cuts a model into regions: assigns nodes to backends, merges them, and builds the regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.abi import Signature
from farcall.graph._annotate import Answer, Answers, Claims
from farcall.graph._collector import paused_collector
from farcall.graph._constraints import constraints, needs
from farcall.graph._expand import Expansion
from farcall.graph._model import GONE, ModelLike, is_loaded, load_model
from farcall.graph._objects import leaf_of
from farcall.graph._region import Region
from farcall.graph._rules import Rules, refuse_gone
from farcall.graph._settle import Settling
from farcall.graph.dims import Dim
from farcall.library._why import matching

if TYPE_CHECKING:
    import os

    from farcall.drawing._diagram import Diagram
    from farcall.library._why import Why


@dataclass(frozen=True)
class Partition:
    """A model, cut into regions.

    ``regions`` are in an order in which they can run. ``constraints`` are pairs of dims, over the symbols of
    the inputs, that must be equal in every call of the model. ``answers`` gives, for nodes that a backend
    did not get, why, in the order in which backends were asked; :meth:`why` reads them. ``expansions`` are
    the nodes that no backend took as a whole, by name: ONNX's definitions of their operators replaced them.
    ``inside`` has the graphs inside of If, Loop and Scan, which are cut, too, by the names of the nodes'
    regions.
    """

    model: ir.Model
    regions: tuple[Region, ...]
    colors: Mapping[str, str]  # backend -> colour, in order of priority
    constraints: tuple[tuple[Dim, Dim], ...]
    answers: Mapping[ir.Node, Sequence[Answer]]
    expansions: Mapping[str, Expansion] = field(default_factory=dict)
    inside: Mapping[str, tuple[Body, ...]] = field(default_factory=dict)

    def bodies(self) -> Iterator[Body]:
        """The graphs inside of nodes, at every depth."""
        for region in self.regions:
            for body in self.inside.get(region.name, ()):
                yield body
                yield from body.partition.bodies()

    @cached_property
    def needs(self) -> Mapping[tuple[Dim, Dim], str]:
        """What to say where the two dims of a constraint are not equal."""
        found = needs(self.model)
        return {pair: found[pair].told(*pair) for pair in self.constraints}

    @cached_property
    def all_regions(self) -> tuple[Region, ...]:
        """The regions, and those of the graphs inside of nodes."""
        return (*self.regions, *(region for body in self.bodies() for region in body.partition.regions))

    @cached_property
    def all_answers(self) -> Mapping[ir.Node, Sequence[Answer]]:
        """The answers, also about nodes in graphs inside of nodes."""
        found = dict(self.answers)
        for body in self.bodies():
            found |= body.partition.answers
        return found

    @cached_property
    def all_expansions(self) -> Mapping[str, Expansion]:
        """The expansions, also those in graphs inside of nodes."""
        found = dict(self.expansions)
        for body in self.bodies():
            found |= body.partition.expansions
        return found

    @cached_property
    def signature(self) -> Signature:
        """The model's inputs and outputs.

        Raises:
            ModelError: The type or the shape of an input or output is not known.
        """
        graph = self.model.graph
        return Signature(tuple(map(leaf_of, graph.inputs)), tuple(map(leaf_of, graph.outputs)))

    def why(self, name: str) -> Why:
        """Who was asked about a node, what each said, and who got it.

        Raises:
            UsageError: No node has this name; the message has a similar one, or says that it is gone.
        """
        refuse_gone(name, self.model.meta.get(GONE, ()))
        return matching(name, {why.node: why for why in self.whys})[0]

    @cached_property
    def whys(self) -> tuple[Why, ...]:
        """:meth:`why` for every node, in the order of the model."""
        from farcall.graph._why import whys

        return tuple(whys(self))

    def to_model(self) -> ir.Model:
        """The partitioned model as plain ONNX: each region is a function in its backend's domain."""
        from farcall.graph._export import partitioned_model

        return partitioned_model(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`to_model` to the file ``path``, atomically."""
        from farcall.graph._export import save_model

        save_model(self.to_model(), path)

    def diagram(self) -> Diagram:
        """The graph as data from which pictures are drawn."""
        from farcall.graph._diagram import diagram

        return diagram(self)

    def __str__(self) -> str:
        from farcall.graph._report import table

        return table(self)


@dataclass(frozen=True)
class Body:
    """A graph inside of an If, Loop or Scan, as a model that is cut into regions.

    ``captured`` are the values of the graph around it that its last inputs stand for. ``sizes`` are symbols
    of that graph which no dim of its inputs shows. ``name`` is a C identifier.
    """

    name: str
    attribute: str
    partition: Partition
    captured: tuple[ir.Value, ...]
    sizes: tuple[str, ...]

    @property
    def function(self) -> str:
        """The C name of its driver."""
        return f"farcall_body_{self.name}"


def cut(model: ModelLike, backends: Sequence[Claims], rules: Rules | None = None) -> Partition:
    """Assign each node to a backend, and cut the model into regions.

    Args:
        model: A result of :func:`farcall.graph.load_model`, or a source that it accepts.
        backends: In order of priority. The same model, backends and rules give the same partition.
        rules: Pins, exclusions and least sizes.

    Returns:
        The partition: every node is in one region; every region is connected, convex and of one backend.

    Raises:
        UnsupportedOperatorError: No backend takes a node.
        ModelError: The model cannot be loaded.
        UsageError: A rule names a node or a backend that is not there.
        BackendError: A backend's code is at fault.
    """
    if not (isinstance(model, ir.Model) and is_loaded(model)):
        model = load_model(model)
    with paused_collector():
        settling = Settling(model, backends)
        return settled(settling, *settling.settle(rules or Rules()))


def settled(settling: Settling, regions: tuple[Region, ...], answers: Answers) -> Partition:
    """The partition of a model whose regions are found."""
    colors = {backend.name: backend.color for backend in settling.backends}
    pairs = constraints(settling.model)
    return Partition(settling.model, regions, colors, pairs, answers, dict(settling.expansions))
