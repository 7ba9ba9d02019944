"""What a compiled graph returns has the dtype, the kind and the gradients that eager mode gives it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import farcall as fc
from farcall.errors import ModelError
from farcall.rpc import Server

from .models import compiled, eager_reasons, mlp

pytestmark = pytest.mark.filterwarnings("default")  # of torch's exporter


def test_numbers_follow_from_sizes_and_ints() -> None:
    def work(x: torch.Tensor, k: int) -> tuple[Any, ...]:
        rows = x.shape[0]
        return x * (k // 2), x[k:] * ((rows - 20) // 3), rows / 3, rows * k + 1, k // 3, k > 7

    fast = compiled(work)
    for rows, k in ((9, 7), (9, -5)):  # a negative int is a constant
        x = torch.rand(rows, 2)
        got, expected = fast(x, k), work(x, k)
        torch.testing.assert_close(got[:2], expected[:2])
        assert got[2:] == expected[2:]
        assert [*map(type, got)] == [*map(type, expected)]


def test_a_graph_of_numbers_only() -> None:
    fast = compiled(lambda n: torch.arange(n) * 2, dynamic=False)
    torch.testing.assert_close(fast(3), torch.tensor([0, 2, 4]))


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_a_number_that_depends_on_values_is_for_eager_mode() -> None:
    fast = compiled(lambda x: x.sum().item(), strict=False)
    result, (warning,) = eager_reasons(lambda: fast(torch.tensor([1, 2])))
    assert result == 3
    assert "which depends on values of tensors" in warning


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_halves_are_halves(dtype: torch.dtype) -> None:
    x = torch.rand(3, 4).to(dtype)

    def work(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(), x.cumsum(0), x.prod(1)

    torch.testing.assert_close(compiled(work)(x), work(x))


def test_convolutions_of_bfloat16() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.MaxPool2d(2))
    model.eval().requires_grad_(False).bfloat16()
    x = torch.rand(2, 3, 8, 8).bfloat16()
    torch.testing.assert_close(compiled(model)(x), model(x))


def test_a_norm_in_training_mode_takes_the_statistics_of_its_batch() -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4), training=True)

    x = torch.rand(3, 4, 5) * 9
    torch.testing.assert_close(compiled(work)(x), work(x))

    class Norm(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return work(x)

    with pytest.raises(ModelError, match=r"batch_norm in training mode .* call \.eval\(\)"):
        fc.torch.export(Norm(), (x,))


def test_gradients_that_only_a_part_of_the_graph_has() -> None:
    model, x = mlp().requires_grad_(True), torch.rand(3, 8)

    def apart(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(x).argmax(1)

    def asked(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return model(x)

    torch.testing.assert_close(compiled(apart)(x), apart(x))  # compiled: its results have none
    with torch.no_grad():
        result, (warning,) = eager_reasons(lambda: compiled(asked, strict=False)(x))
    assert "call the compiled model under torch.no_grad()" in warning
    assert result.requires_grad


def test_results_of_a_session_have_any_dtype(server: Server) -> None:
    def work(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.bfloat16() * 2, x.to(torch.float8_e4m3fn), x > 0.5, x.sum()

    x = torch.rand(3, 4)
    with fc.connect(server.url, key="k") as session:
        got = compiled(work, on=session)(x)
    for mine, expected in zip(got, work(x), strict=True):
        assert mine.dtype == expected.dtype
        torch.testing.assert_close(mine.float(), expected.float())
