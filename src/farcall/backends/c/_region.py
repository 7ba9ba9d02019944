"""Turns a region into C: groups the nodes, makes their kernels, plans the memory, writes the calls."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from farcall.backends.base import RegionCode
from farcall.backends.c._attention import Attention, attentions
from farcall.backends.c._channels_last import channels_last
from farcall.backends.c._dilated import without_padding
from farcall.backends.c._elementwise import emit_group
from farcall.backends.c._epilogue import Epilogue
from farcall.backends.c._families import operator
from farcall.backends.c._fusion import Group, group, roots
from farcall.backends.c._gemm_text import COMPILE_FLAGS
from farcall.backends.c._helpers import HELPERS
from farcall.backends.c._hooks import CLOCK, by_nodes, counted, counters, work_of
from farcall.backends.c._kernel import Argument, Late, Scratch, Step, Table
from farcall.backends.c._memory_plan import Life, MemoryPlan, plan
from farcall.backends.c._narrow import narrowed
from farcall.backends.c._qdq import fused
from farcall.backends.c._registry import Loops, View
from farcall.backends.c._ways import fastest
from farcall.backends.c._winograd import winograd
from farcall.backends.c_backend_kit import PART, RegionWriter, align, itemsize
from farcall.graph import Region
from farcall.graph._alive import maximum_of
from farcall.graph.dims import Dim, dims, fold, product


def generate(
    region: Region, *, profile: bool = False, fast_conv: bool = True, ways: Mapping[str, str] | None = None
) -> RegionCode:
    """The code of ``region``, whose nodes the C backend has accepted.

    Args:
        region: The region.
        profile: Whether the code counts its time.
        fast_conv: Whether convolutions may use Winograd's method.
        ways: The fastest ways that were measured, by problem.
    """
    region = narrowed(without_padding(channels_last(fused(region))))
    root = roots(region.nodes)
    nodes = [node for node in region.nodes if _has_steps(node)]
    groups = group(nodes, root)
    with winograd(fast_conv), fastest(ways or {}):
        steps = _resolve(_steps(groups, root, region), root)
    home = _homes(region, root)
    memory = plan(lives(steps, region, home))
    code = _write(region, steps, home, memory, root, profile)
    return replace(
        code,
        least=memory.least,
        scratch=maximum_of([size for size in dict.fromkeys(map(_scratch, steps)) if size != 0]),
        work=list(map(work_of, by_nodes(steps).values())) if profile else (),
    )


def _scratch(step: Step) -> Dim:
    """What a thread of the pool needs for a step, as the step asks for it."""
    return fold(sum((align(item.size) for item in step.scratch), start=0)) if step.split else 0


def _has_steps(node: ir.Node) -> bool:
    entry = operator(node)
    return not isinstance(entry, View) or any(True for _ in entry.verify(node))


def _steps(groups: Sequence[Group], root: Mapping[ir.Value, ir.Value], region: Region) -> list[Step]:
    readers = _readers(groups, root)
    kept = {root.get(value, value) for value in region.outputs}
    ends = {
        number: _needed(item, number, readers, kept) for number, item in enumerate(groups) if item.elementwise
    }
    epilogues = _epilogues(groups, root, readers, kept, ends)
    inside = {maker for maker, _ in epilogues.values()}
    whole: dict[int, Attention] = {}
    for attention, numbers in attentions(groups, root, readers, kept, ends):
        whole[max(numbers)] = attention
        inside |= numbers - {max(numbers)}
    steps: list[Step] = []
    for number, item in enumerate(groups):
        nodes = item.nodes
        if number in inside:
            continue
        if number in whole:
            nodes = whole[number].nodes
            made: Iterable[Step] = [whole[number].step()]
        elif number in epilogues:
            maker, epilogue = epilogues[number]
            made = _finished(groups[maker].nodes[0], epilogue)
            nodes = (*groups[maker].nodes, *nodes)
        elif item.elementwise:
            made = [emit_group(nodes, root, ends[number])]
        else:
            made = _own_steps(nodes[0])
        for step in made:
            step.nodes = nodes
            steps.append(step)
    return steps


def _needed(
    item: Group, number: int, readers: Mapping[ir.Value, set[int]], kept: Container[ir.Value]
) -> set[ir.Value]:
    """The values that an elementwise group must store."""
    outs = (node.outputs[0] for node in item.nodes)
    found = {out for out in outs if out in kept or readers.get(out, set()) - {number}}
    return found or {item.nodes[-1].outputs[0]}


def _epilogues(
    groups: Sequence[Group],
    root: Mapping[ir.Value, ir.Value],
    readers: Mapping[ir.Value, set[int]],
    kept: Container[ir.Value],
    ends: Mapping[int, set[ir.Value]],
) -> dict[int, tuple[int, Epilogue]]:
    """The elementwise groups that the kernel of another group computes, with the number of that group.

    It is the only one that reads the kernel's result, and the kernel runs in its place.
    """
    found: dict[int, tuple[int, Epilogue]] = {}
    for number, item in enumerate(groups):
        entry = operator(item.nodes[0])
        source = item.nodes[0].outputs[0]
        followers = readers.get(source, set())
        if not isinstance(entry, Loops) or entry.finish is None or source in kept or len(followers) != 1:
            continue
        (follower,) = followers
        if follower in ends:
            epilogue = Epilogue.of(source, groups[follower].nodes, root, ends[follower])
            if epilogue is not None and entry.finishes(item.nodes[0], epilogue):
                found[follower] = number, epilogue
    return found


def _finished(node: ir.Node, epilogue: Epilogue) -> Iterable[Step]:
    entry = operator(node)
    assert isinstance(entry, Loops) and entry.finish is not None  # noqa: S101 - `_epilogues` has asked
    return entry.finish(node, epilogue)


def _own_steps(node: ir.Node) -> Iterable[Step]:
    entry = operator(node)
    if isinstance(entry, Loops):
        return entry.emit(node)
    return entry.verify(node) if isinstance(entry, View) else ()


def _readers(groups: Sequence[Group], root: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, set[int]]:
    """Value -> the groups that read it, or a view of it, from memory or from a register."""
    readers: dict[ir.Value, set[int]] = {}
    for number, item in enumerate(groups):
        for node in item.nodes:
            for value in node.inputs:
                if value is not None:
                    readers.setdefault(root.get(value, value), set()).add(number)
    return readers


def _resolve(steps: Iterable[Step], root: Mapping[ir.Value, ir.Value]) -> list[Step]:
    """The steps with views replaced by the values whose memory they share."""
    resolved: list[Step] = []
    for step in steps:
        step.reads = [root.get(value, value) for value in step.reads]
        step.arguments = [root.get(a, a) if isinstance(a, ir.Value) else a for a in step.arguments]
        resolved.append(step)
    return resolved


def _homes(region: Region, root: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
    """Computed value -> the output of the region whose memory it is written to."""
    made = {out for node in region.nodes for out in node.outputs}
    homes: dict[ir.Value, ir.Value] = {}
    for value in region.outputs:
        source = root.get(value, value)
        if source in made:
            homes.setdefault(source, value)
    return homes


def lives(
    steps: Sequence[Step], region: Region, home: Mapping[ir.Value, ir.Value]
) -> list[Life[ir.Value | Scratch]]:
    """The life of each buffer in the workspace, from the first write to the last read."""
    outside = {*region.inputs, *region.constants, *home}
    first: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}
    found: list[Life[ir.Value | Scratch]] = []
    for number, step in enumerate(steps):
        for value in step.writes:
            first.setdefault(value, number)
        for value in (*step.reads, *step.writes):
            last[value] = number
        found += [Life(item, item.size, number, number) for item in step.scratch]
    found += [
        Life(value, product(dims(value)) * itemsize(value.dtype), start, last[value])
        for value, start in first.items()
        if value not in outside
    ]
    return found


def _write(
    region: Region,
    steps: Sequence[Step],
    home: Mapping[ir.Value, ir.Value],
    memory: MemoryPlan[ir.Value | Scratch],
    root: Mapping[ir.Value, ir.Value],
    profile: bool,
) -> RegionCode:
    places = {item: offset for item, offset in memory.offsets.items() if isinstance(item, ir.Value)}
    out = RegionWriter(region, places, memory.size, COMPILE_FLAGS)
    out.file_scope(HELPERS)
    counter = {nodes: number for number, nodes in enumerate(by_nodes(steps))}
    if profile:
        out.file_scope(CLOCK)
        out.file_scope(counters(region.name, len(counter)))
    names: dict[tuple[str, str], str] = {}
    tables: dict[Table, str] = {}
    for number, step in enumerate(steps):
        if number and number % PART == 0:
            out.split()
        for text in step.file_scope:
            out.file_scope(text)
        for kernels in step.kernels:
            out.uses(kernels)
        if step.source not in names:
            names[step.source] = f"{region.name}_f{len(names)}"
            out.file_scope(step.function(names[step.source]))
        arguments = ", ".join(_argument(out, item, home, memory, tables) for item in step.arguments)
        call = f"{names[step.source]}({arguments})"
        statement = f"if ({call}) return -1;" if step.can_fail else f"{call};"
        out.line(counted(region.name, counter[tuple(step.nodes)], statement) if profile else statement)
    for value in region.outputs:
        _copy_view(out, value, home, root)
    return out.finish()


def _argument(
    out: RegionWriter,
    item: Argument,
    home: Mapping[ir.Value, ir.Value],
    memory: MemoryPlan[ir.Value | Scratch],
    tables: dict[Table, str],
) -> str:
    if isinstance(item, ir.Value):
        return out.pointer(home.get(item, item))
    if isinstance(item, Scratch):
        return out.place(memory.offsets[item])
    if isinstance(item, Table):
        if item not in tables:
            tables[item] = out.constant(item.data)
        return tables[item]
    if isinstance(item, Late):
        return out.late(item.value)
    return out.dim(item)


def _copy_view(
    out: RegionWriter, value: ir.Value, home: Mapping[ir.Value, ir.Value], root: Mapping[ir.Value, ir.Value]
) -> None:
    """Copy the elements to an output that is a view of an input, a constant or another output."""
    source = root.get(value, value)
    place = home.get(source, source)
    if place is value:
        return
    size = out.dim(product(dims(value)) * itemsize(value.dtype))
    out.line(f"memcpy({out.pointer(value)}, {out.pointer(place)}, (size_t){size});")
