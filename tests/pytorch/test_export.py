"""``farcall.torch.export`` gives models that ``fc.partition`` takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import farcall as fc
from farcall.errors import ModelError

from .models import cnn


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return cnn().train()


@pytest.fixture(scope="module")
def plan(model: torch.nn.Module) -> fc.Plan:
    image = torch.rand(2, 3, 8, 8)
    return fc.partition(fc.torch.export(model, (image,), dynamic_shapes=({0: "batch"},)))


def test_names_and_symbols_are_those_of_the_module(plan: fc.Plan) -> None:
    assert str(plan.signature).startswith("(input: float32[batch, 3, 8, 8]) -> float32[batch, 10]")


def test_it_computes_what_the_module_computes_in_evaluation_mode(
    model: torch.nn.Module, plan: fc.Plan
) -> None:
    assert all(part.training for part in model.modules())  # as before the export
    main = plan.build().load()["main"]
    image = torch.rand(5, 3, 8, 8)
    torch.testing.assert_close(main(image), cnn()(image))


def test_the_cut_model_is_onnx(plan: fc.Plan, tmp_path: Path) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    plan.save(tmp_path / "cut.onnx")
    onnx.checker.check_model(tmp_path / "cut.onnx", full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "cut.onnx", providers=["CPUExecutionProvider"])
    image = torch.rand(4, 3, 8, 8)
    (scores,) = session.run(None, {"input": image.numpy()})
    torch.testing.assert_close(torch.from_numpy(scores), cnn()(image))


def test_a_failure_names_its_cause() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.svdvals(x)

    with pytest.raises(ModelError, match=r"cannot export the model: .*_linalg_svd"):
        fc.torch.export(Broken(), (torch.rand(3, 3),))
