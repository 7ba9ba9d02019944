"""``torch.compile(model, backend="farcall")`` gives what eager mode gives."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch

import farcall as fc
from farcall.errors import ModelError, UsageError
from farcall.rpc import Server, Session
from farcall.torch import _graph

from .models import Noise, Units, cnn, compiled, eager_reasons, mlp

pytestmark = pytest.mark.filterwarnings("default")  # of torch's exporter


@pytest.fixture
def built(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """``built()``: what was built since the last call, as the log says."""

    def said() -> list[str]:
        texts = [record.getMessage() for record in caplog.records if record.name == "farcall.torch"]
        caplog.clear()
        return texts

    with caplog.at_level(logging.INFO, "farcall.torch"):
        yield said


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the inputs of each graph that torch exports from now on."""
    made: list[str] = []
    real = _graph.Captured.export

    def export(captured: _graph.Captured, inputs: Any) -> Any:
        made.append(", ".join(captured.names))
        return real(captured, inputs)

    monkeypatch.setattr(_graph.Captured, "export", export)
    return made


def test_one_artifact_serves_every_batch(built: Any) -> None:
    model = mlp()
    fast = compiled(model)
    for batch in (3, 5, 8):
        x = torch.rand(batch, 8)
        torch.testing.assert_close(fast(x), model(x))
    assert len(built()) == 1


def test_sizes_that_the_exporter_fixes_are_compiled_apart(
    built: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.export.Dim, "AUTO", torch.export.Dim.STATIC)
    model = mlp()
    fast = compiled(model)
    for batch in (3, 5, 3):
        x = torch.rand(batch, 8)
        torch.testing.assert_close(fast(x), model(x))
    assert len(built()) == 2


def test_a_cnn_in_evaluation_mode(built: Any) -> None:
    model = cnn()
    fast = compiled(model)
    for batch in (2, 4):
        image = torch.rand(batch, 3, 8, 8)
        torch.testing.assert_close(fast(image), model(image))
    (one,) = built()
    assert "c_0: 5 nodes" in one  # the BatchNorm is part of the Conv's weights


def test_backends_share_a_graph_and_see_weights_as_constants(built: Any) -> None:
    model, x = mlp(), torch.rand(3, 8)
    torch.testing.assert_close(compiled(model, backends=[Units(), "c"])(x), model(x))
    (one,) = built()
    assert "units_0" in one
    assert "units_1" in one


def test_a_changed_weight_changes_the_result(built: Any) -> None:
    model, x = mlp(), torch.rand(3, 8)
    fast = compiled(model)
    torch.testing.assert_close(fast(x), model(x))
    model[0].weight.mul_(-2)
    torch.testing.assert_close(fast(x), model(x))
    model[2].bias = torch.nn.Parameter(torch.rand(4), requires_grad=False)
    torch.testing.assert_close(fast(x), model(x))
    model[2].bias.data = torch.rand(4)
    torch.testing.assert_close(fast(x), model(x))
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
    torch.testing.assert_close(fast(x), model(x))
    assert [text.rpartition(", ")[2] for text in built()] == [
        "4 weights as constants",
        "4 weights as constants",
        "4 weights as constants",
        "3 weights as constants",  # the bias has changed twice
        "2 weights as constants",  # so has the first weight
    ]


def test_weights_that_are_inputs_need_no_guard(built: Any) -> None:
    model, x = mlp(), torch.rand(3, 8)
    fast = compiled(model, freeze=False)
    torch.testing.assert_close(fast(x), model(x))
    model[0].weight.data.mul_(-2)  # torch does not count this change
    torch.testing.assert_close(fast(x), model(x))
    (one,) = built()
    assert one.endswith("0 weights as constants")


def test_a_weight_that_counts_no_changes_is_an_input(built: Any) -> None:
    model, x = mlp(), torch.rand(3, 8)
    with torch.inference_mode():
        fast = compiled(model)
        torch.testing.assert_close(fast(x), model(x))
        model[2].bias = torch.nn.Parameter(torch.rand(4), requires_grad=False)
        torch.testing.assert_close(fast(x), model(x))
        model[2].bias.mul_(2)
        torch.testing.assert_close(fast(x), model(x))
    assert built()[-1].endswith("3 weights as constants")


def test_a_failed_build_leaves_no_stale_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = mlp(), torch.rand(3, 8)
    fast = compiled(model)
    fast(x)
    model[0].weight.mul_(-2)
    with monkeypatch.context() as patch:
        patch.setattr("farcall.artifact.partition", lambda *_: 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                fast(x)
    torch.testing.assert_close(fast(x), model(x))


def test_a_graph_break_falls_back_by_itself(built: Any) -> None:
    model, seen = mlp(), []

    def work(x: torch.Tensor) -> torch.Tensor:
        hidden = model(x)
        torch._dynamo.graph_break()
        seen.append(hidden.shape)
        return hidden.view(-1, x.shape[0]) * 2

    x = torch.rand(3, 8)
    torch.testing.assert_close(compiled(work)(x), work(x))
    assert len(built()) == 2
    assert len(seen) == 2


def test_outputs_that_are_no_tensors() -> None:
    def work(x: torch.Tensor, n: int) -> dict[str, Any]:
        return {"y": x * n, "rows": x.shape[0], "none": None, "t": (x + 1).t(), "seven": 7}

    fast = compiled(work)
    for rows, n in ((3, 2), (5, 4)):
        x = torch.rand(rows, 4)
        got, expected = fast(x, n), work(x, n)
        assert {**got, "y": 0, "t": 0} == {**expected, "y": 0, "t": 0}
        torch.testing.assert_close((got["y"], got["t"]), (expected["y"], expected["t"]))
        assert got["t"].stride() == expected["t"].stride()


def test_a_model_without_inputs() -> None:
    weight = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    fast = compiled(lambda: weight * 2)
    fast().zero_()  # a result is the caller's own
    torch.testing.assert_close(fast(), torch.full((3,), 2.0))


def test_an_export_is_kept_in_the_cache(
    exports: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path))
    x = torch.rand(3, 8)
    for model in (mlp(), mlp().requires_grad_(False)):
        model[0].weight.mul_(1 + len(exports))  # the weights are not in the key
        torch.testing.assert_close(compiled(model)(x), model(x))
        torch._dynamo.reset()
    assert len(exports) == 1
    other = torch.nn.Sequential(mlp(), torch.nn.Tanh())
    torch.testing.assert_close(compiled(other)(x), other(x))
    assert len(exports) == 2


def test_on_a_session(server: Server, built: Any) -> None:
    model = mlp()
    with fc.connect(server.url, key="k") as session, torch.inference_mode():
        fast = compiled(model, on=session)
        torch.testing.assert_close(fast(torch.ones(3, 8)), model(torch.ones(3, 8)))
        before = session.stats.copied_in
        x = torch.rand(5, 8)
        torch.testing.assert_close(fast(x), model(x))
        assert session.stats.copied_in - before == x.nbytes  # the weights are there
        _check_change(session, fast, model, x)
    assert len(built()) == 2


def _check_change(session: Session, fast: Any, model: Any, x: torch.Tensor) -> None:
    model[0].bias.add_(1)
    torch.testing.assert_close(fast(x), model(x))
    assert not session.closed


REASONS = {
    "an operator that no backend takes": (
        Noise(),
        "no backend takes 1 node.*::RandomUniformLike.*add a backend",
    ),
    "an operator that ONNX lacks": (torch.linalg.svdvals, "No ONNX function found for .*_linalg_svd"),
    "views only": (lambda x: x.view(-1), "it computes nothing: it returns views"),
    "a view of another dtype": (lambda x: (x * 2, x.view(torch.int32)), "a view of dtype torch.int32"),
    "a mean of scattered elements": (
        lambda x: x.scatter_reduce(0, x.long(), x, "mean"),
        "scatter_reduce with 'mean' is not in ONNX",
    ),
    "a pooling with another divisor": (
        lambda x: torch.nn.functional.avg_pool2d(x[None], 2, divisor_override=3),
        "avg_pool2d with divisor_override is not in ONNX",
    ),
    "a loss of smooth labels": (
        lambda x: torch.nn.functional.cross_entropy(x, x.argmax(1), label_smoothing=0.1),
        "cross_entropy with label_smoothing is not in ONNX",
    ),
    "a sequence of unknown elements": (lambda x: torch.hstack((x, x)), "no backend takes .*SequenceMap"),
    "complex numbers": (lambda x: torch.complex(x, x) * 2, "output 0 of the graph is complex"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_cannot_be_compiled_runs_in_eager_mode(name: str) -> None:
    model, reason = REASONS[name]
    x = torch.rand(4, 4)
    with torch.no_grad():
        got, (warning,) = eager_reasons(lambda: compiled(model, strict=False)(x.clone()))
        torch.testing.assert_close(got, model(x.clone()))
    assert "runs in eager mode: " in warning
    assert re.search(reason, warning, re.DOTALL), warning


def test_tensors_of_other_devices_stay_there() -> None:
    fast = compiled(lambda x: x * 2, strict=False)
    result, (warning,) = eager_reasons(lambda: fast(torch.rand(2, 2, device="meta")))
    assert "an input is on meta; move model and inputs to the CPU" in warning
    assert result.device.type == "meta"


def test_strict_makes_it_an_error() -> None:
    with pytest.raises(Exception, match="no backend takes 1 node") as caught:
        compiled(Noise())(torch.rand(4, 4))
    assert isinstance(caught.value.inner_exception, ModelError)  # type: ignore[attr-defined]


def test_gradients_come_from_eager_mode() -> None:
    model = mlp().requires_grad_(True)
    x = torch.rand(3, 8)
    fast = compiled(model, strict=False)
    result, (warning,) = eager_reasons(lambda: fast(x))
    assert "call the compiled model under torch.no_grad()" in warning
    result.sum().backward()
    assert model[0].weight.grad is not None
    with torch.no_grad():
        result, warned = eager_reasons(lambda: fast(x))
    assert warned == []
    assert not result.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": ["c"]}, "there is no option 'backend'; did you mean `backends`"),
        ({"on": "tcp://127.0.0.1:9090"}, "expected a Session, got str; open one with farcall.connect"),
        ({"backends": ["nothing"]}, "no backend is called `nothing`"),
        ({"backends": 3}, r"backends=3: expected a list, such as .*, got int"),
        ({"freeze": "no"}, "freeze='no': expected True or False, got str"),
        ({"mode": "max-autotune"}, "there is no option 'mode'"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        compiled(mlp(), strict=False, **options)(torch.rand(3, 8))
    assert isinstance(caught.value.inner_exception, UsageError)  # type: ignore[attr-defined]


def test_a_mode_of_torch_is_an_error() -> None:
    fast = torch.compile(mlp(), backend="farcall", mode="max-autotune")
    with pytest.raises(Exception, match="mode='max-autotune': farcall has no modes"):
        fast(torch.rand(3, 8))


def test_torch_finds_the_backend_by_itself() -> None:
    if "farcall" not in entry_points(group="torch_dynamo_backends").names:
        pytest.skip("this checkout was installed before it had the entry point; run `make test`")
    code = "import torch; print(torch.compile(lambda x: x * 2, backend='farcall')(torch.ones(2)))"
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "tensor([2., 2.])\n", done.stderr
