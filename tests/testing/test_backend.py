"""The kit for backends finds what is wrong with one, and finds nothing wrong with a right one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import farcall as fc
from farcall.errors import UsageError
from farcall.rpc import Server
from farcall.testing import BACKEND_RULES, check_backend
from farcall.testing._backend import BackendKit
from farcall.testing._cases import node_cases, varied

from ..backends.libraries import need
from ..tree import ROOT
from . import negating

NPU = ROOT / "examples/backends"
BEYOND = "nothing beyond the tensors is read or written"


def without_session() -> list[str]:
    return [rule for rule in BACKEND_RULES if rule != "a session calls it"]


@contextmanager
def session_with_the_loader() -> Iterator[Any]:
    with Server(init=f"{negating.__name__}:register") as server, fc.connect(server.url) as session:
        yield session


@pytest.mark.parametrize("backend", [negating.Negating(), negating.Stateful(), negating.Module()])
def test_right_backends_of_each_kind_pass(backend: Any) -> None:
    negating.register()
    report = check_backend(backend, operators=["Neg"], connect=session_with_the_loader)
    assert [row.name for row in report.operators] == ["Neg"]
    assert [row.name for row in report.rules] == list(BACKEND_RULES)
    assert all(row.passed and not row.failed for row in report.rules)


@pytest.mark.parametrize(
    ("backend", "rules", "message"),
    [
        (negating.FailsIfEmpty(), ["empty tensors"], "test_neg"),
        (negating.NotThreadSafe(), ["several threads call at once"], "Not equal to tolerance"),
        (negating.WantsAlignment(), ["inputs are strided or not aligned", BEYOND], "Not equal to tolerance"),
        (negating.KnowsTheSize(), ["one artifact serves several sizes"], "Not equal to tolerance"),
        (negating.AlwaysAnother(), ["two builds are equal"], "two builds differ"),
    ],
)
def test_a_wrong_backend_breaks_its_rule_alone(backend: Any, rules: list[str], message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        check_backend(backend, operators=["Neg"], rules=without_session())
    failed = [line.split(": ")[0] for line in str(caught.value).splitlines() if ": Neg, " in line]
    assert failed == rules


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (negating.WritesBeyond(), r"the process crashed \(SIGSEGV"),
        (negating.ReadsBeyond(), r"the process crashed \(SIGSEGV"),
        (negating.WritesInputs(), "input 0 of the model was written"),
    ],
)
def test_what_is_beyond_the_tensors_is_not_touched(backend: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=f"{BEYOND}: Neg, .*{message}") as caught:
        check_backend(backend, operators=["Neg"], rules=[BACKEND_RULES[0], BEYOND])
    assert "backend neg: 2 passed, 2 failed" in str(caught.value)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (negating.Crashes(), r"test_neg: the process crashed \(SIGSEGV, Segmentation fault\)"),
        (negating.Aborts(), r"test_neg: the process crashed \(SIGABRT, Aborted\): unit: out of tiles"),
        (negating.Hangs(), "test_neg: no answer in 3 s"),
        (negating.CrashesWhenAsked(), r"test_neg: the process crashed \(SIGSEGV"),
        (negating.Exits(), "test_neg: the process ended with exit status 3"),
    ],
)
def test_a_case_whose_code_ends_the_process_has_failed(backend: Any, message: str) -> None:
    """The other case of the operator, which is in the same bundle, passes."""
    with pytest.raises(AssertionError, match=message) as caught:
        check_backend(backend, operators=["Neg"], rules=["results are ONNX's"], seconds=3)
    assert "backend neg: 1 passed, 1 failed, 0 refused" in str(caught.value)


def test_a_variant_that_ends_the_process_has_failed() -> None:
    with pytest.raises(AssertionError, match=r"several sizes: Neg, .*the process crashed") as caught:
        check_backend(negating.CrashesIfSymbolic(), operators=["Neg"], rules=BACKEND_RULES[:2])
    assert "backend neg: 2 passed, 1 failed, 0 refused" in str(caught.value)


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    from farcall.testing._isolated import EndedError, in_child

    def work(item: int) -> int:
        with (tmp_path / "pid").open("w") as file:
            file.write(str(subprocess.Popen(["sleep", "600"]).pid))
        return os.abort() if item == 1 else item

    answers = [answer for _, answer in in_child(work, [0, 1, 2], 60)]
    assert (answers[0], answers[2]) == (0, 2)
    assert isinstance(answers[1], EndedError)
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"  # nobody has asked for its status yet


def test_cases_that_pass_one_by_one_and_not_together() -> None:
    message = "test_neg.*: in one model with 1 other cases: BackendError: .* both have the function `negate`"
    negating.register()
    with pytest.raises(AssertionError, match=message):
        check_backend(negating.OneName(), operators=["Neg"], rules=BACKEND_RULES[:1])


def test_a_wrong_result_is_counted_by_its_operator() -> None:
    with pytest.raises(AssertionError) as caught:
        check_backend(negating.Wrong(), operators=["Neg"], rules=["results are ONNX's"])
    lines = str(caught.value).splitlines()
    assert lines[:3] == [
        "backend neg: 1 passed, 1 failed, 0 refused",
        "operator  passed  failed  refused",
        "Neg            1       1        0",
    ]
    assert "results are ONNX's: Neg, test_neg: " in str(caught.value)


def test_patterns_are_checked_by_cases_of_their_innermost_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(NPU)
    report = check_backend("npu:NpuBackend")
    ((name, row),) = {row.name: row for row in report.operators}.items()
    assert name == "conv_relu"
    assert row.passed >= 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "operators"),
    [
        ("c", ["Concat", "Conv", "Softmax", "Split"]),
        ("json", ["Add", "Conv"]),
    ],
)
def test_our_backends_by_a_sample(backend: str, operators: list[str]) -> None:
    report = check_backend(backend, operators=operators, sample=3)
    assert {row.name for row in report.operators} == set(operators)


LIBRARIES = {
    "blas": ("libscipy_openblas.so", "scipy-openblas32"),
    "onednn": ("libdnnl.so.3", "onednn-cpu-gomp"),
}
OPTIONS = {"blas": {"products": "all", "convolutions": True}}
# With a single 0, the scale is 1 in onnxruntime and in farcall, and 1/255 in onnx's reference.
UNSETTLED = {"DynamicQuantizeLinear"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c", "json", "blas", "onednn"])
def test_our_backends_whole(name: str) -> None:
    if name in LIBRARIES:
        need(*LIBRARIES[name])
    backend = fc.backend(name, **OPTIONS.get(name, {}))
    kit = BackendKit(backend)
    kit.choose()
    report = check_backend(backend, operators=set(kit.operators) - UNSETTLED)
    print(report)
    assert all(row.passed for row in report.operators)


def test_models_of_the_author_and_the_forms_of_the_report() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }'
    )
    events: list[str] = []
    report = check_backend(
        negating.Negating(),
        models={"mine": (model, [np.ones((2, 3), np.float32)])},
        operators=[],
        rules=BACKEND_RULES[:2],
        progress=lambda event: events.append(event.phase),
    )
    found = json.loads(report.json())
    assert found["backend"] == "neg"
    assert found["passed"]
    assert found["operators"] == [{"name": "mine", "passed": 1, "failed": 0, "refused": 0, "failure": ""}]
    assert "| mine | 1 | 0 | 0 |" in report.markdown()
    assert set(events) == {"choose", "vary", "check"}


def test_a_refusal_is_counted_and_is_no_failure() -> None:
    report = check_backend("c", operators=["Cast"], rules=["results are ONNX's"], sample=2)
    (row,) = report.operators
    assert row.passed == 2


def test_other_data_do_not_change_shapes_that_the_model_states() -> None:
    (case,) = (case for case in node_cases() if case.name == "test_upsample_nearest")
    assert varied(case) is case  # its scales are data


def test_a_bfloat16_may_be_rounded_to_its_neighbour() -> None:
    (case,) = [one for one in node_cases() if one.name == "test_attention_4d_causal_padded_kv_bf16_expanded"]
    wanted = case.runs[0][1][0]
    near, next_, far = ((wanted.view(np.uint16) + np.uint16(steps)).view(wanted.dtype) for steps in (1, 2, 4))
    case.compare(0, [near])
    case.compare(0, [next_])  # by several nodes, each of which rounds
    with pytest.raises(AssertionError, match="output 0"):
        case.compare(0, [far])
    single = dataclasses.replace(case, model=onnx.ModelProto())
    single.compare(0, [near])
    with pytest.raises(AssertionError, match="output 0"):
        single.compare(0, [next_])


def test_a_float8_that_is_no_number_is_the_expected_one() -> None:
    """numpy does not know the NaNs of these types."""
    (case,) = (one for one in node_cases() if one.name == "test_cast_FLOAT_to_FLOAT8E4M3FN")
    (wanted,) = case.runs[0][1]
    assert np.isnan(wanted.astype(np.float32)).any()
    case.compare(0, [wanted.copy()])
    other = (wanted.view(np.uint8) ^ np.uint8(1)).view(wanted.dtype)
    with pytest.raises(AssertionError, match="output 0"):
        case.compare(0, [other])


def test_what_cannot_be_checked() -> None:
    with pytest.raises(AssertionError, match="the backend `neg` takes no case"):
        check_backend(negating.Negating(), operators=["Conv"])
    with pytest.raises(UsageError, match="no rule `save and loaf`; did you mean `save and load`"):
        check_backend(negating.Negating(), rules=["save and loaf"])
