"""Raw signatures: every row of the original's vectors, or a listed error; round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.abi import Leaf, RefSpec, ScalarSpec, Signature, TensorSpec
from farcall.abi.iree import _raw as raw
from farcall.errors import SignatureError

from .vectors import Row, rows

# What the original took and we refuse: the row, and why.
REFUSED = {
    "I1!R99!": "a span that runs over the end was read as an empty one",
    "I8!B5!d3zzR1!": "a broken field inside a descriptor ended it without an error",
}
# More of the kind, from the facts; the original hung, or swallowed them.
BROKEN = {
    "fvI1!R1!": "expected a number after the tag `f`",
    "I99!B1!R1!": "declares 99 bytes",
    "I1R1!": "expected `!`",
    "I3!B1R1!": "expected `!`",
    "I6!B3!d0R5!B2!d1": "byte 15 (at '1'): expected a tag",
    "I1!R1!a": "expected a number after the tag `a`",
    "I4!U1!R1!": "Unrecognized raw tag: the compiler had no raw type",
    "I3!d5R1!": "Unrecognized raw tag",
    "I6!S3!d5R1!": "Unrecognized scalar field tag",
    "I1!": "Results span not found",
    "I15!B11!d-1d26814dR1!": "byte 17 (at 'dR1!'): expected a number after the tag `d`",
    "I16!B12!d3000000000R1!": "does not fit into 32 bits",
    "I7!B4!t-1R1!": "Illegal ScalarType code",
}
TEXTS = {
    "I15!B11!d10d128d64R15!B11!t6d32d8d64": "(Buffer<float32[10x128x64]>) -> (Buffer<sint32[32x8x64]>)",
    "I6!S3!t6R6!S3!t2": "(sint32) -> (float64)",
    "I19!B7!t7d4d4B7!t7d5d5R10!B7!t7d5d5": (
        "(Buffer<sint64[4x4]>, Buffer<sint64[5x5]>) -> (Buffer<sint64[5x5]>)"
    ),
    "I6!B3!t0R6!B3!t3": "(Buffer<float32[]>) -> (Buffer<bfloat16[]>)",
    "I34!B9!t6d1d384B9!t6d1d384B9!t6d1d384R19!B7!d1d384B7!d1d384": (
        "(Buffer<sint32[1x384]>, Buffer<sint32[1x384]>, Buffer<sint32[1x384]>)"
        " -> (Buffer<float32[1x384]>, Buffer<float32[1x384]>)"
    ),
    "I10!B7!d-1d-1R10!B7!d-1d-1": "(Buffer<float32[?x?]>) -> (Buffer<float32[?x?]>)",
    "I7!B4!d-7R6!B3!d0": "(Buffer<float32[?]>) -> (Buffer<float32[0]>)",
    "I10!B7!t1t6d2R1!": "(Buffer<sint32[2]>) -> ()",  # the last dtype counts
    "v1X3!zzI1!R4!O1!I11!B6!ignored": "() -> (RefObject<?>)",  # others are skipped, the first of each counts
}


def signature(text: str) -> Signature:
    return Signature.from_reflection({"f": text, "fv": "1"})


@pytest.mark.parametrize("row", rows("raw"), ids=lambda row: row["f"] or "empty")
def test_vectors(row: Row) -> None:
    if row["error"] is None and row["f"] not in REFUSED:
        assert str(signature(row["f"])) == row["text"]
        return
    with pytest.raises(SignatureError, match=row["error"] or "byte"):
        signature(row["f"])


def test_every_listed_hazard_is_one_that_the_original_took() -> None:
    taken = {row["f"] for row in rows("raw") if row["error"] is None}
    assert taken >= set(REFUSED)


@pytest.mark.parametrize(("text", "printed"), TEXTS.items())
def test_more_texts(text: str, printed: str) -> None:
    assert str(signature(text)) == printed


@pytest.mark.parametrize(("text", "problem"), BROKEN.items())
def test_broken_signatures_are_refused(text: str, problem: str) -> None:
    with pytest.raises(SignatureError) as error:
        signature(text)
    assert problem in str(error.value)


def test_an_error_inside_a_descriptor_has_its_position_in_the_whole() -> None:
    for _ in range(2):  # descriptors are remembered
        with pytest.raises(SignatureError, match=r"byte 12 \(at 'x5R1!'\)"):
            signature("I11!B3!d1B3!x5R1!")


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        (TensorSpec("", "float32", ()), "B1!"),
        (TensorSpec("", "float64", ("?", 128, 64)), "B13!t2d-1d128d64"),
        (ScalarSpec("", "float32"), "S1!"),
        (ScalarSpec("", "int32"), "S3!t6"),
        (RefSpec("", "object"), "O1!"),
        (TensorSpec("named", "float32", ("batch", "2*n")), "B7!d-1d-1"),
    ],
)
def test_descriptors_are_written_as_the_original_builder_did(leaf: Leaf, text: str) -> None:
    assert raw.emit([leaf], []) == f"I{len(text) + 1}!{text}R1!"


@pytest.mark.parametrize(
    "leaf",
    [
        TensorSpec("x", "float32", None),
        TensorSpec("x", "float32", (2,), access="out"),
        TensorSpec("x", "float32", (2,), optional=True),
        TensorSpec("x", "float32", (2**31,)),
        TensorSpec("x", "bool", (2,)),
        TensorSpec("x", "?", (2,)),
        ScalarSpec("x", "complex64"),
        ScalarSpec("x", "float32", optional=True),
        RefSpec("x", "str"),
        RefSpec("x", "object", optional=True),
    ],
    ids=str,
)
def test_what_a_raw_signature_cannot_say_is_not_written(leaf: Leaf) -> None:
    with pytest.raises(SignatureError):
        raw.emit([leaf], [])


dtypes = st.sampled_from(["float32", "float16", "float64", "bfloat16", "int8", "uint8", "int64", "uint64"])
dims = st.integers(0, 2**31 - 1) | st.just("?")
leaves = (
    st.builds(TensorSpec, st.just(""), dtypes, st.lists(dims, max_size=4).map(tuple))
    | st.builds(ScalarSpec, st.just(""), dtypes)
    | st.just(RefSpec("", "object"))
)


@given(st.lists(leaves, max_size=4), st.lists(leaves, max_size=4))
def test_what_is_written_is_read_back(inputs: list[Leaf], outputs: list[Leaf]) -> None:
    given = Signature(tuple(inputs), tuple(outputs), wraps=True)
    attributes = given.to_reflection()
    assert Signature.from_reflection(attributes) == given
    assert Signature.from_reflection(attributes).to_reflection() == attributes


@given(st.binary(max_size=40) | st.text("IRBSOtd0123456789-!", max_size=40).map(str.encode))
def test_any_bytes_are_a_signature_or_an_error(data: bytes) -> None:
    try:
        inputs, outputs = raw.parse(data)
    except SignatureError:
        return
    text = raw.emit(inputs, outputs)
    assert raw.parse(text) == (inputs, outputs)
    assert raw.emit(*raw.parse(text)) == text
