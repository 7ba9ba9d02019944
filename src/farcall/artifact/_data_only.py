"""Builds an artifact without a compiler, from a plan all of whose regions are modules.

Its function ``main`` is a graph of calls (docs/spec/graph.md). Regions that are graphs themselves are in the
same module; the others are functions of imports. The file is a library without code, which every loader maps.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from farcall import __version__, _core
from farcall.artifact._kept import Kept
from farcall.artifact._modules import distinct
from farcall.artifact._region_entry import RegionEntry
from farcall.artifact._states import CPU, device, module_function, place_text
from farcall.backends._ctext import stored
from farcall.backends.base import RegionModule
from farcall.backends.c._node import Unsupported
from farcall.backends.json._graph import GraphFunction
from farcall.backends.json._region import KIND, VERSION
from farcall.errors import BackendError
from farcall.graph.dims import dims, is_object, symbol, symbols
from farcall.library._blob import Blob
from farcall.library._elf_writer import ALIGNMENT, write_library
from farcall.library._manifest import (
    CHECKSUM_SECTION,
    CHECKSUM_SIZE,
    DIGEST_SECTION,
    DIGEST_SIZE,
    MANIFEST_SECTION,
    RUNTIME_SYMBOL,
    ConstantsInfo,
)
from farcall.library._module_bin import SYMBOL, module_bin

if TYPE_CHECKING:
    from farcall.backends.base import Backend, Code
    from farcall.graph import Partition, Region
    from farcall.graph.dims import Dim
    from farcall.toolchain import Target

_POINTER = 8  # bytes; enough for every machine
_UNLOADS = "__farcall_unloads"  # the loader of images may free it: no object refers to code of it
_WITH_IMPORTS = 2  # version of the payload


def all_graphs(codes: Mapping[str, Code]) -> bool:
    """Whether all regions are graphs as data themselves."""
    return bool(codes) and all(isinstance(code, RegionModule) and _is_graph(code) for code in codes.values())


def data_only(
    partition: Partition, codes: Mapping[str, Code], target: Target, backends: Mapping[str, Backend]
) -> DataOnly | str:
    """The content of the plan's artifact, or why it needs a compiler. The text is empty if a region is code.

    Args:
        partition: the model, cut into regions.
        codes: the code of each region, by the region's name.
        target: the machine that it is for: its byte order is that of the constants.
        backends: the backends, by name.
    """
    modules = {name: code for name, code in codes.items() if isinstance(code, RegionModule)}
    if len(modules) < len(codes):
        return ""
    if reason := _needs_code(partition, modules):
        return reason
    try:
        return DataOnly(partition, modules, target, backends)
    except Unsupported as error:
        return str(error)


def _needs_code(partition: Partition, codes: Mapping[str, RegionModule]) -> str:
    """Why `main` cannot be a graph of calls; empty: it can, if the interpreter has its sizes and dtypes."""
    if body := next(iter(partition.bodies()), None):
        return f"`{body.name}` is a graph inside of a node"
    for region in partition.regions:
        what = f"region `{region.name}`"
        if codes[region.name].loader:
            return f"{what} brings the loader of its module"
        if region.allocated:
            return f"{what} allocates `{region.allocated[0].name}`, whose shape the data decides"
        if odd := next(filter(is_object, (*region.inputs, *region.outputs)), None):
            return f"{what} takes or makes `{odd.name}`, which is no tensor of numbers"
        if device(codes[region.name]) != CPU:
            return f"{what} computes in the memory of {codes[region.name].device}"
    if Kept(partition.regions, codes, partition.model.graph.outputs).makers:
        return "a module keeps values between its regions"
    return ""


class DataOnly:
    """The content of an artifact without code. See :func:`data_only`.

    Raises:
        Unsupported: the interpreter lacks a dtype or a size of the function `main`.
    """

    def __init__(
        self,
        partition: Partition,
        codes: Mapping[str, RegionModule],
        target: Target,
        backends: Mapping[str, Backend],
    ) -> None:
        self._target, self._codes = target, codes
        self._data = bytearray()
        self._places: dict[bytes, int] = {}
        others = [region for region in partition.regions if not _is_graph(codes[region.name])]
        imports = {region.name: i for i, region in enumerate(others)}
        functions: dict[str, Any] = {}
        for region in partition.regions:
            if region.name in imports:
                made = _region_function(region, codes[region.name], imports[region.name], partition.needs)
                functions[region.name] = made.payload()
            else:
                functions |= self._graph(region)
        main = _main(partition, codes, imports)
        arrays = [data for _, data in main.constants]
        functions["main"] = self._with_constants(main.payload(), arrays, "`main`")
        whole: dict[str, Any] = {"byteorder": "big" if target.big_endian else "little"}
        if others:
            whole["imports"] = [self._import(region) for region in others]
        whole["functions"] = functions
        self._modules = distinct(others, codes, backends)
        version = _WITH_IMPORTS if others else VERSION
        self._blob = Blob(KIND, version, self._payload(whole), producer=f"farcall {__version__}")

    @property
    def constants(self) -> ConstantsInfo:
        """How many distinct constants there are, and their bytes."""
        return ConstantsInfo(len(self._places), len(self._data))

    def write(self, manifest: bytes) -> bytes:
        """The library, with a digest that is still zeros."""
        count = 1 + len(self._modules)
        embedded = module_bin([self._blob, None, *self._modules], [range(1, count + 1), *([()] * count)])
        symbols = {SYMBOL: embedded}
        if not self._modules:  # modules of other kinds may point into the library
            symbols[_UNLOADS] = b"\1"
        return write_library(
            self._target,
            symbols,
            {RUNTIME_SYMBOL: _POINTER},
            {
                MANIFEST_SECTION: manifest,
                DIGEST_SECTION: bytes(DIGEST_SIZE),
                CHECKSUM_SECTION: bytes(CHECKSUM_SIZE),
            },
        )

    def _graph(self, region: Region) -> dict[str, Any]:
        """The functions of a region that is a graph itself."""
        code = self._codes[region.name]
        functions: dict[str, Any] = json.loads(code.data)["functions"]
        constants, where = list(code.constants.values()), place_text(region)
        return {
            name: self._with_constants(function, constants, where) for name, function in functions.items()
        }

    def _import(self, region: Region) -> dict[str, Any]:
        """What the payload says of a region of another kind."""
        code = self._codes[region.name]
        found: dict[str, Any] = {"function": module_function(region, code), "kind": code.kind}
        found |= {"region": region.name, "place": place_text(region)}
        if code.workspace != 0:
            found["workspace"] = True
        if code.constants:
            found["constants"] = [
                [str(_core.dtype(data.dtype)), list(data.shape), {"offset": self._add(data)}]
                for data in code.constants.values()
            ]
        return found

    def _with_constants(
        self, function: dict[str, Any], constants: Sequence[np.ndarray[Any, Any]], where: str
    ) -> dict[str, Any]:
        """The function with its constants behind the payload's text, instead of given at load.

        Raises:
            BackendError: they are not those that the function states.
        """
        indexes = function.pop("constants", ())
        if len(indexes) != len(constants):
            raise BackendError(
                f"{where}: its module of kind `{KIND}` takes {len(indexes)} constants, got {len(constants)}"
            )
        for index, data in zip(indexes, constants, strict=True):
            value = function["values"][index]
            if (dtype := str(_core.dtype(data.dtype))) != value[0] or list(data.shape) != value[1]:
                raise BackendError(
                    f"{where}: its module of kind `{KIND}` takes {value[0]}{value[1]} as constant "
                    f"{indexes.index(index)}, got {dtype}{list(data.shape)}"
                )
            value.append({"offset": self._add(data)})
        return function

    def _add(self, data: np.ndarray[Any, Any]) -> int:
        array = np.ascontiguousarray(stored(data))
        if self._target.big_endian != (sys.byteorder == "big"):
            array = array.byteswap()
        content = array.tobytes()
        key = hashlib.sha256(content).digest()
        if key not in self._places:
            self._data += bytes(-len(self._data) % ALIGNMENT)
            self._places[key] = len(self._data)
            self._data += content
        return self._places[key]

    def _payload(self, whole: Mapping[str, Any]) -> bytes:
        text = json.dumps(whole, separators=(",", ":")).encode()
        return text + bytes(ALIGNMENT - len(text) % ALIGNMENT) + self._data


def _is_graph(code: RegionModule) -> bool:
    return (code.kind, code.version) == (KIND, VERSION)


def _main(
    partition: Partition, codes: Mapping[str, RegionModule], imports: Mapping[str, int]
) -> GraphFunction:
    """The function that calls the regions in their order."""
    graph = partition.model.graph
    main = GraphFunction(graph.inputs, dict.fromkeys(graph.outputs), carries=True)
    for a, b in partition.constraints:
        main.require_equal(a, b)
    for region in partition.regions:
        code = codes[region.name]
        callee = imports.get(region.name, code.function or region.name)
        _call(main, region, code, callee)
    for value in _never_made(graph.outputs, partition.regions):
        main.define(value, main.of(value))
    if hidden := main.hidden_symbols():
        raise Unsupported(f"the size `{hidden[0]}` is no dim of an input of its own")
    return main


def _region_function(
    region: Region, code: RegionModule, number: int, needs: Mapping[tuple[Dim, Dim], str]
) -> GraphFunction:
    """The function with which users call a region that is an import."""
    entry = RegionEntry(region, code, needs)
    function = GraphFunction(region.inputs, region.outputs, carries=True)
    function.used.update(dict.fromkeys(entry.sizes))  # the order in which the Signature has them
    known = {dim.name for dim in _plain_dims(region.inputs)}.union(entry.sizes)
    for a, b in needs:
        if known.issuperset(symbols(a, b)):
            function.require_equal(a, b)
    _call(function, region, code, number)
    if function.hidden_symbols() != entry.sizes:
        raise Unsupported(f"region `{region.name}` has sizes that its arguments do not show")
    return function


def _plain_dims(values: Iterable[Any]) -> list[Any]:
    every = [dim for value in values for dim in dims(value)]
    return [dim for dim in every if not isinstance(dim, int) and dim.is_Symbol]


def _call(function: GraphFunction, region: Region, code: RegionModule, callee: str | int) -> None:
    inputs = [function.of(value) for value in region.inputs]
    outputs = [function.temporary(function.dtype_of(value), dims(value)) for value in region.outputs]
    given = list(outputs)
    if isinstance(callee, int) and code.workspace != 0:
        given.append(function.temporary("uint8", (code.workspace,)))
    function.call(callee, inputs, given, map(symbol, code.symbols))
    for value, index in zip(region.outputs, outputs, strict=True):
        function.define(value, index)


def _never_made(outputs: Iterable[Any], regions: Iterable[Region]) -> list[Any]:
    """Outputs of the model that are its inputs or constants."""
    made = {value for region in regions for value in region.outputs}
    return [value for value in dict.fromkeys(outputs) if value not in made]
