"""The backends ``onnxruntime`` and ``reference``: an installed package computes regions.

They are the last ones of a plan, for what no other backend takes. A region becomes an ONNX model, and the
loader of its kind (:mod:`farcall.library._host_modules`) gives that to the package.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from farcall import _core
from farcall._extras import is_installed
from farcall._texts import escaped
from farcall.abi._leaves import STRING
from farcall.backends.base import Backend, RegionModule
from farcall.errors import BackendError, MissingExtraError, UsageError
from farcall.graph._region import reads
from farcall.graph._region_model import region_model
from farcall.graph.dims import dtype_name, is_object, try_dims
from farcall.library._host_modules import KINDS, VERSION, Head, Port, Wrapping, onnxruntime_session, pack
from farcall.toolchain import Target

if TYPE_CHECKING:
    import onnx

    from farcall.graph import Region

_SMALL_BYTES = 1024  # a constant up to this size stays in the model: packages take shapes and axes from it
_LONGEST_REASON = 300  # characters of a package's message


class HostBackend(Backend):
    """Takes what an installed package computes, outputs of any shape included."""

    allocates = True
    in_process = True
    package: str  # its name, for pip

    def __init__(self) -> None:
        self._reasons: dict[bytes, str | None] = {}

    def check(self, node: ir.Node) -> str | None:
        """Ask the package: it is given the single node as a model."""
        if not is_installed(self.package):
            return f"the package {self.package} is not installed; pip install {self.package}"
        given = dict.fromkeys(reads(node))
        if any(value.type is None for value in given):
            return None  # of operators whose types ONNX does not infer; the whole region decides
        model = _node_model(node, given)
        key = model.SerializeToString(deterministic=True)
        if key not in self._reasons:
            self._reasons[key] = _reason(self._try, key)
        return self._reasons[key]

    def accept(self, region: Region) -> str | None:
        """Take a region whose border values can cross, and that the package takes as a whole."""
        for value in (*region.inputs, *region.outputs):
            if reason := _border(value):
                return reason
        return _reason(self._try, _without_constants(region).SerializeToString())

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionModule:
        """The region as a model, whose large constants the artifact holds."""
        if not target.is_host:
            nodes = ", ".join(f"`{node.name}` ({node.op_type})" for node in region.nodes[:5])
            raise BackendError(
                f"backend `{self.name}`, region `{region.name}`, nodes {nodes}: {self.package} computes "
                f"them, in a process on a machine such as this one ({Target.host().triple}), not "
                f"{target}: "
                "leave the target out, or take a backend that makes code for these nodes"
            )
        model = region_model(region)
        constants = dict(_large(region.constants))
        for tensor in model.graph.initializer:
            if tensor.name in constants:
                _make_external(tensor)
        head = Head(
            region.name,
            inputs=tuple(map(_port, region.inputs)),
            outputs=tuple(map(_port, (v for v in region.outputs if v not in region.allocated))),
            late=tuple(map(_port, region.allocated)),
            constants=tuple(constants),
            options=dict(options),
        )
        data = pack(head, model.SerializeToString(deterministic=True))
        named = {f"{region.name}_k{k}": data for k, data in enumerate(constants.values())}
        return RegionModule(KINDS[self.name], VERSION, data, named, source=_text(model))

    @abstractmethod
    def _try(self, model: bytes) -> object:
        """Give a model to the package, which raises an error if it cannot compute it."""


class OnnxRuntimeBackend(HostBackend):
    """Computes regions by onnxruntime on the CPU, in the process that loads the artifact.

    Options:
        threads: how many threads compute one operator.
    """

    name = "onnxruntime"
    color = "#b07aa1"
    options: Mapping[str, Any] = {"threads": 1}
    package = "onnxruntime"

    def accept(self, region: Region) -> str | None:
        values = (*region.inputs, *region.outputs)
        if any(map(is_object, values)) and (odd := next(filter(_is_foreign, values), None)):
            return f"`{odd.name}` has {_dtype(odd)}, which it takes in no sequence, and not beside strings"
        return super().accept(region)

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionModule:
        if options["threads"] < 1:
            raise UsageError(
                f"backend `{self.name}`, option `threads`: expected 1 or more, got {options['threads']}"
            )
        return super().compile(region, target, options)

    def _try(self, model: bytes) -> object:
        return onnxruntime_session(model, 1, {})


class ReferenceBackend(HostBackend):
    """Computes regions by ONNX's reference evaluator, which is slow, where the artifact is loaded."""

    name = "reference"
    color = "#9c755f"
    package = "onnx"

    def check(self, node: ir.Node) -> str | None:
        if node.op_type == "ImageDecoder" and not is_installed("PIL"):
            return "to decode images, the reference needs the package pillow; pip install pillow"
        return super().check(node)

    def _try(self, model: bytes) -> object:
        import onnx
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(onnx.ModelProto.FromString(model))


def _reason(attempt: Callable[[bytes], object], model: bytes) -> str | None:
    """Why a package refuses a model; None if it does not."""
    try:
        attempt(model)
    except MissingExtraError:
        raise
    except Exception as error:  # whatever the package raises
        text = " ".join(escaped(str(error) or type(error).__name__).split())
        return text[:_LONGEST_REASON] + ("..." if len(text) > _LONGEST_REASON else "")
    return None


def _border(value: ir.Value) -> str | None:
    """Why a value cannot cross the border of a region."""
    if value.type is None:
        return f"the type of `{value.name}` is not known; declare it in the model's value_info"
    if not isinstance(_unwrapped(value)[0], ir.TensorType):
        return f"`{value.name}` is {value.type}; only tensors, sequences and optionals of them cross a border"
    if isinstance(value.type, ir.TensorType) and try_dims(value) is None:
        return f"the rank of `{value.name}` is not known; declare its shape in the model's value_info"
    return None


def _node_model(node: ir.Node, given: Iterable[ir.Value]) -> onnx.ModelProto:
    """A node as a model. Names are those of the model; only its inputs' types and small constants count."""
    import onnx

    graph = node.graph
    imports = graph.opset_imports if isinstance(graph, ir.Graph) else {}
    proto = ir.to_proto(node)
    proto.name = ""
    model = _model(imports, [proto])
    for value in given:
        _add(model, value)
    model.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(value.name) if value.type is None else ir.to_proto(value)
        for value in node.outputs
        if value.name
    )
    return model


def _without_constants(region: Region) -> onnx.ModelProto:
    """A region as a model whose large constants are inputs: the package need not read them."""
    graph = region.nodes[0].graph
    imports = graph.opset_imports if isinstance(graph, ir.Graph) else {}
    model = _model(imports, [ir.to_proto(node) for node in region.nodes])
    for value in (*region.inputs, *region.constants):
        _add(model, value)
    model.graph.output.extend(ir.to_proto(value) for value in region.outputs)
    return model


def _model(imports: Mapping[str, int], nodes: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
    import onnx

    return onnx.ModelProto(
        ir_version=10,
        opset_import=[onnx.helper.make_opsetid(domain, version) for domain, version in imports.items()],
        graph=onnx.GraphProto(name="region", node=nodes),
    )


def _add(model: onnx.ModelProto, value: ir.Value) -> None:
    """Add a value to a model: a small constant with its data, anything else as an input."""
    tensor = value.const_value
    if tensor is not None and tensor.nbytes <= _SMALL_BYTES:
        proto = ir.to_proto(
            tensor
            if not isinstance(tensor, ir.ExternalTensor)
            else ir.Tensor(tensor.numpy(), dtype=tensor.dtype)
        )
        proto.name = value.name or ""
        model.graph.initializer.append(proto)
    else:
        model.graph.input.append(ir.to_proto(value))


def _large(constants: Iterable[ir.Value]) -> Iterable[tuple[str, Any]]:
    """The constants that the artifact holds: their names, and their data."""
    for value in constants:
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > _SMALL_BYTES and tensor.numpy().dtype.kind in "biufc":
            yield value.name or "", tensor.numpy()


def _make_external(tensor: onnx.TensorProto) -> None:
    """Take the data out of a tensor; the loader gives it."""
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "farcall"


def _unwrapped(value: ir.Value) -> tuple[ir.TypeProtocol | None, tuple[Wrapping, ...]]:
    """The type of the tensors of a value, and the sequences and optionals that they are in."""
    kind, wrapped = value.type, list[Wrapping]()
    while isinstance(kind, ir.SequenceType | ir.OptionalType):
        wrapped.append("sequence" if isinstance(kind, ir.SequenceType) else "optional")
        kind = kind.elem_type
    return kind, tuple(wrapped)


def _is_foreign(value: ir.Value) -> bool:
    """Whether numpy itself lacks the dtype of a value's tensors, so that onnxruntime takes no such array."""
    kind = _unwrapped(value)[0]
    return isinstance(kind, ir.TensorType) and kind.dtype.numpy().isbuiltin != 1


def _dtype(value: ir.Value) -> str:
    kind = _unwrapped(value)[0]
    return dtype_name(kind.dtype) if isinstance(kind, ir.TensorType) else str(kind)


def _port(value: ir.Value) -> Port:
    kind, wrapped = _unwrapped(value)
    if not isinstance(kind, ir.TensorType):
        raise ValueError(f"`{value.name}` has no dtype")
    is_text = kind.dtype == ir.DataType.STRING
    dtype = STRING if is_text else str(_core.dtype(kind.dtype.numpy()))
    return Port(value.name or "", dtype, int(kind.dtype), wrapped)


def _text(model: onnx.ModelProto) -> str:
    import onnx

    return f"{onnx.printer.to_text(model)}\n"
