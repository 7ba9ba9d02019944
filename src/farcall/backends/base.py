"""The interface of backends. A backend says which nodes it takes, and turns a region into code.

Subclass :class:`Backend` (or :class:`farcall.backends.c_backend_kit.CBackendKit` to generate C),
and name the class in the entry-point group ``farcall.backends``, or pass an instance to
``fc.partition(..., backends=[...])``.

A backend gives each region's code as one of two kinds:

* :class:`RegionCode`: C sources, object files, static libraries, or all of them.
* :class:`RegionModule`: bytes for a loader that is found by name when the artifact is loaded.

Either way the code is one function with the universal signature (``include/farcall/c_api.h``). Its arguments
are, in this order:

* the region's inputs, then its outputs: each a ``DLTensor*`` (type index 7, or a Tensor) on the region's
  device, row-major and aligned to its element size; outputs overlap no input and no other output;
* if ``workspace`` is not 0, an opaque pointer (type index 4) to that many bytes, aligned to 64;
* for each name in ``symbols``, an Int: the size of that symbol.

The function returns None. It may run in several threads at once, and keeps no state between calls but what
the region made when it was loaded.

An output whose shape is known only when the region has run is in ``region.allocated``, and only backends
that set ``allocates`` are asked for such nodes. It is no argument: the function allocates a row-major Tensor
on the CPU and returns it; of several, an Array. If the code sets ``bounded``, the last argument is an Int:
how many bytes these outputs may take. Without it, farcall refuses more after they have been allocated. If the
backend also sets ``ends_at_late``, no node reads such an output in the region that allocates it: all sizes
are known when the region's function is called.

``Plan.build(profile=True)`` gives a backend that sets ``profiles`` the option ``profile``: its regions then
count the time of their steps (``RegionCode.work``). ``Plan.build(tune=True)`` measures the ways of steps
that have a ``Choice``, and gives the backend the fastest ones as the option ``ways``: a mapping of problems
to ways.

Tensors of strings, sequences and optionals are objects: two Arrays (shape and strings), an Array of Tensors,
and None or the value. Only backends that set ``in_process`` are asked for nodes that read or make them. They
are arguments like tensors, and as outputs they are in ``region.allocated``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farcall.backends._kernels import Kernels
from farcall.backends._tools import run_tool
from farcall.graph import Match, Pattern, Region
from farcall.graph.dims import Dim

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.toolchain import Target

__all__ = [
    "Backend",
    "Choice",
    "Code",
    "Kernels",
    "Library",
    "RegionCode",
    "RegionModule",
    "Work",
    "run_tool",
]
__dir__ = __all__.copy


@dataclass(frozen=True)
class Library:
    """A shared library that the code of a region calls.

    The artifact names it by ``soname``; no path goes into the file, and the library need not be there when
    the artifact is built. When farcall loads the artifact, it takes the library of that soname that the
    process has, that the artifact brings (``data``), that the Python package ``package`` holds, or that the
    dynamic linker finds. Under another runtime, the dynamic linker finds it, for example by
    ``LD_LIBRARY_PATH``.

    ``symbols`` are the functions that the code calls. The artifact is linked against them alone. A library
    that lacks one, or a package older than ``version``, is not taken: the artifact is not loaded, and the
    error ends with ``cure``.
    """

    soname: str
    symbols: Sequence[str]
    package: str = ""
    version: str = ""  # the least version of the package
    cure: str = ""  # such as "install it: pip install acme"
    data: bytes = b""  # the file, if the artifact brings it


@dataclass(frozen=True)
class Choice:
    """The way that code takes, of several that compute the same in other times.

    ``problem`` is a text that says what is computed, with shapes and attributes, and does not depend on the
    way: equal problems take equal times, in any model. ``ways`` are short names; the first is the one that is
    taken if nothing was measured.
    """

    problem: str
    way: str
    ways: Sequence[str]


@dataclass(frozen=True)
class Work:
    """What a step of a region computes, if the region counts its time (see ``RegionCode.work``).

    ``nodes`` are the names of its nodes, and ``operator`` tells what they are. ``operations`` are additions
    and multiplications of elements (0: they are not counted), ``bytes`` what it reads and writes. ``choice``
    is there if the backend could compute the step in other ways; a problem may take several steps.
    """

    nodes: Sequence[str]
    operator: str
    operations: Dim = 0
    bytes: Dim = 0
    choice: Choice | None = None


@dataclass(frozen=True)
class RegionCode:
    """The code of one region, as C sources, object files or static libraries.

    Together they define the function ``__tvm_ffi_<region.name>`` (see the module), in a source or an object;
    a static library holds what these call. An artifact gives the function another name, which is hidden; what
    the artifact exports under the region's name checks the arguments first.

    ``constants`` maps C identifiers to data. The artifact stores them once, aligned to 64 bytes; the code
    declares them as ``extern const unsigned char <id>[];``.

    With ``table``, the function gets the addresses of the constants as ``self``, a ``const void* const*``, in
    their order, instead of naming them. Regions whose code is equal but for their names and constants then
    share one function.

    ``preamble`` is C in front of every source: definitions that other regions of the backend may have, too.
    Several small regions are compiled as one file, in which a text that more than one gives is written once.

    ``kernels`` are further files, which other regions may have, too.

    With ``state``, the code also defines ``__tvm_ffi_<region.name>_init``, which takes no arguments and
    returns an opaque pointer, and ``__tvm_ffi_<region.name>_destroy``. farcall calls the first once, when it
    loads the artifact (another runtime: before the first call), and the second when the process ends, unless
    that is the process of a server's session. The second, and the region's function, get the pointer as
    ``self``.

    With ``work``, the code counts the time of its steps, and also defines ``__tvm_ffi_<region.name>_steps``.
    That takes the number of a step, and returns the nanoseconds which that step has taken since it was last
    asked.

    With ``levels``, an artifact for a target that names no CPU level may have the sources compiled for
    several of them; the one for the CPU is called. The constants must then serve all of them.
    """

    sources: Mapping[str, str] = field(
        default_factory=dict
    )  # file name (unique to the region, ends in .c) -> text
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    workspace: Dim = 0  # bytes
    symbols: Sequence[str] = ()  # whose sizes the shapes of the arguments do not show
    compile_flags: Sequence[str] = ()
    link_flags: Sequence[str] = ()
    objects: Mapping[str, bytes] = field(default_factory=dict)  # file name (ends in .o or .a) -> content
    state: bool = False
    libraries: Sequence[Library] = ()
    table: bool = False
    preamble: Sequence[str] = ()
    kernels: Sequence[Kernels] = ()
    function: str = ""  # that the code defines, without its prefix; empty: the region's name
    device: str = "cpu"  # of the inputs, and of the outputs that the caller allocates
    bounded: bool = False  # whether the function takes the number of bytes that it may allocate
    work: Sequence[Work] = ()  # of each step
    least: Dim | None = None  # bytes of workspace that no plan can save; None: all of it
    scratch: Dim = 0  # bytes that each thread beyond the first one keeps for itself
    levels: bool = False  # whether the code runs faster if it is compiled for the level of the CPU

    @property
    def texts(self) -> dict[str, str]:
        """The sources with the preamble in front."""
        return {name: "\n".join([*self.preamble, text]) for name, text in self.sources.items()}


@dataclass(frozen=True)
class RegionModule:
    """The code of one region, as bytes for the loader of a kind of modules.

    The artifact embeds the bytes, in a frame that states the kind, its version and the features that it needs
    (docs/spec/blob.md). When the artifact is loaded, the loader that is registered for the kind makes a
    module of them, and the region's function is the module's function ``function``. Regions whose kind,
    version, data and features are equal share one module.

    If there are ``constants``, the module's function ``__init_<function>`` is called once, at load, with one
    Array: a Tensor for each of them, in their order. The Tensors are views of the artifact's memory, aligned
    to 64 bytes. If they are not those that the module needs, it raises: the load ends with an ArtifactError
    that names the region and the kind.

    With ``keeps``, the module keeps a value that regions of it take. The function that makes it gets a
    ``DLTensor*`` of device type 0, and returns an object that stands for the value, such as a Tensor or an
    Opaque; of several, an Array. Without data in the DLTensor, nobody else takes the value; otherwise the
    function fills it, as any output. The function that takes the value gets the object, which ends with the
    call of the model. Users who call a region alone pass and get tensors.

    ``loader`` is C that exports the loader of the kind, ``FARCALL_MODULE_LOADER(kind)`` of
    ``farcall/module.h``: the artifact brings it, and needs no other, also on a machine without Python. It is
    one text for all modules of the kind, and declares ``__farcall_runtime`` as ``extern``.
    """

    kind: str
    version: int  # of the kind's format
    data: bytes
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    workspace: Dim = 0  # bytes
    symbols: Sequence[str] = ()  # whose sizes the shapes of the arguments do not show
    features: Sequence[str] = ()  # of the runtime, that the loader needs
    function: str = ""  # empty: the region's name
    source: str = ""  # what people read instead of the data
    device: str = "cpu"  # of the inputs, and of the outputs that the caller allocates
    bounded: bool = False  # whether the function takes the number of bytes that it may allocate
    keeps: bool = False  # values between its regions
    loader: str = ""  # C, if the artifact brings the loader of the kind


Code: TypeAlias = RegionCode | RegionModule


class Backend(ABC):
    """Base of all backends. ``name``, a short C identifier, is the domain and the prefix of its regions.

    A class states its options with their defaults in ``options``. ``fc.backend("npu", level=2)`` makes an
    instance whose ``options`` hold the given values beside the defaults of the others.
    """

    name: str
    color: str = "#8888cc"  # in pictures of the partition
    options: Mapping[str, Any] = {}
    allocates: bool = False  # whether its regions may allocate outputs whose shapes are known only then
    ends_at_late: bool = False  # whether nothing reads such an output in the region that allocates it
    profiles: bool = False  # whether the option `profile` makes its regions count the time of their steps
    in_process: bool = False  # whether a package in the process that loads the artifact computes its regions
    min_nodes: int = 1  # a smaller region goes to the next backend; `min_nodes` of fc.partition overrides it

    def patterns(self) -> Sequence[Pattern]:
        """Groups of nodes that the backend takes together, in order of priority. Empty by default."""
        return ()

    def check(self, node: ir.Node) -> str | None:
        """The reason why the backend does not take the single ``node``; ``None`` if it does.

        Shapes and dtypes are inferred before the call; :func:`farcall.graph.dims.dims` reads dims.
        """
        return f"{self.name} takes no single {node.op_type}"

    def accept(self, region: Region) -> str | Sequence[Match] | None:
        """Look at a whole region before it is final. The next backends get the nodes that this one gives up.

        Returns:
            None: the backend takes the region. A text: it takes none of it, for this reason. Some of
            ``region.matches``: it keeps those, which may then form several regions.
        """
        return None

    @abstractmethod
    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Code:
        """Generate the code of ``region``. A backend that needs no more may define ``compile(self, region)``.

        Args:
            region: the nodes, and the values that cross the region's border.
            target: the machine on which the code will run.
            options: the backend's options.
        """

    def finish(
        self, regions: Sequence[Region], codes: Sequence[Code], target: Target, options: Mapping[str, Any]
    ) -> Sequence[Code]:
        """End the backend's work for a model: the final code of each region.

        A backend whose regions share something, such as one blob with all weights, makes it here.

        Args:
            regions: all regions of the backend, in the order in which they run.
            codes: what :meth:`compile` gave for each.
            target: the machine on which the code will run.
            options: the backend's options.
        """
        return codes
