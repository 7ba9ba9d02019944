"""Modules of the kinds ``farcall.onnxruntime`` and ``farcall.reference``: regions that a package computes.

Their data is a line of JSON (:class:`Head`), then an ONNX model. The function of the module takes the
region's inputs and outputs, and returns the outputs whose shapes the model computes. The artifact holds large
constants, which the package reads where they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from farcall import _core
from farcall.errors import ArtifactError
from farcall.library._kinds import module_kind

if TYPE_CHECKING:
    import numpy as np

    from farcall._core import Module, Tensor
    from farcall.library._blob import Blob

KINDS = {"onnxruntime": "farcall.onnxruntime", "reference": "farcall.reference"}  # of the backends
VERSION = 1


class Port(msgspec.Struct, frozen=True):
    """A tensor at the border of the region: its name in the model, its dtype, and ONNX's number of that."""

    name: str
    dtype: str
    number: int


class Head(msgspec.Struct, frozen=True):
    """What the function of the module takes and returns."""

    function: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]  # that the caller allocates
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
    """A model that a package has read."""

    def run(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
        """Compute into ``outputs``; returns the outputs that nobody has allocated."""


class OnnxRuntime:
    """A model that onnxruntime has read, on the CPU.

    Args:
        head: its inputs and outputs.
        model: ONNX, as bytes.
        constants: tensors for the initializers without data, by name; the session keeps and reads them.
    """

    def __init__(self, head: Head, model: bytes, constants: Mapping[str, Tensor]) -> None:
        self._head, self._session = (
            head,
            onnxruntime_session(model, head.options.get("threads", 1), constants),
        )

    def run(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
        """Compute into ``outputs``; onnxruntime reads and writes the tensors where they are."""
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

    def __init__(self, head: Head, model: bytes, constants: Mapping[str, Tensor]) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        proto = onnx.ModelProto.FromString(model)
        self._constants = {name: tensor.numpy() for name, tensor in constants.items()}
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

    def run(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
        """Compute, and copy to ``outputs``. The evaluator keeps state, so each call makes its own."""
        import numpy as np

        names = [port.name for port in self._head.inputs]
        feeds = {name: one.numpy() for name, one in zip(names, inputs, strict=True)} | self._constants
        wanted = (*self._head.outputs, *self._head.late)
        found = self._evaluator(self._model).run([port.name for port in wanted], feeds)
        arrays = [
            np.asarray(one, dtype=_core.dtype(port.dtype).dtype)
            for one, port in zip(found, wanted, strict=True)
        ]
        for port, array, out in zip(self._head.outputs, arrays, outputs, strict=False):
            if array.shape != tuple(out.shape):
                raise ValueError(f"`{port.name}` has shape {array.shape}, expected {tuple(out.shape)}")
            np.copyto(out.numpy(), array)
        return [_tensor(array) for array in arrays[len(outputs) :]]


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
        """Take the constants, which are views of the artifact's memory."""
        self._constants = tuple(constants)
        self._computer = self._make(
            self._head, self._model, dict(zip(self._head.constants, constants, strict=True))
        )
        self._model = b""

    def __call__(self, *args: Tensor) -> Any:
        count = len(self._head.inputs)
        if self._computer is None or len(args) != count + len(self._head.outputs):
            raise TypeError(f"expected {count + len(self._head.outputs)} tensors, got {len(args)}")
        try:
            made = self._computer.run(args[:count], args[count:])
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
