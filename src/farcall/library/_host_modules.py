"""Modules of the kinds ``farcall.onnxruntime`` and ``farcall.reference``: regions that a package computes.

Their data is a line of JSON (:class:`Head`), then an ONNX model. The function of the module takes the
region's inputs and outputs, and returns the outputs whose shapes the model computes. The artifact holds large
constants, which the package reads where they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from farcall import _core
from farcall.abi._leaves import STRING
from farcall.abi.calls._strings import raw_strings, strings_from_raw
from farcall.errors import ArtifactError
from farcall.library._kinds import module_kind

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from farcall._core import Module, Tensor
    from farcall.library._blob import Blob

KINDS = {"onnxruntime": "farcall.onnxruntime", "reference": "farcall.reference"}  # of the backends
VERSION = 1


Wrapping: TypeAlias = Literal["sequence", "optional"]


class Port(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value at the border of the region: its name in the model, and the dtype of its tensors.

    ``number`` is ONNX's number of the dtype. ``wrapped`` says in what the tensors are, from the outside in:
    sequences and optionals.
    """

    name: str
    dtype: str
    number: int
    wrapped: tuple[Wrapping, ...] = ()

    @property
    def is_object(self) -> bool:
        """Whether it is no tensor of numbers."""
        return bool(self.wrapped) or self.dtype == STRING


class Head(msgspec.Struct, frozen=True):
    """What the function of the module takes and returns."""

    function: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]  # that the caller allocates: tensors of numbers
    late: tuple[Port, ...]  # that the function returns
    constants: tuple[str, ...]  # names in the model of those that the artifact holds
    options: dict[str, int]


def pack(head: Head, model: bytes) -> bytes:
    """The data of a module."""
    return msgspec.json.encode(head) + b"\n" + model


def unpack(data: bytes, kind: str) -> tuple[Head, bytes]:
    """The head and the model.

    Raises:
        ArtifactError: the data is damaged.
    """
    line, _, model = data.partition(b"\n")
    try:
        return msgspec.json.decode(line, type=Head), model
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtifactError(
            f"a module of kind `{kind}` is damaged: its first line is no head: {error}; build it again"
        ) from None


class Computer(Protocol):
    """A model that a package has read.

    Attributes:
        by_arrays: whether it takes numpy arrays, lists of them and None, instead of Tensors.
    """

    by_arrays: bool

    def run(self, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> list[Any]:
        """Compute into ``outputs``; returns the outputs that nobody has allocated."""


class OnnxRuntime:
    """A model that onnxruntime has read, on the CPU.

    Args:
        head: its inputs and outputs.
        model: ONNX, as bytes.
        constants: tensors for the initializers without data, by name; the session keeps and reads them.
    """

    def __init__(self, head: Head, model: bytes, constants: Mapping[str, Tensor]) -> None:
        self._head = head
        self._session = onnxruntime_session(model, head.options.get("threads", 1), constants)
        self.by_arrays = any(port.is_object for port in (*head.inputs, *head.late))

    def run(self, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> list[Any]:
        """Compute into ``outputs``; onnxruntime reads and writes tensors of numbers where they are."""
        if self.by_arrays:
            return _run_by_arrays(self._head, self._session.run, inputs, outputs)
        binding = self._session.io_binding()
        for port, given in zip(self._head.inputs, inputs, strict=True):
            binding.bind_input(port.name, "cpu", 0, port.number, tuple(given.shape), given.data_ptr())
        for port, out in zip(self._head.outputs, outputs, strict=True):
            binding.bind_output(port.name, "cpu", 0, port.number, tuple(out.shape), out.data_ptr())
        for port in self._head.late:
            binding.bind_output(port.name)
        self._session.run_with_iobinding(binding)
        made = binding.get_outputs()[len(self._head.outputs) :]
        return [_copy(one, port.dtype) for one, port in zip(made, self._head.late, strict=True)]


class Reference:
    """A model that ONNX's reference evaluator has read.

    Args:
        head: its inputs and outputs.
        model: ONNX, as bytes.
        constants: tensors for the initializers without data, by name.
    """

    by_arrays = True

    def __init__(self, head: Head, model: bytes, constants: Mapping[str, Tensor]) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        proto = onnx.ModelProto.FromString(model)
        self._constants = {name: tensor.numpy() for name, tensor in constants.items()}
        _check_constants(proto, self._constants)
        left = [one for one in proto.graph.initializer if one.name not in self._constants]
        for one in proto.graph.initializer:
            if one.name in self._constants:
                proto.graph.input.append(
                    onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims)
                )
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(left)
        self._head, self._model = head, proto
        self._evaluator = ReferenceEvaluator

    def run(self, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> list[Any]:
        """Compute, and copy to ``outputs``. The evaluator keeps state, so each call makes its own."""

        ports = {port.name: port for port in (*self._head.outputs, *self._head.late)}

        def run(names: list[str], feeds: dict[str, Any]) -> Sequence[Any]:
            found = self._evaluator(self._model).run(names, feeds | self._constants)
            return [_unpacked(ports[name], one) for name, one in zip(names, found, strict=True)]

        return _run_by_arrays(self._head, run, inputs, outputs)


def _check_constants(proto: onnx.ModelProto, given: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Refuse constants that are not those of the model. onnxruntime does that itself.

    Raises:
        ArtifactError: one has another dtype or shape.
    """
    from onnx.helper import tensor_dtype_to_np_dtype

    for one in proto.graph.initializer:
        array = given.get(one.name)
        wanted = tensor_dtype_to_np_dtype(one.data_type), tuple(one.dims)
        if array is not None and (array.dtype, array.shape) != wanted:
            raise ArtifactError(
                f"its constant `{one.name}`: expected {wanted[0]}{list(wanted[1])}, "
                f"got {array.dtype}{list(array.shape)}; build it again"
            )


def _unpacked(port: Port, value: Any) -> Any:
    """An optional of the reference evaluator, whose operator Optional puts the value into a list."""
    if port.wrapped[:1] != ("optional",) or not isinstance(value, list) or len(value) != 1:
        return value
    is_packed = port.wrapped == ("optional",) or value[0] is None or isinstance(value[0], list)
    return value[0] if is_packed else value


def _run_by_arrays(
    head: Head,
    run: Callable[[list[str], dict[str, Any]], Sequence[Any]],
    inputs: Sequence[Any],
    outputs: Sequence[Tensor],
) -> list[Any]:
    """Compute by a package that takes and gives numpy arrays, lists of them, and None."""
    import numpy as np

    feeds = {port.name: one for port, one in zip(head.inputs, inputs, strict=True)}
    found = run([port.name for port in (*head.outputs, *head.late)], feeds)
    for port, made, out in zip(head.outputs, found, outputs, strict=False):
        array = _array(port, made)
        if array.shape != tuple(out.shape):
            raise ValueError(f"`{port.name}` has shape {array.shape}, expected {tuple(out.shape)}")
        np.copyto(out.numpy(), array)
    return [_made(port, one) for port, one in zip(head.late, found[len(outputs) :], strict=True)]


def _given(port: Port, value: Any, depth: int = 0) -> Any:
    """What a package gets for an argument.

    Raises:
        TypeError: the argument is not what the port says.
    """
    kind = port.wrapped[depth] if depth < len(port.wrapped) else "tensor"
    if kind == "optional":
        return None if value is None else _given(port, value, depth + 1)
    if kind == "sequence":
        if not isinstance(value, list | tuple):
            raise _wrong(port, "a sequence, which is an Array", value)
        return [_given(port, item, depth + 1) for item in value]
    if port.dtype == STRING:
        try:
            return strings_from_raw(value)
        except TypeError as error:
            raise _wrong(port, "strings", value, f"; {error}") from None
    if not isinstance(value, _core.Tensor) or str(value.dtype) != port.dtype:
        raise _wrong(port, f"a Tensor of {port.dtype}", value)
    return value.numpy()


def _wrong(port: Port, expected: str, value: object, why: str = "") -> TypeError:
    got = f"a Tensor of {value.dtype}" if isinstance(value, _core.Tensor) else type(value).__name__
    return TypeError(f"`{port.name}`: expected {expected}, got {got}{why}")


def _made(port: Port, value: Any, depth: int = 0) -> Any:
    """What farcall gets for a value that a package made."""
    kind = port.wrapped[depth] if depth < len(port.wrapped) else "tensor"
    if kind == "optional":
        return None if value is None else _made(port, value, depth + 1)
    if kind == "sequence":
        return [_made(port, item, depth + 1) for item in value]
    array = _array(port, value)
    return raw_strings(array) if port.dtype == STRING else _tensor(array)


def _array(port: Port, value: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.asarray(value, dtype=object if port.dtype == STRING else _core.dtype(port.dtype).dtype)


def onnxruntime_session(model: bytes, threads: int, constants: Mapping[str, Tensor]) -> Any:
    """A session of onnxruntime on the CPU.

    Raises:
        RuntimeError: onnxruntime cannot read the model; its errors have many types.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised
    if constants:
        values = [ort.OrtValue.ortvalue_from_numpy(tensor.numpy()) for tensor in constants.values()]
        options.add_external_initializers(list(constants), values)
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise RuntimeError(_one_line(error)) from error


class _Function:
    """The function of a module: reads the model when the constants are there, and computes."""

    def __init__(self, make: type[OnnxRuntime | Reference], head: Head, model: bytes) -> None:
        self._make, self._head, self._model = make, head, model
        self._computer: Computer | None = None
        self._constants: tuple[Tensor, ...] = ()
        if not head.constants:
            self.start(())

    def start(self, constants: Sequence[Tensor]) -> None:
        """Take the constants, which are views of the artifact's memory.

        Raises:
            ArtifactError: they are not those of the model.
        """
        if len(constants) != len(self._head.constants):
            raise ArtifactError(
                f"expected {len(self._head.constants)} constants, got {len(constants)}; build it again"
            )
        self._constants = tuple(constants)
        self._computer = self._make(
            self._head, self._model, dict(zip(self._head.constants, constants, strict=True))
        )
        self._model = b""

    def __call__(self, *args: Any) -> Any:
        count = len(self._head.inputs)
        if self._computer is None:
            raise RuntimeError(f"it got none of its {len(self._head.constants)} constants; build it again")
        if len(args) != count + len(self._head.outputs):
            raise TypeError(f"expected {count + len(self._head.outputs)} arguments, got {len(args)}")
        inputs: Sequence[Any] = args[:count]
        if self._computer.by_arrays:
            inputs = [_given(port, one) for port, one in zip(self._head.inputs, inputs, strict=True)]
        try:
            made = self._computer.run(inputs, args[count:])
        except Exception as error:  # whatever the package raises
            raise RuntimeError(_one_line(error)) from error
        return made[0] if len(made) == 1 else made or None


def _load(blob: Blob, package: str, make: type[OnnxRuntime | Reference]) -> Module:
    head, model = unpack(blob.data, blob.kind)
    try:
        function = _Function(make, head, model)
    except ModuleNotFoundError as error:
        raise ArtifactError(
            f"modules of kind `{blob.kind}` need the package {error.name}, which is not installed; "
            f"pip install {package}"
        ) from None
    functions: dict[str, Callable[..., Any]] = {
        head.function: function,
        f"__init_{head.function}": function.start,
    }
    return _core.new_module(blob.kind, functions, lambda: bytes(blob))


@module_kind(KINDS["onnxruntime"], versions=(VERSION,))
def load_onnxruntime(blob: Blob) -> Module:
    """Load a region that onnxruntime computes."""
    return _load(blob, "onnxruntime", OnnxRuntime)


@module_kind(KINDS["reference"], versions=(VERSION,))
def load_reference(blob: Blob) -> Module:
    """Load a region that ONNX's reference evaluator computes."""
    return _load(blob, "onnx", Reference)


def _copy(made: Any, dtype: str) -> Tensor:
    """A Tensor with the elements of a tensor of onnxruntime."""
    out = _core.empty(tuple(made.shape()), dtype)
    size = made.tensor_size_in_bytes()
    if size:
        ctypes.memmove(out.data_ptr(), made.data_ptr(), size)
    return out


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    import numpy as np

    out = _core.empty(array.shape, array.dtype)
    np.copyto(out.numpy(), array)
    return out


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
