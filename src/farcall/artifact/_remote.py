"""The backend ``remote``: a region is computed behind a session, by code that other backends make for it.

The region becomes a model of its own, which the inner backends build for the far machine. The artifact holds
what they built, and where it goes, as a module of kind ``farcall.remote``. The loader of that kind
(:mod:`farcall.rpc.client._far_regions`) loads it there, and calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from farcall.artifact._places import place
from farcall.artifact._plan import Plan, partition
from farcall.backends import resolve
from farcall.backends.base import Backend, Code, RegionModule
from farcall.errors import FarcallError
from farcall.graph import Pattern, Region
from farcall.graph._region_model import region_model
from farcall.library._far import KIND, VERSION, Source, pack, unpack
from farcall.toolchain import Target

if TYPE_CHECKING:
    import onnx_ir as ir


class RemoteBackend(Backend):
    """Computes regions behind a session.

    Options:
        on: where: a URL, a Session, or the name of a device, which is told when the artifact is loaded.
        inner: the backends that make the code, in order of priority; default: ``c``.
        target: the machine that runs it; default: that for which the artifact is built.
        operators: those to take, and the names of the inner backends' patterns; default: all.
    """

    name = "remote"
    color = "#7a6fb0"
    options: Mapping[str, Any] = {"on": None, "inner": None, "target": "", "operators": None}

    def patterns(self) -> Sequence[Pattern]:
        """Those of the inner backends."""
        return [one for inner in self._inner() for one in inner.patterns() if self._wants(one.name)]

    def check(self, node: ir.Node) -> str | None:
        """Take what an inner backend takes."""
        if not self._wants(node.op_type):
            return f"its option `operators` has no {node.op_type}"
        reasons = {inner.name: inner.check(node) for inner in self._inner()}
        if None in reasons.values():
            return None
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())

    def accept(self, region: Region) -> str | None:
        """Take a region that the inner backends can build as a model of its own."""
        try:
            self._plan(region)
        except FarcallError as error:
            return f"it is no model of its own: {error}"
        return None

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionModule:
        """Build the region for the far machine."""
        on = place(options["on"])
        far = Target.parse(options["target"]) if options["target"] else target
        plan = self._plan(region)
        artifact = plan.build(far).read()
        data = pack(on, self.name, str(far), {region.name: Source(len(region.inputs), artifact)})
        return RegionModule(KIND, VERSION, data, source=f"{on}, {far}\n{plan}\n", keeps=True)

    def finish(
        self, regions: Sequence[Region], codes: Sequence[Code], target: Target, options: Mapping[str, Any]
    ) -> Sequence[Code]:
        """Put all regions into one module, which opens one session."""
        modules = [code for code in codes if isinstance(code, RegionModule)]
        found: dict[str, Source] = {}
        for region, module in zip(regions, modules, strict=True):
            head, (artifact,) = unpack(module.data)
            found[region.name] = Source(len(region.inputs), artifact)
        data = pack(head.on, head.backend, head.target, found)
        return [replace(module, data=data) for module in modules]

    def _inner(self) -> list[Backend]:
        return resolve(self.options["inner"] or "c")

    def _wants(self, name: str) -> bool:
        only = self.options["operators"]
        return only is None or name in (only.split(",") if isinstance(only, str) else only)

    def _plan(self, region: Region) -> Plan:
        return partition(region_model(region), self._inner())
