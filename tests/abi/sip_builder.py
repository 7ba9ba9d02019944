"""Builds SIP trees as the original builder did, from raw indices and their paths."""

from __future__ import annotations

from collections.abc import Sequence

from farcall.abi.iree._sip import Branch, Key, Kind, Sip, Tree


class SipBuilder:
    """Grows the two trees: ``add_input(0, [1, "x"])``."""

    def __init__(self) -> None:
        self._inputs = Branch("list")  # the root of a half is the child 0
        self._results = Branch("list")

    def add_input(self, index: int, path: Sequence[Key]) -> bool:
        """Place a raw argument at ``path`` (empty: the root). False: it does not fit, and nothing changed."""
        return _place(self._inputs, index, path)

    def add_result(self, index: int, path: Sequence[Key]) -> bool:
        """Place a raw result; see :meth:`add_input`."""
        return _place(self._results, index, path)

    def build(self) -> Sip:
        """The tree of the arguments and results placed so far."""
        return Sip(self._inputs.children.get(0), self._results.children.get(0))


def _place(top: Branch, index: int, path: Sequence[Key]) -> bool:
    if any(isinstance(key, int) and key < 0 for key in (index, *path)):
        return False
    spot, keys = top, (0, *path)
    for depth, key in enumerate(keys):
        if _kind_of(key) != spot.kind:
            return False
        child = spot.children.get(key)
        if child is None:
            spot.children[key] = _chain(keys[depth + 1 :], index)
            return True
        if isinstance(child, int):
            return False
        spot = child
    return False


def _chain(keys: Sequence[Key], index: int) -> Tree:
    """The tree with one leaf at the path ``keys``."""
    tree: Tree = index
    for key in reversed(keys):
        tree = Branch(_kind_of(key), {key: tree})
    return tree


def _kind_of(key: Key) -> Kind:
    return "list" if isinstance(key, int) else "dict"
