"""Asks the backends for the code of each region, and checks it against the contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from farcall._blame import blame
from farcall._progress import Phase, Report
from farcall.artifact._region_code import check_code
from farcall.errors import BackendError

if TYPE_CHECKING:
    from farcall.artifact._plan import Plan
    from farcall.backends.base import Backend, Code
    from farcall.graph import Region
    from farcall.toolchain import Target

_LISTED = 5  # nodes that an error names


def generate(
    plan: Plan, target: Target, progress: Report | None = None, *, profile: bool = False
) -> dict[str, Code]:
    """The code of each region for ``target``, by the region's name, in the order in which the regions run.

    ``progress`` is told about the phase ``generate``. ``profile``: regions count the time of their steps.

    Raises:
        BackendError: a backend raised an error, or its code breaks the contract. It names the region.
    """
    regions = plan.regions
    phase = Phase(progress, "generate", len(regions), "regions", "generating code")
    codes: dict[str, Code] = {}
    compiles = {name: _compile_of(backend, target, profile) for name, backend in plan.backends.items()}
    for region in regions:
        codes[region.name] = _compile(plan.backends[region.backend], compiles[region.backend], region)
        phase.step(f"{len(codes)} of {len(regions)} regions")
    for backend in plan.backends.values():
        own = [region for region in regions if region.backend == backend.name]
        if own:
            codes.update(_finish(backend, own, [codes[region.name] for region in own], target))
    return codes


def _compile_of(backend: Backend, target: Target, profile: bool) -> Callable[[Region], Code]:
    """The backend's ``compile`` of a region, which gets the target and options if it takes them."""
    options = {**backend.options, "profile": True} if profile and backend.profiles else backend.options
    compile_: Callable[..., Any] = backend.compile
    if not _takes_target(compile_):
        return compile_
    return lambda region: compile_(region, target, options)


def _compile(backend: Backend, compile_: Callable[[Region], Code], region: Region) -> Code:
    where = f"backend `{backend.name}`, region `{region.name}`"
    with blame(lambda: f"{where}, nodes {_names(region)}: its compile()"):
        code: Any = compile_(region)
    return check_code(code, region, where)


def _takes_target(compile_: Callable[..., Any]) -> bool:
    """Whether a backend's compile takes more than the region: the short form is ``compile(self, region)``."""
    parameters = inspect.signature(compile_).parameters.values()
    return len(parameters) > 1 or any(one.kind is one.VAR_POSITIONAL for one in parameters)


def _finish(
    backend: Backend, regions: Sequence[Region], codes: Sequence[Code], target: Target
) -> dict[str, Code]:
    where = f"backend `{backend.name}`: its finish()"
    with blame(lambda: where):
        found: Any = backend.finish(regions, codes, target, backend.options)
    if not isinstance(found, Sequence) or len(found) != len(regions):
        got = f"{len(found)} codes" if isinstance(found, Sequence) else type(found).__name__
        raise BackendError(f"{where} gave {got}; expected the code of each of its {len(regions)} regions")
    return {
        region.name: code if code is old else check_code(code, region, f"{where}, region `{region.name}`")
        for region, code, old in zip(regions, found, codes, strict=True)
    }


def _names(region: Region) -> str:
    nodes = ", ".join(f"`{node.name}` ({node.op_type})" for node in region.nodes[:_LISTED])
    return nodes + (f" and {len(region.nodes) - _LISTED:,} more" if len(region.nodes) > _LISTED else "")
