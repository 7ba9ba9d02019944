"""Generates the entry of a region, ``__tvm_ffi_<region>`` in C, with which users call a region alone.

The entry checks its arguments as ``main`` does, and allocates the results and the working memory. One C
function does this for all regions (``entry_region.c``); this module generates its tables. The function that
the backend generated checks nothing. It has another name in the artifact; this entry and ``main`` call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farcall.abi import Signature
from farcall.artifact._checked import integer
from farcall.artifact._entry_parameters import Parameters, negative_dims, tensor_table
from farcall.graph import Region
from farcall.graph._objects import leaf_of
from farcall.graph.dims import Dim, dims, symbol

if TYPE_CHECKING:
    from farcall.backends.base import Code


class RegionEntry:
    """The entry of one region.

    Args:
        region: the region.
        code: its code.
        constraints: pairs of dims that must be equal in the model.
    """

    def __init__(self, region: Region, code: Code, constraints: Sequence[tuple[Dim, Dim]]) -> None:
        self._region, self._code = region, code
        self._late = region.allocated
        self._made = [value for value in region.outputs if value not in self._late]
        shapes = [dim for value in self._made for dim in dims(value)]
        needed = [*shapes, code.workspace, *map(symbol, code.symbols)]
        self._parameters = Parameters(region.name, region.inputs, "s", needed, self._late)
        computed = (dim for dim in shapes if not isinstance(dim, int) and not self._parameters.shows(dim))
        self._computed = list(dict.fromkeys(computed))
        self._constraints = [pair for pair in constraints if all(map(self._parameters.knows, pair))]

    @property
    def signature(self) -> Signature:
        """The inputs are those of the region, then the sizes that these do not show."""
        return Signature(self._parameters.specs, tuple(map(leaf_of, self._region.outputs)))

    def text(self) -> str:
        """The C source of its tables and functions.

        Raises:
            ModelError: a dtype cannot cross the region's border.
        """
        name, parameters = self._region.name, self._parameters
        derive = self._derive()
        places = [*parameters.names, *map(str, self._computed)]
        wanted = ", ".join(str(places.index(name)) for name in self._code.symbols) or "0"
        workspace = self._code.workspace if isinstance(self._code.workspace, int) else 1
        fields = [
            f".code = &code_{name}",
            f".about = &{name}_function",
            f".num_inputs = {len(parameters.inputs)}",
            f".first_size = {parameters.first_size}",
            f".num_derived = {len(self._computed)}",
            f".outputs = {name}_outputs",
            f".num_outputs = {len(self._made)}",
            *self._late_fields(),
            f".wanted = {name}_wanted",
            f".num_wanted = {len(self._code.symbols)}",
            f".workspace = {integer(workspace)}",
            f".derive = {f'{name}_derive' if derive else 'NULL'}",
        ]
        table = "".join(f"  {field},\n" for field in fields)
        return (
            f"{parameters.tables()}{derive}{tensor_table(f'{name}_outputs', self._made, places)}"
            f"{self._late_tables()}"
            f"static const int32_t {name}_wanted[] = {{{wanted}}};\n"
            f"static const struct fc_region {name}_region = {{\n{table}}};\n"
            f"FARCALL_KERNEL({name}) {{\n"
            f"  return farcall_call_region(&{name}_region, args, num_args, result);\n}}\n"
        )

    def _late_tables(self) -> str:
        """The C tables of the outputs that the function allocates; empty if there are none."""
        if not self._late:
            return ""
        name, late = self._region.name, list(self._late)
        order = [
            ~late.index(value) if value in late else self._made.index(value) for value in self._region.outputs
        ]
        table = tensor_table(f"{name}_late", late, self._parameters.names)
        return f"{table}static const int32_t {name}_order[] = {{{', '.join(map(str, order))}}};\n"

    def _late_fields(self) -> list[str]:
        name = self._region.name
        if not self._late:
            return []
        return [f".late = {name}_late", f".num_late = {len(self._late)}", f".order = {name}_order"]

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
            (f"{parameters.size(a)} != {parameters.size(b)}", f"expected {a} == {b}")
            for a, b in self._constraints
        ]
        if not steps and not checks:
            return ""
        lines = ["bool bad = false;", "(void)workspace;", *steps, *parameters.refusals(checks), "return 0;"]
        body = "".join(f"  {line}\n" for line in lines)
        return f"static int {self._region.name}_derive(int64_t* s, int64_t* workspace) {{\n{body}}}\n"
