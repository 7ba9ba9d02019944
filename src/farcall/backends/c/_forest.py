"""Decision trees as arrays, from the attributes of the operators that hold them, which are not trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from farcall.backends.c._node import Unsupported, int_attr, ints_attr, operand, str_attr
from farcall.graph._ml_rules import class_count

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_MEMBER = len(_MODES) - 1
_MOST_TARGETS = 2**31 - 1


@dataclass(frozen=True)
class Forest:
    """The trees of a node.

    A child, or a root, is the number of a node; -1, -2, ... are leaves 0, 1, .... Leaf ``i`` adds
    ``weights[offsets[i]:offsets[i + 1]]`` to the scores ``target_ids`` at these places.
    """

    kind: str  # the C type of splits, weights and sums
    roots: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray  # whether a NaN goes to `yes`
    sets: np.ndarray  # for each node where its set begins and ends in `members`
    members: np.ndarray
    offsets: np.ndarray
    target_ids: np.ndarray
    weights: np.ndarray
    targets: int
    aggregate: str
    base: np.ndarray | None
    is_binary: bool = False  # the votes are for one of two classes

    @property
    def most_features(self) -> int:
        """How many features the input must have."""
        return int(self.features.max(initial=-1)) + 1


def _ints(node: ir.Node, name: str) -> np.ndarray:
    return np.array(ints_attr(node, name, []), np.int64)


def _floats(node: ir.Node, name: str, dtype: type) -> np.ndarray:
    """An attribute of floats, or the tensor in its place."""
    if f"{name}_as_tensor" in node.attributes:
        return node.attributes[f"{name}_as_tensor"].as_tensor().numpy().ravel().astype(dtype)
    given = node.attributes[name].as_floats() if name in node.attributes else []
    return np.array(given, np.float32).astype(dtype)


def _tensor(node: ir.Node, name: str, dtype: type) -> np.ndarray:
    if name not in node.attributes:
        raise Unsupported(f"the attribute {name} is missing")
    return np.asarray(node.attributes[name].as_tensor().numpy(), dtype).ravel()


def forest_of(node: ir.Node) -> Forest:
    """The trees of a TreeEnsemble, TreeEnsembleClassifier or TreeEnsembleRegressor.

    Raises:
        Unsupported: The attributes describe no trees.
    """
    dtype = np.float64 if operand(node, 0).dtype == ir.DataType.DOUBLE else np.float32
    forest = _newer(node, dtype) if node.op_type == "TreeEnsemble" else _older(node, dtype)
    if not 0 < forest.targets <= _MOST_TARGETS:
        raise Unsupported(f"{forest.targets} targets; expected 1 to {_MOST_TARGETS}")
    _want_inside("target or class", forest.target_ids, forest.targets)
    _want_inside("feature", forest.features, 2**31)
    if forest.base is not None and len(forest.base) != forest.targets:
        raise Unsupported(f"{len(forest.base)} base values for {forest.targets} targets")
    _want_trees(forest)
    return forest


def _want_inside(what: str, numbers: np.ndarray, end: int) -> None:
    if numbers.size and (numbers.min() < 0 or numbers.max() >= end):
        wrong = numbers[(numbers < 0) | (numbers >= end)][0]
        raise Unsupported(f"the {what} {wrong} is outside of 0 to {end - 1}")


def _want_trees(forest: Forest) -> None:
    """Check that no way from a root comes back to a node, so that each ends in a leaf."""
    done = np.zeros(len(forest.yes), np.uint8)  # 1: on the way to the current node, 2: no way comes back
    for root in forest.roots.tolist():
        way = [root]
        while way:
            at = way[-1]
            if at < 0 or done[at] == 2:
                way.pop()
                continue
            if done[at] == 1:  # both of its children are done
                done[at] = 2
                way.pop()
                continue
            done[at] = 1
            for child in (int(forest.yes[at]), int(forest.no[at])):
                if child >= 0 and done[child] == 1:
                    raise Unsupported(f"node {child} of the trees is below itself")
                way.append(child)


def _places(ids: np.ndarray, count: int) -> np.ndarray:
    _want_inside("node", ids, count)
    return ids


def _newer(node: ir.Node, dtype: type) -> Forest:
    """Of TreeEnsemble, whose nodes and leaves are in arrays of their own."""
    leaves, weights = _ints(node, "leaf_targetids"), _tensor(node, "leaf_weights", dtype)
    modes, splits = _tensor(node, "nodes_modes", np.uint8), _tensor(node, "nodes_splits", dtype)
    features, count = _ints(node, "nodes_featureids"), len(modes)
    children = []
    for way in ("true", "false"):
        ids, is_leaf = _ints(node, f"nodes_{way}nodeids"), _ints(node, f"nodes_{way}leafs")
        _want_lengths(count, ids, is_leaf)
        _want_inside("leaf", ids[is_leaf != 0], len(leaves))
        _want_inside("node", ids[is_leaf == 0], count)
        children.append(np.where(is_leaf != 0, -1 - ids, ids))
    yes, no = children
    missing = _ints(node, "nodes_missing_value_tracks_true")
    missing = missing if missing.size else np.zeros(count, np.int64)
    _want_lengths(count, features, splits, missing)
    _want_lengths(len(leaves), weights)
    if modes.size and modes.max() > _MEMBER:
        raise Unsupported(f"nodes_modes has {modes.max()}; expected at most {_MEMBER}")
    roots = _places(_ints(node, "tree_roots"), count)
    lone = (yes[roots] < 0) & (yes[roots] == no[roots])  # a tree of one leaf
    aggregate = int_attr(node, "aggregate_function", 1)
    if not 0 <= aggregate < len(_AGGREGATES):
        raise Unsupported(f"aggregate_function={aggregate}; expected 0 to {len(_AGGREGATES) - 1}")
    sets, members = _sets(node, modes, dtype)
    return Forest(
        "double" if dtype == np.float64 else "float",
        np.where(lone, yes[roots], roots),
        features,
        splits,
        modes,
        yes,
        no,
        (missing != 0).astype(np.uint8),
        sets,
        members,
        np.arange(len(leaves) + 1, dtype=np.int64),
        leaves,
        weights,
        int_attr(node, "n_targets", 1),
        _AGGREGATES[aggregate],
        None,
    )


def _sets(node: ir.Node, modes: np.ndarray, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Where each node's set begins and ends in the members. A NaN ends a set."""
    members = (
        _tensor(node, "membership_values", dtype)
        if "membership_values" in node.attributes
        else np.zeros(0, dtype)
    )
    ends, nodes = np.flatnonzero(np.isnan(members)), np.flatnonzero(modes == _MEMBER)
    if len(ends) != len(nodes):
        raise Unsupported(f"{len(ends)} sets for {len(nodes)} nodes that ask for a set")
    sets = np.zeros((len(modes), 2), np.int64)
    for at, (before, end) in zip(nodes, pairwise([-1, *ends.tolist()]), strict=True):
        sets[at] = before + 1, end
    return sets.ravel(), members


def _want_lengths(count: int, *arrays: np.ndarray) -> None:
    for array in arrays:
        if len(array) != count:
            raise Unsupported(f"attributes of {count} and {len(array)} elements, which must be equal")


def _older(node: ir.Node, dtype: type) -> Forest:
    """Of the two older operators, whose nodes and leaves have numbers in each tree."""
    is_classifier = node.op_type == "TreeEnsembleClassifier"
    prefix = "class" if is_classifier else "target"
    trees, ids = _ints(node, "nodes_treeids"), _ints(node, "nodes_nodeids")
    texts = node.attributes["nodes_modes"].as_strings() if "nodes_modes" in node.attributes else []
    count = len(trees)
    features, splits = _ints(node, "nodes_featureids"), _floats(node, "nodes_values", dtype)
    missing = _ints(node, "nodes_missing_value_tracks_true")
    missing = missing if missing.size else np.zeros(count, np.int64)
    _want_lengths(count, ids, features, splits, missing, np.array(texts, object))
    known = {*_MODES[:_MEMBER], "LEAF"}
    if wrong := set(texts) - known:
        raise Unsupported(f"nodes_modes has {min(wrong)}; expected one of {', '.join(sorted(known))}")
    is_leaf = np.array([text == "LEAF" for text in texts], bool)
    place = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    leaf_of = np.cumsum(is_leaf) - 1

    def number(tree: int, item: int) -> int:
        if (tree, item) not in place:
            raise Unsupported(f"tree {tree} has no node {item}")
        at = place[tree, item]
        return -1 - int(leaf_of[at]) if is_leaf[at] else at

    def children(name: str) -> np.ndarray:
        items = _ints(node, name)
        _want_lengths(count, items)
        pairs = enumerate(zip(trees.tolist(), items.tolist(), strict=True))
        return np.array([-1 if is_leaf[i] else number(*pair) for i, pair in pairs], np.int64)

    first = dict(
        zip(reversed(trees.tolist()), reversed(range(count)), strict=True)
    )  # the root is a tree's first
    roots = [number(tree, int(ids[at])) for tree, at in sorted(first.items())]
    votes = _votes(node, prefix, dtype, number, int(is_leaf.sum()))
    targets = class_count(node) if is_classifier else int_attr(node, "n_targets", 1)
    base = _floats(node, "base_values", dtype)
    is_binary = is_classifier and targets == 2 and len(set(votes[1].tolist())) == 1
    if is_binary:  # the votes are for the first score, which moves to its place at the end
        votes = (votes[0], np.zeros_like(votes[1]), votes[2])
        base = np.append(base[-1:], np.zeros(1, dtype)) if base.size else base
    aggregate = "SUM" if is_classifier else str_attr(node, "aggregate_function", "SUM")
    if aggregate not in _AGGREGATES:
        raise Unsupported(f"aggregate_function={aggregate}; expected {', '.join(_AGGREGATES)}")
    return Forest(
        "double" if dtype == np.float64 else "float",
        np.array(roots, np.int64),
        np.where(is_leaf, 0, features),
        splits,
        np.array([0 if text == "LEAF" else _MODES.index(text) for text in texts], np.uint8),
        children("nodes_truenodeids"),
        children("nodes_falsenodeids"),
        (missing != 0).astype(np.uint8),
        np.zeros(0, np.int64),
        np.zeros(0, dtype),
        *votes,
        targets,
        aggregate,
        base if base.size else None,
        is_binary,
    )


def _votes(
    node: ir.Node, prefix: str, dtype: type, number: Callable[[int, int], int], leaves: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The offsets of leaves, and the targets and weights in their order."""
    trees, ids, targets = (_ints(node, f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids"))
    weights = _floats(node, f"{prefix}_weights", dtype)
    _want_lengths(len(trees), ids, targets, weights)
    owners = np.array(
        [-1 - number(*pair) for pair in zip(trees.tolist(), ids.tolist(), strict=True)], np.int64
    )
    if owners.size and owners.min() < 0:
        raise Unsupported("a node that is no leaf has a weight")
    order = np.argsort(owners, kind="stable")
    offsets = np.searchsorted(owners[order], np.arange(leaves + 1))
    return offsets.astype(np.int64), targets[order], weights[order]
