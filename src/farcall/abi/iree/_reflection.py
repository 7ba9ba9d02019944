"""Reads and writes the reflection attributes of IREE's modules of 2020: raw signatures, and SIP for nesting.

IREE's parser of that time accepted structures that do not fit the raw signature, and then lost arguments or
read memory out of bounds. This module compares the two when it reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from farcall.abi._signature import Parameter, ParameterKind, Signature
from farcall.abi._structure import Fields, Items, Node, Nothing, Slot
from farcall.abi.iree import _raw as raw
from farcall.abi.iree import _sip as sip
from farcall.abi.iree._lexer import REMEMBERED
from farcall.abi.iree._sip import Branch, Tree
from farcall.errors import SignatureError

VERSION = "1"
MOST_GAPS = 1024  # in the lists of one signature: a key of twelve bytes could ask for 2**31 items

# reading


def from_reflection(attributes: Mapping[str, str] | Iterable[tuple[str, str]]) -> Signature:
    """See :meth:`farcall.abi.Signature.from_reflection`."""
    given = attributes if isinstance(attributes, dict) else dict(attributes)
    if "f" not in given:
        raise SignatureError(
            "No raw abi reflection metadata for function: there is no attribute `f` among "
            f"({', '.join(given)}); today's compiler writes `iree.abi`: read that by Signature.from_iree"
        )
    if given.get("fv") != VERSION:
        raise SignatureError(
            f"Unsupported raw function ABI version: expected the attribute `fv` to be '{VERSION}', "
            f"got {given.get('fv')!r:.40}"
        )
    flat, nested = given["f"], _structure_of(given) if given.get("abi") == "sip" else None
    if not isinstance(flat, (str, bytes)) or not isinstance(nested or "", (str, bytes)):
        raise SignatureError(f"the attributes `f` and `sip` are texts, got {flat!r:.40} and {nested!r:.40}")
    size = len(flat) + len(nested or "")
    return (_read if size <= REMEMBERED else _read.__wrapped__)(flat, nested)


def _structure_of(given: Mapping[str, str]) -> str:
    """The SIP signature of a function, if its attributes have one."""
    for key in ("abiv", "sipv"):
        if str(given.get(key, VERSION)) != VERSION:
            raise SignatureError(
                f"Unsupported SIP version: expected the attribute `{key}` to be '{VERSION}', "
                f"got {given[key]!r:.40}"
            )
    if "sip" not in given:
        raise SignatureError("the attribute `abi` says sip, and there is no attribute `sip`")
    return given["sip"]


@lru_cache(maxsize=256)
def _read(flat: str, nested: str | None) -> Signature:
    inputs, outputs = raw.parse(flat)
    if nested is None:
        return Signature(inputs, outputs, wraps=True)
    trees = sip.parse(nested)
    _check_gaps(trees)
    parameters, result = _parameters(trees.inputs), _result(trees.results)
    try:
        return Signature(inputs, outputs, parameters, result, wraps=True)
    except ValueError as error:
        raise SignatureError(f"the SIP signature does not fit the raw signature: {error}") from None


def _parameters(tree: Tree | None) -> tuple[Parameter, ...]:
    """One parameter for each child of the root, named by its key: positional in a list, keyword in a dict."""
    if tree is None:
        return ()
    if isinstance(tree, int):
        raise SignatureError(
            "SIP signature: Mismatched structures: the root of the inputs is neither a list nor a dict"
        )
    kind: ParameterKind = "positional_only" if tree.kind == "list" else "keyword_only"
    return tuple([Parameter(str(key), _node(child), kind=kind) for key, child in _items(tree)])


def _result(tree: Tree | None) -> Node:
    return _node(tree)


def _node(tree: Tree | None) -> Node:
    if tree is None:
        return Nothing()
    if isinstance(tree, int):
        return Slot(tree)
    items = [(str(key), _node(child)) for key, child in _items(tree)]
    if tree.kind == "dict":
        return Fields("dict", tuple(items))
    return Items("list", tuple([node for _, node in items]))


def _items(tree: Branch) -> Iterable[tuple[sip.Key, Tree | None]]:
    """The children in order. A list has None in its gaps, the keys that were left out."""
    if tree.kind == "dict":
        return tree.children.items()
    return [(i, tree.children.get(i)) for i in range(_length(tree))]


def _length(tree: Branch) -> int:
    return max((key for key in tree.children if isinstance(key, int)), default=-1) + 1


def _check_gaps(trees: sip.Sip) -> None:
    gaps, pending = 0, list(trees)
    while pending:
        tree = pending.pop()
        if isinstance(tree, Branch):
            pending += tree.children.values()
            gaps += _length(tree) - len(tree.children) if tree.kind == "list" else 0
    if gaps > MOST_GAPS:
        raise SignatureError(
            f"SIP signature: its lists have {gaps} gaps, which None would fill; at most {MOST_GAPS} may be"
        )


# writing


def to_reflection(signature: Signature) -> dict[str, str]:
    """See :meth:`farcall.abi.Signature.to_reflection`."""
    attributes = {"f": raw.emit(signature.inputs, signature.outputs), "fv": VERSION}
    if not _is_plain(signature):
        trees = sip.Sip(_inputs_tree(signature.parameters), _result_tree(signature.result_node))
        _check_gaps(trees)
        attributes |= {"abi": "sip", "sip": sip.emit(trees)}
    return attributes


def _is_plain(signature: Signature) -> bool:
    """Whether the raw signature is enough: each input is a parameter; one result is bare, several a tuple."""
    plain = Signature(signature.inputs, signature.outputs)
    if signature.result != plain.result or any(one.kind == "keyword_only" for one in signature.parameters):
        return False
    if [one.node for one in signature.parameters] != [one.node for one in plain.parameters]:
        return False
    return not signature.parameters or not _is_named_by_sip(signature.parameters)


def _is_named_by_sip(parameters: tuple[Parameter, ...]) -> bool:
    return all(one.name == str(i) for i, one in enumerate(parameters))


def _inputs_tree(parameters: tuple[Parameter, ...]) -> Tree | None:
    if not parameters:
        return None
    by_keyword = [one.kind == "keyword_only" for one in parameters]
    if all(by_keyword):
        return Branch("dict", {one.name: _tree(one.node, one.name) for one in parameters})
    if any(by_keyword) or any(one.kind == "var_positional" for one in parameters):
        raise SignatureError(
            "SIP knows parameters that are all positional, or all by keyword; got "
            + ", ".join(f"`{one.name}` ({one.kind})" for one in parameters)
        )
    return _list_tree([(one.name, one.node) for one in parameters])


def _result_tree(node: Node) -> Tree | None:
    return None if isinstance(node, Nothing) else _tree(node, "result")


def _tree(node: Node, path: str) -> Tree:
    """SIP has only lists and dicts: a tuple becomes a list, and a namedtuple or dataclass a dict."""
    if isinstance(node, Slot):
        return node.index
    if isinstance(node, Items):
        return _list_tree([(f"{path}[{i}]", item) for i, item in enumerate(node.items)])
    if isinstance(node, Fields):
        return Branch("dict", {key: _tree(item, f"{path}[{key!r}]") for key, item in node.fields})
    raise SignatureError(f"SIP has no place for nothing, which is at `{path}`; leave it out")


def _list_tree(items: Sequence[tuple[str, Node]]) -> Branch:
    """None before another item is a gap in the keys. At the end, no key would say that it is there."""
    last = len(items) - 1
    kept = [(i, one) for i, one in enumerate(items) if i == last or not isinstance(one[1], Nothing)]
    return Branch("list", {i: _tree(node, path) for i, (path, node) in kept})
