"""Operators in torch.compile and torch.export, and torch's own checks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farcall import ffi
from farcall.ffi._torch_ops import TorchOps

from .library import X, spaces, torch

opcheck = pytest.importorskip("torch.library").opcheck


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, fullgraph=True, backend="aot_eager", **options)
    return made


class TestCompiled:
    @pytest.mark.parametrize("dynamic", [False, True])
    def test_no_break_in_the_graph(self, ops: TorchOps, dynamic: bool) -> None:
        def work(x: Any, y: Any) -> Any:
            out = torch.empty_like(x)
            ops.add_into(x, ops.scale(y, 3.0), out)
            a, b = ops["both"](out)
            return a + b + sum(ops.multiples(x, 3)) + ops.zeros([x.shape[0]])

        run = compiled(work, dynamic=dynamic)
        for n in (4, 5):
            x, y = torch.rand(n), torch.rand(n)
            assert torch.equal(run(x, y), work(x, y))

    def test_an_argument_that_is_written(self, ops: TorchOps) -> None:
        def work(x: Any) -> Any:
            before = x + 1
            ops.fill(x, 3.0)
            return before + x

        x, y = torch.zeros(3), torch.zeros(3)
        assert torch.equal(compiled(work)(x), work(y))
        assert torch.equal(x, y)

    def test_no_fake_is_needed_where_nothing_is_returned(self, lib: ffi.Module) -> None:
        ops = lib.as_torch_op(next(spaces), functions=["add_into"])

        def work(x: Any) -> Any:
            out = torch.empty_like(x)
            ops.add_into(x, x, out)
            return out

        assert torch.equal(compiled(work)(X), X * 2)

    def test_one_dynamic_graph_of_an_artifact(self, digits_ops: TorchOps) -> None:
        graphs = []

        def backend(module: Any, inputs: Any) -> Any:
            graphs.append(module)
            return module

        run = torch.compile(
            lambda x: digits_ops.main(x * 1).argmax(1), fullgraph=True, dynamic=True, backend=backend
        )
        for batch in (2, 3, 7):
            x = torch.rand(batch, 1, 8, 8)
            assert torch.equal(run(x), digits_ops.main(x).argmax(1))
        assert len(graphs) == 1

    def test_export(self, digits_ops: TorchOps) -> None:
        class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return digits_ops.main(x)

        x = torch.rand(2, 1, 8, 8)
        program = torch.export.export(Net(), (x,))
        assert torch.equal(program.module()(x), digits_ops.main(x))

    def test_a_wrong_argument_is_named_before_the_call(self, digits_ops: TorchOps) -> None:
        with pytest.raises(
            Exception, match=r"of `main`: expected float32.*, got float32\[2, 8, 8\]; reshape"
        ):
            compiled(digits_ops.main)(torch.rand(2, 8, 8))
        with pytest.raises(Exception, match=r"got float64.*convert it with .to\(torch.float32\)"):
            compiled(digits_ops.main)(torch.rand(2, 1, 8, 8, dtype=torch.float64))
        with pytest.raises(Exception, match=r"axis 3 must be 8"):
            compiled(digits_ops.main)(torch.rand(2, 1, 8, 9))

    @pytest.mark.parametrize("name", ["scale", "fallible"])
    def test_a_result_without_a_rule_says_what_to_do(self, lib: ffi.Module, name: str) -> None:
        ops = lib.as_torch_op(next(spaces), functions=[name])
        argument = X if name == "scale" else 3
        with pytest.raises(
            Exception, match=rf"{name}` returns .* pass as_torch_op\(..., fake=\{{'{name}': f\}}\)"
        ):
            compiled(lambda x: ops[name](x) + 1)(argument)
        with pytest.raises(RuntimeError, match="pass as_torch_op"):
            ops.scale(X.to("meta")) if name == "scale" else torch.export.export(_Calls(ops[name]), (3,))


class _Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class TestOpcheck:
    @pytest.mark.parametrize(
        ("name", "args"),
        [
            ("scale", (X,)),
            ("scale", (X, 3.0)),
            ("add_into", (X, X, torch.zeros(4))),
            ("fill", (torch.zeros(4),)),
            ("multiples", (X, 3)),
            ("both", (X,)),
            ("same", (X,)),
            ("first", ([X, X + 1],)),
            ("zeros", ([2, 3],)),
            ("zeros", ([2, 3], torch.int32)),
        ],
    )
    def test_passes(self, ops: TorchOps, name: str, args: tuple[Any, ...]) -> None:
        opcheck(ops[name], args)

    def test_artifact(self, digits_ops: TorchOps) -> None:
        opcheck(digits_ops.main, (torch.rand(3, 1, 8, 8),))


LIKE = r"""
#include <farcall/c_api.h>
#include <string.h>
#define TENSOR "{\\\"type\\\": \\\"ffi.Tensor\\\"}"
FARCALL_KERNEL(negative) {
  TVMFFIObjectHandle out;
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(args[0].v_obj);
  if (TVMFFIEnvTensorAlloc((DLTensor*)x, &out) != 0) return -1;
  float* y = TVMFFITensorGetDLTensorPtr(out)->data;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; ++i) y[i] = -((const float*)x->data)[i];
  *result = (TVMFFIAny){.type_index = kTVMFFITensor, .v_obj = out};
  return 0;
}
FARCALL_KERNEL(_metadata_negative) {
  static const char text[] =
      "{\"type_schema\": \"{\\\"type\\\": \\\"ffi.Function\\\", \\\"args\\\": [" TENSOR ", " TENSOR "]}\", "
      "\"parameters\": [{\"name\": \"x\", \"read_only\": true}], \"shape_like\": \"x\"}";
  TVMFFIByteArray bytes = {text, sizeof text - 1};
  return TVMFFIStringFromByteArray(&bytes, result);
}
"""


def test_metadata_says_what_a_result_is_like(compile_kernels: Callable[[str, str], Path]) -> None:
    """So that torch.compile needs no fake: `"shape_like": "x"` in the metadata of a function."""
    ops = ffi.load_library(compile_kernels("like", LIKE)).as_torch_op(next(spaces))
    x = torch.rand(2, 3)
    assert torch.equal(compiled(lambda x: ops.negative(x) * 2, dynamic=True)(x), -2 * x)
    with torch.device("meta"):
        assert ops.negative(torch.empty(4, 5, dtype=torch.float32)).shape == (4, 5)
    opcheck(ops.negative, (x,))
