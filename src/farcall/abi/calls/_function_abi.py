"""FunctionAbi: converts Python values to a function's raw arguments, and its raw results to Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from farcall import _core
from farcall.abi._signature import Signature
from farcall.abi._structure import slots
from farcall.abi.calls import _allocation as allocation
from farcall.abi.calls import _program as program
from farcall.abi.calls import _texts as texts
from farcall.abi.calls._arguments import ArgumentChecker
from farcall.abi.calls._binding import bind
from farcall.abi.calls._casts import CASTINGS, Casting
from farcall.abi.calls._report import Report
from farcall.abi.calls._results import ResultChecker
from farcall.errors import ArgumentError

Arrays: TypeAlias = Literal["numpy", "farcall"] | Callable[[_core.Tensor], Any]
ShapeFunction: TypeAlias = Callable[..., Sequence[Any]]


class FunctionAbi(_core.SignatureProgram):
    """Calls one function by its Signature.

    ``pack_inputs`` checks a call completely and returns the raw arguments; ``unpack_results`` returns the
    structured result. A Function with a Signature does both by itself. Use this class for functions
    elsewhere, and for rules other than the default: ``function.abi = FunctionAbi(signature,
    casting="same_kind")``.

    >>> abi = FunctionAbi(Signature.of({"x": "float32[n]", "by": "float32"}, {"y": "float32[n]"}))
    >>> abi.pack_inputs(numpy.ones(3, "float32"), by=3)
    [<farcall.Tensor float32[3] on cpu:0>, 3.0]
    """

    def __init__(
        self,
        signature: Signature,
        *,
        casting: Casting = "safe",
        arrays: Arrays = "numpy",
        shape_function: ShapeFunction | None = None,
    ) -> None:
        """Compile a Signature.

        Args:
            signature: the Signature of the function.
            casting: the casts that a call may do; see :mod:`farcall.abi.calls._casts`.
            arrays: the form of Tensors on the CPU in results: numpy arrays that share their memory, the
                Tensors themselves, or the results of a callable (``torch.from_dlpack``).
            shape_function: computes the dims of results that do not follow from the arguments. It takes the
                packed arguments, and returns the dims of each result, or None if only the function knows
                them.

        Raises:
            ValueError: ``casting`` is unknown.
        """
        if casting not in CASTINGS:
            raise ValueError(f"casting: expected one of {', '.join(CASTINGS)}, got {casting!r}")
        self._symbols = program.symbols(signature)
        unpacked = arrays if isinstance(arrays, str) else "rules"
        super().__init__(*program.compile_signature(signature, self._symbols, unpacked))
        self.signature = signature
        self.casting = casting
        self.copies = 0
        """The number of arguments copied so far because of their layout, alignment, byte order or dtype."""
        self._arrays = arrays
        self._shape_function = shape_function

    @property
    def raw_input_arity(self) -> int:
        """The number of raw arguments."""
        return len(self.signature.inputs)

    @property
    def raw_result_arity(self) -> int:
        """The number of raw results."""
        return len(self.signature.outputs)

    def allocate_results(self, packed: Sequence[Any], static_alloc: bool = True) -> list[Any]:
        """Allocate tensors for the results of a call, for a function that writes into them.

        Args:
            packed: the return value of ``pack_inputs``.
            static_alloc: False: return an empty list, since the function allocates all of its results.

        Returns:
            One entry for each result: an uninitialised Tensor on the CPU, or None for a scalar, for a
            reference, and for a tensor whose dims neither the arguments nor the shape function determine.
            The function must make such a tensor.

        Raises:
            ArgumentError: the number of values in ``packed`` differs from the number of inputs.
            ValueError: a dim is negative, or a size needs more than 63 bits.
        """
        if len(packed) != self.raw_input_arity:
            raise ArgumentError([f"expected {self.raw_input_arity} packed arguments, got {len(packed)}"])
        return self._allocate(packed) if static_alloc else []

    def serialize(self, values: Sequence[Any]) -> list[str]:
        """Raw values as text, for logs and comparisons: ``2x2xf32=[1 2][3 4]``, ``i32=7``.

        Args:
            values: packed arguments, or raw results.

        Raises:
            ValueError: one is neither a number nor a tensor on the CPU.
        """
        return texts.serialize(self.signature, values)

    def invoke(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Pack, call ``function`` with the raw arguments by position, and unpack what it returns.

        Raises:
            ArgumentError: the arguments do not match the Signature; the function did not run.
            ResultError: the return value does not match the Signature.
        """
        packed = self.pack_inputs(*args, **kwargs)
        made = self._allocate(packed) if self.signature.destinations else []
        returned = function(*packed, *made)
        if returned is None and made:
            return self.unpack_results(made)
        if self.raw_result_arity == 1:
            return self.unpack_results([returned])
        return self.unpack_results([] if returned is None else returned)

    def __repr__(self) -> str:
        return f"<farcall.abi.FunctionAbi {self.signature}>"

    def __reduce__(self) -> Any:
        raise TypeError("a FunctionAbi cannot be pickled; keep its Signature")

    # ---- cases that the native half cannot decide

    def _allocate(self, packed: Sequence[Any]) -> list[Any]:
        return allocation.allocate(self.signature, packed, self._shape_function)

    def _resolve(self, args: Sequence[Any], kwargs: Mapping[str, Any], function: str | None) -> list[Any]:
        places = {one.name: i for i, one in enumerate(self.signature.parameters, 1)}
        checker = ArgumentChecker(Report("argument", function, places), self.casting)
        inputs = self.signature.inputs
        found = bind(self.signature, args, kwargs, checker.walker(inputs))
        converts = {one.slot: checker.leaf(inputs[one.slot], one.path, one.value) for one in found}
        checker.finish()
        if checker.report.problems:
            raise ArgumentError(checker.report.problems)
        values = [converts[slot]() for slot in range(len(inputs))]
        self.copies += checker.copies
        return values

    def _restore(self, values: Any, function: str | None, sizes: Sequence[int]) -> Any:
        arrays = None if function is not None or self._arrays == "farcall" else self._arrays
        known = {name: size for name, size in zip(self._symbols, sizes, strict=False) if size >= 0}
        checker = ResultChecker(Report("result", function), arrays, known, wraps=self.signature.wraps)
        paths: dict[int, str] = {}
        for path, slot in slots(self.signature.result_node):
            paths.setdefault(slot, path)  # the first place of one that has several
        return self._build(checker.all(self.signature.outputs, paths, values, function))
