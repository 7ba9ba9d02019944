"""farcall::like: torch.compile knows the shape of a result without a rule in Python."""

from __future__ import annotations

import pytest

from farcall.cpp import load_inline

torch = pytest.importorskip("torch")

SOURCE = """
using namespace farcall;
Tensor negated(ConstTensorView first, ConstTensorView x) {
  Tensor y = Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.sizes(), x.dtype(), x.device());
  FARCALL_CHECK(x.is_contiguous(), "ValueError", "`x` has gaps");
  float add = *first.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = add - x.data_ptr<float>()[i];
  return y;
}
FARCALL_EXPORT(negated, negated, arg("first"), arg("x"), like("x"));
"""


def test_an_operator_needs_no_fake() -> None:
    ops = load_inline("like", cpp_sources=SOURCE, extra_cflags=["-O0"]).as_torch_op("farcall_tests_like")
    x, one = torch.arange(6.0).reshape(2, 3), torch.ones(1)
    meta = ops.negated(one.to("meta"), x.to("meta"))
    assert (meta.shape, meta.dtype, meta.device.type) == (x.shape, x.dtype, "meta")

    def work(x: torch.Tensor) -> torch.Tensor:
        return ops.negated(one, x) * 2  # type: ignore[no-any-return]

    compiled = torch.compile(work, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), (1 - x) * 2)
