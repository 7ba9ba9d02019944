"""SIP and raw together: structured as the fixed original did, or refused for a listed reason."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given

from farcall.abi import FunctionAbi, Items, Signature, Slot
from farcall.abi.iree import _lexer as lexer
from farcall.abi.iree import _raw as raw
from farcall.abi.iree import _sip as sip
from farcall.errors import ArgumentError, ResultError, SignatureError

from .trees import trees
from .vectors import Row, rows

# Rows in which the original took what it should not have, on one side or both.
REFUSED = {
    "18 gap in raw idx": "raw argument 1 lies nowhere: it was never set, and read",
    "20 multi roots": "two roots: only the results said so",
    "27 result idx out of range": "was noticed at the first call",
    "29 int key in dict": "keys of a wrong kind: worked for results",
    "31 key at root": "was noticed at the first call",
    "33 double key": "was noticed at the first call",
    "35 syntax err": "was noticed at the first call",
    "37 no I/R": "was noticed at the first call",
    "41 neg seq key in": "counted from the end of the arguments",
}
# Calls that the original took.
REFUSED_CALLS = {
    "9 sparse seq in": "what was given for a gap was ignored; None says that there is nothing",
    "21 string as sequence": "a text was taken for a list of its letters",
}
# Rows that come back in other words: the order of the halves and of keys is not kept, and there is no
# structure to write where there are no arguments.
REWRITTEN = {"1 empty": None, "15 empty struct root": "I1!R4!S1!", "39 R first": "I8!S5!k0_0R3!_0"}


def signature(nested: str, inputs: int, outputs: int, **more: str) -> Signature:
    """The Signature of a SIP signature, over that many numbers."""
    flat = f"I{3 * inputs + 1}!{'S1!' * inputs}R{3 * outputs + 1}!{'S1!' * outputs}"
    return Signature.from_reflection({"f": flat, "fv": "1", "abi": "sip", "sip": nested, **more})


def arity(row: Row) -> tuple[int, int]:
    """How many raw arguments and results a row has; of those that were refused, as many as it names."""
    inputs = row["linearized"].get("ok")
    if inputs is None:
        inputs = {field[2] for field in fields_below(row["sip"]) if field[0] == "_"} if row["sip"] else ()
    return len(inputs), len(row["raw_results"])


def fields_below(text: str) -> list[lexer.Field]:
    source = lexer.source(text, "row")
    found, ranges = [], [(0, len(text.encode()))]
    while ranges:
        start, end = ranges.pop()
        try:
            for field in lexer.fields(source, start, end):
                found.append(field)
                if field[0] in "ISD":
                    ranges.append((field[2], field[3]))
        except SignatureError:
            continue
    return found


@pytest.mark.parametrize("row", rows("sip"), ids=lambda row: row["name"])
def test_vectors(row: Row) -> None:
    if row["name"] in REFUSED:
        with pytest.raises(SignatureError):
            signature(row["sip"], *arity(row))
        return
    made = signature(row["sip"], *arity(row))
    abi = FunctionAbi(made)
    args, kwargs = numbered(row["py_args"]), numbered(row["py_kwargs"])
    if row["name"] in REFUSED_CALLS:
        with pytest.raises(ArgumentError):
            abi.pack_inputs(*row["py_args"], **row["py_kwargs"])
    elif "ok" in row["linearized"]:
        assert abi.pack_inputs(*args, **kwargs) == numbered(row["linearized"]["ok"])
    else:
        with pytest.raises(ArgumentError):
            abi.pack_inputs(*args, **kwargs)
    assert abi.unpack_results(numbered(row["raw_results"])) == numbered(row["structured_fixed"]["ok"])
    written = made.to_reflection().get("sip")
    assert written == REWRITTEN.get(row["name"], row["sip"])
    assert Signature.from_reflection(made.to_reflection()) == made


def test_lists_hold_no_row_that_is_not_there() -> None:
    assert {row["name"] for row in rows("sip")} >= {*REFUSED, *REFUSED_CALLS, *REWRITTEN}


def numbered(value: Any) -> Any:
    """The value with a number in the place of each text, the same for the same text."""
    if isinstance(value, dict):
        return {key: numbered(one) for key, one in value.items()}
    if isinstance(value, list):
        return [numbered(one) for one in value]
    return float(int.from_bytes(value.encode())) if isinstance(value, str) else value


MORE = {
    # rows of the facts that are not among the vectors
    "I53!D49!K10!input_ids_1K11!input_mask_2K12!segment_ids_0R39!D35!K11!end_logits_0K13!start_logits_1": (
        3,
        2,
        "{'end_logits': 'r0', 'start_logits': 'r1'}",
    ),
    "I22!S18!k0S9!k0_0k1_1k1_2R22!S18!k0_0k1S9!k0_1k1_2": (3, 3, "['r0', ['r1', 'r2']]"),
    "I26!D22!K2!aD14!K2!bD7!K2!c_0R26!D22!K2!aD14!K2!bD7!K2!c_0": (1, 1, "{'a': {'b': {'c': 'r0'}}}"),
    "I9!D6!K1!_0R9!D6!K1!_0": (1, 1, "{'': 'r0'}"),
    "I11!D8!K3!é_0R11!D8!K3!é_0": (1, 1, "{'é': 'r0'}"),
    "I1!R40!D36!K2!aS28!k0_0k1D18!K2!b_1K2!cS5!k0_2": (0, 3, "{'a': ['r0', {'b': 'r1', 'c': ['r2']}]}"),
}


@pytest.mark.parametrize("nested", MORE)
def test_more_structures(nested: str) -> None:
    inputs, outputs, result = MORE[nested]
    made = signature(nested, inputs, outputs)
    unpacked = FunctionAbi(made).unpack_results([float(i) for i in range(outputs)])
    assert repr(unpacked) == re.sub(r"'r(\d)'", r"\1.0", result)
    assert made.to_reflection()["sip"] == nested


@pytest.mark.parametrize(
    ("nested", "result"),
    [
        ("I1!R8!S5!k2_0", [None, None, 0.0]),
        ("I1!R18!S14!k1S9!k0_0k2_1", [None, [0.0, None, 1.0]]),
        ("I1!R12!S9!k0_0k1_0", [0.0, 0.0]),
        ("I1!R31!D27!K2!aS13!k0_1k2_0k3_1K2!b_1", {"a": [1.0, None, 0.0, 1.0], "b": 1.0}),
    ],
)
def test_gaps_are_none_and_a_result_may_be_at_two_places(nested: str, result: Any) -> None:
    made = signature(nested, 0, 1 + ("_1" in nested))
    assert FunctionAbi(made).unpack_results([0.0, 1.0][: len(made.outputs)]) == result
    assert made.to_reflection()["sip"] == nested
    assert msgspec.json.decode(msgspec.json.encode(made), type=Signature) == made


def test_none_is_passed_for_an_argument_that_is_a_gap() -> None:
    abi = FunctionAbi(signature("I26!S22!k1_0k2D12!K2!xS5!k1_1R1!", 2, 0))
    assert abi.pack_inputs(None, 1.5, {"x": [None, 2.5]}) == [1.5, 2.5]
    with pytest.raises(ArgumentError, match="expected None, since the function does not take it, got int 3"):
        abi.pack_inputs(3, 1.5, {"x": [None, 2.5]})


def test_a_wrong_result_at_two_places_is_told_by_the_first() -> None:
    abi = FunctionAbi(signature("I1!R17!D13!K2!a_0K2!b_0", 0, 1))
    with pytest.raises(ResultError, match=r'\["a"\].*: expected float32, got str'):
        abi.unpack_results(["x"])


def test_keys_may_come_in_any_order() -> None:
    made = signature("I1!R12!S9!k1_0k0_1", 0, 2)
    assert FunctionAbi(made).unpack_results([0.0, 1.0]) == [1.0, 0.0]
    assert made.to_reflection()["sip"] == "I1!R12!S9!k0_1k1_0"


@pytest.mark.parametrize(
    ("nested", "inputs", "outputs", "problem"),
    [
        ("I3!_0R3!_0", 1, 1, "the root of the inputs is neither a list nor a dict"),
        ("I8!S5!k0_0R1!", 2, 0, "leaves out slot 1"),
        ("I8!S5!k0_5R1!", 1, 0, "slot 5 is not one of its 1 leaves"),
        ("I12!S9!k0_0k1_0R1!", 1, 0, "slot 0 is named twice"),
        ("I1!R12!S9!k0_0k1_0", 0, 2, "leaves out slot 1"),
        (
            "I18!S14!k2147483647_0R1!",
            1,
            0,
            "its lists have 2147483647 gaps, which None would fill; at most 1024",
        ),
        ("I1!R27!S23!k0S7!k600_0k1S7!k600_0", 0, 1, "its lists have 1200 gaps"),
    ],
)
def test_structures_that_do_not_fit_are_refused_when_made(
    nested: str, inputs: int, outputs: int, problem: str
) -> None:
    with pytest.raises(SignatureError) as error:
        signature(nested, inputs, outputs)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({}, "No raw abi reflection metadata for function"),
        ({"fv": "1", "iree.abi": "{}"}, "read that by Signature.from_iree"),
        ({"f": 3, "fv": "1"}, "the attributes `f` and `sip` are texts, got 3 and None"),
        (
            {"f": "I1!R1!", "fv": "1", "abi": "sip", "sip": [1]},
            "the attributes `f` and `sip` are texts, got 'I1!R1!' and [1]",
        ),
        ({"f": "I1!R1!"}, "Unsupported raw function ABI version"),
        ({"f": "I1!R1!", "fv": "2"}, "expected the attribute `fv` to be '1', got '2'"),
        ({"f": "I1!R1!", "fv": "1", "abi": "sip"}, "there is no attribute `sip`"),
        ({"f": "I1!R1!", "fv": "1", "abi": "sip", "sip": "I1!R1!", "abiv": "2"}, "Unsupported SIP version"),
        ({"f": "I1!R1!", "fv": "1", "abi": "sip", "sip": "I1!R1!", "sipv": "x"}, "Unsupported SIP version"),
    ],
)
def test_attributes_are_checked(attributes: dict[str, str], problem: str) -> None:
    with pytest.raises(SignatureError) as error:
        Signature.from_reflection(attributes)
    assert problem in str(error.value)


def test_sip_counts_only_where_the_attributes_say_so() -> None:
    attributes = {"f": "I1!R1!", "fv": "1", "sip": "broken"}
    nothing = Signature((), (), wraps=True)
    assert Signature.from_reflection(attributes) == nothing
    assert signature("I1!R1!", 0, 0, abiv="1", sipv="1") == nothing


def test_a_raw_signature_alone_means_flat_arguments() -> None:
    attributes = {"f": "I7!S1!S1!R7!S1!S1!", "fv": "1"}
    made = Signature.from_reflection(attributes)
    assert made.result == Items("tuple", (Slot(0), Slot(1)))
    assert made.to_reflection() == attributes


def test_equal_attributes_are_read_once() -> None:
    attributes = {"f": "I4!S1!R4!S1!", "fv": "1"}
    assert Signature.from_reflection(attributes) is Signature.from_reflection(dict(attributes))


def test_what_sip_cannot_say_is_not_written() -> None:
    from farcall.abi import Arg

    mixed = Signature.of({"a": "float32", "b": Arg("float32", kind="keyword_only")})
    with pytest.raises(SignatureError, match=r"all positional, or all by keyword.*`b` \(keyword_only\)"):
        mixed.to_reflection()
    with pytest.raises(SignatureError, match=r"no place for nothing, which is at `a\[1\]`"):
        Signature.of({"a": ["float32", None]}).to_reflection()
    with pytest.raises(SignatureError, match=r"no place for nothing, which is at `a\['x'\]`"):
        Signature.of({"a": {"x": None}}).to_reflection()
    with pytest.raises(SignatureError, match="its lists have 1025 gaps"):
        Signature.of({"a": [None] * 1025 + ["float32"]}).to_reflection()
    with pytest.raises(SignatureError, match="UTF-8 cannot encode"):
        Signature.of({"a": {"\ud800": "float32"}}).to_reflection()


def test_keyword_parameters_become_a_dict_and_tuples_lists() -> None:
    from farcall.abi import Arg

    made = Signature.of({"b": Arg(("float32", "int32"), kind="keyword_only")}, ("float32", {"z": "int32"}))
    attributes = made.to_reflection()
    assert attributes["sip"] == "I20!D16!K2!bS9!k0_0k1_1R20!S16!k0_0k1D7!K2!z_1"
    again = Signature.from_reflection(attributes)
    assert [one.name for one in again.parameters] == ["b"]
    assert again.to_reflection() == attributes


@given(trees)
def test_any_tree_fits_or_is_refused(tree: sip.Tree) -> None:
    nested = sip.emit(sip.Sip(None, tree))
    outputs = sum(field[0] == "_" for field in fields_below("I" + nested[4:]))
    try:
        made = signature(nested, 0, outputs)
    except SignatureError:
        return
    assert Signature.from_reflection(made.to_reflection()) == made
    assert len(raw.parse(made.to_reflection()["f"])[1]) == outputs
