"""What every room's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# How long an example takes is no property of ours: it depends on what else the machine does.
settings.register_profile("farcall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("farcall")


@pytest.fixture(scope="session", autouse=True)
def _object_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests build in a cache of their own: an object that an older version left cannot hide a fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARCALL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def digits() -> Path:
    """The demo's ONNX model."""
    return ROOT / "examples" / "digits" / "digits.onnx"
