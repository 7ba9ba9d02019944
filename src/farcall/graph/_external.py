"""External data: weights in separate files, found and measured at load, mapped when they are read.

The rules are ONNX's ("External data"): a location is relative to the model's folder, and must not lead out of
it. Model hubs store the files elsewhere and keep symbolic links to them, so a link may also lead to the real
folder of the model file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.errors import MissingDataError, ModelError
from farcall.graph._guards import subgraphs
from farcall.graph.dims import dtype_name

if TYPE_CHECKING:
    import onnx


def folders_of(path: Path) -> tuple[Path, ...]:
    """The folders that may hold the model's external data: that of its path, and that of the real file."""
    return tuple(dict.fromkeys((path.absolute().parent, path.resolve().parent)))


def folders_of_model(model: ir.Model) -> tuple[Path, ...]:
    """The folder of the external data of a model that was read before; empty if it has none.

    Raises:
        ModelError: The data is in several folders.
    """
    tensors = (value.const_value for value in model.graph.initializers.values())
    found = {
        Path(tensor.base_dir).absolute(): None for tensor in tensors if isinstance(tensor, ir.ExternalTensor)
    }
    if len(found) > 1:
        raise ModelError(f"the model has external data in several folders: {', '.join(map(str, found))}")
    return tuple(found)


def check_external_data(
    proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], name: str, folders: Sequence[Path]
) -> None:
    """Refuse external data that is missing, too short, or outside the model's folder.

    Args:
        proto: The model.
        nodes: Those of its nodes, at any depth, that have attributes.
        name: The name of the model in messages.
        folders: The allowed folders; locations are relative to the first. Empty: the current folder.

    Raises:
        MissingDataError: A file does not exist.
        ModelError: The message names the tensor, the file, and the fault.
    """
    sizes: dict[str, tuple[Path, int]] = {}  # by location: most models have one file for many tensors
    for tensor in filter(is_external, _tensors(proto, nodes)):
        entries = {item.key: item.value for item in tensor.external_data}
        where, location = f"{name}: the data of `{tensor.name}`", entries.get("location", "")
        if location not in sizes:
            sizes[location] = _find(location, where, folders or (Path.cwd(),))
        _check_extent(tensor, entries, where, *sizes[location])


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether the data of the tensor is in an external file."""
    return bool(tensor.data_location == type(tensor).EXTERNAL)


def map_external_data(model: ir.Model, folders: Sequence[Path]) -> None:
    """Set the folder of each external tensor of a model that passed :func:`check_external_data`."""
    if not folders:
        return
    ir.external_data.set_base_dir(model.graph, folders[0])
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            file = Path(tensor.path).resolve()
            if not file.is_relative_to(folders[0].resolve()):
                value.const_value = _moved(tensor, file)


def _moved(tensor: ir.ExternalTensor, file: Path) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        file.name,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
        base_dir=file.parent,
    )


def _tensors(proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.TensorProto]:
    """The initializers of the graph and its subgraphs, and the tensors in attributes."""
    yield from proto.graph.initializer
    for node in nodes:
        for graph in subgraphs(node):
            yield from graph.initializer
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t


def _find(location: str, where: str, folders: Sequence[Path]) -> tuple[Path, int]:
    """The file at a location, and its size in bytes."""
    local = Path(os.path.normpath(location))  # resolves ".." lexically
    if not local.parts:
        raise ModelError(f"{where}: expected the name of a file as its location, got {location!r}")
    if local.is_absolute() or local.parts[0] == os.pardir:
        raise ModelError(f"{where} is outside the model's folder: {location!r}")
    file = folders[0] / local
    try:
        real = file.resolve(strict=True)
        _check_place(file, real, where, folders)
        with real.open("rb") as opened:
            return file, os.fstat(opened.fileno()).st_size
    except FileNotFoundError:
        raise MissingDataError(f"{where} is missing: no such file `{file}`; copy it there") from None
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or a NUL in the name
        raise ModelError(f"{where} cannot be read: `{file}`: {error}") from error


def _check_place(file: Path, real: Path, where: str, folders: Sequence[Path]) -> None:
    if not real.is_file():
        raise ModelError(f"{where} is missing: `{file}` is not a file")
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        raise ModelError(
            f"{where} is outside the model's folder: `{file}` is a link to `{real}`; "
            "copy that file beside the model"
        )
    if real.stat().st_nlink > 1:
        raise ModelError(
            f"{where} may be outside the model's folder: `{file}` has several hard links; copy it"
        )


def _check_extent(
    tensor: onnx.TensorProto, entries: Mapping[str, str], where: str, file: Path, size: int
) -> None:
    kind = ir.DataType(tensor.data_type)
    shown = f"{dtype_name(kind)}[{', '.join(map(str, tensor.dims))}]"
    if kind in (ir.DataType.UNDEFINED, ir.DataType.STRING) or any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{where}: {shown} cannot be in a file")
    needed = -(-prod(tensor.dims) * kind.bitwidth // 8)
    offset = _number(entries, "offset", 0, where)
    length = _number(entries, "length", needed, where)
    if length != needed:
        raise ModelError(f"{where}: expected {needed:,} bytes for {shown}, got a length of {length:,}")
    if offset + needed > size:
        raise ModelError(
            f"{where}: expected {needed:,} bytes from offset {offset:,} on for {shown}, "
            f"got `{file}` of {size:,} bytes; is the file complete?"
        )


def _number(entries: Mapping[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ModelError(f"{where}: expected a number of bytes as its {key}, got {text!r}")
    return int(text)
