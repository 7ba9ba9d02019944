"""Strings, sequences and optionals cross borders: packages compute with them where the artifact is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

import farcall as fc
from farcall.abi.calls._strings import raw_strings, strings_from_raw, strings_of
from farcall.errors import ArgumentError, BackendError, ModelError, UnsupportedOperatorError, UsageError
from farcall.toolchain import find_compiler

JOIN = "(string[n] x, string[n] z) => (string[n] y) { y = StringConcat (x, z) }"
SPLIT = """(string[n] x) => (string[n, k] y, int64[n] m)
 { y, l = StringSplit <delimiter = ","> (x)
   m = Neg (l) }"""
INSERT = """(seq(float[a]) s, float[m] x, int64 p) => (seq(float[b]) r, seq(float[a]) s, float[k] y)
 { q = Neg (x)
   r = SequenceInsert (s, q, p)
   a = SequenceAt (r, p)
   y = Abs (a) }"""
TWICE = """(float[n] x) => (float[m] y, seq(float[k]) s)
 { s = SplitToSequence (x)
   a = SequenceAt (s, i)
   b = Neg (a)
   t = SequenceInsert (s, b)
   y = ConcatFromSequence <axis = 0> (t) }"""
HAS = """(optional(float[n]) o) => (bool b, optional(float[n]) o) { b = OptionalHasElement (o) }"""
GET = "(optional(float[n]) o) => (float[m] y) { e = OptionalGetElement (o) y = Neg (e) }"
BRANCH = """(string[n] x, bool c) => (string[n] y)
 { y = If (c) <then_branch = a () => (string[n] r) { r = Identity (x) },
               else_branch = b () => (string[n] q) { q = StringConcat (x, x) }> }"""
INSIDE = """(float[n] x, bool c) => (float[n] y)
 { y = If (c) <then_branch = a () => (float[n] r) { s = Cast <to = 8> (x)
                                                    t = Cast <to = 1> (s)
                                                    r = Neg (t) },
               else_branch = b () => (float[n] q) { q = Abs (x) }> }"""
MIXED = """(string[n] x, bfloat16[n] z, bool c) => (string[n] y, bfloat16[n] w)
 { y, w = If (c) <then_branch = a () => (string[n] r, bfloat16[n] p) { r = Identity (x) p = Identity (z) },
                  else_branch = b () => (string[n] q, bfloat16[n] o) { q = Identity (x)
                                                                        o = Identity (z) }> }"""
FLOATS = np.float32([1, 2, 3])


def small(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> g {graph}')


def built(graph: str, *last: str) -> fc.Module:
    return fc.partition(small(graph), ["c", *(last or ("reference",))]).build().load()


def same(got: Any, expected: Any) -> None:
    """Compare nested results."""
    if isinstance(expected, list | tuple):
        assert type(got) is type(expected)
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other)
    elif expected is None:
        assert got is None
    else:
        np.testing.assert_array_equal(np.asarray(got), expected, strict=True)


def texts(*items: Any) -> np.ndarray:
    return np.array(items, dtype=object)


# ------------------------------------------------------------------------------------------- strings ----


@pytest.mark.parametrize(
    ("x", "z", "y"),
    [
        (np.array(["a", "b"]), np.array(["x", "y"]), texts("ax", "by")),
        (["a", "\u00fc"], ["", "\u20ac\U0001f600"], texts("a", "\u00fc\u20ac\U0001f600")),
        (texts("ab"), ("c" * 70000,), texts("ab" + "c" * 70000)),
        ([], np.array([], "U1"), np.empty(0, object)),
    ],
)
def test_strings_here_and_on_a_server(x: Any, z: Any, y: np.ndarray, joiner: Any, far_joiner: Any) -> None:
    same(joiner["main"](x, z), y)
    same(joiner["reference_0"](x=x, z=z), y)
    same(far_joiner(x, z), y)


@pytest.fixture(scope="module")
def joiner() -> fc.Module:
    return built(JOIN)


@pytest.fixture(scope="module")
def far_joiner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = fc.partition(small(JOIN), ["c", "reference"]).build().save(tmp_path_factory.mktemp("m") / "m.so")
    with fc.rpc.Server() as server, fc.connect(server.url) as session:
        yield session.load_module(path)["main"]


def test_text_with_nul_stays_in_the_process(joiner: Any, far_joiner: Any) -> None:
    same(joiner["main"](["a\0b"], ["c"]), texts("a\0bc"))
    with pytest.raises(ValueError, match="text with a NUL byte cannot travel"):
        far_joiner(["a\0b"], ["c"])


def test_the_signature_names_strings(joiner: Any) -> None:
    signature = joiner["main"].signature
    assert str(signature) == "(x: string[n], z: string[n]) -> string[n]"
    assert msgspec.json.decode(msgspec.json.encode(signature), type=fc.Signature) == signature
    assert fc.Signature.of({"x": "string[n]", "z": "string[n]"}, "string[n]").outputs[0].type == "string[n]"


@pytest.mark.parametrize(
    ("x", "z", "message"),
    [
        (
            ["a"],
            ["b", "c"],
            r"`z` of `main`: expected string\[n\] with n=1, got string\[2\]; dimension 0 must",
        ),
        (["a"], [1], "got list of 1 items; each element must be a str, .* one is a int"),
        ([b"a"], ["b"], "one is bytes; decode them"),
        (np.ones(1), ["b"], "one is a float"),
        (["a", ["b"]], ["c", "d"], "lists must have one length"),
        ([["a"]], ["b"], r"expected string\[n\], got string\[1, 1\]; reshape it to rank 1"),
        (["\ud800"], ["b"], r"the string '\\ud800' has no UTF-8: surrogates not allowed"),
        ("a", ["b"], r"got string\[\]; reshape it to rank 1"),
        (None, ["b"], "got None; pass a str, a list of them, or an array of them"),
    ],
)
def test_wrong_strings_are_refused(x: Any, z: Any, message: str, joiner: Any, far_joiner: Any) -> None:
    for main in (joiner["main"], far_joiner):
        with pytest.raises(ArgumentError, match=message):
            main(x, z)


RIGHT = [[1], ["z"]]


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        ([[2], ["a"]], ValueError, r"expected string\[n\], got 1 strings of shape \[2\]; pass as many as"),
        ([[1 << 62, 4], ["a"]], ValueError, r"got 1 strings of shape \[4611686018427387904, 4\]"),
        ([[1, 1], ["a"]], ValueError, "of this rank"),
        ([[-1], ["a"]], TypeError, r"got an array; pass an Array of the shape and the strings"),
        ([[True], ["a"]], TypeError, "got an array"),
        ([[1], ["a"], []], TypeError, "got an array"),
        ([1, ["a"]], TypeError, "got an array"),
        ([], TypeError, "got an array"),
        ("a", TypeError, "got str"),
        (b"a", TypeError, "got bytes"),
        (7, TypeError, "got int"),
        (None, TypeError, "got None"),
        (FLOATS, TypeError, r"got float32\[3\]"),
        ([[1], [3]], TypeError, "`x`: expected strings, got tuple; expected a str at 0, got int"),
        ([[1], [b"\xff"]], TypeError, "expected a str at 0, got bytes"),
        ([[1], [None]], TypeError, "expected a str at 0, got NoneType"),
    ],
)
def test_hostile_strings_are_typed_errors(
    raw: Any, kind: type[Exception], message: str, joiner: Any, far_joiner: Any
) -> None:
    for name in ("main", "reference_0"):
        function = joiner[name]
        signature, function.signature = function.signature, None
        try:
            with pytest.raises(kind, match=message):
                function(raw, RIGHT)
        finally:
            function.signature = signature
    signature, far_joiner.signature = far_joiner.signature, None
    try:
        with pytest.raises(kind, match=message):
            far_joiner(raw, RIGHT)
    finally:
        far_joiner.signature = signature
    same(far_joiner(["a"], ["b"]), texts("ab"))  # and the session goes on


LENDER = r"""
#include <farcall/c_api.h>
static int array_of(TVMFFIAny* items, int32_t count, TVMFFIAny* out) {
  const TVMFFIByteArray name = {"ffi.Array", 9};
  TVMFFIObjectHandle make = NULL;
  if (TVMFFIFunctionGetGlobal(&name, &make) != 0) return -1;
  const int status = TVMFFIFunctionCall(make, items, count, out);
  TVMFFIObjectDecRef(make);
  return status;
}
/* Calls a function of two tensors of strings with one string that is no UTF-8. */
FARCALL_KERNEL(lend) {
  const TVMFFIByteArray bytes = {"these bytes are no text: \xff\xfe", 27};
  TVMFFIAny text = {0}, both[2] = {{0}}, whole[2] = {{0}}, one = {.type_index = kTVMFFIInt, .v_int64 = 1};
  (void)self;
  if (num_args != 1 || TVMFFIStringFromByteArray(&bytes, &text) != 0) return -1;
  int status = array_of(&one, 1, &both[0]);
  if (status == 0) status = array_of(&text, 1, &both[1]);
  if (status == 0) status = array_of(both, 2, &whole[0]);
  whole[1] = whole[0];
  if (status == 0) status = TVMFFIFunctionCall(args[0].v_obj, whole, 2, result);
  if (whole[0].v_obj) TVMFFIObjectDecRef(whole[0].v_obj);
  for (int i = 0; i < 2; ++i) {
    if (both[i].v_obj) TVMFFIObjectDecRef(both[i].v_obj);
  }
  if (text.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(text.v_obj);
  return status;
}
"""


def test_strings_that_are_no_utf8_are_a_typed_error(joiner: Any, tmp_path: Path) -> None:
    (tmp_path / "lender.c").write_text(LENDER)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{fc.ffi.include_dir()}"]
    find_compiler().run([*flags, "lender.c", "-o", "lender.so"], tmp_path, "a kernel")
    lend = fc.ffi.load_library(tmp_path / "lender.so")["lend"]
    for name in ("main", "reference_0"):
        with pytest.raises(UnicodeDecodeError, match="can't decode byte 0xff"):
            lend(joiner[name])


def test_sizes_that_strings_tell_count_for_other_regions() -> None:
    module = built(SPLIT)
    pieces, counts = module["main"](np.array(["a,b", "c"]))
    same(pieces, np.array([["a", "b"], ["c", ""]], object))
    same(counts, np.int64([-2, -1]))
    assert module["main"]([])[1].shape == (0,)


def test_a_profile_of_regions_that_take_strings(tmp_path: Path) -> None:
    path = fc.partition(small(SPLIT), ["c", "reference"]).build().save(tmp_path / "m.so")
    assert {row.name for row in fc.rpc.profile(path, x=np.array(["a,b"])).rows} == {"reference_0", "c_0"}


def test_what_is_measured_needs_values_of_strings() -> None:
    with pytest.raises(UsageError, match=r"inputs: expected a value of `x: string\[n\]`, of which none is"):
        fc.partition(small(SPLIT), ["c", "reference"], choose=fc.measured())


def test_strings_count_for_the_limit_of_a_call() -> None:
    main = fc.partition(small(JOIN), ["c", "reference"]).build(late_bytes=1000).load()["main"]
    same(main(["a"], ["b"]), texts("ab"))
    with pytest.raises(MemoryError, match=r"bytes for its output string\[n\]; the call may take 1000 more"):
        main(["a" * 1000], ["b"])


@pytest.mark.parametrize("shape", [[1] * 33, [1 << 63], [-1], [True], [1.0], "1", None])
def test_a_raw_shape_is_a_list_of_sizes(shape: Any) -> None:
    with pytest.raises(TypeError, match="expected two Arrays: a shape of up to 32 sizes from 0 on"):
        strings_from_raw([shape, ["a"]])


@given(st.lists(st.text(max_size=9), max_size=9), st.booleans())
def test_the_raw_form_gives_the_same_strings(items: list[str], column: bool) -> None:
    array = strings_of(items).reshape((-1, 1) if column else -1)
    same(strings_from_raw(raw_strings(array)), array)


# --------------------------------------------------------------------------- sequences and optionals ----


@pytest.mark.parametrize("last", ["reference", "onnxruntime"])
def test_sequences_cross_borders(last: str) -> None:
    pytest.importorskip(last) if last == "onnxruntime" else None
    module = built(INSERT, last)
    assert [name for name in ("c_0", f"{last}_0", "c_1") if name in module] == ["c_0", f"{last}_0", "c_1"]
    main = module["main"]
    assert str(main.signature).startswith("(s: [float32[...], ...], x: float32[m], p: int64[])")
    two = [FLOATS[:2], FLOATS[:1]]
    same(main(two, FLOATS, 1), ([two[0], -FLOATS, two[1]], two, FLOATS))
    same(module[f"{last}_0"]([FLOATS], FLOATS, 0), ([FLOATS, FLOATS], FLOATS))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([np.ones(2)], r"argument s\[0\]: expected float32\[...\], got float64\[2\]"),
        (FLOATS, r"expected \[float32\[...\], ...\], got float32\[3\]"),
        (None, "got None"),
    ],
)
def test_wrong_sequences_are_refused(value: Any, message: str, inserter: Any) -> None:
    with pytest.raises(ArgumentError, match=message):
        inserter(value, FLOATS, 0)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([np.ones(2)], "`s`: expected a Tensor of float32, got a Tensor of float64"),
        (["a"], "expected a Tensor of float32, got str"),
        ([None], "expected a Tensor of float32, got NoneType"),
        ([[FLOATS]], "expected a Tensor of float32, got tuple"),
        (FLOATS, r"expected \[float32\[...\], ...\], got float32\[3\]; pass an Array"),
        (7, "got int; pass an Array"),
    ],
)
def test_hostile_sequences_are_typed_errors(raw: Any, message: str, inserter: Any) -> None:
    signature, inserter.signature = inserter.signature, None
    try:
        with pytest.raises(TypeError, match=message):
            inserter(raw, FLOATS, np.array(0))
    finally:
        inserter.signature = signature


@pytest.fixture(scope="module")
def inserter() -> Any:
    return built(INSERT)["main"]


def test_a_sequence_goes_from_region_to_region() -> None:
    model = small(TWICE)
    model.graph.input.append(onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []))
    plan = fc.partition(model, ["c", "reference"], exclude={"c": ["SplitToSequence*"]})
    assert any(region.backend == "c" for region in plan.regions)
    whole, parts = plan.build().load()["main"](FLOATS, 1)
    same(whole, np.float32([1, 2, 3, -2]))
    same([np.ravel(part) for part in parts], [FLOATS[:1], FLOATS[1:2], FLOATS[2:]])


def test_optionals_cross_borders() -> None:
    has, get = built(HAS)["main"], built(GET)["main"]
    assert str(has.signature) == "(o: float32[?] | None) -> (bool[], float32[?] | None)"
    same(has(None), (np.array(False), None))
    same(has(FLOATS), (np.array(True), FLOATS))
    same(has(FLOATS[::2]), (np.array(True), FLOATS[::2]))
    same(get(FLOATS), -FLOATS)
    with pytest.raises(RuntimeError, match="The requested optional input has no value"):
        get(None)
    with pytest.raises(ArgumentError, match=r"expected float32\[\?\] \| None, got str 'a'"):
        has("a")


def test_a_result_that_is_an_optional_argument_is_the_callers_no_longer() -> None:
    has = built(HAS)["main"]
    given_once = FLOATS.copy()
    _, kept = has(given_once)
    given_once[:] = 0
    same(kept, FLOATS)


@pytest.mark.parametrize("raw", ["a", 7, b"a"])
def test_hostile_optionals_are_typed_errors(raw: Any) -> None:
    has = built(HAS)["main"]
    has.signature = None
    with pytest.raises(TypeError, match=r"expected float32\[\?\] \| None, got .*; pass None, a tensor or an"):
        has(raw)


# ---------------------------------------------------------------------------------------- who takes them ----


def test_a_node_with_strings_in_its_graphs_goes_to_the_package_as_a_whole() -> None:
    main = built(BRANCH)["main"]
    same(main(["a"], True), texts("a"))
    same(main(["a"], False), texts("aa"))


def test_strings_inside_of_a_graph_leave_it_to_control() -> None:
    plan = fc.partition(small(INSIDE), ["c", "onnxruntime"])
    assert {region.backend for region in plan.regions} == {"c", "control", "onnxruntime"}
    main = plan.build().load()["main"]
    same(main(FLOATS, True), -FLOATS)
    same(main(-FLOATS, False), FLOATS)


def test_c_alone_refuses_and_names_the_cure() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        fc.partition(small(JOIN))
    assert "c: `x: string[n]` is no tensor of numbers: only onnxruntime and reference take" in str(
        caught.value
    )
    assert 'such as onnxruntime (backends=["c", "onnxruntime"])' in str(caught.value)
    assert "`s: Sequence(Tensor(FLOAT))` is no tensor" in str(fc.partition(small(INSERT), ["c", "reference"]))


def test_another_kind_of_machine_is_refused() -> None:
    plan = fc.partition(small(JOIN), ["c", "reference"])
    with pytest.raises(BackendError, match=r"`reference_0`, nodes .*StringConcat.*not aarch64-linux-musl"):
        plan.build(target="aarch64-linux-musl")


def test_a_constant_of_strings_cannot_be_an_output() -> None:
    model = small("(string[n] x) => (string[n] y, string[1] z) { y = StringConcat (x, z) }")
    model.graph.initializer.append(onnx.helper.make_tensor("z", onnx.TensorProto.STRING, [1], [b"!"]))
    with pytest.raises(ModelError, match="the output `z` is a constant that is no tensor of numbers"):
        fc.partition(model, ["c", "reference"]).build()
    del model.graph.output[1]
    same(fc.partition(model, ["c", "reference"]).build().load()["main"](["a", "b"]), texts("a!", "b!"))


def test_onnxruntime_refuses_dtypes_that_numpy_lacks_beside_strings() -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(UnsupportedOperatorError, match="`z` has bfloat16, which it takes in no sequence"):
        fc.partition(small(MIXED), ["c", "onnxruntime"])


def test_the_refusal_names_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small('(uint8[n] x) => (uint8[h, w, 3] y) { y = ImageDecoder <pixel_format = "RGB"> (x) }')
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedOperatorError, match="needs the package pillow; pip install pillow"):
        fc.partition(model, ["c", "reference"])
