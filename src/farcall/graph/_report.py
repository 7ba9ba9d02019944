"""A partition as a plain text table."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall._table import GLUE, plain_table
from farcall._texts import count, counted
from farcall.graph._annotate import describe_value

if TYPE_CHECKING:
    from farcall.graph._partition import Partition
    from farcall.graph._region import Region

_ROWS = 60  # regions that are listed
_WIDTH = 120  # columns, where there is no terminal
_KINDS = 5  # operators that a row names
_VALUES = 2  # values that a row describes
_REASON = 80  # characters of a backend's reason


def table(partition: Partition, name: str = "") -> str:
    """One row per region: name, backend, nodes, operators, inputs, outputs; then the constraints.

    Cells are folded to the width of the terminal; 120 columns if there is none. ``name`` is the model's.
    """
    regions = partition.all_regions
    nodes = sum(len(match.nodes) for region in regions for match in region.matches)
    rows = [("region", "backend", "nodes", "operators", "inputs", "outputs")]
    rows += [_row(region) for region in regions[:_ROWS]]
    lines = [
        plain_table(
            [name == "nodes" for name in rows[0]], rows, shutil.get_terminal_size((_WIDTH, 24)).columns
        )
    ]
    if len(regions) > _ROWS:
        lines.append(f"... and {len(regions) - _ROWS:,} more regions")
    lines += [f"needs {a} == {b}" for a, b in partition.constraints]
    if partition.all_expansions:
        kinds = Counter(item.operator for item in partition.all_expansions.values())
        lines.append(f"replaced by their definitions: {counted(kinds, _KINDS)}")
    name = name or partition.model.graph.name or "graph"
    head = f"{name}: {count(nodes, 'node')} in {count(len(regions), 'region')} ({_shares(regions)})"
    return "\n".join([head, *lines])


def left_to(backend: str, partition: Partition) -> str:
    """What a backend computes where the artifact is loaded, and why the others do not; empty: nothing."""
    regions = partition.all_regions
    own = [node for region in regions if region.backend == backend for node in region.nodes]
    if not own:
        return ""
    why: dict[str, str] = {}
    answers = partition.all_answers
    for node in own:
        refused = (one for one in answers.get(node, ()) if one.backend != backend)
        reason = next((f" ({one.backend}: {_short(one.text)})" for one in refused), "")
        why.setdefault(node.op_type, reason)
    kinds = ", ".join(f"{kind}{reason}" for kind, reason in list(why.items())[:_KINDS])
    more = ", ..." if len(why) > _KINDS else ""
    total = sum(len(region.nodes) for region in regions)
    verb = "is" if len(own) == 1 else "are"
    return (
        f"{len(own):,} of {count(total, 'node')} {verb} computed by {backend} in the process that loads "
        f"the artifact: {kinds}{more}"
    )


def _short(reason: str) -> str:
    return reason if len(reason) <= _REASON else f"{reason[:_REASON]}..."


def _shares(regions: Sequence[Region]) -> str:
    nodes: Counter[str] = Counter()
    for region in regions:
        nodes[region.backend] += len(region.nodes)
    return ", ".join(f"{backend}: {count(number, 'node')}" for backend, number in nodes.items()) or "empty"


def _row(region: Region) -> tuple[str, str, str, str, str, str]:
    return (
        region.name,
        region.backend,
        str(len(region.nodes)),
        operators(region).replace(" x", f"{GLUE}x"),
        _values(region.inputs),
        _values(region.outputs),
    )


def operators(region: Region) -> str:
    """The patterns and operators of a region, such as ``conv_relu x2, MaxPool``."""
    return counted(Counter(match.pattern for match in region.matches), _KINDS)


def _values(values: Sequence[ir.Value]) -> str:
    parts = [describe_value(value).replace(" ", GLUE) for value in values[:_VALUES]]
    return ", ".join(parts) + (f", +{len(values) - _VALUES}" if len(values) > _VALUES else "")
