"""SIP: the original's builder byte for byte; trees read and written; broken ones refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.abi.iree import _sip as sip
from farcall.errors import SignatureError

from .sip_builder import SipBuilder
from .trees import trees
from .vectors import Row, rows


@pytest.mark.parametrize("row", rows("mangle"), ids=lambda row: row["encoded"])
def test_the_builder_writes_what_the_original_wrote(row: Row) -> None:
    builder = SipBuilder()
    taken = [builder.add_input(*place) for place in row["inputs"]]
    taken += [builder.add_result(*place) for place in row["results"]]
    assert taken == row["set_ok"]
    assert sip.emit(builder.build()) == row["encoded"]


def build(*places: tuple[int, list[int | str]]) -> SipBuilder:
    builder = SipBuilder()
    for index, path in places:
        assert builder.add_input(index, path)
    return builder


def test_keys_go_by_number_and_by_byte() -> None:
    sparse = build((0, [2]), (1, [0]))
    sparse.add_result(0, [3])
    assert sip.emit(sparse.build()) == "I12!S9!k0_1k2_0R8!S5!k3_0"
    keys = ["é", "b", "aa", "_", "a", "B", "😀", "\uffff"]
    tree = sip.parse(sip.emit(build(*((i, [key]) for i, key in enumerate(keys))).build())).inputs
    assert isinstance(tree, sip.Branch)
    assert list(tree.children) == ["B", "_", "a", "aa", "b", "é", "\uffff", "😀"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("R1!", "Inputs struct not found"),
        ("I1!", "Results struct not found"),
        ("I5!k0_0R1!", "byte 3 (at 'k0_0R1!'): Struct key not allowed here"),
        ("I10!S7!k0k1_0R1!", "Struct key not allowed here: the key 0 before it has no value"),
        ("I6!S3!_0R1!", "Value not allowed here"),
        ("I3!z5R1!", "Unrecognized tag"),
        ("I4!Z1!R1!", "Unrecognized tag"),
        ("I2!_R1!", "expected a number after the tag `_`"),
        ("I1!R5!S99!", "declares 99 bytes"),
        ("I6!S3!k0R1!", "the last key, 0, has no value"),
        ("I12!S9!k0_0k0_1R1!", "the key 0 is there already"),
        ("I17!D13!K2!a_0K2!a_1R1!", "the key 'a' is there already"),
        ("I8!D5!k0_0R1!", "this is the key of a list, in a dict"),
        ("I10!S7!K2!a_0R1!", "this is the key of a dict, in a list"),
        ("I9!S6!k-1_0R1!", "the index of a list is negative"),
        ("I9!S6!k0_-1R1!", "Raw result index out of range"),
        ("I1!R5!_0_1", "Attempt to unpack multiple roots"),
        ("I17!S5!k0_0D7!K2!k_1R1!", "Attempt to unpack multiple roots"),
    ],
)
def test_broken_signatures_are_refused(text: str, problem: str) -> None:
    with pytest.raises(SignatureError) as error:
        sip.parse(text)
    assert problem in str(error.value)


def test_nesting_has_an_end() -> None:
    with pytest.raises(SignatureError, match="nested deeper than 64 levels"):
        sip.parse(sip.emit(sip.Sip(nest(65), None)))
    assert sip.parse(sip.emit(sip.Sip(nest(64), None))).inputs == nest(64)


def nest(levels: int) -> sip.Tree:
    tree: sip.Tree = 0
    for _ in range(levels):
        tree = sip.Branch("list", {0: tree})
    return tree


@given(trees | st.none(), trees | st.none())
def test_what_is_written_is_read_back(inputs: sip.Tree | None, results: sip.Tree | None) -> None:
    given = sip.Sip(inputs, results)
    text = sip.emit(given)
    assert sip.parse(text) == given
    assert sip.emit(sip.parse(text)) == text


@given(st.binary(max_size=40) | st.text("IRSDkK_0123456789-!a", max_size=40).map(str.encode))
def test_any_bytes_are_trees_or_an_error(data: bytes) -> None:
    try:
        found = sip.parse(data)
    except SignatureError:
        return
    assert sip.parse(sip.emit(found)) == found
