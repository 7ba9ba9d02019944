"""The public names exist, and import nothing heavy until they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import farcall as fc


def test_every_public_name_resolves() -> None:
    assert set(fc.__all__) == {"__version__", *fc._LAZY}
    for name in fc.__all__:
        assert getattr(fc, name) is not None
    assert set(fc.__all__) <= set(dir(fc))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fc.nonsense


def test_a_room_is_reachable_as_an_attribute() -> None:
    assert fc.rpc.Server is not None


@pytest.mark.parametrize("statement", ["import farcall", "import farcall.ffi", "import farcall.cli"])
def test_import_brings_in_nothing_heavy(statement: str) -> None:
    heavy = {"numpy", "onnx", "onnx_ir", "torch", "asyncio", "rich"}
    code = f"import sys; {statement}; print(*sorted({heavy!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []
