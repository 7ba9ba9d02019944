"""The JSON of `iree.abi`: every record both ways, and exact errors for what is malformed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.abi import (
    Arg,
    Fields,
    Items,
    Leaf,
    ListSpec,
    Nothing,
    RefSpec,
    Repeated,
    ScalarSpec,
    Signature,
    Slot,
    TensorSpec,
)
from farcall.errors import SignatureError

F32 = ["ndarray", "f32", 1, 16]


def text(arguments: list[Any], results: list[Any]) -> str:
    return json.dumps({"a": arguments, "r": results, "v": 1}, separators=(",", ":"), ensure_ascii=False)


def argument(record: Any) -> Leaf:
    return Signature.from_iree(text([record], [])).inputs[0]


RECORDS: list[tuple[Any, Leaf]] = [
    ("i1", ScalarSpec("", "bool")),
    ("i8", ScalarSpec("", "int8")),
    ("i64", ScalarSpec("", "int64")),
    ("ui32", ScalarSpec("", "uint32")),
    ("f16", ScalarSpec("", "float16")),
    ("bf16", ScalarSpec("", "bfloat16")),
    ("f64", ScalarSpec("", "float64")),
    ("complex<f32>", ScalarSpec("", "complex64")),
    ("unknown", RefSpec("", "any")),
    (None, RefSpec("", "any", optional=True)),
    (["ndarray", "f32", 0], TensorSpec("", "float32", ())),
    (["ndarray", "bf16", 2, None, 3], TensorSpec("", "bfloat16", ("?", 3))),
    (["ndarray", "complex<f64>", None], TensorSpec("", "complex128", None)),
    (["ndarray", "i4", 1, 0], TensorSpec("", "int4", (0,))),
    (["ndarray", "f8E4M3FN", 1, 2**63 - 1], TensorSpec("", "float8_e4m3fn", (2**63 - 1,))),
    (
        ["slist", F32, "i32"],
        ListSpec(
            "",
            (TensorSpec("", "float32", (16,)), ScalarSpec("", "int32")),
            Items("list", (Slot(0), Slot(1))),
        ),
    ),
    (["stuple"], ListSpec("", (), Items("tuple"))),
    (
        ["sdict", ["b", "i32"], ["", ["slist"]]],
        ListSpec(
            "",
            (ScalarSpec("", "int32"), ListSpec("", (), Items("list"))),
            Fields("dict", (("b", Slot(0)), ("", Slot(1)))),
        ),
    ),
    (["py_homogeneous_list", "f32"], ListSpec("", (ScalarSpec("", "float32"),), Repeated())),
]


@pytest.mark.parametrize(("record", "leaf"), RECORDS, ids=str)
def test_records_both_ways(record: Any, leaf: Leaf) -> None:
    assert argument(record) == leaf
    for metadata in (text([record], []), text([["named", "x y", record]], []), text([], [record, record])):
        made = Signature.from_iree(metadata)
        written = made.to_iree_json()
        assert Signature.from_iree(written) == made
        assert json.loads(written)["a"] == json.loads(metadata)["a"]


@pytest.mark.parametrize(
    ("record", "leaf"),
    [("si32", ScalarSpec("", "int32")), ("index", ScalarSpec("", "int64"))],
)
def test_synonyms_are_read(record: str, leaf: Leaf) -> None:
    assert argument(record) == leaf


@pytest.mark.parametrize(
    "metadata",
    [
        text([F32, F32], [["stuple", F32, F32]]),
        text([["named", "a", F32], ["named", "scalar", ["ndarray", "f32", 0]]], []),
        text([F32, ["named", "é", "f16"]], [["sdict", ["diff", F32], ["sum", ["slist", F32]]]]),
        text([], ["f32"]),
        text([], [["py_homogeneous_list", F32]]),
    ],
)
def test_what_producers_write_comes_back_byte_for_byte(metadata: str) -> None:
    assert Signature.from_iree(metadata).to_iree_json() == metadata
    assert Signature.from_iree(metadata.encode()) == Signature.from_iree(metadata)


def test_results() -> None:
    def result(*records: Any) -> Signature:
        return Signature.from_iree(text([], list(records)))

    assert result().result == Nothing()
    assert result("i32").result == Slot(0)
    assert result("i32", "i32").result == Items("tuple", (Slot(0), Slot(1)))
    spread = result(["slist", "i32", ["slist", "i32"]])
    assert [type(leaf) for leaf in spread.outputs] == [ScalarSpec, ListSpec]
    assert spread.result == Items("list", (Slot(0), Slot(1)))
    assert result(["sdict"]).result == Fields("dict")


def test_several_results_are_a_tuple() -> None:
    assert json.loads(Signature.from_iree(text([], ["i32", "i32"])).to_iree_json())["r"] == [
        ["stuple", "i32", "i32"]
    ]


def test_arguments_without_a_name_bind_by_position_first() -> None:
    made = Signature.from_iree(text([["named", "arg1", "i32"], "i64", ["named", "b", "i8"]], []))
    assert [(one.name, one.kind, one.node) for one in made.parameters] == [
        ("arg1_", "positional_only", Slot(1)),
        ("arg1", "positional_or_keyword", Slot(0)),
        ("b", "positional_or_keyword", Slot(2)),
    ]
    assert Signature.from_iree(made.to_iree_json()) == made


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ("", "iree.abi: Reflection metadata is not valid JSON"),
        (b"\xff", "iree.abi: Reflection metadata is not valid JSON"),
        ("\ud800", "iree.abi: Reflection metadata is not valid JSON"),
        ('{"a": []', "iree.abi: Reflection metadata is not valid JSON"),
        ("[]", "Malformed function reflection metadata: Expected `object`, got `array`"),
        ('{"a": []}', "Malformed function reflection metadata: Object missing required field `r`"),
        ('{"a": {}, "r": []}', "Malformed function reflection metadata: Expected `array`, got `object`"),
        ('{"a": [], "r": [], "v": 2}', "iree.abi, $.v: expected version 1, got 2"),
        ('{"a":' + "[" * 100_000, "iree.abi: Reflection metadata is not valid JSON"),
        (" " * (1 << 20) + "{}", "at most 1048576 are read"),
        (text(["i3"], []), "$.a[0]: Unrecognized reflection primitive type: 'i3'"),
        (text([3], []), "$.a[0]: Unrecognized reflection compound type: 3"),
        (text([[]], []), "$.a[0]: Unrecognized reflection compound type: []"),
        (text([["what"]], []), "$.a[0]: Unrecognized reflection compound type: ['what']"),
        (text([[["ndarray"]]], []), "Unrecognized reflection compound type"),
        (text([{"ndarray": 1}], []), "Unrecognized reflection compound type"),
        (text([["ndarray", "f32"]], []), "$.a[0]: "),
        (text([["ndarray", "f33", 0]], []), "$.a[0]: 'f33' is not an element type"),
        (text([["ndarray", ["f32"], 0]], []), "$.a[0]: its parts"),
        (text([["ndarray", None, 0]], []), "None is not an element type"),
        (text([["ndarray", "f32", 2, 1]], []), "the rank is 2, and 1 dims follow"),
        (text([["ndarray", "f32", None, 1]], []), "the rank is None, and 1 dims follow"),
        (text([["ndarray", "f32", True, 1]], []), "the rank is True, and 1 dims follow"),
        (text([["ndarray", "f32", 1, 1.0]], []), "a dim is neither null nor a whole number"),
        (text([["ndarray", "f32", 1, True]], []), "a dim is neither null nor a whole number"),
        (text([["ndarray", "f32", 1, -1]], []), "dim -1 is not in"),
        (text([["ndarray", "f32", 1, 2**63]], []), "is not in"),
        (text([["named", "x"]], []), '$.a[0]: expected ["named", key, record]'),
        (text([["named", 1, "i32"]], []), '$.a[0]: expected ["named", key, record]'),
        (text([["named", "x", "i3"]], []), "$.a[0][2]: Unrecognized reflection primitive type"),
        (
            text([["named", "x", "i8"], ["named", "x", "i8"]], []),
            "$.a[1]: there is an argument named 'x' already",
        ),
        (text([["slist", ["named", "x", "i32"]]], []), "$.a[0][1]: only an argument itself can be named"),
        (text([], [["named", "x", "i32"]]), "$.r[0]: only an argument itself can be named"),
        (text([["sdict", ["k", "i3"]]], []), "$.a[0][1][1]: Unrecognized reflection primitive type"),
        (text([["sdict", "k"]], []), "$.a[0][1]: expected [key, record], got 'k'"),
        (text([["sdict", [1, "i32"]]], []), "$.a[0][1]: expected [key, record], got [1, 'i32']"),
        (text([["sdict", ["k", "i8"], ["k", "i8"]]], []), "$.a[0][2]: the key 'k' is there already"),
        (text([["py_homogeneous_list"]], []), 'expected ["py_homogeneous_list", record]'),
        (text([["py_homogeneous_list", "i8", "i8"]], []), 'expected ["py_homogeneous_list", record]'),
        ('{"a":[' + '["slist",' * 65 + "null" + "]" * 65 + '],"r":[]}', "nested deeper than 64 levels"),
    ],
)
def test_malformed_metadata(metadata: str | bytes, problem: str) -> None:
    for _ in range(2):  # what was read is remembered
        with pytest.raises(SignatureError) as error:
            Signature.from_iree(metadata)
        assert problem in str(error.value)
    assert len(str(error.value)) < 400


def test_true_is_not_taken_for_a_remembered_1() -> None:
    assert argument(["ndarray", "f32", 1, 1]) == TensorSpec("", "float32", (1,))
    with pytest.raises(SignatureError):
        argument(["ndarray", "f32", 1, True])


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (Signature.of({"x": ["float32", "float32"]}), "parameter `x`: in iree.abi a nested argument"),
        (Signature.of({"x": None}), "parameter `x`: in iree.abi a nested argument"),
        (Signature.of({"x": TensorSpec("", "float32", (), access="out")}), "has no record in iree.abi"),
        (Signature.of({"x": "float32 | None"}), "has no record in iree.abi"),
        (Signature.of({"x": "str"}), "has no record in iree.abi"),
        (Signature.of({"x": "?[2]"}), "IREE has no name for the dtype ?"),
        (Signature.of({"x": "int2"}), "IREE has no name for the dtype int2"),
        (Signature.of({"\ud800": "int8"}), "UTF-8 cannot encode"),
        (Signature.of({}, ("int8", ["int8"])), "the result: in iree.abi a nested value"),
        (
            Signature((), (ScalarSpec("", "int8"),) * 2, (), Items("list", (Slot(1), Slot(0)))),
            "the items of a list travel in its order",
        ),
        (
            Signature((), (ScalarSpec("", "int8"),), (), Items("list", (Slot(0), Slot(0)))),
            "the result: in iree.abi a nested value",
        ),
        (
            Signature((), (ListSpec("", (), Items("list")),), (), Slot(0)),
            "the result travels as one list",
        ),
        (
            Signature.of({"x": Arg(["int8", ...], kind="var_positional")}),
            "parameter `x`: in iree.abi a nested argument",
        ),
    ],
)
def test_what_the_json_cannot_say_is_not_written(made: Signature, problem: str) -> None:
    with pytest.raises(SignatureError) as error:
        made.to_iree_json()
    assert problem in str(error.value)


def test_a_dict_is_written_in_the_order_in_which_it_travels() -> None:
    made = Signature(
        (),
        (ScalarSpec("", "int8"), ScalarSpec("", "int16")),
        (),
        Fields(
            "dict",
            (
                ("a", Slot(1)),
                ("b", Slot(0)),
            ),
        ),
    )
    assert json.loads(made.to_iree_json())["r"] == [["sdict", ["b", "i8"], ["a", "i16"]]]


def test_symbols_of_a_model_are_dynamic_dims() -> None:
    made = Signature.of({"x": "float32[batch, 3]"}, "float32[batch]")
    assert json.loads(made.to_iree_json()) == {
        "a": [["named", "x", ["ndarray", "f32", 2, None, 3]]],
        "r": [["ndarray", "f32", 1, None]],
        "v": 1,
    }


def test_attributes_of_a_function() -> None:
    declaration = "sync func @f(%lhs: tensor<4xf32>, %input1: i32) -> (%output0: tensor<4xf32>)"
    made = Signature.from_iree({"iree.abi": text([F32, "i32"], []), "iree.abi.declaration": declaration})
    assert [one.name for one in made.parameters] == ["lhs", "input1"]
    assert Signature.from_iree(made.to_iree_json()).inputs == made.inputs
    for useless in ("what", "sync func @f(%x tensor<f32>, %y) -> ()", "sync func @f(%x: i8, %x: i8) -> ()"):
        given = {"iree.abi": text([F32, "i32"], []), "iree.abi.declaration": useless}
        assert [one.name for one in Signature.from_iree(given).parameters] == ["arg0", "arg1"]
    short = {"iree.abi": text([F32], []), "iree.abi.declaration": declaration}
    assert [one.name for one in Signature.from_iree(short).parameters] == ["arg0"]
    with pytest.raises(SignatureError, match=r"asynchronous model 'coarse-fences'.*without `\$async`"):
        Signature.from_iree({"iree.abi": text([], []), "iree.abi.model": "coarse-fences"})
    with pytest.raises(SignatureError, match=r"the attribute `iree\.abi` is not a text: None"):
        Signature.from_iree({"iree.abi": None})  # type: ignore[dict-item]
    with pytest.raises(SignatureError, match=r"no attribute `iree.abi` .*among \(other\)"):
        Signature.from_iree({"other": ""})


def test_declarations() -> None:
    made = Signature.from_iree(
        {
            "iree.abi.declaration": "sync func @m$f(%x: tensor<?x2xcomplex<f32>>, %input1: index, "
            "%input2: tensor<*xui8>, %input3: tensor<f32> {a = [1, 2], iree.abi.output = 0 : index}, "
            "%input4: !util.list<?>, %view: !hal.buffer_view) -> (%output0: tensor<bf16>, %output1: i1)"
        }
    )
    assert made.inputs == (
        TensorSpec("x", "complex64", ("?", 2)),
        ScalarSpec("input1", "int64"),
        TensorSpec("input2", "uint8", None),
        TensorSpec("input3", "float32", (), access="out"),
        RefSpec("input4", "any"),
        TensorSpec("view", "?", None),
    )
    assert made.outputs == (TensorSpec("output0", "bfloat16", ()), ScalarSpec("output1", "bool"))
    nothing = Signature.from_iree({"iree.abi.declaration": "sync func @f() -> ()"})
    assert nothing == Signature((), (), wraps=True)


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        ("fn f()", "not a declaration of a function"),
        ("sync func @f(%x: i32) -> (", "not a declaration of a function"),
        ("sync func @f(" + ") -> (" * 100_000, "not a declaration of a function"),
        (3, "the attribute `iree.abi.declaration` is not a text: 3"),
        ("async func @f(%w: !hal.fence) -> ()", "the function is asynchronous"),
        ("sync func @f(%x tensor<f32>) -> ()", "expected `%name: type`"),
        ("sync func @f(%x: tensor<4xwhat>) -> ()", "the type 'tensor<4xwhat>' is not known"),
        ("sync func @f(%x: i32, %x: i32) -> ()", "name one twice"),
        ("sync func @f(%x: tensor<99999999999999999999xf32>) -> ()", "is not in"),
    ],
)
def test_broken_declarations(declaration: Any, problem: str) -> None:
    with pytest.raises(SignatureError) as error:
        Signature.from_iree({"iree.abi.declaration": declaration})
    assert problem in str(error.value)


elements = st.sampled_from(["i1", "i8", "i32", "ui16", "f16", "bf16", "f64", "complex<f32>", "f8E5M2"])
tensors = st.tuples(elements, st.lists(st.none() | st.integers(0, 2**63 - 1), max_size=4)).map(
    lambda parts: ["ndarray", parts[0], len(parts[1]), *parts[1]]
)
plain = st.none() | st.just("unknown") | elements | tensors | elements.map(lambda e: ["ndarray", e, None])
records: Any = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda kids: ["slist", *kids])
        | st.lists(inner, max_size=3).map(lambda kids: ["stuple", *kids])
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(
            lambda kids: ["sdict", *map(list, kids.items())]
        )
        | inner.map(lambda kid: ["py_homogeneous_list", kid])
    ),
    max_leaves=6,
)
named = st.dictionaries(st.text(max_size=3), records, max_size=3)


@given(st.lists(records, max_size=3), named, st.lists(records, max_size=3))
def test_what_is_written_is_read_back(bare: list[Any], by_name: dict[str, Any], results: list[Any]) -> None:
    metadata = text([*bare, *(["named", name, record] for name, record in by_name.items())], results)
    made = Signature.from_iree(metadata)
    written = made.to_iree_json()
    assert Signature.from_iree(written) == made
    assert Signature.from_iree(written).to_iree_json() == written
    assert json.loads(written)["a"] == json.loads(metadata)["a"]


junk: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["f32", "ndarray", "slist", "named", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("arv"), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(junk, max_size=3), st.lists(junk, max_size=3))
def test_any_records_are_a_signature_or_an_error(arguments: list[Any], results: list[Any]) -> None:
    expect_signature_or_error(text(arguments, results))


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_bytes_are_a_signature_or_an_error(data: bytes | str) -> None:
    expect_signature_or_error(data)


@given(st.text("%x:tensor<>,?i32f{}()-! =0", max_size=30), st.text("%y:tensor<>,?i32f", max_size=20))
def test_any_declaration_is_a_signature_or_an_error(inputs: str, outputs: str) -> None:
    expect_signature_or_error({"iree.abi.declaration": f"sync func @f({inputs}) -> ({outputs})"})


def expect_signature_or_error(metadata: Any) -> None:
    try:
        made = Signature.from_iree(metadata)
    except SignatureError:
        return
    assert str(made)


@pytest.mark.parametrize("record", [["ndarray"], ["ndarray", "f32"], ["ndarray", ["f32"], 1, 1]])
def test_a_tensor_without_its_parts(record: list[object]) -> None:
    with pytest.raises(SignatureError, match=r"\$\.a\[0\]: its parts are no element type, rank and dims"):
        Signature.from_iree(json.dumps({"a": [record], "r": []}))
