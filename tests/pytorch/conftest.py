from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Each test compiles anew; graphs that an earlier one exported come from the cache."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
