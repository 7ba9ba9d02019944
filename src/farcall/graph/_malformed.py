"""What ONNX's checker lets pass although it is malformed, refused before ONNX's inference reads it.

Some of these attributes make ONNX 1.23 read outside of its arrays, which ends the process; others have no
meaning.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.errors import ModelError
from farcall.graph._external import is_external

if TYPE_CHECKING:
    import onnx

_POSITIVE, _INT32 = range(1, 2**62), range(-(2**31), 2**31)
_WINDOWS = (
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "LpPool",
    "MaxPool",
    "MaxUnpool",
    "QLinearConv",
)
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_WIDE = {ir.DataType.COMPLEX64, ir.DataType.COMPLEX128}  # two numbers for an element
_DTYPES = {item.value for item in ir.DataType} - {ir.DataType.UNDEFINED.value}
_EXPECTED: dict[tuple[str, str], range] = {
    ("GatherND", "batch_dims"): range(2**31),
    ("LayerNormalization", "axis"): _INT32,
    **{("TfIdfVectorizer", name): range(1, 2**16) for name in ("min_gram_length", "max_gram_length")},
    **{(kind, name): _POSITIVE for kind in _WINDOWS for name in ("dilations", "kernel_shape", "strides")},
    **{(f"Reduce{kind}", "noop_with_empty_axes"): range(2) for kind in _REDUCTIONS},
}


def check_wellformed(proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], name: str) -> None:
    """Refuse attributes out of range, constants with data of another shape, and functions with loose ends.

    Args:
        proto: The model.
        nodes: Those of its nodes, at any depth, that have attributes.
        name: The model's name in messages.

    Raises:
        ModelError: The message names the node or the constant.
    """
    passed = _passed(proto, nodes) if proto.functions else {}
    for node in nodes:
        _check_attributes(node, passed, name)
    for tensor in proto.graph.initializer:
        _check_tensor(tensor, f"{name}: the constant `{tensor.name}`")
    for function in proto.functions:
        _check_names(function, f"{name}: function `{function.name}`")


def _check_names(function: onnx.FunctionProto, where: str) -> None:
    """Refuse a function that reads what nothing in it makes. ONNX's checker reads models of one opset."""
    names = {"", *function.input, *(out for node in function.node for out in node.output)}
    for node in function.node:
        for read in node.input:
            if read not in names:
                raise ModelError(
                    f"{where}: {_named(node)} reads `{read}`; expected an input of the function or "
                    "an output of a node in it"
                )


def _named(node: onnx.NodeProto) -> str:
    return f"node `{node.name or ''.join(node.output[:1])}` ({node.op_type})"


def _check_attributes(node: onnx.NodeProto, passed: Mapping[str, set[int]], name: str) -> None:
    where = f"{name}: {_named(node)}"
    for item in node.attribute:
        if item.HasField("t"):
            _check_tensor(item.t, f"{where}: its tensor `{item.name}`")
        expected = _expected(node, item.name)
        if expected is None:
            continue
        given = passed.get(item.ref_attr_name, set()) if item.ref_attr_name else _numbers(item)
        for number in sorted(given):
            if number not in expected:
                raise ModelError(
                    f"{where} has {number} in {item.name}; expected {_text(expected, item.name)}"
                )


def _expected(node: onnx.NodeProto, attribute: str) -> range | None:
    """The numbers that an attribute may have; None: any."""
    if (node.op_type, attribute) == ("Split", "num_outputs"):
        return range(len(node.output), len(node.output) + 1)
    if (node.op_type, attribute) == ("Scan", "num_scan_inputs"):
        return range(1, max(len(node.input), 1) + 1)
    if (node.op_type, attribute) == ("TfIdfVectorizer", "ngram_counts"):
        # Each is the place in the pool, another attribute, where the n-grams of one length begin.
        return range(1 + max(len(item.ints) + len(item.strings) for item in node.attribute))
    return _EXPECTED.get((node.op_type, attribute))


def _text(expected: range, attribute: str) -> str:
    if len(expected) == 1 and attribute == "num_outputs":
        return f"{expected[0]}, the number of its outputs"
    return f"numbers from {expected[0]} to {expected[-1]}"


def _numbers(item: onnx.AttributeProto) -> set[int]:
    return {*item.ints, *([item.i] if item.HasField("i") else [])}


def _passed(proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> dict[str, set[int]]:
    """What the model's functions may get for an attribute, by its name: from any call, or by default."""
    found: dict[str, set[int]] = defaultdict(set)
    passes_on: dict[str, set[str]] = defaultdict(set)  # the names under which a function passes on its own
    defaults = (item for function in proto.functions for item in function.attribute_proto)
    for item in (*(item for node in nodes for item in node.attribute), *defaults):
        if item.ref_attr_name:
            passes_on[item.ref_attr_name].add(item.name)
        else:
            found[item.name] |= _numbers(item)
    todo = list(found)
    while todo:
        name = todo.pop()
        for other in passes_on[name]:
            if not found[name] <= found[other]:
                found[other] |= found[name]
                todo.append(other)
    return found


def _check_tensor(tensor: onnx.TensorProto, where: str) -> None:
    """Refuse a tensor with more or less data than its dims say."""
    if is_external(tensor):
        return
    dtype = ir.DataType(tensor.data_type) if tensor.data_type in _DTYPES else None
    if dtype is None:
        raise ModelError(f"{where} has the dtype {tensor.data_type}, which ONNX does not define")
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{where} has the shape {list(tensor.dims)}; expected no negative dims")
    count = math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        given, expected, unit = len(tensor.raw_data), _bytes(dtype, count), "bytes"
    else:
        packed = dtype != ir.DataType.STRING and dtype.bitwidth < 8
        numbers = _bytes(dtype, count) if packed else count * (1 + (dtype in _WIDE))
        given, expected, unit = _length(tensor), numbers, "numbers"
    if given != expected:
        raise ModelError(f"{where}, {dtype}{list(tensor.dims)}, has {given} {unit}; expected {expected}")


def _bytes(dtype: ir.DataType, count: int) -> int:
    return -(-count * dtype.bitwidth // 8)


def _length(tensor: onnx.TensorProto) -> int:
    """How many numbers are in the fields that hold them one by one."""
    fields = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
    return sum(len(getattr(tensor, field)) for field in fields)
