"""ONNX's own backend tests through the backend ``c``.

A case passes, or is listed with its reason in ``tests/onnx_node_xfails.txt``. All cases are partitioned. The
default run compiles and runs every third of those that the backend takes; the slow tests run all of them.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from .harness import NATIVE
from .onnx_nodes import KINDS, Outcome, cases_of, run_all, run_fallback, short
from .xfails import COMMAND, listed


def _sampled(name: str) -> bool:
    return crc32(name.encode()) % 3 == 0


@pytest.fixture(scope="module")
def sample() -> Outcome:
    outcome = Outcome()
    for kind in KINDS:
        outcome.add(run_all(cases_of(kind), ["-O0"], _sampled))  # the time goes into the compiler
    return outcome


def check_list(outcome: Outcome) -> None:
    """Compare what passes with the list, which a command writes."""
    known = listed()
    reasons = outcome.reasons
    unlisted = {name: why for name, why in reasons.items() if name not in known}
    assert not unlisted, "these passed before, or are new: repair them"
    passing = sorted(known.keys() & set(outcome.passed))
    assert not passing, f"these pass now: run `{COMMAND}`, which takes them off the list"
    gone = sorted(known.keys() - reasons.keys() - {*outcome.passed, *outcome.accepted})
    assert not gone, f"these are no cases of this version of onnx: run `{COMMAND}`"
    assert all(known.values()), "each has a reason"


def test_cases_pass_or_are_listed(sample: Outcome) -> None:
    check_list(sample)


def test_a_refusal_gives_the_reason(sample: Outcome) -> None:
    assert all("c: " in why for why in sample.refused.values() if why.startswith("no backend takes"))
    assert all(map(short, sample.refused.values()))


def test_cases_that_must_pass(sample: Outcome) -> None:
    """A guard against a harness that runs nothing."""
    assert len(sample.passed) + len(sample.accepted) >= 2024 - len(listed())
    assert len(sample.passed) >= 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_cases(kind: str) -> None:
    outcome = run_all(cases_of(kind), ["-O0"])
    known = listed()
    assert {name: why for name, why in outcome.reasons.items() if name not in known} == {}
    assert sorted(known.keys() & set(outcome.passed)) == [], f"these pass now: run `{COMMAND}`"


def test_light_models() -> None:
    """Whole networks; their weights are fills, their outputs come with onnx."""
    light = ("squeezenet", "shufflenet", "densenet121")
    outcome = run_all([case for case in cases_of("real") if case.model_name in light], ["-O2", *NATIVE])
    assert not outcome.failed
    assert len(outcome.passed) == 3


FALLBACK = (
    *("test_string_concat_broadcasting", "test_ai_onnx_ml_label_encoder_string_int", "test_if_opt"),
    *("test_sequence_map_add_2_sequences_expanded", "test_affine_grid_2d_expanded"),
    "test_image_decoder_decode_png_rgb",
)


def test_some_cases_by_the_last_fallback() -> None:
    """``python -m tests.backends.onnx_nodes node --fallback reference`` counts all."""
    outcome = run_fallback([case for case in cases_of("node") if case.name in FALLBACK], ["reference"])
    assert (outcome.refused, outcome.failed) == ({}, {})
    assert sorted(outcome.passed) == sorted(FALLBACK)
