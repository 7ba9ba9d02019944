"""torch tensors, and the real apache-tvm-ffi in the same process, in either order."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from farcall import ffi

from ..programs import output_of

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="torch gives its tensors through the C exchange API")

TORCH_DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]


class TestTorch:
    @pytest.mark.parametrize("name", [*TORCH_DTYPES, "complex64"])
    def test_every_dtype_comes_back(self, kernels: ffi.Module, name: str) -> None:
        x = torch.arange(12).reshape(3, 4).to(getattr(torch, name))
        y = kernels["copy"](x)
        assert type(y) is torch.Tensor
        assert y.dtype == x.dtype
        assert torch.equal(y, x)
        assert kernels["echo"](x.dtype) == name

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3, 4), (1,) * 12])
    def test_every_shape_comes_back(self, kernels: ffi.Module, shape: tuple[int, ...]) -> None:
        x = torch.rand(shape)
        assert torch.equal(kernels["copy"](x), x)

    def test_strides_reach_the_kernel(self, kernels: ffi.Module) -> None:
        x = torch.rand(6, 8)[::2, 1::3].T
        assert torch.equal(kernels["copy"](x), x)
        assert [kernels["stride"](x, i) for i in range(2)] == list(x.stride())
        assert kernels["address"](x) == x.data_ptr()

    def test_parameter_and_subclass(self, kernels: ffi.Module) -> None:
        x = torch.nn.Parameter(torch.rand(3))
        assert torch.equal(kernels["copy"](x), x.detach())

    def test_result_is_torchs_own(self, kernels: ffi.Module) -> None:
        x = torch.ones(1000)
        y = kernels["copy"](x)
        del x
        assert y.add_(1).eq(2).all()
        assert y.is_contiguous()

    def test_several_results(self, kernels: ffi.Module) -> None:
        assert [type(y) for y in kernels["twice"](torch.rand(3))] == [torch.Tensor] * 2

    def test_mixture_gives_ours(self, kernels: ffi.Module) -> None:
        assert type(kernels["copy"](torch.rand(3), np.ones(3))) is ffi.Tensor
        assert type(kernels["copy"](np.ones(3), torch.rand(3))) is ffi.Tensor

    def test_device(self, kernels: ffi.Module) -> None:
        assert kernels["echo"](torch.device("cuda:1")) == "cuda:1"
        with pytest.raises(ValueError, match="unknown device `meta`"):
            kernels["echo"](torch.device("meta"))

    def test_sparse_is_refused(self, kernels: ffi.Module) -> None:
        with pytest.raises((RuntimeError, BufferError)):
            kernels["count"](torch.rand(2, 2).to_sparse())

    def test_both_ways_through_dlpack(self) -> None:
        x = torch.rand(3, 4).T
        y = ffi.from_dlpack(x)
        assert (y.shape, y.strides, y.data_ptr()) == ((4, 3), (1, 4), x.data_ptr())
        assert torch.equal(torch.from_dlpack(y), x)
        assert torch.from_dlpack(y).data_ptr() == x.data_ptr()

    def test_callback_returns_torch(self, kernels: ffi.Module) -> None:
        x = torch.rand(3)
        assert kernels["call"](lambda _: x, torch.zeros(1)).data_ptr() == x.data_ptr()

    def test_empty_tensor_without_memory(self) -> None:
        x = torch.empty(0, 3)
        assert x.data_ptr() == 0
        assert ffi.from_dlpack(x).numpy().shape == (0, 3)

    def test_own_tensors_inside_a_torch_call_are_ours(self, kernels: ffi.Module) -> None:
        made: list[ffi.Tensor] = []
        kernels["call"](lambda _: made.append(ffi.empty(5)), torch.zeros(1))
        assert made[0].data_ptr() % 64 == 0
        assert made[0].numpy().shape == (5,)

    def test_numpy_call_inside_a_torch_call_gives_numpy(self, kernels: ffi.Module) -> None:
        seen: list[Any] = []

        def inner(_: ffi.Tensor) -> None:
            seen.append(kernels["copy"](np.ones(3)))

        assert type(kernels["call"](inner, torch.zeros(1))) is type(None)
        assert type(seen[0]) is np.ndarray
        assert type(seen[0].base) is ffi.Tensor

    def test_reference_counts_stay(self, kernels: ffi.Module) -> None:
        x = torch.rand(3)
        before = sys.getrefcount(x)
        for _ in range(1000):
            kernels["copy"](x)
            kernels["echo"]([x, x])
        assert sys.getrefcount(x) == before


BOTH = """
import sys
{imports}
import numpy as np, torch
ours, theirs = ffi.load_library(sys.argv[1]), tvm_ffi.load_module(sys.argv[2])
for module in (ours, theirs):
    for _ in range(3):
        assert module.add(1, 2) == 3
        try:
            module.raise_parts()
        except KeyError as error:
            assert "one two" in str(error), error
        else:
            raise AssertionError("no error")
assert ours.copy(np.ones(3)).tolist() == [1, 1, 1]
assert type(ours.copy(torch.ones(3))) is torch.Tensor
assert type(theirs.copy(torch.ones(3))) is torch.Tensor
assert ours.call(lambda x: x + 1, 2) == 3
assert theirs.call(lambda x: x + 1, 2) == 3
x = tvm_ffi.from_dlpack(np.ones(3))
assert ours.address(x) == np.from_dlpack(x).ctypes.data
y = ffi.from_dlpack(np.full(3, 2.0))
assert theirs.address(y) == y.data_ptr()
assert np.from_dlpack(tvm_ffi.from_dlpack(y)).tolist() == [2, 2, 2]
tvm_ffi.register_global_func("peer.theirs", lambda x: 2 * x)
ffi.register_global_func("peer.ours", lambda x: 3 * x)
assert ours.call_global("peer.ours", 5) == 15
assert theirs.call_global("peer.theirs", 5) == 10
print("good")
"""
ORDERS = {
    "ours first": "from farcall import ffi\nimport tvm_ffi",
    "theirs first": "import tvm_ffi\nfrom farcall import ffi",
    "theirs after a load": "from farcall import ffi\nffi.load_library(sys.argv[1])\nimport tvm_ffi",
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("one_file", [True, False], ids=["one file", "two files"])
def test_with_tvm_ffi_in_one_process(kernels_path: Path, tmp_path: Path, order: str, one_file: bool) -> None:
    pytest.importorskip("tvm_ffi", reason="the other runtime of this ABI")
    other = kernels_path if one_file else shutil.copy(kernels_path, tmp_path / "other.so")
    assert output_of("-c", BOTH.format(imports=ORDERS[order]), kernels_path, other) == "good\n"
