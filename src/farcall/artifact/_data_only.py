"""Builds an artifact without a compiler, from a plan all of whose regions are graphs as data.

Its function ``main`` is a graph of calls, in one module with all regions (docs/spec/graph.md). The file is a
library without code, which every loader maps.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from farcall import __version__
from farcall.backends.base import RegionModule
from farcall.backends.json._graph import GraphFunction, dtype_of, has_dtype
from farcall.backends.json._region import KIND, VERSION
from farcall.graph.dims import dims, symbol
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
    from farcall.backends.base import Code
    from farcall.graph import Partition, Region
    from farcall.toolchain import Target

_POINTER = 8  # bytes; enough for every machine
_UNLOADS = "__farcall_unloads"  # the loader of images may free it: no object refers to code of it


def is_data_only(codes: Mapping[str, Code], partition: Partition) -> TypeGuard[Mapping[str, RegionModule]]:
    """Whether a graph can call all regions: they are modules of kind ``farcall.json``, and it has the dtypes.

    An input that no region reads may have any dtype.
    """
    graph = partition.model.graph
    return (
        bool(codes)
        and all(
            isinstance(code, RegionModule) and (code.kind, code.version) == (KIND, VERSION)
            for code in codes.values()
        )
        and all(map(has_dtype, (*graph.inputs, *graph.outputs)))
    )


class DataOnly:
    """The content of an artifact without code.

    Args:
        partition: the model, cut into regions.
        codes: the module of each region, by the region's name.
        target: the machine that it is for: its byte order is that of the constants.
    """

    def __init__(self, partition: Partition, codes: Mapping[str, RegionModule], target: Target) -> None:
        self._target = target
        self._data = bytearray()
        self._places: dict[bytes, int] = {}
        functions: dict[str, Any] = {}
        for code in codes.values():
            for name, function in json.loads(code.data)["functions"].items():
                functions[name] = self._with_constants(function, list(code.constants.values()))
        main, constants = _main(partition, codes)
        functions["main"] = self._with_constants(main, constants)
        self._blob = Blob(KIND, VERSION, self._payload(functions), producer=f"farcall {__version__}")

    @property
    def constants(self) -> ConstantsInfo:
        """How many distinct constants there are, and their bytes."""
        return ConstantsInfo(len(self._places), len(self._data))

    def write(self, manifest: bytes) -> bytes:
        """The library, with a digest that is still zeros."""
        embedded = module_bin([self._blob, None], [[1], []])
        return write_library(
            self._target,
            {SYMBOL: embedded, _UNLOADS: b"\1"},
            {RUNTIME_SYMBOL: _POINTER},
            {
                MANIFEST_SECTION: manifest,
                DIGEST_SECTION: bytes(DIGEST_SIZE),
                CHECKSUM_SECTION: bytes(CHECKSUM_SIZE),
            },
        )

    def _with_constants(
        self, function: dict[str, Any], constants: Sequence[np.ndarray[Any, Any]]
    ) -> dict[str, Any]:
        """The function with its constants behind the payload's text, instead of given at load."""
        for index, data in zip(function.pop("constants", ()), constants, strict=True):
            function["values"][index].append({"offset": self._add(data)})
        return function

    def _add(self, data: np.ndarray[Any, Any]) -> int:
        array = np.ascontiguousarray(data)
        if self._target.big_endian != (sys.byteorder == "big"):
            array = array.byteswap()
        content = array.tobytes()
        key = hashlib.sha256(content).digest()
        if key not in self._places:
            self._data += bytes(-len(self._data) % ALIGNMENT)
            self._places[key] = len(self._data)
            self._data += content
        return self._places[key]

    def _payload(self, functions: Mapping[str, Any]) -> bytes:
        order = "big" if self._target.big_endian else "little"
        whole = {"byteorder": order, "functions": functions}
        text = json.dumps(whole, separators=(",", ":")).encode()
        return text + bytes(ALIGNMENT - len(text) % ALIGNMENT) + self._data


def _main(
    partition: Partition, codes: Mapping[str, RegionModule]
) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """The function that calls the regions in their order, and its constants."""
    graph = partition.model.graph
    main = GraphFunction(graph.inputs, dict.fromkeys(graph.outputs))
    for a, b in partition.constraints:
        main.require_equal(a, b)
    for region in partition.regions:
        _call(main, region, codes[region.name])
    for value in _never_made(graph.outputs, partition.regions):
        main.define(value, main.of(value))
    return main.payload(), [data for _, data in main.constants]


def _call(main: GraphFunction, region: Region, code: RegionModule) -> None:
    inputs = [main.of(value) for value in region.inputs]
    outputs = [main.temporary(dtype_of(value), dims(value)) for value in region.outputs]
    main.call(code.function or region.name, inputs, outputs, map(symbol, code.symbols))
    for value, index in zip(region.outputs, outputs, strict=True):
        main.define(value, index)


def _never_made(outputs: Iterable[Any], regions: Iterable[Region]) -> list[Any]:
    """Outputs of the model that are its inputs or constants."""
    made = {value for region in regions for value in region.outputs}
    return [value for value in dict.fromkeys(outputs) if value not in made]
