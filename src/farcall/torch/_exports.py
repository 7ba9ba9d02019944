"""Exported graphs in the user's cache, without weights: a later process need not export them again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
import onnxscript
import torch

from farcall import __version__
from farcall.toolchain._cache import cached, content_key

if TYPE_CHECKING:
    from farcall.torch._graph import Captured

_FORMAT = 7  # of what is kept: it changes when this room exports an equal graph in another way

# The exporter's knowledge of these does not change while the versions stay. The code of other functions may.
_KNOWN = ("torch", "_operator", "operator", "builtins", "math")


def exported(captured: Captured, inputs: Sequence[Any]) -> onnx.ModelProto:
    """The graph as ONNX, from the cache if an equal graph was exported before.

    Dims that Dynamo takes as symbols and the exporter fixed become fixed for Dynamo, too: it then compiles
    other sizes apart.

    Raises:
        ModelError: torch cannot export the graph.
    """

    def make(path: Path | None = None) -> onnx.ModelProto:
        proto = ir.to_proto(captured.export(inputs))
        if path is not None:
            path.write_bytes(proto.SerializeToString(deterministic=True))
        return proto

    key = content(captured)
    if key is None:
        proto = make()
    else:
        proto = onnx.load(cached(key, ".onnx", make))
        if any(fixed != inputs[size.input].shape[size.dim] for size, fixed in _fixed(captured, proto)):
            proto = make()  # the cached one is for other sizes
    for size, _ in _fixed(captured, proto):
        int(captured.fakes[size.input].shape[size.dim])  # a guard of Dynamo
    return proto


def _fixed(captured: Captured, proto: onnx.ModelProto) -> Iterator[tuple[Any, int]]:
    """The symbolic dims that are constants in the model."""
    for size in captured.symbolic():
        dim = proto.graph.input[size.input].type.tensor_type.shape.dim[size.dim]
        if dim.HasField("dim_value"):
            yield size, dim.dim_value


def content(captured: Captured) -> str | None:
    """A key for the graph and all that its export depends on; None if that cannot be known."""
    graph = captured.graph
    versions = (_FORMAT, __version__, torch.__version__, onnxscript.__version__, onnx.__version__)
    parts = [*map(str, versions)]
    parts += [str(torch.get_default_dtype()), str(torch.is_autocast_enabled("cpu"))]
    parts += [str(torch.get_autocast_dtype("cpu")), str(torch.is_inference_mode_enabled())]
    parts.append(str(captured.fixed))
    for fake in captured.fakes:
        is_tensor = isinstance(fake, torch.Tensor)
        parts.append(f"{fake.dtype} {tuple(fake.shape)} {fake.stride()}" if is_tensor else str(fake))
    for node in graph.graph.nodes:
        if node.op == "call_module" or (node.op == "call_function" and not _is_known(node.target)):
            return None
        if node.op == "get_attr":
            kept = getattr(graph, node.target, None)
            if type(kept) is not torch.Tensor:
                return None
            parts += [node.target, _digest(kept)]
    return content_key([*parts, graph.graph.python_code("self").src])


def _is_known(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims")
    return (getattr(target, "__module__", None) or "builtins").partition(".")[0] in _KNOWN


def _digest(tensor: torch.Tensor) -> str:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(data).hexdigest()}"
