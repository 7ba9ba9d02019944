"""Reads and writes the JSON that a function of IREE carries as the reflection attribute ``iree.abi``.

Each record of ``a`` is one raw argument; a nested record travels as one list. If the result is a single
list, tuple or dict, its items are the raw results ("inlined"); deeper nesting travels as lists again.
IREE's own Python accepts fewer records than compilers may write; this module accepts all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from farcall.abi._leaves import DYNAMIC, Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec, is_plain
from farcall.abi._signature import Parameter, Signature
from farcall.abi._structure import DEEPEST, Fields, Items, Node, Nothing, Repeated, Slot
from farcall.abi.iree import _declaration as iree_declaration
from farcall.abi.iree._lexer import LONGEST, REMEMBERED
from farcall.abi.iree._types import dtype_of, element_of
from farcall.errors import SignatureError

VERSION = 1

Record: TypeAlias = Any  # a JSON value: None, a text or a list

_SHORT = 12  # parts of a tensor's record that is remembered
_TENSOR = 'expected ["ndarray", element type, rank or null, dim or null, ...]'
_INLINED = ("slist", "stuple", "sdict")


class _Metadata(msgspec.Struct):
    a: list[Record]
    r: list[Record]
    v: Any = VERSION


# reading


def from_iree(metadata: str | bytes | Mapping[str, str]) -> Signature:
    """See :meth:`farcall.abi.Signature.from_iree`."""
    if isinstance(metadata, (str, bytes)):
        return (_read if len(metadata) <= REMEMBERED else _read.__wrapped__)(metadata, ())
    if model := metadata.get("iree.abi.model"):
        raise SignatureError(
            f"the function is of the asynchronous model {model!r:.40}: it takes fences that no Signature "
            "supplies; call the synchronous function of that name (without `$async`), or compile without "
            "--iree-execution-model=async-external"
        )
    declaration = metadata.get("iree.abi.declaration")
    for key in ("iree.abi", "iree.abi.declaration"):
        if not isinstance(metadata.get(key, ""), str):
            raise SignatureError(f"the attribute `{key}` is not a text: {metadata[key]!r:.60}")
    if text := metadata.get("iree.abi"):
        labels = iree_declaration.input_names(declaration or "")
        return (_read if len(text) <= REMEMBERED else _read.__wrapped__)(text, labels)
    if declaration:
        return iree_declaration.read(declaration)
    raise SignatureError(
        f"no attribute `iree.abi` or `iree.abi.declaration` among ({', '.join(metadata)}); compile the "
        'function with `attributes { iree.reflection = { iree.abi = "..." } }`: Signature.to_iree_json() '
        "gives the text"
    )


@lru_cache(maxsize=256)
def _read(text: str | bytes, labels: tuple[str, ...]) -> Signature:
    metadata = _decode(text)
    inputs, parameters = _read_arguments(metadata.a, labels)
    outputs, result = _read_results(metadata.r)
    return Signature(tuple(inputs), tuple(outputs), tuple(parameters), result, wraps=True)


def _decode(text: str | bytes) -> _Metadata:
    if len(text) > LONGEST:
        raise SignatureError(f"iree.abi: {len(text)} bytes; at most {LONGEST} are read")
    try:
        metadata = msgspec.json.decode(text, type=_Metadata)
    except msgspec.ValidationError as error:
        raise SignatureError(f"iree.abi: Malformed function reflection metadata: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SignatureError(f"iree.abi: Reflection metadata is not valid JSON: {error}") from None
    if metadata.v != VERSION:
        raise _error("$.v", f"expected version {VERSION}, got {metadata.v!r:.40}")
    return metadata


def _error(path: str, problem: str) -> SignatureError:
    return SignatureError(f"iree.abi, {path}: {problem}")


def _read_arguments(records: Sequence[Record], labels: Sequence[str]) -> tuple[list[Leaf], list[Parameter]]:
    """Records without a name are positional-only parameters, and come first, as IREE binds them."""
    leaves, bare, named = list[Leaf](), list[int](), dict[str, Slot]()
    for i, record in enumerate(records):
        if _head(record) != "named":
            leaves.append(_read_leaf(record, f"$.a[{i}]", ""))
            bare.append(i)
            continue
        name, inside = _read_name(record, f"$.a[{i}]")
        if name in named:
            raise _error(f"$.a[{i}]", f"there is an argument named {name!r:.40} already")
        leaves.append(_read_leaf(inside, f"$.a[{i}][2]", name))
        named[name] = Slot(i)
    if len(labels) != len(records):
        labels = [f"arg{i}" for i in range(len(records))]
    taken = set(named)
    parameters = [Parameter(_free(labels[i], taken), Slot(i), kind="positional_only") for i in bare]
    return leaves, parameters + [Parameter(name, slot) for name, slot in named.items()]


def _free(name: str, taken: set[str]) -> str:
    """The name, or the next free one."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _head(record: Record) -> str:
    """The kind of compound that a record is; empty if it is not a compound."""
    return record[0] if isinstance(record, list) and record and isinstance(record[0], str) else ""


def _read_name(record: list[Any], path: str) -> tuple[str, Record]:
    if len(record) != 3 or not isinstance(record[1], str):
        raise _error(path, 'expected ["named", key, record]')
    return record[1], record[2]


def _read_results(records: Sequence[Record]) -> tuple[Sequence[Leaf], Node | None]:
    if len(records) == 1 and _head(records[0]) in _INLINED:
        spread = _read_list(records[0], "$.r[0]", "", 1)
        return spread.items, spread.node
    return [_read_leaf(record, f"$.r[{i}]", "") for i, record in enumerate(records)], None


def _read_leaf(record: Record, path: str, name: str, depth: int = 1) -> Leaf:
    if isinstance(record, str):
        return _read_scalar(record, path, name)
    if record is None:
        return RefSpec(name, "any", optional=True)
    head = _head(record)
    if head == "ndarray":
        return _read_tensor(record, path, name)
    if head in _INLINED or head == "py_homogeneous_list":
        if depth > DEEPEST:
            raise _error(path, f"nested deeper than {DEEPEST} levels")
        return _read_list(record, path, name, depth)
    if head == "named":
        raise _error(path, "only an argument itself can be named")
    raise _error(path, f"Unrecognized reflection compound type: {record!r:.60}")


def _read_scalar(record: str, path: str, name: str) -> Leaf:
    if record == "unknown":
        return RefSpec(name, "any")
    dtype = dtype_of(record)
    if dtype is None:
        raise _error(path, f"Unrecognized reflection primitive type: {record!r:.60}")
    return ScalarSpec(name, dtype)


def _read_tensor(record: list[Any], path: str, name: str) -> TensorSpec:
    read = _known_tensor if len(record) <= _SHORT else _known_tensor.__wrapped__
    try:
        return read(name, *record[1:])
    except TypeError:  # parts are missing, or are lists or objects
        problem = "its parts are no element type, rank and dims"
    except ValueError as error:
        problem = str(error)
    raise _error(path, f"{problem}; {_TENSOR}, got {record!r:.80}")


@lru_cache(maxsize=1024, typed=True)
def _known_tensor(name: str, element: Any, rank: Any, *dims: Any) -> TensorSpec:
    """The leaf of a record's parts, cached, since the many arguments of a long signature have few types."""
    dtype = dtype_of(element)
    if dtype is None:
        raise ValueError(f"{element!r:.40} is not an element type")
    if rank is None and not dims:
        return TensorSpec(name, dtype, None)
    if type(rank) is not int or rank != len(dims):
        raise ValueError(f"the rank is {rank!r:.40}, and {len(dims)} dims follow")
    if any(dim is not None and type(dim) is not int for dim in dims):
        raise ValueError("a dim is neither null nor a whole number")
    return TensorSpec(name, dtype, tuple([DYNAMIC if dim is None else dim for dim in dims]))


def _read_list(record: list[Any], path: str, name: str, depth: int) -> ListSpec:
    head, *inside = record
    if head == "sdict":
        keys, inside = _read_keys(inside, path)
        paths = [f"{path}[{i + 1}][1]" for i in range(len(inside))]
    else:
        paths = [f"{path}[{i + 1}]" for i in range(len(inside))]
    items = tuple([_read_leaf(one, at, "", depth + 1) for one, at in zip(inside, paths, strict=True)])
    slots = tuple(map(Slot, range(len(items))))
    if head == "sdict":
        return ListSpec(name, items, Fields("dict", tuple(zip(keys, slots, strict=True))))
    if head != "py_homogeneous_list":
        return ListSpec(name, items, Items("list" if head == "slist" else "tuple", slots))
    if len(items) != 1:
        raise _error(path, 'expected ["py_homogeneous_list", record]')
    return ListSpec(name, items, Repeated())


def _read_keys(pairs: list[Any], path: str) -> tuple[list[str], list[Record]]:
    keys: dict[str, Record] = {}
    for i, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise _error(f"{path}[{i + 1}]", f"expected [key, record], got {pair!r:.60}")
        if pair[0] in keys:
            raise _error(f"{path}[{i + 1}]", f"the key {pair[0]!r:.40} is there already")
        keys[pair[0]] = pair[1]
    return list(keys), list(keys.values())


# writing


def to_iree_json(signature: Signature) -> str:
    """See :meth:`farcall.abi.Signature.to_iree_json`."""
    arguments: list[Record] = [None] * len(signature.inputs)
    for parameter in signature.parameters:
        where = f"parameter `{parameter.name}`"
        if not isinstance(parameter.node, Slot) or parameter.kind == "var_positional":
            raise SignatureError(
                f"{where}: in iree.abi a nested argument travels as one list; make it a ListSpec"
            )
        record = _record(signature.inputs[parameter.node.index], where)
        if parameter.kind != "positional_only":
            record = ["named", parameter.name, record]
        arguments[parameter.node.index] = record
    metadata = {"a": arguments, "r": _result_records(signature), "v": VERSION}
    try:
        return msgspec.json.encode(metadata).decode()
    except UnicodeEncodeError as error:
        raise SignatureError(f"UTF-8 cannot encode a name or key: {error.reason}") from None


def _result_records(signature: Signature) -> list[Record]:
    node, outputs = signature.result_node, signature.outputs
    if isinstance(node, Nothing):
        return []
    if not isinstance(node, Slot):
        return [_list_record(outputs, node, "the result")]
    record = _record(outputs[node.index], "the result")
    if _head(record) in _INLINED:
        raise SignatureError(f"the result travels as one list, `{outputs[0]}`: iree.abi would spread it")
    return [record]


def _record(leaf: Leaf, where: str) -> Record:
    if isinstance(leaf, TensorSpec) and is_plain(leaf):
        dims = None if leaf.shape is None else [dim if isinstance(dim, int) else None for dim in leaf.shape]
        rank = [None] if dims is None else [len(dims), *dims]
        return ["ndarray", element_of(leaf.dtype), *rank]
    if isinstance(leaf, ScalarSpec) and not leaf.optional:
        return element_of(leaf.dtype)
    if isinstance(leaf, RefSpec) and leaf.kind == "any":
        return None if leaf.optional else "unknown"
    if isinstance(leaf, ListSpec) and not leaf.optional:
        return _list_record(leaf.items, leaf.node, where)
    raise SignatureError(
        f"{where}: `{leaf}` has no record in iree.abi, which knows tensors that are read, scalars, lists, "
        "and values of any type, none of them optional"
    )


def _list_record(items: Sequence[Leaf], node: Node, where: str) -> Record:
    if isinstance(node, Repeated):
        return ["py_homogeneous_list", _record(items[0], where)]
    assert isinstance(node, (Items, Fields))  # noqa: S101 - its callers have handled leaves
    children = node.items if isinstance(node, Items) else [child for _, child in node.fields]
    order = [child.index if isinstance(child, Slot) else -1 for child in children]
    if sorted(order) != list(range(len(items))):
        raise SignatureError(f"{where}: in iree.abi a nested value travels as one list; make it a ListSpec")
    records = [_record(items[index], where) for index in order]
    if isinstance(node, Fields):  # they travel in the order in which they are listed
        listed = sorted(zip(order, [key for key, _ in node.fields], records, strict=True))
        return ["sdict", *([key, record] for _, key, record in listed)]
    if order != sorted(order):
        raise SignatureError(f"{where}: in iree.abi the items of a {node.kind} travel in its order")
    return ["slist" if node.kind == "list" else "stuple", *records]
