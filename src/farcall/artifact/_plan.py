"""``partition`` divides a model between backends; a :class:`Plan` is the result."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from farcall._extras import require_compile
from farcall._progress import Phase
from farcall._texts import count, duration
from farcall.errors import UsageError
from farcall.library._manifest import ModelInfo

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall._progress import Report
    from farcall.abi import Signature
    from farcall.artifact._artifact import Artifact
    from farcall.artifact._region_forecast import RegionForecast
    from farcall.backends.base import Backend
    from farcall.drawing._diagram import Diagram
    from farcall.graph import Partition, Region, Why
    from farcall.graph._annotate import Answer
    from farcall.graph._model import ModelLike
    from farcall.rpc import Session
    from farcall.toolchain import Target


# Cuts the model without giving some nodes to some backends.
Propose: TypeAlias = "Callable[[Mapping[ir.Node, Sequence[Answer]]], Plan]"


def partition(
    model: ModelLike,
    backends: Sequence[str | Backend] = ("c",),
    *,
    pin: Mapping[str, str] | None = None,
    exclude: Mapping[str, Sequence[str]] | None = None,
    min_nodes: Mapping[str, int] | None = None,
    choose: Callable[[Propose], Plan] | None = None,
    progress: Report | None = None,
) -> Plan:
    """Cut a model into regions. The first backend that takes a node computes it.

    Args:
        model: an ONNX file, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        backends: names of installed backends, ``"pkg.mod:Class"``, or Backend objects, in order of priority.
        pin: nodes and the backend that must take them: ``{"/layer1/*": "c"}``. Here and in ``exclude``, nodes
            are given by name, or by a pattern of names as a shell has them; also those of graphs inside of
            nodes: ``"/loop/body/*"``.
        exclude: backends and nodes that they do not get: ``{"npu": ["conv1", "/head/*"]}``.
        min_nodes: backends and the least number of nodes of their regions: ``{"npu": 3}``. The next backends
            get smaller ones, unless a node of them is pinned, or no other backend takes it.
        choose: how to choose among cuts, such as ``fc.measured()``; default: the order of the backends.
        progress: called with each :class:`farcall.Progress` of the phases ``read`` and ``partition``.

    Returns:
        The plan, from which :meth:`Plan.build` builds an artifact.

    Raises:
        MissingFileError: there is no such file.
        ModelError: the file is not ONNX, or is not a valid model.
        UnsupportedOperatorError: no backend takes a node; the message lists each backend's reason.
        BackendError: a backend is not installed, or its code is at fault.
        UsageError: ``pin``, ``exclude`` or ``min_nodes`` name a node or a backend that is not there, or
            ``choose`` returns no plan.
        MissingExtraError: the packages that read models are not installed.
    """
    require_compile()
    from farcall.artifact._control import control_of, with_control
    from farcall.backends import resolve
    from farcall.graph import Rules, load_model
    from farcall.graph._collector import paused_collector
    from farcall.graph._partition import settled
    from farcall.graph._rules import check_names, check_types
    from farcall.graph._settle import Settling

    rules = Rules(pin or {}, exclude or {}, min_nodes or {})
    check_types(rules)
    chosen = with_control(resolve(backends))
    reading = Phase(progress, "read", 1, "models", "reading the model")
    loaded = load_model(model)
    nodes = len(loaded.graph)
    reading.end(count(nodes, "node"))
    cutting = Phase(progress, "partition", nodes, "nodes", f"assigning {count(nodes, 'node')}")
    settling = Settling(loaded, chosen)
    about = _describe(model, loaded)

    control = control_of(chosen)

    def propose(banned: Mapping[ir.Node, Sequence[Answer]]) -> Plan:
        with paused_collector():
            control.inside.restrict(rules, banned)
            parts = control.inside.completed(settled(settling, *settling.settle(rules, banned)))
            check_names(rules, parts)
        used = {one.name for one in settling.backends}
        taking = [control.of(parts) if one is control else one for one in chosen]
        return Plan(parts, {one.name: one for one in taking if one.name in used}, about)

    plan = choose(propose) if choose else propose({})
    if not isinstance(plan, Plan):
        raise UsageError(f"choose: expected one that returns a Plan, such as fc.measured(), got {plan!r}")
    cutting.end(_summary(plan.regions))
    return plan


def _summary(regions: Sequence[Region]) -> str:
    """``3 regions: npu 2, c 1``."""
    counts = Counter(region.backend for region in regions)
    each = ", ".join(f"{backend} {count}" for backend, count in counts.items())
    return f"{count(len(regions), 'region')}: {each}"


class Plan:
    """A partitioned model. Made by :func:`partition`.

    ``figures`` are the seconds of ``main`` and of each region, if the plan was chosen by measurement.
    """

    def __init__(self, partition: Partition, backends: Mapping[str, Backend], model: ModelInfo) -> None:
        self._partition = partition
        self._backends = dict(backends)
        self._model = model
        self.figures: Mapping[str, float] = {}

    @property
    def partition(self) -> Partition:
        """The model, cut into regions."""
        return self._partition

    @property
    def backends(self) -> Mapping[str, Backend]:
        """The backends by name, in order of priority."""
        return self._backends

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions, in the order in which they run; then those of graphs inside of nodes."""
        return self._partition.all_regions

    @property
    def signature(self) -> Signature:
        """The inputs and outputs of the model."""
        return self._partition.signature

    @property
    def model(self) -> ModelInfo:
        """The name, opsets and hash of the model."""
        return self._model

    def build(
        self,
        target: str | Target | None = None,
        *,
        link: Literal["shared", "static"] = "shared",
        name: str | None = None,
        devices: Mapping[str, str | Target] | None = None,
        late_bytes: int | None = None,
        profile: bool = False,
        tune: bool = False,
        on: Session | None = None,
        budget_s: float = 60.0,
        inputs: Mapping[str, Any] | None = None,
        figures: str | os.PathLike[str] | None = None,
        progress: Report | None = None,
    ) -> Artifact:
        """Compile every region and link one library.

        Args:
            target: ``arch-linux-abi`` such as ``aarch64-linux-musl``, optionally followed by ``:cpu``;
                default: this machine.
            link: ``"shared"``: a library that ``load_module`` loads. ``"static"``: a library and a C header
                for a program of your own, whose system library gets the functions (docs/small_server.md).
            name: of a static library, with which its C names begin; default: the model's name. Two libraries
                in one program need different names.
            devices: the targets of places that backends name by their option ``on``:
                ``{"dsp0": "hexagon-linux-musl:hexagonv67+hvx"}``. Their regions are built for these targets,
                and travel inside the artifact.
            late_bytes: how many bytes a call may allocate for tensors whose sizes depend on the data, as
                those of NonZero do, and for the memory that follows from these sizes; default: 4 GiB. A call
                that needs more raises MemoryError before it allocates.
            profile: put clocks around the operators of regions, for :func:`farcall.profile`
                (docs/speed.md). They take some 50 ns for each operator.
            tune: measure in which way each operator is the fastest, and take that one. Only backends that
                know several ways have a choice, such as ``c`` for convolutions.
            on: with ``tune``, the session on whose server to measure; default: this process. The target of a
                device that :func:`farcall.launch` started a server on is the default target.
            budget_s: with ``tune``, seconds for all measurements. None begins that is not likely to end
                within them, by the longest one so far.
            inputs: with ``tune``, arrays for the model's inputs, by name; default: random ones, with 1 for
                every symbolic dim.
            figures: with ``tune``, the file that keeps the times; default: one in the user's cache. What is
                in it is not measured again.
            progress: called with each :class:`farcall.Progress` of the phases ``generate``, ``compile`` and
                ``link``.

        Raises:
            ToolchainError: there is no compiler for the target, or the compiler rejected the code.
            BackendError: the code that a backend generated breaks its contract.
            ModelError: a size cannot be computed from the inputs before the model runs.
            UsageError: ``link`` is neither, ``name`` is no part of a C name, no backend names a device,
                ``late_bytes`` is negative, or a temporary file cannot be written. With ``tune``: the target
                is another machine, and there is no session; ``inputs`` does not fit the model; ``on`` is no
                session. Without it: what only ``tune`` needs is given.
        """
        from farcall.artifact._build import build
        from farcall.artifact._figures import check_measuring
        from farcall.artifact._places import for_devices, sessions
        from farcall.toolchain import Target

        check_measuring(on, budget_s)
        about = {"on": on, "inputs": inputs, "figures": figures}
        if not tune and (given := [name for name, value in about.items() if value is not None]):
            raise UsageError(f"{given[0]}=...: says how to tune; pass tune=True, too, or leave it out")
        there = Target.parse(target or (on.target if on is not None else None))
        plan = Plan(self._partition, for_devices(self._backends, devices or {}), self._model)
        if tune:
            from farcall.artifact._tune import Tuning, tuned

            plan = tuned(plan, there, Tuning(on, budget_s, inputs, figures), progress)
        artifact = build(plan, there, link, progress, name, late_bytes, profile)
        artifact.sessions = sessions(self._backends)
        return artifact

    def forecast(self, target: str | Target | None = None) -> list[RegionForecast]:
        """Say of each region, before anything is built: backend, sizes, operations, and what takes time.

        ``farcall build --dry-run`` prints it.

        Args:
            target: as :meth:`build` takes it. A region that cannot be built for it says so in its notes.
        """
        from farcall.artifact._forecast import forecast
        from farcall.toolchain import Target

        return forecast(self, Target.parse(target))

    def why(self, node: str) -> Why:
        """Who was asked about a node, what each said, and who got it: by patterns, order, pins or sizes.

        Args:
            node: its name. An error lists some, and :attr:`Partition.whys` has all.

        Raises:
            UsageError: no node has this name.
        """
        return self._partition.why(node)

    def source(self, region: str, target: str | Target | None = None) -> str:
        """The generated code of a region as text: C; of objects and modules without a text, the first bytes.

        Args:
            region: its name.
            target: as :meth:`build` takes it.

        Raises:
            UsageError: no region has this name.
            BackendError: the backend's code is at fault.
        """
        from farcall._suggest import did_you_mean
        from farcall.artifact._listing import listings, text
        from farcall.toolchain import Target

        found = listings(self, Target.parse(target))
        if region not in found:
            raise UsageError(f"no region is called `{region}`{did_you_mean(region, found)}")
        return text(found[region])

    def emit(self, folder: str | os.PathLike[str], target: str | Target | None = None) -> None:
        """Write the generated files of all regions into a folder, which is made if it is missing.

        Args:
            folder: where to write.
            target: as :meth:`build` takes it.

        Raises:
            UsageError: a file cannot be written.
            BackendError: a backend's code is at fault.
        """
        from farcall._files import write_beside
        from farcall.artifact._listing import listings
        from farcall.toolchain import Target

        files = listings(self, Target.parse(target))
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None
        for region in files.values():
            for name, data in region.items():
                write_beside(Path(folder) / Path(name).name, data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the partitioned model as ONNX: each region is a function in the domain of its backend.

        Args:
            path: the file to write.

        Raises:
            UsageError: the file cannot be written.
        """
        self._partition.save(path)

    def diagram(self) -> Diagram:
        """The graph as data: what the pictures show. An artifact carries it, too."""
        import msgspec

        return msgspec.structs.replace(self._partition.diagram(), title=self._model.name)

    def svg(self) -> str:
        """A picture of the graph: an SVG document, in which each backend has its colour.

        Repeated blocks are folded, and so are the largest regions of a large graph. In a browser, a reader
        opens and folds them, searches, zooms and pans. The colours follow the reader's light or dark theme.
        """
        from farcall.drawing._svg import svg

        notes = {
            region.name: f"{region.backend} \u00b7 {duration(self.figures[region.name])}"
            for region in self.regions
            if region.name in self.figures
        }
        return svg(self.diagram(), notes=notes)

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart, which GitHub draws in a Markdown block ``mermaid``."""
        from farcall.drawing._words import mermaid

        return mermaid(self.diagram())

    def dot(self) -> str:
        """The graph in DOT, for Graphviz: regions are clusters, and types of tensors stand on the edges."""
        from farcall.drawing._words import dot

        return dot(self.diagram())

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return self.svg()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        picture = self.svg()
        return {"text/plain": str(self), "text/html": picture, "image/svg+xml": picture}

    def __str__(self) -> str:
        from farcall.graph._report import table

        lines = [table(self._partition, self._model.name), *self._in_process()]
        if self.figures:
            times = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self.figures.items())
            lines.append(f"measured: {times}")
        return "\n".join(lines)

    def _in_process(self) -> list[str]:
        """For each backend whose package computes in the process that loads the artifact: what, and why."""
        from farcall.graph._report import left_to

        names = (one.name for one in self._backends.values() if one.in_process)
        return [line for name in names if (line := left_to(name, self._partition))]

    def __repr__(self) -> str:
        counts = ", ".join(f"{region.name}: {len(region.nodes)} nodes" for region in self.regions[:8])
        more = ", ..." if len(self.regions) > 8 else ""
        return f"<farcall.Plan of {self._model.name!r}: {counts}{more}>"


def _describe(source: ModelLike, loaded: ir.Model) -> ModelInfo:
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        name = Path(source).stem
    else:
        import onnx_ir as ir

        proto = ir.to_proto(source) if isinstance(source, ir.Model) else source
        digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
        name = loaded.graph.name or "model"
    opsets = {domain or "ai.onnx": version for domain, version in loaded.opset_imports.items()}
    return ModelInfo(name, opsets, loaded.ir_version or 0, digest)
