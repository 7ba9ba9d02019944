"""Outputs of graphs that are views: of an input, or of a tensor that other outputs are views of, too.

Eager code may write to one of two tensors that share memory, and read the other. So the artifact computes the
tensor that the memory belongs to, and the views are made of it when it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from farcall.errors import ModelError

_EXAMPLE = "example_value"  # where Dynamo keeps the fake value of a node


class Given(NamedTuple):
    """The input with the number ``input`` itself."""

    input: int


class View(NamedTuple):
    """A view of a tensor.

    Attributes:
        base: the number of the input, or, negative, of the result from the end.
        shape: its sizes: ints, and numbers that follow from the inputs.
        strides: the same.
        offset: of its first element from the first one of its base.
    """

    base: int
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any

    def of(self, base: torch.Tensor, number: Callable[[Any], int]) -> torch.Tensor:
        """The view of ``base``; ``number`` gives the value of a size."""
        shape, strides = ([number(item) for item in items] for items in (self.shape, self.strides))
        return base.detach().as_strided(shape, strides, base.storage_offset() + number(self.offset))


def memory(fake: torch.Tensor) -> int:
    """What identifies the memory of a tensor in a graph."""
    address: int = fake.untyped_storage()._cdata
    return address


def shared(graph: torch.fx.Graph, inputs: list[Any]) -> dict[int, torch.fx.Node]:
    """By memory: the nodes that made the tensors of which several outputs are views.

    Raises:
        ModelError: such a tensor does not fill its memory.
    """
    (output,) = graph.find_nodes(op="output")
    own = {memory(fake) for fake in inputs if isinstance(fake, torch.Tensor)}
    uses = Counter(memory(fake) for fake in _tensors(output.args[0]) if memory(fake) not in own)
    makers: dict[int, torch.fx.Node] = {}
    for node in graph.nodes:
        for fake in _tensors([node]):
            if uses[memory(fake)] > 1 and memory(fake) not in makers:
                _check_whole(node.name, fake)
                makers[memory(fake)] = node
    return makers


def with_outputs(graph: torch.fx.GraphModule, nodes: list[torch.fx.Node]) -> torch.fx.GraphModule:
    """A graph that returns these nodes, too."""
    if not nodes:
        return graph
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    longer = torch.fx.Graph()
    returned: Any = longer.graph_copy(graph.graph, copies)
    longer.output((*returned, *(copies[node] for node in nodes)))
    return torch.fx.GraphModule(graph, longer)


def view(fake: torch.Tensor, base: int, whole: torch.Tensor, number: Callable[[Any], Any]) -> View:
    """How ``fake`` is seen in ``whole``; ``number`` reads a size that varies.

    Raises:
        ModelError: it has another dtype, or is seen in a way that no view of numbers is.
    """
    plain = fake.dtype == whole.dtype and not (fake.is_conj() or fake.is_neg())
    if not plain:
        raise ModelError(f"the graph returns a view of dtype {fake.dtype} of a tensor of dtype {whole.dtype}")
    read = [*map(number, fake.shape)], [*map(number, fake.stride())]
    offset = fake.storage_offset() - whole.storage_offset()
    return View(base, tuple(read[0]), tuple(read[1]), number(offset))


def _check_whole(name: str, fake: torch.Tensor) -> None:
    size = fake.numel() * fake.element_size()
    if not statically_known_true(size == fake.untyped_storage().nbytes()):
        raise ModelError(f"outputs of the graph share the memory of `{name}`, which is a part of it")


def _tensors(nodes: Any) -> Iterator[torch.Tensor]:
    for node in nodes:
        fake = node.meta.get(_EXAMPLE) if isinstance(node, torch.fx.Node) else None
        if isinstance(fake, torch.Tensor):
            yield fake
