"""Tensors of frameworks: in as views or as Tensor objects, out in the framework of the arguments."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from farcall import ffi

torch = pytest.importorskip("torch")
PLAIN_DTYPES = [
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
]


@pytest.fixture(scope="module")
def jnp() -> Any:
    return pytest.importorskip("jax.numpy")


@pytest.fixture(params=["view", "owner"])
def copy(request: pytest.FixtureRequest, kernels: ffi.Module) -> Iterator[ffi.Function]:
    """A kernel that copies a tensor, under both ways of passing one."""
    function = kernels["copy"]
    function.views = request.param == "view"
    yield function
    function.views = False


def strided(make: Callable[[Any], Any]) -> Any:
    return make(np.arange(24, dtype="f4").reshape(4, 6))[::2, 1::2]


class TestLending:
    """A Tensor object made for an argument, and its lifetime when the kernel keeps it."""

    @pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
    def test_kept_tensor_keeps_the_argument(self, kernels: ffi.Module, make: Callable[[Any], Any]) -> None:
        x = make(np.arange(6, dtype="f4").reshape(2, 3))
        alive, before = weakref.ref(x), sys.getrefcount(x)
        kernels["keep"](x)
        assert sys.getrefcount(x) == before + 1
        del x
        gc.collect()
        assert alive() is not None
        y = kernels["give_back"]()
        assert type(y) is ffi.Tensor
        assert (y.shape, y.strides) == ((2, 3), (3, 1))
        assert y.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        del y
        gc.collect()
        assert alive() is None

    def test_kept_tensor_does_not_change_with_the_arguments_of_later_calls(self, kernels: ffi.Module) -> None:
        kernels["keep"](np.arange(3.0))
        for i in range(100):
            kernels["tag"](np.zeros((i, 2)))
        assert kernels["give_back"]().numpy().tolist() == [0, 1, 2]

    def test_kept_by_a_callback(self, kernels: ffi.Module) -> None:
        kept: list[ffi.Tensor] = []
        kernels["call"](kept.append, torch.arange(3.0))
        gc.collect()
        assert kept[0].numpy().tolist() == [0, 1, 2]

    def test_kept_jax_array(self, kernels: ffi.Module, jnp: Any) -> None:
        kernels["keep"](jnp.arange(5.0))
        gc.collect()
        assert kernels["give_back"]().numpy().tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("make", [np.ones, torch.ones], ids=["numpy", "torch"])
    def test_argument_that_comes_back_is_itself(
        self, kernels: ffi.Module, make: Callable[[Any], Any]
    ) -> None:
        x = make(3)
        assert kernels["echo"](x) is x
        mixed = kernels["call"](kernels["echo"], x, ffi.empty(1))
        assert type(mixed) is ffi.Tensor

    def test_outer_calls_tensor_as_an_inner_result(self, kernels: ffi.Module) -> None:
        """The inner call has numpy arguments, so it returns numpy arrays, also of the outer call's tensor."""
        seen: list[type] = []

        def inner(x: ffi.Tensor) -> None:
            kernels["keep"](x)
            seen.append(type(kernels["give_back"](np.ones(1))))

        kernels["call"](inner, torch.ones(3))
        assert seen == [np.ndarray]

    def test_more_dims_than_the_pool_has_room_for(self, copy: ffi.Function) -> None:
        for x in (np.ones((1,) * 12, "f4"), torch.ones((1,) * 12)):
            assert copy(x).shape == (1,) * 12

    def test_more_tensors_than_the_pool_holds(self, kernels: ffi.Module) -> None:
        arrays = [np.ones(i) for i in range(200)]
        assert kernels["count"](*arrays) == 200
        assert kernels["count"](*map(torch.from_numpy, arrays)) == 200

    def test_in_a_call_inside_a_call(self, kernels: ffi.Module) -> None:
        def outer(x: ffi.Tensor) -> Any:
            return kernels["copy"](np.full(2, 7.0))

        assert kernels["call"](outer, torch.ones(3)).tolist() == [7, 7]


class TestTorch:
    def test_layouts(self, copy: ffi.Function) -> None:
        for x in (strided(torch.from_numpy), torch.ones(()), torch.ones(0, 3), torch.ones(2, 3).t()):
            y = copy(x)
            assert type(y) is torch.Tensor
            assert torch.equal(x, y)

    @pytest.mark.parametrize(
        "dtype",
        PLAIN_DTYPES,
        ids=str,
    )
    def test_every_dtype_has_a_counterpart(self, kernels: ffi.Module, dtype: Any) -> None:
        ours = ffi.dtype(dtype)
        assert kernels["echo"](dtype) == ours
        name = str(dtype).removeprefix("torch.")
        assert str(ours) == {"float4_e2m1fn_x2": "float4_e2m1fnx2"}.get(name, name)

    @pytest.mark.parametrize("dtype", ["quint8", "quint4x2", "bits8"])
    def test_quantized_dtypes_are_refused(self, dtype: str) -> None:
        with pytest.raises(ValueError, match=f"unknown dtype `torch.{dtype}`"):
            ffi.dtype(getattr(torch, dtype))

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "bool", "uint16", "float8_e4m3fn"])
    def test_dtypes_travel(self, copy: ffi.Function, dtype: str) -> None:
        x = torch.zeros(3, dtype=getattr(torch, dtype))
        assert copy(x).dtype == x.dtype

    def test_subclasses_and_parameters(self, copy: ffi.Function) -> None:
        class Mine(torch.Tensor):  # type: ignore[misc]
            pass

        assert type(copy(torch.ones(2).as_subclass(Mine))) is torch.Tensor
        y = copy(torch.nn.Parameter(torch.ones(2)))
        assert type(y) is torch.Tensor
        assert not y.requires_grad

    def test_requires_grad_is_not_recorded(self, copy: ffi.Function) -> None:
        x = torch.ones(2, requires_grad=True)
        assert copy(x * 2).grad_fn is None

    @pytest.mark.parametrize(
        "make", [lambda: torch.ones(2).to_sparse(), lambda: torch.empty(2, device="meta")]
    )
    def test_tensors_without_memory_are_refused(self, copy: ffi.Function, make: Callable[[], Any]) -> None:
        with pytest.raises(
            BufferError, match=r"argument 1 of `copy`: the framework does not give .* out: Cannot"
        ) as error:
            copy(make())
        assert "\n" not in str(error.value)

    def test_lazy_bits_are_refused_with_the_cure(self, copy: ffi.Function) -> None:
        x = torch.tensor([1 + 2j, 3j]).conj()
        for bad, cure in (
            (x, "resolve_conj"),
            (x.imag, "resolve_neg"),
            (x.imag[0], "resolve_neg"),
            (x.imag[:, None], "resolve_neg"),
        ):
            with pytest.raises(BufferError, match=rf"argument 1 of `copy`: .* pass x.{cure}\(\)"):
                copy(bad)
            with pytest.raises(BufferError, match=cure):
                ffi.from_dlpack(bad)
            good = getattr(bad, cure)()
            assert torch.equal(copy(good), good)

    def test_sizes_and_devices(self, kernels: ffi.Module) -> None:
        assert kernels["echo"](torch.Size((2, 3))) == (2, 3)
        assert kernels["echo"](torch.device("cuda:1")) == "cuda:1"


class TestJax:
    def test_in_and_out(self, copy: ffi.Function, jnp: Any) -> None:
        import jax

        for x in (jnp.arange(6.0).reshape(2, 3), jnp.ones(()), jnp.ones((0, 2)), jnp.arange(4) > 1):
            y = copy(x)
            assert isinstance(y, jax.Array)
            assert y.dtype == x.dtype
            assert (np.asarray(y) == np.asarray(x)).all()

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "uint8", "int16", "float8_e4m3fn"])
    def test_dtypes(self, copy: ffi.Function, jnp: Any, dtype: str) -> None:
        y = copy(jnp.zeros(3, dtype))
        assert y.dtype == dtype

    def test_deleted_array_is_an_error(self, copy: ffi.Function, jnp: Any) -> None:
        x = jnp.ones(3)
        x.delete()
        with pytest.raises(Exception, match="delete"):
            copy(x)

    def test_argument_that_comes_back_is_itself(self, kernels: ffi.Module, jnp: Any) -> None:
        x = jnp.ones(3)
        assert kernels["echo"](x) is x

    def test_read_only_result(self, kernels: ffi.Module, jnp: Any) -> None:
        """A tensor kept from an earlier call, which is not an argument of this one."""
        kernels["keep"](jnp.arange(3.0))
        assert kernels["give_back"](jnp.ones(1)).tolist() == [0, 1, 2]

    def test_shares_memory(self, kernels: ffi.Module, jnp: Any) -> None:
        x = jnp.ones(100)
        assert kernels["address"](x) == x.unsafe_buffer_pointer()


class TestResultRule:
    def test_one_framework(self, kernels: ffi.Module, jnp: Any) -> None:
        import jax

        echo = kernels["call"]
        for x, kind in ((np.ones(2), np.ndarray), (torch.ones(2), torch.Tensor), (jnp.ones(2), jax.Array)):
            back = echo(kernels["echo"], {"a": [x, (x, 1)], "b": {"c": x}})
            assert isinstance(back["a"][0], kind)
            assert isinstance(back["a"][1][0], kind)
            assert isinstance(back["b"]["c"], kind)
            assert isinstance(kernels["copy"](x, [1, {"d": x}]), kind)

    def test_none_or_several(self, kernels: ffi.Module, jnp: Any) -> None:
        several = (np.ones(1), torch.ones(1), jnp.ones(1), ffi.empty(1))
        for i, x in enumerate(several):
            for y in several[:i]:
                assert type(kernels["copy"](x, y)) is ffi.Tensor
                assert type(kernels["copy"](x, {"y": [y]})) is ffi.Tensor


class TestSmallElements:
    @pytest.mark.parametrize(
        "name", ["int4", "uint4", "int2", "uint2", "int1", "uint1", "float4_e2m1fn", "float6_e2m3fn"]
    )
    @pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5)])
    def test_there_and_back(self, kernels: ffi.Module, name: str, shape: tuple[int, ...]) -> None:
        dtype = np.dtype(getattr(ml_dtypes, name))
        bits = ffi.dtype(name).bits
        raw = np.random.default_rng(0).integers(0, 2**bits, shape, dtype=np.uint8)
        x = raw.astype(np.int64).astype(dtype) if "int" in name else raw.view(dtype)
        y = kernels["echo"](x)
        assert y.dtype == dtype
        assert y.shape == shape
        np.testing.assert_array_equal(y.astype("f4"), x.astype("f4"))

    def test_packing_is_dlpacks(self) -> None:
        x = ffi.from_dlpack(np.array([1, 2, 3], ml_dtypes.uint4))
        assert (str(x.dtype), x.shape) == ("uint4", (3,))
        import ctypes

        assert ctypes.string_at(x.data_ptr(), 2) == b"\x21\x03"

    @pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
    def test_whole_bytes_are_shared(self, kernels: ffi.Module, name: str) -> None:
        x = np.ones(3, getattr(ml_dtypes, name))
        assert kernels["address"](x) == x.ctypes.data
        assert kernels["copy"](x).dtype == x.dtype


class TestComplex:
    @pytest.mark.parametrize("value", [1 + 2j, np.complex64(3j), np.complex128(4 - 1j)], ids=repr)
    def test_is_a_tensor_without_dims(self, kernels: ffi.Module, value: Any) -> None:
        y = kernels["echo"](value)
        assert y.shape == ()
        assert y.dtype == ("complex64" if isinstance(value, np.complex64) else "complex128")
        assert y.numpy() == value
