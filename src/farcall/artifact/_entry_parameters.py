"""The parameters of an entry: C tables that describe them, and the symbols that their dims bind.

The dims of a model's inputs are numbers and plain symbols. The dims of a region's inputs may be expressions:
an axis of ``floor(h/2)`` elements does not show ``h``. Such a dim has its own place among the symbols, and
the entry checks it if it knows ``h``. If the code of a region needs a symbol that no dim shows, the entry has
a parameter for it, an int.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from farcall import _core
from farcall.abi import Leaf, TensorSpec
from farcall.artifact._c_tables import Tables
from farcall.artifact._checked import CheckedText, integer
from farcall.artifact._dtypes import dlpack
from farcall.backends._ctext import c_string
from farcall.graph import Region
from farcall.graph._objects import leaf_of, own_dims
from farcall.graph.dims import Dim, is_object, symbols

_SIZE = _core.dtype("int64")  # of a parameter for a size
NO_DTYPE = "{0, 0, 0}"  # of a value that is no tensor of numbers

_BAD = "the sizes are too large, or one is divided by 0,"


class Parameters:
    """The parameters of one entry.

    Args:
        name: The name of the entry, and the prefix of its tables.
        inputs: The tensors that it takes.
        array: The C expression of the array that holds the sizes of the symbols.
        needed: The dims that its code computes with.
        late: Tensors that regions allocate, whose dims bind symbols while the entry runs.
        title: The name of the entry in messages; default: ``name``.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[ir.Value],
        array: str,
        needed: Iterable[Dim] = (),
        late: Sequence[ir.Value] = (),
        title: str = "",
    ) -> None:
        self._title = title or name
        self.name, self.inputs, self._array = name, tuple(inputs), array
        shown = dict.fromkeys(dim for value in inputs for dim in own_dims(value) if not isinstance(dim, int))
        plain = [dim.name for dim in shown if dim.is_Symbol]
        self._expressions = [dim for dim in shown if not dim.is_Symbol]
        wanted = symbols(*(dim for dim in needed if dim not in self._expressions))
        self.sizes = [name for name in wanted if name not in plain]
        self.first_size = len(plain)
        bound = [*plain, *self.sizes, *map(str, self._expressions)]
        told = dict.fromkeys(dim for value in late for dim in own_dims(value) if not isinstance(dim, int))
        self.late = [dim for dim in told if str(dim) not in bound]
        self.names = [*bound, *map(str, self.late)]
        self._places = {name: f"{array}[{i}]" for i, name in enumerate(self.names)}
        self._known = frozenset((*plain, *self.sizes))
        self._computable = self._known.union(str(dim) for dim in self.late if dim.is_Symbol)
        self._checked = CheckedText({name: self._places[name] for name in self._computable})

    @property
    def specs(self) -> tuple[Leaf, ...]:
        """The inputs of the entry's Signature."""
        tensors = tuple(map(leaf_of, self.inputs))
        taken = {spec.name for spec in tensors}
        names = (f"size of {name}" if name in taken else name for name in self.sizes)
        return (*tensors, *(TensorSpec(name, "int64", ()) for name in names))

    def knows(self, dim: Dim) -> bool:
        """Whether the arguments tell the sizes of all symbols in a dim."""
        return self._known.issuperset(symbols(dim))

    def learns(self, *shape: Dim) -> bool:
        """Whether the entry gets to know the sizes of all symbols in dims, from arguments or from regions.

        It does not if one region makes and reads the tensor with these dims; its package compares the sizes.
        """
        return self._computable.issuperset(symbols(*shape))

    def shows(self, dim: Dim) -> bool:
        """Whether a dim is a known symbol, or the size of an axis of an input."""
        return str(dim) in self._places

    def size(self, dim: Dim) -> str:
        """The C expression of a dim. It sets the flag ``bad`` on overflow.

        Raises:
            ModelError: The arguments do not determine the dim.
        """
        told = dim in self.late and self._computable.issuperset(symbols(dim))  # a late tensor shows it, later
        is_sum = told and not dim.is_Symbol  # type: ignore[union-attr]
        return self._places[str(dim)] if self.shows(dim) and not is_sum else self._checked(dim)

    def checks(self) -> list[tuple[str, str]]:
        """C conditions that hold if the sizes of the arguments are wrong, each with the problem."""
        negative = [(f"{self._places[name]} < 0", "a size would be negative") for name in self.sizes]
        return negative + [
            (f"{self._checked(dim)} != {self._places[str(dim)]}", f"expected a dimension of {dim}")
            for dim in filter(self.knows, self._expressions)
        ]

    def late_checks(self, stage: Sequence[ir.Value]) -> list[tuple[str, str]]:
        """C conditions that hold if dims of tensors that regions allocated are wrong, with the problem."""
        shown = dict.fromkeys(dim for value in stage for dim in own_dims(value) if dim in self.late)
        return [
            (f"{self._checked(dim)} != {self._places[str(dim)]}", f"expected a dimension of {dim}")
            for dim in shown
            if not dim.is_Symbol  # type: ignore[union-attr]
        ]

    def refusals(self, checks: Iterable[tuple[str, str]]) -> list[str]:
        """C statements that return an error if a condition holds or the flag ``bad`` is set."""
        lines = [f"if (!bad && {check}) {self._refuse(problem)}" for check, problem in checks]
        return [
            *lines,
            f"if (__builtin_expect(bad, 0)) {self._refuse(_BAD)}",
        ]

    def _refuse(self, problem: str) -> str:
        return f"return farcall_refuse_sizes(&{self.name}_function, {c_string(problem)}, {self._array});"

    def function(self, tables: Tables) -> str:
        """The C text of the ``fc_function``; ``tables`` get the parameters and the names of symbols."""
        specs = self.specs
        about = f"{{{_SIZE.code}, {_SIZE.bits}, 1}}, 0, NULL, 0"
        sizes = [_row(spec, about) for spec in specs[len(self.inputs) :]]
        parameters = tensor_table(tables, self.inputs, self.names, sizes)
        names = tables.add("char* const", map(c_string, self.names))
        fields = (c_string(self._title), parameters, len(specs), names, len(self.names), len(self.late))
        return f"static const struct fc_function {self.name}_function = {{{', '.join(map(str, fields))}}};\n"


def tensor_table(
    tables: Tables, values: Sequence[ir.Value], symbols: Sequence[str], more: Sequence[str] = ()
) -> str:
    """The name of a C table of ``fc_parameter`` rows for tensors, which ``tables`` gets.

    Args:
        tables: The tables of the file.
        values: The tensors.
        symbols: The texts of symbolic dims; a table of dims refers to their indexes.
        more: Further rows, for parameters that are not tensors.
    """
    rows = []
    for value in values:
        shape = [dim if isinstance(dim, int) else ~symbols.index(str(dim)) for dim in own_dims(value)]
        rows.append(_row(leaf_of(value), _about(value, tables.add("int64_t", map(integer, shape)))))
    return tables.add("struct fc_parameter", [*rows, *more])


def _row(spec: Leaf, about: str) -> str:
    return f"{{{c_string(spec.name)}, {c_string(spec.type)}, {about}}}"


def _about(value: ir.Value, shape: str) -> str:
    """The fields of an ``fc_parameter`` that say what a value is. An object has ~rank in place of a rank."""
    rank = len(own_dims(value))
    if is_object(value):
        return f"{NO_DTYPE}, {~rank}, {shape}, {_kind(value)}"
    code, bits = dlpack(value)
    return f"{{{code}, {bits}, 1}}, {rank}, {shape}, 0"


def _kind(value: ir.Value) -> str:
    if isinstance(value.type, ir.TensorType):
        return "FC_STRINGS"
    return "FC_SEQUENCE" if isinstance(value.type, ir.SequenceType) else "FC_OPTIONAL"


def negative_dims(regions: Iterable[Region], workspaces: Iterable[Dim]) -> list[Dim]:
    """Dims and sizes of working memory that can be negative for some inputs: `h - 2` if h is 1."""
    seen: dict[Dim, None] = {size: None for size in workspaces if not isinstance(size, int)}
    for region in regions:
        for node in region.nodes:
            for value in node.outputs:
                if value.shape is not None:
                    seen.update((dim, None) for dim in own_dims(value) if not isinstance(dim, int))
    return [dim for dim in seen if not dim.is_nonnegative]  # type: ignore[union-attr]
