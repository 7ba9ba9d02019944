"""Tensors as arguments and results: of numpy, torch, farcall, and any class with __dlpack__."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from farcall import ffi

BORROWED, OWNED = 7, 70
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


def array(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


class Foreign:
    """A tensor of an unknown framework: it has only __dlpack__."""

    def __init__(self, data: np.ndarray[Any, Any], legacy: bool) -> None:
        self.data, self.legacy = data, legacy

    def __dlpack__(self, **kwargs: Any) -> Any:
        if self.legacy and kwargs:
            raise TypeError("old")
        return self.data.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class TestNumpy:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_dtype_comes_back(self, kernels: ffi.Module, dtype: str) -> None:
        x = array(3, 4, dtype=dtype)
        y = kernels["copy"](x)
        assert type(y) is np.ndarray
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x)

    def test_ml_dtypes_come_back(self, kernels: ffi.Module) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 for numpy")
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
            x = array(3, 4).astype(dtype)
            y = kernels["copy"](x)
            assert y.dtype == x.dtype
            np.testing.assert_array_equal(y, x)

    def test_dtypes_without_counterpart_are_refused(self, kernels: ffi.Module) -> None:
        for bad in (
            np.zeros(2, "M8[s]"),
            np.array(["a"]),
            np.zeros(2, ">f4"),
            np.array([None]),
            np.zeros(2, "g"),
        ):
            with pytest.raises(TypeError, match=r"argument 2 of `count`: numpy dtype .* has no counterpart"):
                kernels["count"](0, bad)

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1), (2, 3, 4, 5), (1,) * 12])
    def test_every_shape_comes_back(self, kernels: ffi.Module, shape: tuple[int, ...]) -> None:
        x = array(*shape)
        y = kernels["copy"](x)
        assert y.shape == shape
        np.testing.assert_array_equal(y, x)
        assert kernels["ndim"](x) == len(shape)

    @pytest.mark.parametrize(
        "view",
        [np.s_[::2, ::3], np.s_[::-1, ::-1], np.s_[1:, 1:], np.s_[:, 0], np.s_[..., None]],
        ids=str,
    )
    def test_strides_reach_the_kernel(self, kernels: ffi.Module, view: Any) -> None:
        x = array(6, 9)[view]
        np.testing.assert_array_equal(kernels["copy"](x), x)
        assert kernels["stride"](x, 0) == x.strides[0] // 4

    def test_transposed_and_broadcast(self, kernels: ffi.Module) -> None:
        for x in (array(3, 5).T, np.broadcast_to(array(5), (3, 5)), np.asfortranarray(array(2, 3, 4))):
            np.testing.assert_array_equal(kernels["copy"](x), x)

    def test_no_copy(self, kernels: ffi.Module) -> None:
        x = array(4)
        assert kernels["address"](x) == x.ctypes.data
        kernels["set_first"](x)
        assert x[0] == 42

    def test_read_only_is_readable(self, kernels: ffi.Module) -> None:
        x = array(4)
        x.flags.writeable = False
        np.testing.assert_array_equal(kernels["copy"](x), x)
        assert not ffi.from_dlpack(x).numpy().flags.writeable

    def test_field_of_a_record_is_refused_with_the_cure(self, kernels: ffi.Module) -> None:
        x = np.zeros(3, dtype=[("a", "i1"), ("b", "f4")])["b"]
        with pytest.raises(ValueError, match=r"stride of 5 bytes .*ascontiguousarray"):
            kernels["copy"](x)

    def test_subclasses(self, kernels: ffi.Module) -> None:
        class Mine(np.ndarray[Any, Any]):
            pass

        x = array(3).view(Mine)
        assert type(kernels["copy"](x)) is np.ndarray

    def test_result_is_aligned_writable_and_outlives_all(self, kernels: ffi.Module) -> None:
        y = kernels["copy"](array(5, 3))
        gc.collect()
        assert y.ctypes.data % 64 == 0
        assert y.flags.writeable
        assert y.flags.aligned
        y[:] = 7
        assert isinstance(y.base, ffi.Tensor)

    def test_several_results(self, kernels: ffi.Module) -> None:
        results = kernels["twice"](array(3))
        assert type(results) is tuple
        assert [type(x) for x in results] == [np.ndarray] * 2
        assert results[0].ctypes.data != results[1].ctypes.data

    def test_arrays_in_lists_decide_the_framework_too(self, kernels: ffi.Module) -> None:
        back = kernels["echo"]([array(2), [array(3)]])
        assert type(back[0]) is np.ndarray
        assert type(back[1][0]) is np.ndarray

    def test_impossible_sizes(self, kernels: ffi.Module) -> None:
        with pytest.raises(ValueError, match="dimension 0 is -1"):
            kernels["alloc"](array(2), -1)
        with pytest.raises(MemoryError):
            kernels["alloc"](array(2, 8), 2**61)
        with pytest.raises(MemoryError):
            kernels["alloc"](array(2), 2**60)
        with pytest.raises(
            MemoryError, match=r"no memory for a tensor of \d{15,} bytes; ask for a smaller one"
        ):
            kernels["alloc"](array(2), 2**50)


class TestOwnTensor:
    def test_attributes(self) -> None:
        x = ffi.empty((2, 3), "int16")
        assert (x.shape, x.strides, x.ndim, x.numel()) == ((2, 3), (3, 1), 2, 6)
        assert (x.size(0), x.size(-1)) == (2, 3)
        for axis in (2, -3):
            with pytest.raises(IndexError, match=f"dimension {axis} is out of range: there are 2"):
                x.size(axis)
        assert (x.dtype, x.device) == ("int16", "cpu")
        assert x.is_contiguous()
        assert x.data_ptr() % 64 == 0
        assert repr(x) == "<farcall.Tensor int16[2, 3] on cpu:0>"

    def test_result_without_tensor_arguments_or_mixed_is_ours(self, kernels: ffi.Module) -> None:
        x = ffi.empty(3)
        assert type(kernels["echo"](x)) is ffi.Tensor
        assert type(kernels["copy"](x, array(1))) is ffi.Tensor
        assert kernels["tag"](x) == OWNED

    def test_numpy_shares_memory(self) -> None:
        x = ffi.empty((2, 2))
        x.numpy()[:] = 3
        assert (x.numpy() == 3).all()
        assert x.numpy().ctypes.data == x.data_ptr()
        np.testing.assert_array_equal(np.asarray(x), np.full((2, 2), 3, "f4"))
        assert np.asarray(x, dtype="f8").dtype == np.float64

    def test_from_dlpack_shares_memory_and_keeps_the_source(self) -> None:
        x = array(4, 6)[::2, ::-1]
        alive = weakref.ref(x)
        y = ffi.from_dlpack(x)
        assert (y.shape, y.strides, y.data_ptr()) == ((2, 6), (12, -1), x.ctypes.data)
        assert not y.is_contiguous()
        del x
        assert alive() is not None
        np.testing.assert_array_equal(y.numpy(), array(4, 6)[::2, ::-1])
        del y
        assert alive() is None

    def test_through_numpys_from_dlpack(self) -> None:
        x = ffi.from_dlpack(array(3, 2).T)
        np.testing.assert_array_equal(np.from_dlpack(x), array(3, 2).T)
        assert np.from_dlpack(x, copy=True).ctypes.data != x.data_ptr()

    def test_capsules_old_and_new(self) -> None:
        x = ffi.from_dlpack(array(5))
        for version in (None, (1, 0), (1, 99)):
            capsule = x.__dlpack__(max_version=version)
            assert ("versioned" in repr(capsule)) == (version is not None)
            y = ffi.from_dlpack(capsule)
            assert y.data_ptr() == x.data_ptr()
            with pytest.raises(ValueError, match="consumed already"):
                ffi.from_dlpack(capsule)

    def test_unused_capsule_frees(self) -> None:
        source = array(5)
        alive = weakref.ref(source)
        x = ffi.from_dlpack(source)
        capsules = [x.__dlpack__(), x.__dlpack__(max_version=(1, 0))]
        del source, x
        assert alive() is not None
        capsules.clear()
        assert alive() is None

    def test_read_only_needs_the_new_capsule(self) -> None:
        source = array(3)
        source.flags.writeable = False
        x = ffi.from_dlpack(source)
        with pytest.raises(BufferError, match="read-only"):
            x.__dlpack__()
        assert not np.from_dlpack(x).flags.writeable

    def test_other_device_is_refused(self) -> None:
        with pytest.raises(BufferError, match="is on device"):
            ffi.empty(3).__dlpack__(dl_device=(2, 0))
        with pytest.raises(RuntimeError, match="no allocator for device cuda:0"):
            ffi.empty(3, device="cuda")

    @pytest.mark.parametrize("bad", [(-1,), "ab", (1.5,), None, (1,) * 65])
    def test_bad_shapes(self, bad: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            ffi.empty(bad)

    def test_is_made_by_functions_only(self) -> None:
        with pytest.raises(TypeError):
            ffi.Tensor()
        with pytest.raises(TypeError, match="expected a tensor or a DLPack capsule, got `list`"):
            ffi.from_dlpack([1])

    def test_outlives_what_made_it(self, kernels: ffi.Module) -> None:
        x = array(4)
        kernels["keep"](ffi.from_dlpack(x))
        del x
        gc.collect()
        y = kernels["give_back"]()
        np.testing.assert_array_equal(y.numpy(), array(4))

    def test_hook_must_be_callable(self) -> None:
        from farcall._core import set_remote_tensor_hook

        with pytest.raises(TypeError, match="expected a callable or None"):
            set_remote_tensor_hook(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("legacy", [False, True])
class TestAnyFramework:
    def test_as_argument(self, kernels: ffi.Module, legacy: bool) -> None:
        x = array(2, 3)
        y = kernels["copy"](Foreign(x, legacy))
        assert type(y) is ffi.Tensor
        np.testing.assert_array_equal(y.numpy(), x)
        assert kernels["address"](Foreign(x, legacy)) == x.ctypes.data
        assert kernels["has_strides"](Foreign(x, legacy)) == 1

    def test_is_released_after_the_call(self, kernels: ffi.Module, legacy: bool) -> None:
        x = array(2, 3)
        alive = weakref.ref(x)
        kernels["copy"](Foreign(x, legacy))
        del x
        assert alive() is None

    def test_from_dlpack(self, kernels: ffi.Module, legacy: bool) -> None:
        x = array(2, 3)
        assert ffi.from_dlpack(Foreign(x, legacy)).data_ptr() == x.ctypes.data

    def test_what_it_raises_is_raised(self, kernels: ffi.Module, legacy: bool) -> None:
        class Broken(Foreign):
            def __dlpack__(self, **kwargs: Any) -> Any:
                raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match=r"^mine\b"):
            kernels["copy"](Broken(array(1), legacy))

    def test_what_is_no_capsule(self, kernels: ffi.Module, legacy: bool) -> None:
        class Broken(Foreign):
            def __dlpack__(self, **kwargs: Any) -> Any:
                return 3

        with pytest.raises(TypeError, match="argument 1 of `copy`: expected a DLPack capsule, got 3"):
            kernels["copy"](Broken(array(1), legacy))


class TestCopies:
    @pytest.mark.parametrize(
        "x", [array(3, 4), array(3, 4).T, array(4, 6)[::2, ::-1], array(0, 3), array()], ids=str
    )
    def test_on_the_cpu(self, x: Any) -> None:
        source = ffi.from_dlpack(x)
        assert source.to("cpu") is source
        copied = source.to("cpu", copy=True)
        assert copied.is_contiguous()
        assert copied.data_ptr() != source.data_ptr()
        np.testing.assert_array_equal(copied.numpy(), x)

    def test_another_device(self) -> None:
        with pytest.raises(BufferError, match="cannot copy from cpu:0 to cuda:0: it copies between the CPU"):
            ffi.empty(3).to("cuda")
        with pytest.raises(ValueError, match="unknown device"):
            ffi.empty(3).to("toaster")


class TestFromDlpackRequirements:
    def test_alignment(self) -> None:
        x = ffi.empty(64, "uint8").numpy()
        assert ffi.from_dlpack(x, require_alignment=64).numel() == 64
        with pytest.raises(BufferError, match="not aligned to 64 bytes"):
            ffi.from_dlpack(x[1:], require_alignment=64)

    def test_contiguity(self) -> None:
        assert ffi.from_dlpack(array(2, 3), require_contiguous=True).shape == (2, 3)
        with pytest.raises(BufferError, match="not row-major"):
            ffi.from_dlpack(array(2, 3).T, require_contiguous=True)

    def test_read_only_survives(self) -> None:
        x = array(3)
        x.flags.writeable = False
        y = ffi.from_dlpack(x)
        assert not y.numpy().flags.writeable
        with pytest.raises(BufferError, match="read-only"):
            y.__dlpack__()
        assert not np.from_dlpack(y).flags.writeable


class TestBuffer:
    """memoryview(tensor) shares the memory, without numpy."""

    @pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float32", "float64", "bool"])
    def test_elements(self, dtype: str) -> None:
        array = (np.arange(6).reshape(2, 3) % 2).astype(dtype)
        view = memoryview(ffi.from_dlpack(array))
        assert (view.tolist(), view.shape, view.nbytes) == (array.tolist(), (2, 3), array.nbytes)
        assert view.format == memoryview(array).format.replace("l", "q").replace("L", "Q")

    def test_the_memory_is_shared_and_outlives_the_tensor(self) -> None:
        array = np.zeros((2, 2), "float32")
        view = memoryview(ffi.from_dlpack(array))
        view[1, 0] = 5
        assert array[1, 0] == 5
        assert bytes(ffi.from_dlpack(array)) == array.tobytes()

    def test_strides(self) -> None:
        array = np.arange(24.0).reshape(4, 6)[::2, 1::2]
        tensor = ffi.from_dlpack(array)
        assert memoryview(tensor).tolist() == array.tolist()
        with pytest.raises((BufferError, ValueError), match=r"contiguous|row-major"):
            np.frombuffer(tensor)

    def test_scalars_and_empty_tensors(self) -> None:
        assert memoryview(ffi.from_dlpack(np.array(3.0))).tolist() == 3.0
        assert memoryview(ffi.empty((0, 3))).tolist() == []

    def test_what_has_no_buffer(self) -> None:
        frozen = np.zeros(2)
        frozen.flags.writeable = False
        assert memoryview(ffi.from_dlpack(frozen)).readonly
        with pytest.raises(BufferError, match=r"no elements of bfloat16; take tensor.numpy\(\)"):
            memoryview(ffi.empty((2,), "bfloat16"))
