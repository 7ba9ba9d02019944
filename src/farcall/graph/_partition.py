"""Cuts a model into regions: assigns nodes to backends, merges them, and builds the regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.abi import Signature, TensorSpec
from farcall.errors import ModelError
from farcall.graph._annotate import Claim, Claims, annotate
from farcall.graph._collector import paused_collector
from farcall.graph._merge import merge
from farcall.graph._model import ModelLike, is_loaded, load_model
from farcall.graph._region import Region, reads
from farcall.graph._shapes import constraints
from farcall.graph.dims import Dim, dims, dtype_name, text

if TYPE_CHECKING:
    import os

    from farcall.drawing._diagram import Diagram


@dataclass(frozen=True)
class Partition:
    """A model, cut into regions.

    ``regions`` are in an order in which they can run. ``constraints`` are pairs of dims, over the symbols of
    the inputs, that must be equal in every call of the model. ``refusals`` gives, for a node that a
    backend of higher priority did not take, the (backend, reason) pairs.
    """

    model: ir.Model
    regions: tuple[Region, ...]
    colors: Mapping[str, str]  # backend -> colour
    constraints: tuple[tuple[Dim, Dim], ...]
    refusals: Mapping[ir.Node, Sequence[tuple[str, str]]]

    @cached_property
    def signature(self) -> Signature:
        """The model's inputs and outputs.

        Raises:
            ModelError: An input or output is not a tensor, or its shape is not known.
        """
        graph = self.model.graph
        return Signature(tuple(map(tensor_spec, graph.inputs)), tuple(map(tensor_spec, graph.outputs)))

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


def cut(model: ModelLike, backends: Sequence[Claims]) -> Partition:
    """Assign each node to a backend, and cut the model into regions.

    Args:
        model: A result of :func:`farcall.graph.load_model`, or a source that it accepts.
        backends: In order of priority. The same model and backends give the same partition.

    Returns:
        The partition: every node is in one region; every region is connected, convex and of one backend.

    Raises:
        UnsupportedOperatorError: No backend takes a node.
        ModelError: The model cannot be loaded.
    """
    if not (isinstance(model, ir.Model) and is_loaded(model)):
        model = load_model(model)
    with paused_collector():
        return _cut(model, backends)


def _cut(model: ir.Model, backends: Sequence[Claims]) -> Partition:
    nodes = list(model.graph)
    claims, refusals = annotate(nodes, backends)
    names = [backend.name for backend in backends]
    read = {node: reads(node) for node in nodes}
    groups = merge(_sources(claims, read), [claim.backend for claim in claims])
    counts = dict.fromkeys(names, 0)
    regions = []
    for group in groups:
        backend = names[claims[group[0]].backend]
        regions.append(
            _region(f"{backend}_{counts[backend]}", backend, [claims[item] for item in group], read)
        )
        counts[backend] += 1
    colors = {backend.name: backend.color for backend in backends}
    return Partition(model, tuple(regions), colors, constraints(model), refusals)


Reads = Mapping[ir.Node, tuple[ir.Value, ...]]  # the values that each node reads


def _sources(claims: Sequence[Claim], read: Reads) -> list[list[int]]:
    """For each claim, the claims that it reads from."""
    maker = {
        value: index
        for index, claim in enumerate(claims)
        for node in claim.match.nodes
        for value in node.outputs
    }
    result = []
    for index, claim in enumerate(claims):
        found = {maker[value] for node in claim.match.nodes for value in read[node] if value in maker}
        found.discard(index)
        result.append(sorted(found))
    return result


def _region(name: str, backend: str, claims: Sequence[Claim], read: Reads) -> Region:
    matches = tuple(claim.match for claim in claims)
    nodes = {node: None for match in matches for node in match.nodes}
    own = {value for node in nodes for value in node.outputs}
    entering = dict.fromkeys(value for node in nodes for value in read[node] if value not in own)
    return Region(
        name,
        backend,
        matches,
        inputs=tuple(value for value in entering if not is_constant(value)),
        outputs=tuple(value for node in nodes for value in node.outputs if _leaves(value, nodes)),
        constants=tuple(filter(is_constant, entering)),
    )


def is_constant(value: ir.Value) -> bool:
    """Whether the model holds the value's data."""
    return value.const_value is not None


def _leaves(value: ir.Value, nodes: Mapping[ir.Node, None]) -> bool:
    """Whether a value of these nodes is read outside them. A read in a subgraph counts as outside."""
    return value.is_graph_output() or any(user not in nodes for user, _ in value.uses())


def tensor_spec(value: ir.Value) -> TensorSpec:
    """The name, dtype and dims of a tensor.

    Raises:
        ModelError: The value is not a tensor, or its shape is not known.
    """
    if not isinstance(value.type, ir.TensorType):
        raise ModelError(f"`{value.name}`: expected a tensor, got {value.type or 'an unknown type'}")
    return TensorSpec(value.name or "", dtype_name(value.type.dtype), text(dims(value)))
