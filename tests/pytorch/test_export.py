"""``farcall.torch.export`` gives models that ``fc.partition`` takes."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import farcall as fc
from farcall.errors import ModelError, UsageError
from farcall.torch import _export

from ..terminal import Cli
from .models import cnn


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return cnn().train()


@pytest.fixture(scope="module")
def plan(model: torch.nn.Module) -> fc.Plan:
    image = torch.rand(2, 3, 8, 8)
    return fc.partition(fc.torch.export(model, (image,), dynamic={"input": {0: "batch"}}))


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


class Two(torch.nn.Module):
    """Two inputs with a dim in common, and sizes that must stay."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, scale: torch.Tensor, bias: float = 0.5) -> torch.Tensor:
        return self.inner(x) * scale + bias


X, SCALE = torch.rand(2, 5, 4), torch.rand(5, 1)


@pytest.mark.parametrize(
    ("dynamic", "meant"),
    [
        (False, r"\(x: float32\[2, 5, 4\], scale: float32\[5, 1\]\) -> float32\[2, 5, 3\]"),
        ({"x": {0: "batch"}}, r"\(x: float32\[batch, 5, 4\], scale: .*\[5, 1\]\) -> float32\[batch, 5, 3\]"),
        (
            {"x": {1: "n"}, "scale": {0: "n"}},
            r"\(x: float32\[2, n, 4\], scale: .*\[n, 1\]\) -> .*\[2, n, 3\]",
        ),
        (({0: "b"}, None), r"\(x: float32\[b, 5, 4\], scale: float32\[5, 1\]\) -> float32\[b, 5, 3\]"),
        (True, r"\(x: float32\[(\w+), (\w+), 4\], scale: float32\[\2, 1\]\) -> float32\[\1, \2, 3\]"),
    ],
    ids=["none", "a batch", "one name twice", "by position", "all"],
)
def test_dynamic_says_which_dims_vary(dynamic: Any, meant: str) -> None:
    plan = fc.partition(fc.torch.export(Two(), (X,), {"scale": SCALE}, dynamic=dynamic))
    assert re.match(meant, str(plan.signature)), plan.signature


def test_all_dims_vary_in_calls() -> None:
    net = Two().eval()
    main = fc.partition(fc.torch.export(net, (X, SCALE), dynamic=True)).build().load()["main"]
    for batch, length in ((3, 2), (1, 7)):
        x, scale = torch.rand(batch, length, 4), torch.rand(length, 1)
        torch.testing.assert_close(main(x, scale), net(x, scale).detach())


def test_wrong_names_in_dynamic_are_errors() -> None:
    with pytest.raises(
        UsageError, match=r"dynamic names `sale`; did you mean `scale`\?; the inputs are x, scale"
    ):
        fc.torch.export(Two(), (X, SCALE), dynamic={"sale": {0: "n"}})
    with pytest.raises(UsageError, match="the example inputs are not those of the model: missing"):
        fc.torch.export(Two(), (X,), dynamic=True)
    program = torch.export.export(Two().eval(), (X, SCALE))
    with pytest.raises(UsageError, match=r"give dynamic_shapes to torch\.export\.export"):
        fc.torch.export(program, dynamic=True)


class Named(torch.nn.Module):
    """Takes a dict; returns one with a part that is a tuple, its input, a number and None."""

    def forward(self, at: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"sum": at["x"] + at["y"], "same": (at["x"], None), "rows": 3, "half": at["y"].half().sum()}


def test_what_goes_in_and_out_may_be_nested() -> None:
    at = {"x": torch.rand(2, 3), "y": torch.rand(1, 3)}
    model = fc.torch.export(Named(), (at,), dynamic={"at": {"x": {0: "n"}, "y": None}})
    plan = fc.partition(model)
    assert str(plan.signature) == (
        "(at_x: float32[n, 3], at_y: float32[1, 3]) -> (float32[n, 3], float32[n, 3], float16[])"
    )
    x = torch.rand(5, 3)
    expected = Named()({"x": x, "y": at["y"]})
    got = plan.build().load()["main"](x, at["y"])
    torch.testing.assert_close(got, (expected["sum"], x, expected["half"]))


def test_an_input_that_is_returned_keeps_its_name() -> None:
    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x, x + 1

    net = Same()
    model = fc.torch.export(torch.compile(net, backend="eager"), (torch.rand(2),))
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert "forward" not in vars(net)


class Writing(torch.nn.Module):
    """Writes to its input, or to a buffer."""

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))
        self.keeps = keeps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.seen if self.keeps else x).add_(1) * x


@pytest.mark.parametrize(
    ("keeps", "message"),
    [(False, "writes to its input `x`.*x.clone"), (True, "writes to its buffer `seen`.*make it an input")],
    ids=["an input", "a buffer"],
)
def test_what_a_model_writes_is_not_lost_silently(keeps: bool, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        fc.torch.export(Writing(keeps=keeps), (torch.rand(2),))


def test_a_dim_that_torch_fixes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fixed(*_: Any, **__: Any) -> Any:
        return real(Two(), (X, SCALE), optimize=True)

    real = _export.to_onnx
    monkeypatch.setattr(_export, "to_onnx", fixed)
    with pytest.raises(ModelError, match="dim 1 of `x` was to vary as 'n', and torch fixed it at 5"):
        fc.torch.export(Two(), (X, SCALE), dynamic={"x": {1: "n"}})


@pytest.mark.parametrize(
    ("args", "dynamic", "message"),
    [
        (X, False, r"args is a Tensor; expected a tuple of the inputs, such as \(x,\)"),
        ((X, SCALE), "batch", r"dynamic='batch': expected True, False, or the dims by input"),
        ((X, SCALE), ({0: "b"},), r"expected True, False, or the dims by input, such as \{\"x\": "),
        ((X, SCALE), {"x": {3: "b"}}, r"`x` has no dim 3 to be 'b': its shape is \[2, 5, 4\]"),
    ],
)
def test_wrong_inputs_and_dims_are_errors(args: Any, dynamic: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fc.torch.export(Two(), args, dynamic=dynamic)


def test_models_of_the_older_exporter_are_taken(tmp_path: Path) -> None:
    net, image = cnn(), torch.rand(2, 3, 8, 8)
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            net, (image,), str(tmp_path / "old.onnx"), dynamo=False,
            input_names=["image"], dynamic_axes={"image": {0: "batch"}},
        )  # fmt: skip
    main = fc.partition(tmp_path / "old.onnx").build().load()["main"]
    torch.testing.assert_close(main(image[:1]), net(image[:1]).detach())


def test_a_saved_program_is_built_by_the_command(tmp_path: Path, cli: Cli) -> None:
    image = torch.rand(2, 3, 8, 8)
    dims = {"input": {0: torch.export.Dim("batch")}}
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.export(cnn(), (image,), dynamic_shapes=dims)
        torch.export.save(program, tmp_path / "net.pt2")
    report = json.loads(cli("build", tmp_path / "net.pt2", "--dry-run", "--json").out)
    assert re.fullmatch(r"\(input: float32\[(s\d+), 3, 8, 8\]\) -> float32\[\1, 10\]", report["signature"])
    assert not (tmp_path / "net.so").exists()
    assert cli("build", tmp_path / "net.pt2", "-o", tmp_path / "net.so", "-q").code == 0
    torch.testing.assert_close(fc.load_module(tmp_path / "net.so")["main"](image), cnn()(image))


def test_a_file_that_is_no_program(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "no.pt2").write_bytes(b"no")
    assert "torch cannot read the program" in cli("build", tmp_path / "no.pt2").err
    assert "no such file" in cli("explain", tmp_path / "gone.pt2").err
