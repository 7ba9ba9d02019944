"""The Signature of a function: its arguments and results as data, with their structure in Python.

The function itself takes and returns flat lists of values, which leaves describe in order. The parameters
and the result map Python's nested values onto the leaves. An artifact's manifest contains Signatures,
``farcall inspect`` prints them, and calls are checked against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from farcall import _html
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
        name: the keyword, with which paths in errors begin. It need not be an identifier, since ONNX allows
            names such as ``input.1``.
        node: the structure of its value over the leaves.
        default: the value if a call leaves the argument out; UNSET: the argument is required. In JSON, a
            default is limited to values that JSON can express.
        kind: the kind of parameter, as ``inspect`` names it, in lower case.
        doc: one line for ``help()``.
    """

    name: str
    node: Node
    default: Any = msgspec.UNSET
    kind: ParameterKind = "positional_or_keyword"
    doc: str = ""

    @property
    def has_default(self) -> bool:
        """Whether a call may leave it out and use its default."""
        return self.default is not msgspec.UNSET

    @property
    def required(self) -> bool:
        """Whether a call must pass it."""
        return not self.has_default and self.kind != "var_positional"


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arguments and the result of one function.

    Attributes:
        inputs: the raw arguments, in order.
        outputs: the raw results, in order.
        parameters: the parameters of the Python call; each input belongs to exactly one. Default: one
            parameter for each input.
        result: the structure of the Python result. Default: None without outputs, the value itself for one
            output, a tuple for several.
        destinations: whether the function writes its results into tensors that follow its arguments, as many
            kernels do, instead of returning them. A call allocates these tensors. If it cannot know the dims
            of a result (see :meth:`FunctionAbi.allocate_results`), that destination is None, and the function
            returns all results.
        wraps: whether the function runs in a virtual machine that returns every integer and bool in a
            register of 32 or 64 bits, as IREE's does. The value is then in the low bits, as many as the dtype
            has. The readers of IREE's encodings set this.

    Raises:
        ValueError: the parameters do not name every input exactly once, or the result does not name every
            output; names repeat, or the order of the parameters is not valid in Python.
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
        """Make a Signature from nested Python values that contain leaves, or texts for leaves.

        Args:
            parameters: by name: a leaf, a text (``"float32[batch, 128]"``, ``"int64"``, ``"str"``), a list,
                tuple, dict, namedtuple or dataclass of these, ``[item, ...]`` for a list of any length
                (``(item, ...)`` for a tuple),
                None for a gap; or a :class:`farcall.abi.Arg`, which adds a default, a kind or a doc.
            result: the result, in the same form; None: no result.
            destinations: whether the function writes its results into tensors that it takes.

        Raises:
            ValueError: a text does not describe a leaf, or the structure is not valid.

        >>> print(Signature.of({"tokens": {"ids": ["int64[n]", "int64[n]"]}}, "float32[n, 10]"))
        (tokens: {"ids": [int64[n], int64[n]]}) -> float32[n, 10]
        """
        made: Signature = _formats().build(parameters, result, destinations)
        return made

    @classmethod
    def from_callable(cls, function: Callable[..., Any]) -> Signature:
        """Make the Signature that a function's annotations describe.

        Args:
            function: a function whose parameters and result all have annotations. An annotation may be
                ``Annotated[fc.Array, "float32[n, 128]"]``, with any class in place of ``fc.Array``: the text
                describes the value; ``int``, ``float``, ``bool``, ``complex`` (64-bit, or of numpy:
                ``np.float32``); ``str``, ``bytes``, ``Callable``, ``fc.Module``; lists, tuples, TypedDicts,
                NamedTuples and dataclasses of these, also as literals (``{"ids": list[int]}``); ``| None``
                after an optional one.

        Raises:
            SignatureError: an annotation is missing, or does not describe a value.
        """
        made: Signature = _formats().from_callable(function)
        return made

    @classmethod
    def from_metadata(cls, metadata: str | Mapping[str, Any]) -> Signature:
        """Make the Signature of a kernel from the metadata of its library.

        Args:
            metadata: the value of ``module.get_function_metadata(name)``: the schema of TVM FFI's headers,
                with names and defaults if farcall/kernel.hpp wrote it.

        Returns:
            The Signature. Its tensors have any dtype and rank, since C++ types do not say more, and accept
            strides. Tensors that the kernel may write are ``inout``.

        Raises:
            SignatureError: the metadata does not describe the parameters, or only the kernel knows a default.
        """
        made: Signature = _formats().from_metadata(metadata)
        return made

    def make_abi(self) -> FunctionAbi:
        """A new FunctionAbi with the default rules; each Function has its own."""
        made: FunctionAbi = _formats().FunctionAbi(self)
        return made

    @property
    def result_node(self) -> Node:
        """The structure of the result, which is never None."""
        assert self.result is not None  # noqa: S101 - filled in by __post_init__
        return self.result

    @classmethod
    def from_reflection(cls, attributes: Mapping[str, str]) -> Signature:
        """Read the Signature of a function of IREE's ABI of 2020.

        Args:
            attributes: ``f``, the raw signature; ``fv``, its version, ``"1"``; and, if values nest,
                ``abi``, which is ``"sip"``, and ``sip``. Other attributes are ignored. SIP names positional
                parameters ``"0"``, ``"1"``, ..., and keyword parameters by their keys.

        Raises:
            SignatureError: an attribute is missing or malformed, or the attributes contradict each other; the
                message has the position.

        >>> print(Signature.from_reflection({"f": "I11!S3!t6B3!d-1R4!B1!", "fv": "1"}))
        (sint32, Buffer<float32[?]>) -> (Buffer<float32[]>)
        """
        made: Signature = _formats().from_reflection(attributes)
        return made

    def to_reflection(self) -> dict[str, str]:
        """The attributes that :meth:`from_reflection` reads, with ``sip`` if ``f`` is not enough.

        They cannot express names of leaves and of positional parameters, defaults, and symbols of dims.
        Tuples become lists.

        Raises:
            SignatureError: a leaf has no raw type, or parameters are partly positional and partly by keyword.
        """
        attributes: dict[str, str] = _formats().to_reflection(self)
        return attributes

    @classmethod
    def from_iree(cls, metadata: str | bytes | Mapping[str, str]) -> Signature:
        """Read the Signature of a function that today's IREE compiled.

        Args:
            metadata: the JSON of the attribute ``iree.abi``, or all attributes of the function
                (``VmFunction.reflection``). From all attributes, it takes the names from
                ``iree.abi.declaration``. It also takes the types from there if ``iree.abi`` is missing, which
                the compiler does not write by itself.

        Raises:
            SignatureError: the JSON is malformed (the message has the path in it); both attributes are
                missing; or the function is asynchronous, and takes fences.

        >>> print(Signature.from_iree('{"a": [["named", "x", ["ndarray", "f32", 1, null]]], "r": ["i32"]}'))
        (x: float32[?]) -> int32
        """
        made: Signature = _formats().from_iree(metadata)
        return made

    def to_iree_json(self) -> str:
        """The JSON for the attribute ``iree.abi``; :meth:`from_iree` reads it.

        Parameters that calls can pass by keyword become ``named``. The JSON cannot express defaults, symbols
        of dims, and names of leaves.

        Raises:
            SignatureError: the JSON cannot express a leaf; or a nested parameter has several raw arguments,
                where IREE passes one list (:class:`farcall.abi.ListSpec`).
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

        ``str`` of a Signature whose leaves have no names is this text.
        """
        text: str = _formats().raw_text(self.inputs, self.outputs)
        return text

    def __repr__(self) -> str:
        return f"<farcall.Signature {self}>"

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        rows = [
            (one.name, self.parameter_type(one), repr(one.default) if one.has_default else "")
            for one in self.parameters
        ]
        return _html.parameters("farcall.Signature", rows, self.result_text)

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
    """Import the module of all formats when it is first needed.

    An import statement in each call would double the time to read a cached Signature.
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
