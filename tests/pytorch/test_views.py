"""A compiled graph writes to memory, and its results share memory, as in eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .models import Counting, compiled, eager_reasons

pytestmark = pytest.mark.filterwarnings("default")  # of torch's exporter


def work(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    left, right = (x.t() * 2).chunk(2, 0)
    sums = x + 1
    row = sums[0]
    sums.mul_(3)  # the row sees it
    return left, right, row, sums, x[1:, ::2], x.detach()


@pytest.mark.parametrize(
    "inputs",
    [(torch.rand(3, 4), torch.rand(5, 4)), (torch.rand(9, 8)[3:, ::2], torch.rand(8, 8)[:5, ::2])],
    ids=["row-major", "strided"],
)
def test_views_are_views(inputs: tuple[torch.Tensor, ...]) -> None:
    fast = compiled(work)
    for x in inputs:
        got, expected = fast(x), work(x)
        torch.testing.assert_close(got, expected)
        assert [item.stride() for item in got] == [item.stride() for item in expected]
        assert [*_shared(x, got)] == [*_shared(x, expected)] != []
        got[4].zero_()
        assert not x[1:, ::2].any()


def _shared(x: torch.Tensor, results: tuple[torch.Tensor, ...]) -> Any:
    """The pairs of tensors in the same memory."""
    owners = [item.untyped_storage().data_ptr() for item in (x, *results)]
    places = range(len(owners))
    return ((one, two) for one in places for two in places[one + 1 :] if owners[one] == owners[two])


def test_a_view_of_memory_that_inputs_share_is_for_eager_mode() -> None:
    def second(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, y[1:]

    fast, memory = compiled(second, strict=False), torch.rand(9, 4)
    for begin in (2, 4):
        result, _ = eager_reasons(lambda begin=begin: fast(memory[:3], memory[begin : begin + 3]))
        torch.testing.assert_close(result[1], memory[begin + 1 : begin + 3])


def keep(cache: torch.Tensor, row: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As caches of keys and values are written."""
    cache.index_copy_(1, place, row)
    return cache.mul_(2), cache[:, 1:], cache.sum(1)


def test_inputs_are_written() -> None:
    fast, cache = compiled(keep), torch.rand(2, 5, 3)
    own = cache.clone()
    for place in (0, 3):
        row = torch.rand(2, 1, 3)
        got, expected = fast(cache, row, torch.tensor([place])), keep(own, row, torch.tensor([place]))
        torch.testing.assert_close((got, cache), (expected, own))
        assert got[0] is cache
        assert got[1].data_ptr() == cache[:, 1:].data_ptr()


def test_buffers_are_written() -> None:
    first, second = (torch.nn.BatchNorm1d(4).requires_grad_(False) for _ in range(2))
    fast, counting, counts = compiled(first), compiled(Counting()), []
    for rows in (3, 5):
        x = torch.rand(rows, 4)
        torch.testing.assert_close(fast(x), second(x))
        torch.testing.assert_close(first.state_dict(), second.state_dict())
        counts.append((counting(x) / x).mean())
    torch.testing.assert_close(counts, [torch.tensor(1.0), torch.tensor(2.0)])


def test_inputs_that_overlap_are_written_in_eager_mode() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    fast, memory = compiled(add, strict=False), torch.rand(8, 3)
    own = memory.clone()
    fast(memory.clone()[:4], torch.rand(4, 3))
    got, _ = eager_reasons(lambda: fast(memory[:4], memory[2:6]))
    torch.testing.assert_close(got, add(own[:4], own[2:6]))
    torch.testing.assert_close(memory, own)
