"""Arguments whose memory is shared, those that are copied, and those that are written in place."""

from __future__ import annotations

import array as arrays
import ctypes
import gc
import sys
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import farcall.ffi as ffi
from farcall.abi import Arg, FunctionAbi, Signature, TensorSpec
from farcall.errors import ArgumentError, ResultError

from .specs import abi_of, tensor


def misaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(array.tobytes(), np.uint8)
    return raw.view(array.dtype).reshape(array.shape)


class TestMemory:
    def test_arrays_are_shared_and_kept_alive(self) -> None:
        class Array(np.ndarray):  # a subclass can be referred to weakly
            pass

        x = np.arange(4, dtype="f4").view(Array)
        alive = weakref.ref(x)
        abi = abi_of(tensor())
        packed = abi.pack_inputs(x)
        assert packed[0].data_ptr() == x.ctypes.data
        del x
        gc.collect()
        assert alive() is not None
        np.testing.assert_array_equal(packed[0].numpy(), [0, 1, 2, 3])
        del packed
        gc.collect()
        assert alive() is None
        assert abi.copies == 0

    @pytest.mark.parametrize("strided", [False, True])
    def test_strides_are_passed_where_the_function_takes_them(self, strided: bool) -> None:
        x = np.arange(12, dtype="f4").reshape(3, 4)
        abi = abi_of(tensor(shape=("n", "m"), strided=strided))
        for view in (x.T, x[:, ::2], x[::-1], np.broadcast_to(x[0], (3, 4))):
            (packed,) = abi.pack_inputs(view)
            np.testing.assert_array_equal(packed.numpy(), view)
            assert packed.is_contiguous() is not strided
            assert (packed.data_ptr() == view.ctypes.data) is strided
        assert abi.copies == (0 if strided else 4)

    def test_misaligned_memory_is_copied(self) -> None:
        x = misaligned(np.arange(4, dtype="f4"))
        abi = abi_of(tensor())
        (packed,) = abi.pack_inputs(x)
        assert packed.data_ptr() % 4 == 0
        np.testing.assert_array_equal(packed.numpy(), x)
        assert abi.copies == 1

    @pytest.mark.parametrize("alignment", [64, 4096])
    def test_a_wanted_alignment_is_given(self, alignment: int) -> None:
        abi = abi_of(tensor(alignment=alignment))
        x = np.zeros(alignment, "f4")[1:]
        (packed,) = abi.pack_inputs(x)
        assert packed.data_ptr() % alignment == 0
        assert abi.copies == 1
        assert abi.pack_inputs(packed)[0] is packed
        assert abi.copies == 1

    def test_byte_order_of_other_machines(self) -> None:
        abi = abi_of(tensor("int32"))
        (packed,) = abi.pack_inputs(np.array([1, 2, 3], ">i4"))
        np.testing.assert_array_equal(packed.numpy(), [1, 2, 3])
        assert abi.copies == 1

    def test_int4_is_packed(self) -> None:
        abi = abi_of(tensor("int4"))
        x = np.array([1, -2, 3], ml_dtypes.int4)
        (packed,) = abi.pack_inputs(x)
        assert str(packed.dtype) == "int4"
        np.testing.assert_array_equal(packed.numpy(), x)
        assert abi.copies == 1
        assert abi.pack_inputs(packed)[0] is packed
        assert abi.copies == 1

    def test_tensors_of_frameworks_are_shared(self) -> None:
        torch = pytest.importorskip("torch")
        abi = abi_of(tensor(shape=("n", 2)))
        x = torch.arange(6, dtype=torch.float32).reshape(3, 2)
        assert abi.pack_inputs(x)[0].data_ptr() == x.data_ptr()
        assert abi.pack_inputs(x.requires_grad_())[0].data_ptr() == x.data_ptr()
        np.testing.assert_array_equal(
            abi.pack_inputs(x.detach().reshape(2, 3).T)[0].numpy(), [[0, 3], [1, 4], [2, 5]]
        )
        assert abi.copies == 1

    def test_jax_arrays(self) -> None:
        jnp = pytest.importorskip("jax.numpy")
        abi = abi_of(tensor())
        np.testing.assert_array_equal(abi.pack_inputs(jnp.ones(3, "float32"))[0].numpy(), [1, 1, 1])
        with pytest.raises(ArgumentError, match="a read-only float32"):
            abi_of(tensor(access="out")).pack_inputs(jnp.ones(3, "float32"))


class TestInPlace:
    SPEC = tensor(access="inout")

    def test_what_is_written_is_the_callers(self) -> None:
        x = np.zeros(3, "f4")
        (packed,) = abi_of(self.SPEC).pack_inputs(x)
        packed.numpy()[:] = 7
        np.testing.assert_array_equal(x, [7, 7, 7])

    @pytest.mark.parametrize(
        ("make", "got"),
        [
            (lambda: np.broadcast_to(np.float32(1), 3), "a read-only float32"),
            (lambda: np.zeros(6, "f4")[::2], "not row-major"),
            (lambda: misaligned(np.zeros(3, "f4")), "not aligned to 4 bytes"),
            (lambda: np.zeros(3, "f2"), "of another dtype"),
            (lambda: np.zeros(3, ">f4"), "of another byte order"),
            (lambda: [1.0, 2.0], "pass an array"),
        ],
    )
    def test_what_would_need_a_copy_is_refused(self, make: Any, got: str) -> None:
        with pytest.raises(ArgumentError, match=got):
            abi_of(self.SPEC).pack_inputs(make())

    def test_a_strided_one_where_strides_are_taken(self) -> None:
        x = np.zeros(6, "f4")
        (packed,) = abi_of(tensor(access="out", strided=True)).pack_inputs(x[::2])
        packed.numpy()[:] = 1
        np.testing.assert_array_equal(x, [1, 0, 1, 0, 1, 0])


class TestBuffers:
    """Objects with Python's buffer protocol are arrays."""

    @pytest.mark.parametrize(
        "make", [lambda x: x.data, lambda x: arrays.array("f", x), lambda x: (ctypes.c_float * 3)(*x)]
    )
    def test_they_are_shared(self, make: Any) -> None:
        lent = make(np.arange(3, dtype="float32"))
        abi = abi_of(TensorSpec("x", "float32", ("n",), access="inout"))
        packed = abi.pack_inputs(lent)[0]
        packed.numpy()[1] = 7
        assert (list(lent), abi.copies) == ([0, 7, 2], 0)

    def test_bytes_are_read_only(self) -> None:
        assert abi_of(tensor("uint8")).pack_inputs(b"ab")[0].numpy().tolist() == [97, 98]
        with pytest.raises(ArgumentError, match=r"got a read-only uint8\[2\]"):
            abi_of(TensorSpec("x", "uint8", ("n",), access="out")).pack_inputs(b"ab")

    def test_others_that_become_arrays(self) -> None:
        class Frame:
            def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
                return np.ones(2, "float32")

        assert abi_of(tensor("float32")).pack_inputs(Frame())[0].shape == (2,)
        with pytest.raises(ArgumentError, match="it is written in place; pass an array"):
            abi_of(TensorSpec("x", "float32", ("n",), access="out")).pack_inputs(Frame())

    @pytest.mark.parametrize("value", ["ab", {"a": 1}, {1, 2}, range(3), object(), (ctypes.c_char_p * 2)()])
    def test_others_are_refused(self, value: Any) -> None:
        with pytest.raises(ArgumentError, match="argument x: expected uint8"):
            abi_of(tensor("uint8")).pack_inputs(value)


def test_calls_right_and_wrong_leave_nothing_behind() -> None:
    signature = Signature.of(
        {"x": ["float32[n]", ...], "y": {"a": "float32[2*n]"}, "k": Arg("int32", default=3)},
        {"z": "float32[n]"},
    )
    x, y, strided = np.ones(3, "float32"), np.ones(6, "float32"), np.ones(6, "float32")[::2]
    function = ffi.Function(lambda x, y, k: x[0])
    function.signature = signature
    abi = FunctionAbi(signature)

    def calls() -> None:
        for arguments in ([x, x], {"a": y}), ([x, strided], {"a": y}, 4), ([], {"a": y}):
            abi.pack_inputs(*arguments)
        assert function([x, strided], y={"a": y})["z"].shape == (3,)
        for wrong in (
            ([x, y], {"a": y}),
            ([x], {"a": x}),
            ([x, "x"], {"b": 1}, 1 << 40),
            (),
            ([x], {"a": y}, 1, 2),
        ):
            with pytest.raises(ArgumentError):
                abi.pack_inputs(*wrong)
            with pytest.raises(ArgumentError):
                function(*wrong)
        for values in ([1], [], [x, x]):
            with pytest.raises(ResultError):
                abi.unpack_results(values)

    watched = (x, y, strided, abi, function, signature)
    calls()
    gc.collect()
    before = [sys.getrefcount(one) for one in watched]
    for _ in range(30):
        calls()
    gc.collect()
    assert [sys.getrefcount(one) for one in watched] == before


def test_why_a_tensor_is_not_shared_is_said_in_one_line() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError) as caught:
        abi_of(tensor("float32")).pack_inputs(torch.ones(4, device="meta"))
    (problem,) = caught.value.problems
    assert problem.startswith("argument x: expected float32[n], got a `Tensor` that cannot be shared (")
    assert "\n" not in problem
