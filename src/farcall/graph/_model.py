"""Loads models from a file, a ``ModelProto`` or an ``ir.Model`` into the one form that farcall works on.

A model of :func:`load_model` is valid ONNX without functions, Constant nodes or inputs with defaults (they
become initializers). Its nodes are in topological order and have unique names, and its shapes are inferred
(:mod:`farcall.graph._shapes`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir
from onnx_ir.passes import InvariantError, PassError, common

from farcall._logs import Log
from farcall.errors import MissingFileError, ModelError, UsageError
from farcall.graph._collector import paused_collector
from farcall.graph._constraints import CONSTRAINTS
from farcall.graph._external import (
    check_external_data,
    folders_of,
    folders_of_model,
    is_external,
    map_external_data,
)
from farcall.graph._folding import fold_shapes
from farcall.graph._guards import (
    check_inlined_size,
    check_nesting,
    fit_for_inference,
    nested_protos,
    opset_of,
    with_attributes,
)
from farcall.graph._inline import lift_constant
from farcall.graph._malformed import check_wellformed
from farcall.graph._microsoft_calls import in_own_domain
from farcall.graph._opset import OLDEST, write_in
from farcall.graph._order import in_order
from farcall.graph._qdq import separate
from farcall.graph._reader import read_model
from farcall.graph._region import nested_graphs
from farcall.graph._shapes import infer_shapes

if TYPE_CHECKING:
    import onnx

ModelLike: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | ir.Model"

_INFERRED = ("", "ai.onnx", "ai.onnx.ml")  # the domains whose shapes ONNX or farcall infers
_CURE = "expected an ONNX file, such as torch.onnx.export(...) writes"
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip file, such as torch.save writes; export the module by torch.onnx.export, "
    "or by torch.export.save to a .pt2, which `farcall build` takes",
    b"\x80\x04\x95": "a Python pickle; export the module by torch.onnx.export",
    b"\x93NUMPY": "an array that numpy.save wrote (.npy); `farcall run` takes it as an --input",
    b"\x89HDF": "an HDF5 file, such as Keras writes; convert it to ONNX first",
    b"\x7fELF": "an ELF file; `farcall run` and load_module take built artifacts",
}


def load_model(source: ModelLike) -> ir.Model:
    """Read a model, check it, bring it into farcall's form, and infer its shapes.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``ir.Model``. The objects are not changed.

    Returns:
        A new ``ir.Model``. Weights in external files are mapped, not read.

    Raises:
        MissingFileError: There is no such file.
        ModelError: It is not ONNX, or ONNX's checker or shape inference refuses it.
        UsageError: ``source`` has another type.
    """
    with paused_collector():
        return _load(source)


def _load(source: ModelLike) -> ir.Model:
    proto, name, folders = _proto_of(source)
    proto = in_own_domain(_without_maps(proto, name))
    with _reading(name):
        _check(proto, name, folders)
    try:
        return _made_of(proto, name, folders)
    except ModelError:
        other = in_order(proto) or _with_wider_types(proto, name, folders)
        if other is None:
            raise
    return _made_of(other, name, folders)


def _made_of(proto: onnx.ModelProto, name: str, folders: Sequence[Path]) -> ir.Model:
    """The model in farcall's form, if ONNX's checker finds nothing wrong."""
    with _reading(name):
        proto = _in_one_opset(proto, name, folders)
        types = _check_and_infer(_without_weights(proto), name)
        model = read_model(proto)
        _declare_inputs(model, proto)
        map_external_data(model, folders)
        given = _normalize(model)
        separate(model.graph)
        if proto.functions:
            check_nesting(model.graph, nested_graphs, name)  # of functions inside of each other, too
    fold_shapes(model, infer_shapes(model, types, _declaring_numbers(proto)))
    model.meta[GONE] = frozenset(given.difference(node.name for node in model.graph))
    return model


def _declare_inputs(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Give inputs that are outputs, too, their shapes as inputs, where the outputs state none."""
    for value, info in zip(model.graph.inputs, proto.graph.input, strict=True):
        if value.is_graph_output() and value.shape is None:
            ir.serde.deserialize_value_info_proto(info, value)


def convert_opset(source: ModelLike, opset: int) -> ir.Model:
    """Write a model in another opset, newer or older.

    The model computes the same. Its functions are inlined, and inputs with defaults become constants.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``ir.Model``. The objects are not changed.
        opset: The version of ONNX's own domain, from 7 to the newest that the installed onnx knows.

    Returns:
        The new model. Save it by :func:`farcall.graph.save_model`.

    Raises:
        MissingFileError: There is no such file.
        ModelError: The model is not valid, or a node has no counterpart in that opset: the message names the
            node, what of it is missing there, and an opset that has it.
        UsageError: ``opset`` is out of range.
    """
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise UsageError(
            f"opset {opset} cannot be written; expected one from {OLDEST} to {newest}, the newest that the "
            f"installed onnx {onnx.__version__} knows"
        )
    proto, name, folders = _proto_of(source)
    with paused_collector(), _reading(name):
        _check(proto, name, folders)
        model = _written_in(opset, in_order(proto) or proto, name, folders)
        _check_and_infer(_without_weights(ir.to_proto(model)), f"{name} in opset {opset}")
    return model


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn what the packages for ONNX raise into a ModelError."""
    try:
        yield
    except (PassError, InvariantError, ir.serde.SerdeError, ValueError, TypeError, RuntimeError) as error:
        # Text that is not UTF-8 raises TypeError or UnicodeError, depending on the place. What inlines
        # functions turns all errors into RuntimeError.
        reason: BaseException = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        raise ModelError(f"{name} cannot be read: {_one_line(reason)}") from error


def _check(proto: onnx.ModelProto, name: str, folders: Sequence[Path]) -> None:
    for scope in (proto.graph, *proto.functions):
        check_nesting(scope, nested_protos, name)
    _check_opset(proto, name)
    _check_inputs(proto, name)
    _check_maps(proto, name)
    nodes = with_attributes(proto)
    check_external_data(proto, nodes, name, folders)
    check_wellformed(proto, nodes, name)


def _in_one_opset(proto: onnx.ModelProto, name: str, folders: Sequence[Path]) -> onnx.ModelProto:
    """The model with its functions in the opset of its graph, and none older than backends read."""
    found = _opsets(proto)
    if len(found) <= 1 and min(found, default=OLDEST) >= OLDEST:
        return proto
    written: onnx.ModelProto = ir.to_proto(_written_in(max(*found, OLDEST), proto, name, folders))
    return written


_WIDENED = 22  # the opset that gave convolutions, poolings and recurrent operators bfloat16


def _with_wider_types(proto: onnx.ModelProto, name: str, folders: Sequence[Path]) -> onnx.ModelProto | None:
    """A model in bfloat16 in the opset that knows it for all operators; None if that is no cure.

    torch exports networks in bfloat16 to older opsets, which only have it for some operators.
    """
    import onnx

    kinds = [item.data_type for item in proto.graph.initializer]
    kinds += [item.type.tensor_type.elem_type for item in proto.graph.input]
    if onnx.TensorProto.BFLOAT16 not in kinds or max(_opsets(proto), default=_WIDENED) >= _WIDENED:
        return None
    with contextlib.suppress(ModelError):
        written: onnx.ModelProto = ir.to_proto(_unchecked_in(_WIDENED, proto, {}, name, folders))
        return written
    return None


def _opsets(proto: onnx.ModelProto) -> set[int]:
    scopes = (proto.opset_import, *(function.opset_import for function in proto.functions))
    return {version for version in map(opset_of, scopes) if version}


def _written_in(opset: int, proto: onnx.ModelProto, name: str, folders: Sequence[Path]) -> ir.Model:
    check_inlined_size(proto, name)
    mixed = len(_opsets(proto)) > 1  # ONNX's checker refuses it, and checks the result instead
    types = {} if mixed else _check_and_infer(_without_weights(proto), name)
    return _unchecked_in(opset, proto, types, name, folders)


def _unchecked_in(
    opset: int, proto: onnx.ModelProto, types: dict[str, onnx.TypeProto], name: str, folders: Sequence[Path]
) -> ir.Model:
    model = read_model(proto)
    map_external_data(model, folders)
    _drop_defaults(model.graph)
    write_in(opset, model, types, name)
    return model


GONE = "farcall.gone"  # key in model.meta: the names of nodes that were computed, or that nothing needs


def is_loaded(model: ir.Model) -> bool:
    """Whether :func:`load_model` made this model."""
    return CONSTRAINTS in model.meta


def _proto_of(source: ModelLike) -> tuple[onnx.ModelProto, str, tuple[Path, ...]]:
    """The model's proto, its name in messages, and the folders that may hold its external data."""
    import onnx

    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return _read(path), f"`{path}`", folders_of(path)
    if isinstance(source, ir.Model):
        check_nesting(source.graph, nested_graphs, "the model")
        return ir.to_proto(source), "the model", folders_of_model(source)
    if isinstance(source, onnx.ModelProto):
        return source, "the model", ()
    raise UsageError(
        f"expected a path, an onnx.ModelProto or an onnx_ir.Model, got {type(source).__name__}; {_CURE}"
    )


def _read(path: Path) -> onnx.ModelProto:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise MissingFileError(f"no such file: `{path}`; {_CURE}") from None
    except IsADirectoryError:
        raise ModelError(f"`{path}` is a folder; {_CURE}") from None
    except OSError as error:
        raise ModelError(f"cannot read `{path}`: {error.strerror}") from error
    proto = parse(data)
    if proto is None:
        raise ModelError(f"`{path}` is not an ONNX model: {what_is(data)}; {_CURE}")
    return proto


def parse(data: bytes) -> onnx.ModelProto | None:
    """The model that these bytes are; None if they are none."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError:
        return None
    return proto if proto.ir_version and proto.HasField("graph") else None


def what_is(data: bytes) -> str:
    """What the bytes of a file that is no model look like, as the end of a sentence."""
    if not data:
        return "the file is empty"
    for magic, what in _OTHER_FORMATS.items():
        if data.startswith(magic):
            return f"it is {what}"
    head = data[:64].decode("utf-8", errors="replace")
    if all(char.isprintable() or char.isspace() for char in head) and "\ufffd" not in head[:-1]:
        return f"it is text, starting with {head.split()[0][:24] if head.split() else head[:8]!r}"
    return f"its {len(data):,} bytes are not a ModelProto with a graph, or nest too deep"


def _check_opset(proto: onnx.ModelProto, name: str) -> None:
    """Refuse an opset newer than the installed onnx, which would read it as the newest that it knows."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    for item in proto.opset_import:
        if item.domain in ("", "ai.onnx") and item.version > newest:
            raise ModelError(
                f"{name} uses opset {item.version}; expected at most {newest}, the newest that the "
                f"installed onnx {onnx.__version__} knows: update the package onnx, or export for an older "
                "opset"
            )


def _check_inputs(proto: onnx.ModelProto, name: str) -> None:
    """Refuse negative dims, which ONNX's checker accepts and its inference uses."""
    for info in proto.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_value < 0:
                raise ModelError(
                    f"{name}: input `{info.name}` has {dim.dim_value} as dim {axis}; expected a size, or a "
                    'name for one that varies: set dim_param, as in "batch"'
                )


_SMALL_BYTES = 1024  # ONNX's inference reads the data of shape operands, which are smaller than this


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` with its large initializers turned into inputs of the same type.

    ONNX's checker and inference serialize the model: this keeps them fast, and the proto below 2 GB.
    """
    import onnx

    large: list[onnx.TensorProto] = []
    small: list[onnx.TensorProto] = []
    for item in proto.graph.initializer:
        (large if is_external(item) or item.ByteSize() > _SMALL_BYTES else small).append(item)
    if not large:
        return proto
    slim = onnx.ModelProto(ir_version=proto.ir_version)
    slim.graph.name = proto.graph.name
    for source, target, fields in (
        (proto, slim, ("opset_import", "functions")),
        (proto.graph, slim.graph, ("node", "input", "output", "value_info", "sparse_initializer")),
    ):
        for field in fields:
            getattr(target, field).extend(getattr(source, field))
    slim.graph.initializer.extend(small)
    inputs = {item.name for item in proto.graph.input}
    slim.graph.input.extend(
        onnx.helper.make_tensor_value_info(item.name, item.data_type, item.dims)
        for item in large
        if item.name not in inputs
    )
    return slim


def _check_and_infer(proto: onnx.ModelProto, name: str) -> dict[str, onnx.TypeProto]:
    """Run ONNX's checker and shape inference. Returns value name -> inferred type."""
    import onnx

    # For nodes that ONNX's inference gets wrong, strict mode would reject the right dims that a model
    # declares, so it is off then.
    doubtful = (node for node in proto.graph.node if node.op_type.endswith(_DOUBTFUL))
    strict = not any(map(_misread, doubtful))
    try:
        onnx.checker.check_model(_with_output_shapes(proto))
        check_inlined_size(proto, name)
        # Data propagation is off: it would keep an entry for each element of every tensor of rank 1, of any
        # length. farcall's rules (farcall.graph._shape_data) follow only small tensors.
        try:
            inferred = _infer(proto, strict)
        except onnx.shape_inference.InferenceError:
            inferred = _infer(_without_declared_dims(proto), strict)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        IndexError,  # of a shape that has fewer dims than the inference reads
    ) as error:
        raise ModelError(f"{name} is not valid ONNX: {_one_line(error)}") from error
    except MemoryError:
        raise ModelError(f"{name} needs more memory than there is, only to infer its shapes") from None
    graph = inferred.graph
    return {info.name: info.type for infos in (graph.value_info, graph.output) for info in infos}


def _infer(proto: onnx.ModelProto, strict: bool) -> onnx.ModelProto:
    import onnx

    return onnx.shape_inference.infer_shapes(fit_for_inference(proto), check_type=True, strict_mode=strict)


def _without_declared_dims(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without dims of what nodes make: exporters declare wrong ones, and inference finds them."""
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    made = {name for node in bare.graph.node if node.domain in _INFERRED for name in node.output}
    for info in (*bare.graph.value_info, *bare.graph.output):
        if info.name in made and info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return bare


def _declaring_numbers(proto: onnx.ModelProto) -> frozenset[str]:
    """The values for some of whose dims a model declares numbers; names are not unique before inlining."""
    infos = (*proto.graph.value_info, *proto.graph.output)
    shaped = (info for info in infos if info.type.HasField("tensor_type"))
    return frozenset(
        info.name for info in shaped if any(d.dim_value for d in info.type.tensor_type.shape.dim)
    )


def _makes_maps(node: onnx.NodeProto) -> bool:
    return bool(node.domain == "ai.onnx.ml" and node.op_type == "ZipMap")


def _without_maps(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """``proto``, or a copy whose outputs are the scores that scikit-learn's ZipMap makes lists of maps of.

    The columns of such a tensor are in the order of the node's class labels.
    """
    import onnx

    if not any(node.op_type == "ZipMap" for node in proto.graph.node):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    read = {value for node in copy.graph.node for value in node.input}
    outputs = {info.name: info for info in copy.graph.output}
    for node in filter(_makes_maps, copy.graph.node):
        (made,) = node.output
        if made in read or made not in outputs:
            continue  # and is refused
        Log("graph").info("%s: output %s is a tensor of scores, and not a list of maps", name, made)
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        outputs[made].ClearField("type")
        outputs[made].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    if not opset_of(copy.opset_import):
        copy.opset_import.add(domain="", version=OLDEST)
    return copy


def _check_maps(proto: onnx.ModelProto, name: str) -> None:
    """Refuse scikit-learn's lists of maps, which are no tensors, before the reader fails at their type."""
    for node in filter(_makes_maps, proto.graph.node):
        raise ModelError(
            f"{name}: node `{node.name or node.output[0]}` (ZipMap) makes a list of maps, no tensor; "
            "convert the model with options={'zipmap': False} (skl2onnx) to get a tensor of probabilities"
        )


def _with_output_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` itself, or a copy with a shape for each output that declares none.

    ONNX's checker requires a shape but does not check it further. Exporters omit it, and other runtimes
    accept that.
    """
    import onnx

    tensors = [info.type.tensor_type for info in proto.graph.output if info.type.HasField("tensor_type")]
    if all(tensor.HasField("shape") for tensor in tensors):
        return proto
    shaped = onnx.ModelProto()
    shaped.CopyFrom(proto)
    for info in shaped.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    return shaped


_DOUBTFUL = ("MeanVarianceNormalization", "Attention", "STFT", "Pool")


def _misread(node: onnx.NodeProto) -> bool:
    """Whether ONNX's inference gets the node wrong.

    See :func:`farcall.graph._shape_rules.misread_by_onnx`. It also finds a fault in its own definition of
    MeanVarianceNormalization if the axes are left out, and reckons with 0 for symbols in Attention.
    """
    if node.op_type == "MeanVarianceNormalization":
        return not node.attribute
    if node.op_type == "Attention":
        return any(item.name == "kv_num_heads" for item in node.attribute)
    if node.op_type == "STFT":
        return all(item.name != "onesided" for item in node.attribute)
    return node.op_type.endswith("Pool") and any(
        item.name == "ceil_mode" and item.i for item in node.attribute
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _normalize(model: ir.Model) -> set[str]:
    """Bring a model into farcall's form. Returns the names of its nodes."""
    if model.functions:
        common.InlinePass()(model)
    graph = model.graph
    _drop_defaults(graph)
    for node in [node for node in graph if node.op_type == "Constant"]:
        lift_constant(graph, node)
    return _name_nodes(graph)


def _drop_defaults(graph: ir.Graph) -> None:
    """Make inputs with defaults constants; IR version 3 lists all weights as inputs."""
    inputs = [value for value in graph.inputs if value.name not in graph.initializers]
    if len(inputs) != len(graph.inputs):
        graph.inputs[:] = inputs


def _name_nodes(graph: ir.Graph) -> set[str]:
    """Give every node a unique name, which messages, pictures and profiles show. Returns the names."""
    nodes = list(graph)
    taken = {node.name for node in nodes if node.name}
    seen: set[str] = set()
    numbers = count()
    for node in nodes:
        name, base = node.name, node.name or node.op_type
        while not name or name in seen:
            candidate = f"{base}_{next(numbers)}"
            name = None if candidate in taken else candidate
        node.name = name
        seen.add(name)
    return seen
