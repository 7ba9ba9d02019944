"""An artifact that the first version wrote is read, and run, by every later one.

``tests/data/format1/affine.so`` is never built again; ``make.py`` beside it says what it holds. A field that
came into the manifest later has a default: the value for artifacts without it.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import msgspec.inspect
import numpy as np
import pytest

import farcall as fc
from farcall.library import inspect
from farcall.library._manifest import Manifest

from ..tree import ROOT

FROZEN = ROOT / "tests" / "data" / "format1" / "affine.so"

# The fields of format 1 that had no default, as decoded then.
REQUIRED = {
    "Manifest": {
        "backends",
        "constants",
        "format",
        "functions",
        "model",
        "producer",
        "regions",
        "target",
        "versions",
    },
    "TargetInfo": {"triple"},
    "FunctionInfo": {"signature"},
    "RegionInfo": {"backend", "name", "nodes", "operators"},
    "ConstantsInfo": {"bytes", "count"},
    "ModelInfo": {"ir_version", "name", "opsets", "sha256"},
    "Signature": {"inputs", "outputs"},
    "Parameter": {"name", "node"},
    "Slot": {"index"},
    "Nothing": set(),
    "Items": {"kind"},
    "Fields": {"kind"},
    "Repeated": set(),
}


def structures(of: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The structures that values of a type hold, by name."""
    if hasattr(of, "fields") and of.cls.__name__ not in found:
        found[of.cls.__name__] = of
        for field in of.fields:
            structures(field.type, found)
    parts = [*getattr(of, "types", ()), *getattr(of, "item_types", ())]
    for name in ("item_type", "key_type", "value_type"):
        parts += [getattr(of, name)] if hasattr(of, name) else []
    for part in parts:
        structures(part, found)
    return found


def test_a_field_of_the_manifest_that_came_later_has_a_default() -> None:
    today = structures(msgspec.inspect.type_info(Manifest), {})
    assert today.keys() >= {"Manifest", "Signature", "Fields"}
    for name in today.keys() & REQUIRED.keys():
        required = {field.encode_name for field in today[name].fields if field.required}
        assert required <= REQUIRED[name], f"{name}: give the new field a default; artifacts do not have it"


def test_the_frozen_artifact_says_what_it_is() -> None:
    found = inspect(FROZEN)
    assert found.format == 1
    assert found.target.triple == "x86_64-linux-gnu"
    assert str(found.functions["main"].signature) == "(x: float32[n, 4]) -> float32[n, 2]"
    assert found.regions[0].operators == {"Gemm": 1, "Relu": 1}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the artifact is for Linux on x86-64"
)
def test_the_frozen_artifact_runs(tmp_path: Path) -> None:
    main = fc.load_module(FROZEN)["main"]
    weights = np.arange(8, dtype=np.float32).reshape(4, 2) - 3
    x = np.random.default_rng(1).standard_normal((3, 4), dtype=np.float32)
    expected = np.maximum(x @ weights + np.float32([0.5, -0.5]), 0)
    np.testing.assert_allclose(main(x), expected, rtol=1e-5)
    with pytest.raises(TypeError, match="argument 1 `x` of `main`"):
        main(x.astype(np.float64))
