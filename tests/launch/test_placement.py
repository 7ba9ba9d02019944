"""Placement by measurement on a device that a launcher started a server on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import farcall as fc
from farcall.backends.c import CBackend

from ..graph.graphs import text_model

MODEL = "g (float[64] x) => (float[64] y) { a = Exp(x) y = Neg(a) }"


class Other(CBackend):
    name = "other"


def test_an_emulated_device_is_built_for_measured_and_remembered(
    aarch64_server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is the device's. At the next launch its server has another URL, and nothing is measured."""
    found, model = [], text_model(MODEL)
    for _ in range(2):
        with fc.launch("emulator:aarch64", server=aarch64_server) as device, device.connect() as session:
            choose = fc.measured(on=session, figures=tmp_path / "f.json")
            plan = fc.partition(model, [Other(), "c"], choose=choose)
            found.append((plan.figures, str(plan)))
            monkeypatch.setattr("farcall.artifact.Plan.build", never)
    assert found[0] == found[1]
    assert all(seconds > 0 for seconds in found[0][0].values())


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("a plan was built")
