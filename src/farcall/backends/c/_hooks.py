"""The hooks of a profiled build: clocks around the steps of a region, and the function that reads them.

A normal build has none of this text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from farcall.backends._ctext import itemsize
from farcall.backends.base import Work
from farcall.backends.c._kernel import Step, Table
from farcall.backends.c._registry import Elementwise, operator
from farcall.graph._work import multiply_adds
from farcall.graph.dims import Dim, fold, late, product, try_dims

_SHOWN = 4  # operators of a fused loop that its name lists

CLOCK = """#include <time.h>
static inline int64_t farcall_nanoseconds(void) {
  struct timespec now;
  (void)timespec_get(&now, TIME_UTC);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
"""


def counters(region: str, count: int) -> str:
    """The counters of a region, and the function that reads one and sets it back."""
    return f"""static int64_t {region}_time[{max(count, 1)}];
FARCALL_KERNEL({region}_steps) {{
  const int64_t step = num_args == 1 && args[0].type_index == kTVMFFIInt ? args[0].v_int64 : -1;
  *result = (TVMFFIAny){{.type_index = kTVMFFIInt}};
  if (step < 0 || step >= {count}) return 0;
  result->v_int64 = {region}_time[step];
  {region}_time[step] = 0;
  return 0;
}}
"""


def counted(region: str, number: int, call: str) -> str:
    """The statement ``call``, with its time added to the counter of step ``number``."""
    return (
        f"{{ const int64_t farcall_begin = farcall_nanoseconds(); {call} "
        f"{region}_time[{number}] += farcall_nanoseconds() - farcall_begin; }}"
    )


def by_nodes(steps: Iterable[Step]) -> dict[tuple[ir.Node, ...], list[Step]]:
    """The steps of the same nodes, which have one counter: parts of the work, or ways for other sizes."""
    found: dict[tuple[ir.Node, ...], list[Step]] = {}
    for step in steps:
        found.setdefault(tuple(step.nodes), []).append(step)
    return found


def work_of(steps: Sequence[Step]) -> Work:
    """What steps of the same nodes compute. Elements of fused loops count as one operation for each node."""
    nodes = steps[0].nodes
    names = [node.op_type for node in nodes]
    more = f"+{len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return Work(
        [node.name or node.outputs[0].name or "" for node in nodes],
        "+".join(names[:_SHOWN]) + more,
        _sum(map(_operations, nodes)),
        _bytes(steps),
        next((step.choice for step in steps if step.choice), None),
    )


def _operations(node: ir.Node) -> Dim:
    if (shape := try_dims(node.outputs[0])) is not None and isinstance(operator(node), Elementwise):
        return product(shape)
    return 2 * multiply_adds(node)


def _bytes(steps: Sequence[Step]) -> Dim:
    """Each operand once, as if every element was read or written one time; none of what one step writes for
    another. 0: the data decides the size.
    """
    reads = dict.fromkeys(value for step in steps for value in step.reads)
    writes = dict.fromkeys(value for step in steps for value in step.writes)
    values = [value for value in {**reads, **writes} if value not in reads or value not in writes]
    if any(try_dims(value) is None or late(value) for value in values):
        return 0
    arguments = (item for step in steps for item in step.arguments)
    tables = {item.key: item.data.nbytes for item in arguments if isinstance(item, Table)}
    sizes = (product(try_dims(value) or ()) * itemsize(value.dtype) for value in values)
    return _sum([*sizes, *tables.values()])


def _sum(parts: Iterable[Dim]) -> Dim:
    total: Dim = 0
    for part in parts:
        total = total + part
    return fold(total)
