"""Generates the entries of regions, ``__tvm_ffi_<region>`` in C, with which users call a region alone.

An entry checks its arguments as ``main`` does, and allocates the results and the working memory. One C
function does this for all regions (``entry_region.c``); this module generates its tables. The function that
the backend generated checks nothing. It has another name in the artifact; this entry and ``main`` call it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from farcall.abi import Signature
from farcall.artifact._c_tables import Tables
from farcall.artifact._checked import integer
from farcall.artifact._entry_parameters import Parameters, negative_dims, tensor_table
from farcall.artifact._states import code_places
from farcall.backends._kernels import HIDDEN
from farcall.graph import Region
from farcall.graph._objects import leaf_of
from farcall.graph.dims import Dim, dims, symbol

if TYPE_CHECKING:
    from farcall.backends.base import Code
    from farcall.graph import Partition


class RegionEntry:
    """The entry of one region.

    Args:
        region: the region.
        code: its code.
        needs: pairs of dims that must be equal in the model, and what to say where they are not.
    """

    def __init__(self, region: Region, code: Code, needs: Mapping[tuple[Dim, Dim], str]) -> None:
        self._region, self._code = region, code
        self._late = region.allocated
        self._made = [value for value in region.outputs if value not in self._late]
        shapes = [dim for value in self._made for dim in dims(value)]
        needed = [*shapes, code.workspace, *map(symbol, code.symbols)]
        self._parameters = Parameters(region.name, region.inputs, "s", needed, self._late)
        computed = (dim for dim in shapes if not isinstance(dim, int) and not self._parameters.shows(dim))
        self._computed = list(dict.fromkeys(computed))
        self._needs = {pair: text for pair, text in needs.items() if all(map(self._parameters.knows, pair))}

    @property
    def sizes(self) -> list[str]:
        """The symbols whose sizes are arguments behind the tensors."""
        return list(self._parameters.sizes)

    @property
    def signature(self) -> Signature:
        """The inputs are those of the region, then the sizes that these do not show."""
        return Signature(self._parameters.specs, tuple(map(leaf_of, self._region.outputs)))

    def function(self, tables: Tables) -> str:
        """The C text of its ``fc_function`` and of what computes its sizes; ``tables`` get the rest."""
        return self._parameters.function(tables) + self._derive

    def row(self, tables: Tables, code: str) -> str:
        """Its ``fc_region``; ``code`` is the C expression of its ``fc_code``.

        Raises:
            ModelError: a dtype cannot cross the region's border.
        """
        name, parameters = self._region.name, self._parameters
        places = [*parameters.names, *map(str, self._computed)]
        wanted = tables.add("int32_t", (places.index(size) for size in self._code.symbols))
        workspace = self._code.workspace if isinstance(self._code.workspace, int) else 1
        fields = [
            *(code, f"&{name}_function", len(parameters.inputs), parameters.first_size, len(self._computed)),
            *(tensor_table(tables, self._made, places), len(self._made)),
            *(tensor_table(tables, self._late, parameters.names), len(self._late), self._order(tables)),
            *(wanted, len(self._code.symbols), integer(workspace)),
            f"{name}_derive" if self._derive else "NULL",
        ]
        return f"{{{', '.join(map(str, fields))}}}"

    def _order(self, tables: Tables) -> str:
        """The table of where each result is, if the function allocates some."""
        late = list(self._late)
        if not late:
            return "NULL"
        outputs = self._region.outputs
        return tables.add(
            "int32_t", (~late.index(one) if one in late else self._made.index(one) for one in outputs)
        )

    @functools.cached_property
    def _derive(self) -> str:
        """The C function that computes and checks sizes; empty if there is nothing to do."""
        parameters, workspace = self._parameters, self._code.workspace
        start = len(parameters.names)
        steps = [f"s[{start + i}] = {parameters.size(dim)};" for i, dim in enumerate(self._computed)]
        if not isinstance(workspace, int):
            steps.append(f"*workspace = {parameters.size(workspace)};")
        negative = filter(parameters.knows, negative_dims([self._region], [workspace]))
        checks = parameters.checks()
        checks += [(f"{parameters.size(dim)} < 0", "a size would be negative") for dim in negative]
        checks += [
            (f"{parameters.size(a)} != {parameters.size(b)}", text) for (a, b), text in self._needs.items()
        ]
        if not steps and not checks:
            return ""
        lines = ["bool bad = false;", "(void)workspace;", *steps, *parameters.refusals(checks), "return 0;"]
        body = "".join(f"  {line}\n" for line in lines)
        return f"static int {self._region.name}_derive(int64_t* s, int64_t* workspace) {{\n{body}}}\n"


def regions_text(partition: Partition, codes: Mapping[str, Code]) -> str:
    """The C text of the entries of all regions, behind that of ``entry.h`` and ``entry_names.h``.

    Raises:
        ModelError: a dtype cannot cross a region's border.
    """
    parts = [partition, *(body.partition for body in partition.bodies())]
    entries = {
        region.name: RegionEntry(region, codes[region.name], part.needs)
        for part in parts
        for region in part.regions
    }
    places = code_places(partition.all_regions)
    tables = Tables()
    functions = [entry.function(tables) for entry in entries.values()]
    rows = "".join(f"  {entry.row(tables, places[name])},\n" for name, entry in entries.items())
    calls = (f"FC_ENTRY({name}, {k})\n" for k, name in enumerate(entries))
    table = f"{HIDDEN} const struct fc_region farcall_regions[] = {{\n{rows}}};\n" if entries else ""
    return "".join([tables.text(), *functions, table, *calls])
