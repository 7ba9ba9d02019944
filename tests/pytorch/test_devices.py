"""A compiled model runs on a device of another architecture."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

import farcall as fc

from ..native.small_server import named, small_server
from .models import compiled, mlp

pytestmark = pytest.mark.filterwarnings("default")  # of torch's exporter


@pytest.mark.slow  # it builds for another machine
def test_on_an_emulated_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = Path(small_server(named("aarch64"), tmp_path_factory)[-1])
    model, x = mlp(), torch.rand(3, 8)
    with tempfile.TemporaryDirectory(prefix="fc-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        device = fc.launch("emulator:aarch64", server=program)
        with device, device.connect() as session:
            fast = compiled(model, on=session, target=device.target)
            torch.testing.assert_close(fast(x), model(x))
