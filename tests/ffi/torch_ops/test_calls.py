"""The functions of a library as operators of torch, called."""

from __future__ import annotations

from typing import Any

import pytest

from farcall import ffi
from farcall.ffi._torch_ops import TorchOps

from ...programs import run_guide_here
from .library import FAKES, X, spaces, torch


class TestCalls:
    def test_results(self, ops: TorchOps) -> None:
        assert torch.equal(ops.scale(X), X * 2)
        assert torch.equal(ops["scale"](X, by=3.0), X * 3)
        assert [y.tolist() for y in ops.multiples(X[:2], 3)] == [[0, 0], [0, 1], [0, 2]]
        assert [y.tolist() for y in ops.both(X[:2])] == [[0, 1], [0, 2]]
        assert ops.total(None, [1.0, 2.0], True, "") == -3.0
        assert ops.total(X, []) == 9.0
        assert ops.fallible(7) == 7

    def test_defaults_that_no_schema_has(self, ops: TorchOps) -> None:
        assert ops.limit() == ops.limit(None, 5) == float("inf")
        assert ops.limit(1.0) == -1.0
        assert ops.limit(by=1.0, n=2, in_="abc") == 6.0
        assert ops.zeros([2, 3]).dtype == torch.float32
        assert ops.zeros([2], device="cpu", dtype=torch.int64).tolist() == [0, 0]

    def test_no_tensor_in_gives_tensors_of_torch(self, ops: TorchOps) -> None:
        assert isinstance(ops.zeros([2]), torch.Tensor)

    def test_written_arguments(self, ops: TorchOps) -> None:
        out = torch.zeros(4)
        before = out._version
        assert ops.add_into(X, X, out) is None
        assert torch.equal(out, 2 * X)
        assert out._version == before + 1
        ops.fill(None)
        ops.fill(out)
        assert out.tolist() == [1.5] * 4
        with torch.inference_mode():
            ops.fill(torch.zeros(2), 3.0)

    def test_autograd_sees_that_a_saved_tensor_was_written(self, ops: TorchOps) -> None:
        w, saved = torch.ones(4, requires_grad=True), torch.ones(4)
        y = (w * saved).sum()
        ops.fill(saved, 7.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    @pytest.mark.parametrize("name", ["same", "first"])
    def test_a_result_is_never_an_argument(self, ops: TorchOps, name: str) -> None:
        x = torch.arange(6.0)[2:]
        y = ops[name](x if name == "same" else [x])
        assert torch.equal(x, y)
        y[0] = 100
        assert x[0] == 2

    def test_errors_of_the_kernel(self, ops: TorchOps) -> None:
        with pytest.raises(ValueError, match="expected 0 or more, got -1"):
            ops.fallible(-1)
        with pytest.raises(ValueError, match="`x` has strides"):
            ops.scale(torch.ones(2, 3).T)

    def test_artifact(self, digits_ops: TorchOps) -> None:
        x = torch.rand(3, 1, 8, 8)
        assert digits_ops.main(x).shape == (3, 10)

    def test_a_gradient_can_be_registered(self, lib: ffi.Module) -> None:
        space = next(spaces)
        ops = lib.as_torch_op(space, functions=["scale"], fake=FAKES)

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.by = inputs[1]

        def backward(ctx: Any, grad: Any) -> Any:
            return ops.scale(grad.contiguous(), ctx.by), None

        torch.library.register_autograd(f"{space}::scale", backward, setup_context=setup)
        x = torch.ones(3, requires_grad=True)
        ops.scale(x, 5.0).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [5.0] * 3


def test_the_guide() -> None:
    run_guide_here("torch.md")
