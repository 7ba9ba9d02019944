"""The Signature of a function: its arguments and results as data, with their structure in Python.

Flat lists of leaves are what travels, in order; parameters and the result lay Python's nested values over
them. This is what an artifact's manifest carries, what ``farcall inspect`` prints, and what checks a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from farcall.abi._leaves import Leaf, read_leaves
from farcall.abi._structure import Items, Node, Nothing, Slot, check_cover, structure_text

if TYPE_CHECKING:
    from farcall.abi.calls._function_abi import FunctionAbi

ParameterKind: TypeAlias = Literal[
    "positional_only", "positional_or_keyword", "var_positional", "keyword_only"
]
_ORDER = ("positional_only", "positional_or_keyword", "var_positional", "keyword_only")


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One parameter of the Python call.

    Attributes:
        name: its keyword; errors begin paths with it. Need not be an identifier (ONNX allows ``input.1``).
        node: where its leaves are in its value.
        default: taken when the argument is left out; UNSET: there is none. In JSON: what JSON can express.
        kind: as ``inspect`` names them, in small letters.
        doc: one line for ``help()``.
    """

    name: str
    node: Node
    default: Any = msgspec.UNSET
    kind: ParameterKind = "positional_or_keyword"
    doc: str = ""

    @property
    def has_default(self) -> bool:
        """Whether it may be left out for its default."""
        return self.default is not msgspec.UNSET

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return not self.has_default and self.kind != "var_positional"


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one function takes and gives.

    Attributes:
        inputs: the raw arguments, in the order in which they travel.
        outputs: the raw results, likewise.
        parameters: the Python call. Each input is in exactly one of them. Left out: one parameter an input.
        result: the structure of the Python result. Left out: None without outputs, one bare, several a tuple.
        destinations: the function does not return its results, but writes them into tensors that it takes
            behind its arguments, as kernels often do. A call makes these; results whose dims cannot be known
            before (see :meth:`FunctionAbi.allocate_results`) are None there, and the function returns all.
        wraps: the function runs in a virtual machine that returns every integer and bool in a register of 32
            or 64 bits, as IREE's does: the low bits, as many as the dtype has, are the value. Signatures that
            are read from IREE's encodings say so.

    Raises:
        ValueError: the parameters do not name every input exactly once, or the result not every output; names
            repeat, or the order of parameters is not Python's.
    """

    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    parameters: tuple[Parameter, ...] = ()
    result: Node | None = None
    destinations: bool = False
    wraps: bool = False

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        put(self, "inputs", read_leaves(self.inputs))
        put(self, "outputs", read_leaves(self.outputs))
        if self.parameters:
            check_cover([one.node for one in self.parameters], len(self.inputs), "the inputs")
        else:
            put(self, "parameters", _one_each(self.inputs))
        if self.result is None:
            put(self, "result", _plain_result(len(self.outputs)))
        _check_parameters(self.parameters)
        check_cover([self.result_node], len(self.outputs), "the outputs", repeats=True)

    @classmethod
    def of(
        cls, parameters: Mapping[str, Any], result: Any = None, *, destinations: bool = False
    ) -> Signature:
        """A Signature from nested Python values with leaves in them, or texts for leaves.

        Args:
            parameters: by name: a leaf, a text (``"float32[batch, 128]"``, ``"int64"``, ``"str"``), a list,
                tuple, dict, namedtuple or dataclass of these, ``[item, ...]`` for a list of any length
                (``(item, ...)`` for a tuple),
                None for a gap; or a :class:`farcall.abi.Arg`, which adds a default, a kind or a doc.
            result: the same for what it gives; None: nothing.
            destinations: whether the function writes its results into tensors that it is given.

        Raises:
            ValueError: a text is no leaf, or the structure is refused.

        >>> print(Signature.of({"tokens": {"ids": ["int64[n]", "int64[n]"]}}, "float32[n, 10]"))
        (tokens: {"ids": [int64[n], int64[n]]}) -> float32[n, 10]
        """
        made: Signature = _formats().build(parameters, result, destinations)
        return made

    @classmethod
    def from_callable(cls, function: Callable[..., Any]) -> Signature:
        """The Signature that a function's annotations describe.

        Args:
            function: each parameter and the result are annotated: ``fc.Array["float32", "n", 128]``; ``int``,
                ``float``, ``bool``, ``complex`` (64-bit, or of numpy: ``np.float32``); ``str``, ``bytes``,
                ``Callable``, ``fc.Module``; lists, tuples, TypedDicts, NamedTuples and dataclasses of these,
                also written out (``{"ids": fc.Array[...]}``); ``| None`` after one that may be left out. Of
                ``Annotated[T, note]`` a note that is an Array or a text (``"float32[n]"``) counts.

        Raises:
            SignatureError: an annotation is missing, or says nothing of what is passed.
        """
        made: Signature = _formats().from_callable(function)
        return made

    @classmethod
    def from_metadata(cls, metadata: str | Mapping[str, Any]) -> Signature:
        """The Signature of a kernel, from what its library says of it.

        Args:
            metadata: what ``module.get_function_metadata(name)`` gives: the schema of TVM FFI's headers, with
                names and defaults where farcall/kernel.hpp wrote it.

        Returns:
            Its tensors are of any dtype and rank, for C++ types do not say more, and take strides; those that
            the kernel may write to are ``inout``.

        Raises:
            SignatureError: it does not say what the parameters are, or only the kernel knows a default.
        """
        made: Signature = _formats().from_metadata(metadata)
        return made

    def make_abi(self) -> FunctionAbi:
        """How a function with this Signature is called, by the usual rules; each Function has its own."""
        made: FunctionAbi = _formats().FunctionAbi(self)
        return made

    @property
    def result_node(self) -> Node:
        """The structure of the result; always there."""
        assert self.result is not None  # noqa: S101 - filled in by __post_init__
        return self.result

    @classmethod
    def from_reflection(cls, attributes: Mapping[str, str]) -> Signature:
        """The Signature of a function of IREE's 2020 ABI.

        Args:
            attributes: ``f``, the raw signature; ``fv``, its version, ``"1"``; and where values nest,
                ``abi``, which is ``"sip"``, and ``sip``. Others are ignored. SIP names positional parameters
                ``"0"``, ``"1"``, ..., and those by keyword by their keys.

        Raises:
            SignatureError: one is missing, malformed, or does not fit the other; the message says where.

        >>> print(Signature.from_reflection({"f": "I11!S3!t6B3!d-1R4!B1!", "fv": "1"}))
        (sint32, Buffer<float32[?]>) -> (Buffer<float32[]>)
        """
        made: Signature = _formats().from_reflection(attributes)
        return made

    def to_reflection(self) -> dict[str, str]:
        """The attributes that :meth:`from_reflection` reads: with ``sip`` where ``f`` does not say it all.

        Names of leaves and of positional parameters, defaults and symbols of dims have no place in them, and
        tuples become lists.

        Raises:
            SignatureError: a leaf has no raw type, or parameters are partly positional and partly by keyword.
        """
        attributes: dict[str, str] = _formats().to_reflection(self)
        return attributes

    @classmethod
    def from_iree(cls, metadata: str | bytes | Mapping[str, str]) -> Signature:
        """The Signature of a function that today's IREE compiled.

        Args:
            metadata: the JSON of its attribute ``iree.abi``, or all its attributes
                (``VmFunction.reflection``). With them, names are taken from ``iree.abi.declaration``, and
                where there is no ``iree.abi``, which the compiler does not write by itself, types too.

        Raises:
            SignatureError: it is malformed, and the message has the path in the JSON; there is neither
                attribute; or the function is asynchronous, and takes fences.

        >>> print(Signature.from_iree('{"a": [["named", "x", ["ndarray", "f32", 1, null]]], "r": ["i32"]}'))
        (x: float32[?]) -> int32
        """
        made: Signature = _formats().from_iree(metadata)
        return made

    def to_iree_json(self) -> str:
        """The JSON for the attribute ``iree.abi``; :meth:`from_iree` reads it.

        Parameters that can be given by keyword become ``named``; defaults, symbols of dims and names of
        leaves have no place in it.

        Raises:
            SignatureError: a leaf has no record; or a parameter nests over several raw arguments, where IREE
                passes one list (:class:`farcall.abi.ListSpec`).
        """
        text: str = _formats().to_iree_json(self)
        return text

    def __str__(self) -> str:
        if not any(leaf.name for leaf in (*self.inputs, *self.outputs)):
            return self.raw_text
        types = [leaf.type for leaf in self.inputs]
        return f"({', '.join(_shown(self.parameters, types))}) -> {self.result_text}"

    @property
    def raw_text(self) -> str:
        """The leaves as IREE printed them in 2020, without names: ``(Buffer<float32[?x3]>) -> (sint32)``.

        It is the text of a Signature whose leaves have no names.
        """
        text: str = _formats().raw_text(self.inputs, self.outputs)
        return text

    def __repr__(self) -> str:
        return f"<farcall.Signature {self}>"

    @property
    def result_text(self) -> str:
        """The type of the result: ``float32[n, 10]``, ``{"y": float32[n]}``."""
        if isinstance(self.result, Nothing):
            return "()"
        return structure_text(self.result_node, [leaf.type for leaf in self.outputs])

    def parameter_type(self, parameter: Parameter) -> str:
        """The type of one parameter as text."""
        return structure_text(parameter.node, [leaf.type for leaf in self.inputs])


@cache
def _formats() -> Any:
    """The module of all formats, imported when it is first needed.

    An import statement at each call would double the time of reading a Signature that is remembered.
    """
    from farcall.abi import _formats

    return _formats


def _one_each(inputs: Sequence[Leaf]) -> tuple[Parameter, ...]:
    kind: ParameterKind = "positional_or_keyword" if any(leaf.name for leaf in inputs) else "positional_only"
    return tuple(Parameter(leaf.name or f"arg{i}", Slot(i), kind=kind) for i, leaf in enumerate(inputs))


def _plain_result(count: int) -> Node:
    if count == 0:
        return Nothing()
    return Slot(0) if count == 1 else Items("tuple", tuple(map(Slot, range(count))))


def _check_parameters(parameters: Sequence[Parameter]) -> None:
    names = [one.name for one in parameters]
    if len(set(names)) != len(names):
        raise ValueError(f"the parameters {names} name one twice")
    kinds = [one.kind for one in parameters]
    if kinds != sorted(kinds, key=_ORDER.index) or kinds.count("var_positional") > 1:
        raise ValueError(f"parameters go {', '.join(_ORDER)}; got {', '.join(kinds)}")
    optional = ""
    for one in parameters:
        if one.default is not msgspec.UNSET:
            optional = one.name
        elif optional and one.kind in ("positional_only", "positional_or_keyword"):
            raise ValueError(f"parameter `{one.name}` needs a default: `{optional}` before it has one")


def _shown(parameters: Sequence[Parameter], types: Sequence[str]) -> list[str]:
    texts: list[str] = []
    kinds = [one.kind for one in parameters]
    for i, one in enumerate(parameters):
        text = f"{one.name}: {structure_text(one.node, types)}"
        if one.kind == "keyword_only" and not {"keyword_only", "var_positional"} & set(kinds[:i]):
            texts.append("*")
        star = "*" if one.kind == "var_positional" else ""
        texts.append(star + (text if one.default is msgspec.UNSET else f"{text} = {one.default!r}"))
        if one.kind == "positional_only" and kinds[i + 1 : i + 2] != ["positional_only"]:
            texts.append("/")
    return texts
