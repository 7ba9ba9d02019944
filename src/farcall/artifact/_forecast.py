"""What a plan would become, before anything is built: who computes what, how much, and what takes time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.artifact._dtypes import nbytes
from farcall.artifact._region_forecast import RegionForecast
from farcall.graph._report import operators
from farcall.graph._work import multiply_adds
from farcall.graph.dims import Dim, fold, try_dims

if TYPE_CHECKING:
    from farcall.artifact._plan import Plan
    from farcall.backends.base import Backend
    from farcall.graph import Partition, Region
    from farcall.toolchain import Target

_NARROW = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


def forecast(plan: Plan, target: Target) -> list[RegionForecast]:
    """One item for each region, in the order of ``plan.regions``."""
    steps = dict(_steps(plan.partition))
    return [
        _of(region, plan.backends[region.backend], steps.get(region.name), target) for region in plan.regions
    ]


def _of(region: Region, backend: Backend, step: str | None, target: Target) -> RegionForecast:
    constants = sum(value.const_value.nbytes for value in region.constants if value.const_value is not None)
    return RegionForecast(
        region.name, region.backend, len(region.nodes), operators(region), constants,
        _plain(_sum(nbytes(value) for value in (*region.inputs, *region.outputs) if _is_known(value))),
        _plain(_sum(map(multiply_adds, region.nodes))),
        tuple(_notes(region, backend, step, target)),
    )  # fmt: skip


def _is_known(value: ir.Value) -> bool:
    return value.dtype not in (None, ir.DataType.STRING) and try_dims(value) is not None


def _sum(parts: Iterable[Dim]) -> Dim:
    total: Dim = 0
    for part in parts:
        total = total + part
    return fold(total)


def _plain(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def _notes(region: Region, backend: Backend, step: str | None, target: Target) -> Iterator[str]:
    if step:
        yield step
    if backend.in_process and not target.is_host:
        yield f"cannot be built for {target}: {backend.name} computes on a machine such as this one"
    elif backend.in_process:
        yield "computed in the process that loads the artifact"
    if place := backend.options.get("on"):
        yield f"its inputs and outputs are sent to {place} and back in each call"
    if names := ", ".join(f"`{value.name}`" for value in region.allocated):
        yield f"allocates {names} in each call: the data decides the size"
    narrow = {value.dtype for node in region.nodes for value in node.outputs if value.dtype in _NARROW}
    if narrow and backend.name == "c":
        kinds = ", ".join(sorted(kind.name.lower() for kind in narrow if kind is not None))
        yield f"{kinds} is converted to float32 for each loop, and back"


def _steps(partition: Partition) -> Iterator[tuple[str, str]]:
    """For each region of a graph inside of a node: when it runs."""
    for region in partition.regions:
        for body in partition.inside.get(region.name, ()):
            (node,) = region.nodes
            name = f"{node.op_type} `{node.name}`"
            when = (
                f"if `{node.name}` takes this branch" if node.op_type == "If" else f"in each step of {name}"
            )
            for inner in body.partition.regions:
                yield inner.name, f"runs {when}"
            yield from _steps(body.partition)
