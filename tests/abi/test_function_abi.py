"""FunctionAbi: the checks of packing, and nested values and results."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any, NamedTuple

import ml_dtypes
import msgspec
import numpy as np
import pytest

import farcall.ffi as ffi
from farcall.abi import Arg, FunctionAbi, Items, ListSpec, RefSpec, ScalarSpec, Signature, Slot, TensorSpec
from farcall.errors import ArgumentError, ResultError, UsageError

from .specs import abi_of, tensor


class TestChecks:
    def test_the_message_of_the_issue(self) -> None:
        abi = FunctionAbi(Signature.of({"tokens": {"ids": ["int64[batch, 128]", "int64[batch, 128]"]}}))
        ids = [np.zeros((4, 128), "i8"), np.zeros((3, 128), "i8")]
        with pytest.raises(ArgumentError) as caught:
            abi.pack_inputs({"ids": ids})
        expected = 'argument tokens["ids"][1]: expected int64[batch, 128] with batch=4, got int64[3, 128]'
        assert str(caught.value).startswith(expected)
        assert isinstance(caught.value, TypeError | ValueError | UsageError)

    def test_all_problems_come_together(self) -> None:
        abi = FunctionAbi(
            Signature.of({"a": "float32[n]", "b": {"c": "int8", "d": "str"}, "e": "float32[n]"})
        )
        with pytest.raises(ArgumentError) as caught:
            abi.pack_inputs(np.zeros(3, "f8"), {"c": 300, "x": 1}, 1, 2, zz=3)
        assert caught.value.problems == (
            "argument 4: not expected, at most 3 go by position; got int 2",
            "argument zz: not expected; the parameters that go by name are a, b, e",
            'argument b["d"]: missing; expected str',
            'argument b["x"]: not expected; the keys are c, d',
            "argument a: expected float32[n], got float64[3]; convert it to float32",
            'argument b["c"]: expected int8, got int 300; int8 holds -128 to 127',
            "argument e: expected float32[n], got int 1; pass an array or a tensor",
        )

    def test_a_wrong_leaf_sizes_no_name(self) -> None:
        abi = abi_of(TensorSpec("a", "float32", ("n",)), TensorSpec("b", "float32", ("n",)))
        with pytest.raises(ArgumentError) as caught:
            abi.pack_inputs(np.zeros(5, "i8"), np.zeros(3, "f4"))
        assert len(caught.value.problems) == 1

    def test_names_agree_within_one_tensor(self) -> None:
        abi = abi_of(tensor(shape=("n", "n")))
        abi.pack_inputs(np.zeros((2, 2), "f4"))
        with pytest.raises(ArgumentError, match="dimension 1 must be 2"):
            abi.pack_inputs(np.zeros((2, 3), "f4"))

    def test_expressions_follow_from_names_of_any_argument(self) -> None:
        abi = abi_of(
            TensorSpec("a", "float32", ("2*n + 1",)),
            TensorSpec("b", "float32", ("n",)),
            TensorSpec("c", "int8", ("k//0",)),
        )
        abi.pack_inputs(np.zeros(7, "f4"), np.zeros(3, "f4"), np.zeros(1, "i1"))
        with pytest.raises(
            ArgumentError, match=r"argument a: expected float32\[2\*n \+ 1\] with n=3, got float32\[6\]"
        ):
            abi.pack_inputs(np.zeros(6, "f4"), np.zeros(3, "f4"), np.zeros(1, "i1"))

    def test_names_that_are_no_identifiers(self) -> None:
        abi = abi_of(TensorSpec("a", "int8", ("batch size",)), TensorSpec("b", "int8", ("batch size", "?")))
        abi.pack_inputs(np.zeros(2, "i1"), np.zeros((2, 9), "i1"))
        with pytest.raises(ArgumentError, match="with batch size=2"):
            abi.pack_inputs(np.zeros(2, "i1"), np.zeros((3, 9), "i1"))

    def test_any_rank_any_dtype_zero_dims(self) -> None:
        abi = abi_of(TensorSpec("a", "?", None), TensorSpec("b", "int8", (0, "n")))
        for array in (np.zeros((), "f8"), np.zeros((2, 3), "c8"), np.zeros(0, "?")):
            assert abi.pack_inputs(array, np.zeros((0, 4), "i1"))[0].data_ptr() == array.ctypes.data
        with pytest.raises(ArgumentError, match=r"got <U1\[1\]"):
            abi.pack_inputs(np.array(["a"]), np.zeros((0, 4), "i1"))

    def test_devices(self) -> None:
        abi_of(tensor(device="cpu")).pack_inputs(np.zeros(3, "f4"))
        with pytest.raises(ArgumentError, match=r"got float32\[3\] on cpu:0; move it to cuda:1"):
            abi_of(tensor(device="cuda:1")).pack_inputs(np.zeros(3, "f4"))

    def test_a_huge_array_is_not_printed(self) -> None:
        with pytest.raises(ArgumentError) as caught:
            FunctionAbi(Signature.of({"x": "int8"})).pack_inputs(np.zeros(10**6))
        assert len(str(caught.value)) < 100

    def test_optional_leaves(self) -> None:
        abi = FunctionAbi(Signature.of({"x": "float32[n] | None", "k": Arg("int8 | None", default=None)}))
        assert abi.pack_inputs(None) == [None, None]
        with pytest.raises(ArgumentError, match=r"expected float32\[n\] \| None, got str"):
            abi.pack_inputs("x")


class TestNesting:
    def test_other_mappings_tuples_for_lists_and_subclasses(self) -> None:
        abi = FunctionAbi(Signature.of({"d": {"a": ["int8", ("int8", "int8")]}}))
        assert abi.pack_inputs(types.MappingProxyType({"a": (1, [2, 3])})) == [1, 2, 3]

    def test_namedtuples_and_dataclasses(self) -> None:
        class Pair(NamedTuple):
            left: Any
            right: Any

        abi = FunctionAbi(Signature.of({"p": Pair("int8", "int8")}, Pair("int8", "str")))
        assert abi.pack_inputs(Pair(1, 2)) == abi.pack_inputs((1, 2)) == [1, 2]
        assert abi.pack_inputs(types.SimpleNamespace(left=1, right=2)) == [1, 2]
        result = abi.unpack_results([1, "x"])
        assert isinstance(result, Pair)
        assert result == Pair(1, "x")
        with pytest.raises(ArgumentError, match=r"argument p\.right: missing; expected int8"):
            abi.pack_inputs(types.SimpleNamespace(left=1))

    def test_empty_containers_and_gaps(self) -> None:
        abi = FunctionAbi(Signature.of({"a": [], "b": {}, "c": None}, {"x": [], "y": (), "z": None}))
        assert abi.pack_inputs([], {}, None) == []
        assert abi.unpack_results([]) == {"x": [], "y": (), "z": None}
        with pytest.raises(ArgumentError) as caught:
            abi.pack_inputs([1], {"a": 1}, 0)
        assert len(caught.value.problems) == 3

    def test_lists_of_any_length(self) -> None:
        abi = FunctionAbi(Signature.of({"xs": [("float32[n]", "int8"), ...]}, ["float32[n]", ...]))
        x = np.zeros(2, "f4")
        (packed,) = abi.pack_inputs([(x, 1), (x, 2)])
        assert [one[1] for one in packed] == [1, 2]
        assert packed[0][0].data_ptr() == x.ctypes.data
        assert abi.pack_inputs([]) == [()]
        with pytest.raises(ArgumentError, match=r"argument xs\[1\]\[0\]: expected float32\[n\] with n=2"):
            abi.pack_inputs([(x, 1), (np.zeros(3, "f4"), 2)])
        result = abi.unpack_results([(ffi.from_dlpack(x), ffi.from_dlpack(x))])
        assert [one.ctypes.data for one in result] == [x.ctypes.data] * 2

    def test_more_positional_arguments(self) -> None:
        abi = FunctionAbi(Signature.of({"a": "int8", "rest": Arg(["int8", ...], kind="var_positional")}))
        assert abi.pack_inputs(1, 2, 3) == [1, (2, 3)]
        assert abi.pack_inputs(1) == [1, ()]
        with pytest.raises(ArgumentError, match=r"argument rest\[1\]: expected int8, got int 300"):
            abi.pack_inputs(1, 2, 300)

    def test_kinds_of_parameters(self) -> None:
        abi = FunctionAbi(
            Signature.of(
                {"a": Arg("int8", kind="positional_only"), "b": "int8", "c": Arg("int8", kind="keyword_only")}
            )
        )
        assert abi.pack_inputs(1, 2, c=3) == abi.pack_inputs(1, c=3, b=2) == [1, 2, 3]
        with pytest.raises(ArgumentError) as caught:
            abi.pack_inputs(a=1, b=2)
        assert caught.value.problems == (
            "argument a: given by name, but it goes by position only",
            "argument a: missing; expected int8",
            "argument c: missing; expected int8",
        )
        with pytest.raises(ArgumentError, match="given twice, by position and by name"):
            abi.pack_inputs(1, 2, b=2, c=3)

    def test_many_leaves(self) -> None:
        names = [f"p{i}" for i in range(100)]
        abi = FunctionAbi(
            Signature.of({name: f"int64[{name}]" for name in names}, dict.fromkeys(names, "int64[n]"))
        )
        arrays = [np.zeros(i, "i8") for i in range(100)]
        packed = abi.pack_inputs(*arrays[:50], **dict(zip(names[50:], arrays[50:], strict=True)))
        assert [one.numel() for one in packed] == list(range(100))
        assert list(abi.unpack_results([packed[3]] * 100)) == names


class TestReferences:
    def test_functions_modules_and_objects(self) -> None:
        kinds = ["function", "module", "object", "str", "bytes", "any"]
        abi = abi_of(*(RefSpec(kind, kind) for kind in kinds))
        module = ffi.new_module("made", {})
        marker = object()
        packed = abi.pack_inputs(len, module, marker, "text", b"bytes", [1, "x"])
        assert isinstance(packed[0], ffi.Function)
        assert packed[0]("four") == 4
        assert packed[1] is module
        assert ffi.Function(lambda x: x is marker)(packed[2])
        assert packed[3:] == ["text", b"bytes", (1, "x")]

    def test_an_opaque_object_lives_as_long_as_native_code_holds_it(self) -> None:
        class Thing:
            pass

        thing = Thing()
        alive = weakref.ref(thing)
        held = ffi.convert({"key": abi_of(RefSpec("o", "object")).pack_inputs(thing)[0]})
        del thing
        gc.collect()
        assert held["key"] is alive()
        del held
        gc.collect()
        assert alive() is None

    def test_wrong_ones(self) -> None:
        abi = abi_of(
            *(RefSpec(kind, kind) for kind in ("function", "module", "str", "bytes", "device", "shape"))
        )
        with pytest.raises(ArgumentError) as caught:
            abi.pack_inputs(3, len, b"bytes", "text", "nowhere:x", 3.5)
        assert len(caught.value.problems) == 6


class TestResults:
    def test_arrays_share_memory(self) -> None:
        abi = abi_of(outputs=(tensor(),))
        x = np.arange(3, dtype="f4")
        made = ffi.from_dlpack(x)
        result = abi.unpack_results([made])
        assert result.ctypes.data == x.ctypes.data
        del made, x
        gc.collect()
        np.testing.assert_array_equal(result, [0, 1, 2])

    def test_as_other_arrays(self) -> None:
        torch = pytest.importorskip("torch")
        made = ffi.from_dlpack(np.zeros(3, "f4"))
        assert abi_of(outputs=(tensor(),), arrays="farcall").unpack_results([made]) is made
        result = abi_of(outputs=(tensor(),), arrays=torch.from_dlpack).unpack_results([made])
        assert isinstance(result, torch.Tensor)
        assert result.data_ptr() == made.data_ptr()

    @pytest.mark.parametrize(
        "dtype", ["float16", "bfloat16", "float8_e5m2", "uint8", "bool", "int64", "complex64"]
    )
    def test_all_dtypes(self, dtype: str) -> None:
        made = ffi.empty((2, 3), dtype)
        result = abi_of(outputs=(tensor(dtype, (2, 3)),)).unpack_results([made])
        assert str(ffi.dtype(result.dtype)) == dtype
        assert result.ctypes.data == made.data_ptr()

    def test_every_wrong_result_is_named(self) -> None:
        signature = Signature.of({}, {"a": "float32[n]", "b": ["int8", "str"], "c": "float32[n]"})
        values = [ffi.empty(3), 300, 5, ffi.empty(4)]
        with pytest.raises(ResultError) as caught:
            FunctionAbi(signature).unpack_results(values)
        assert len(caught.value.problems) == 3
        with pytest.raises(ResultError, match="expected 4 results, got 1 values"):
            FunctionAbi(signature).unpack_results([1])
        with pytest.raises(ResultError, match="expected 4 results, got None"):
            FunctionAbi(signature).unpack_results(None)

    def test_scalars_and_references(self) -> None:
        leaves = (
            ScalarSpec("a", "uint64"),
            ScalarSpec("b", "float32"),
            ScalarSpec("c", "complex64"),
            RefSpec("d", "str"),
        )
        abi = abi_of(outputs=leaves)
        assert abi.unpack_results([-1, 2, ffi.from_dlpack(np.array(1j, "c8")), "x"]) == (
            2**64 - 1,
            2.0,
            1j,
            "x",
        )

    @pytest.mark.parametrize(
        ("dtype", "register", "value"),
        [
            ("uint32", -1, 4294967295),
            ("int32", 4294967295, -1),
            ("uint8", -1, 255),
            ("uint8", 257, 1),
            ("int8", 200, -56),
            ("int8", -129, 127),
            ("int16", -(2**31), 0),
            ("uint16", 2**32 - 1, 65535),
            ("int64", 2**64 - 1, -1),
            ("uint64", -(2**63), 2**63),
            ("bool", 1, True),
            ("bool", -1, True),
            ("bool", 0, False),
            ("int4", 9, -7),
        ],
    )
    @pytest.mark.parametrize("nested", [False, True])
    def test_the_low_bits_of_a_vms_register_count(
        self, dtype: str, register: int, value: int, nested: bool
    ) -> None:
        number = ScalarSpec("y", dtype)
        leaf = ListSpec("y", (number,), Items("list", (Slot(0),))) if nested else number
        abi = FunctionAbi(Signature((), (leaf,), wraps=True))
        result = abi.unpack_results([[register] if nested else register])
        (found,) = result if nested else (result,)
        assert (found, type(found)) == (value, type(value))

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("uint8", 2**32),
            ("int32", -(2**31) - 1),
            ("int64", 2**64),
            ("uint64", -(2**63) - 1),
            ("bool", 2**32),
            ("uint32", 1.0),
            ("uint32", True),
            ("uint32", "1"),
            ("float32", 2**40 + 1),
        ],
    )
    def test_what_no_register_holds_is_refused(self, dtype: str, value: Any) -> None:
        with pytest.raises(ResultError, match=f"expected {dtype}, got"):
            FunctionAbi(Signature((), (ScalarSpec("y", dtype),), wraps=True)).unpack_results([value])

    def test_other_functions_return_the_number_itself(self) -> None:
        for value in (-1, 256):
            with pytest.raises(ResultError, match="expected uint8, got int"):
                abi_of(outputs=(ScalarSpec("y", "uint8"),)).unpack_results([value])

    def test_signatures_of_irees_encodings_wrap(self) -> None:
        raw = {"f": "I1!R11!S3!t8S3!t9", "fv": "1"}
        declaration = {"iree.abi.declaration": "sync func @f() -> (%output0: i8, %output1: ui16)"}
        for made, first in (
            (Signature.from_reflection(raw), 255),
            (Signature.from_iree('{"a": [], "r": ["ui8", "ui16"]}'), 255),
            (Signature.from_iree(declaration), -1),
        ):
            assert FunctionAbi(made).unpack_results([-1, -1]) == (first, 65535)
            again = msgspec.json.decode(msgspec.json.encode(made), type=Signature)
            assert FunctionAbi(again).unpack_results([-1, -1]) == (first, 65535)


class TestAllocation:
    SIGNATURE = Signature(
        (TensorSpec("x", "float32", ("n", "m")), ScalarSpec("k", "int8")),
        (
            TensorSpec("a", "int16", ("n", "2*m")),
            TensorSpec("b", "float32", ("?",)),
            ScalarSpec("c", "int8"),
            TensorSpec("d", "int4", (3,)),
            TensorSpec("e", "int4", ("unknown",)),
        ),
    )

    def test_what_the_arguments_say(self) -> None:
        abi = FunctionAbi(self.SIGNATURE)
        packed = abi.pack_inputs(np.zeros((2, 3), "f4"), 1)
        results = abi.allocate_results(packed)
        assert [one and (str(one.dtype), tuple(one.shape)) for one in results] == [
            ("int16", (2, 6)),
            None,
            None,
            ("int4", (3,)),
            None,
        ]
        assert abi.allocate_results(packed, static_alloc=False) == []

    def test_a_shape_function_says_the_rest(self) -> None:
        seen = []

        def shapes(x: ffi.Tensor, k: int) -> list[Any]:
            seen.append((tuple(x.shape), k))
            return [None, (k,), None, None, None]

        abi = FunctionAbi(self.SIGNATURE, shape_function=shapes)
        results = abi.allocate_results(abi.pack_inputs(np.zeros((2, 3), "f4"), 7))
        assert tuple(results[1].shape) == (7,)
        assert results[4] is None
        assert seen == [((2, 3), 7)]

    def test_what_a_shape_function_must_not_say(self) -> None:
        abi = abi_of(outputs=(tensor(shape=("?", 2)),), shape_function=lambda: [(3, 3)])
        with pytest.raises(ValueError, match=r"returned \[3, 3\] for x: float32\[\?, 2\]"):
            abi.allocate_results([])
        abi = abi_of(outputs=(tensor(shape=("?", 2)),), shape_function=list)
        with pytest.raises(ValueError, match="returned 0 shapes for 1 results"):
            abi.allocate_results([])

    def test_sizes_that_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="more than"):
            abi_of(outputs=(tensor(shape=(2**40, 2**40)),)).allocate_results([])
        with pytest.raises(ValueError, match="evaluates to -2"):
            abi = abi_of(tensor(), outputs=(tensor(shape=("n - 5",)),))
            abi.allocate_results(abi.pack_inputs(np.zeros(3, "f4")))
        with pytest.raises(ArgumentError, match="expected 1 packed arguments, got 0"):
            abi_of(tensor()).allocate_results([])


def test_serialize() -> None:
    abi = abi_of(outputs=(ScalarSpec("a", "int32"), ScalarSpec("b", "float32")))
    assert abi.serialize([7, 0.5]) == ["i32=7", "f32=0.5"]
    plain = abi_of()
    arrays = [
        np.array([4, 10, 18, 28], "f4"),
        np.array([[1, 2], [3, 4]], "i1"),
        np.array(1.5, "f8"),
        np.array([[[1], [2]]], "u2"),
        np.array([True, False]),
        np.array([1.5], ml_dtypes.bfloat16),
        np.array([1 + 2j], "c8"),
        np.array([-1.5e-10], "f4"),
    ]
    texts = [
        "4xf32=4 10 18 28",
        "2x2xi8=[1 2][3 4]",
        "f64=1.5",
        "1x2x1xu16=[[1][2]]",
        "2xi1=1 0",
        "1xbf16=1.5",
        "1xc64=1+2j",
        "1xf32=-1.5E-10",
    ]
    assert plain.serialize(arrays) == texts
    assert plain.serialize([True, 3, 0.25]) == ["i1=1", "i64=3", "f64=0.25"]
    with pytest.raises(ValueError, match="expected numbers and tensors on the CPU, got str"):
        plain.serialize(["text"])


def test_casting_by_hand() -> None:
    x = np.array([1.5, 2.5])
    spec = tensor("float32")
    with pytest.raises(ArgumentError, match="convert it to float32"):
        abi_of(spec).pack_inputs(x)
    with pytest.raises(ArgumentError):
        abi_of(spec, casting="no").pack_inputs(x.astype("f2"))
    for casting in ("same_kind", "unsafe"):
        abi = abi_of(spec, casting=casting)
        np.testing.assert_array_equal(abi.pack_inputs(x)[0].numpy(), x)
        assert abi.copies == 1
    with pytest.raises(ArgumentError):
        abi_of(tensor("int8"), casting="same_kind").pack_inputs(x)
    np.testing.assert_array_equal(abi_of(tensor("int8"), casting="unsafe").pack_inputs(x)[0].numpy(), [1, 2])
    np.testing.assert_array_equal(abi_of(tensor(), casting="unsafe").pack_inputs(x + 1j)[0].numpy(), x)
    assert abi_of(ScalarSpec("k", "int8"), casting="unsafe").pack_inputs(2.9) == [2]
    with pytest.raises(ValueError, match="casting: expected one of no, safe, same_kind, unsafe, got 'all'"):
        abi_of(casting="all")


def test_arity_and_repr() -> None:
    abi = FunctionAbi(Signature.of({"x": ["int8", "int8"]}, "int8[n]"))
    assert (abi.raw_input_arity, abi.raw_result_arity) == (2, 1)
    assert repr(abi) == "<farcall.abi.FunctionAbi (x: [int8, int8]) -> int8[n]>"
    assert abi.invoke(lambda a, b: np.array([a, b], "i1"), [1, 2]).tolist() == [1, 2]


def test_results_without_names_have_their_paths() -> None:
    abi = FunctionAbi(Signature.from_iree('{"a":[],"r":[["sdict",["y","i32"],["z",["slist","i64","i8"]]]]}'))
    assert abi.unpack_results(values=[1, [2, 3]]) == {"y": 1, "z": [2, 3]}
    with pytest.raises(ResultError) as caught:
        abi.unpack_results(["x", [1, 2.5]])
    assert list(caught.value.problems) == [
        "result [\"y\"]: expected int32, got str 'x'",
        'result ["z"][1]: expected int8, got float 2.5',
    ]
    for wrong in ({"value": [1]}, {"values": [1], "more": 2}, {}):
        with pytest.raises(TypeError, match="takes one argument, `values`"):
            abi.unpack_results(**wrong)


def test_a_number_of_numpy_is_shown() -> None:
    with pytest.raises(ArgumentError, match=r"expected int32, got float32 2\.5;"):
        abi_of(ScalarSpec("k", "int32")).pack_inputs(np.float32(2.5))


def test_parameters_may_have_any_name() -> None:
    abi = FunctionAbi(Signature.of({"self": "int8", "function": "int8", "values": "int8"}, "int8"))
    assert abi.pack_inputs(self=1, function=2, values=3) == [1, 2, 3]
    assert abi.invoke(lambda *raw: sum(raw), self=1, function=2, values=3) == 6
