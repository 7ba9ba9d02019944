"""A short run of every fuzz target."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from . import harness

TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in Path(__file__).parent.glob("fuzz_*.py"))


MUTANTS, SECONDS = 20_000, 4.0  # of each target, whichever comes first


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_mutants_find_nothing(name: str) -> None:
    module = importlib.import_module(f"{__package__}.fuzz_{name}")
    harness.briefly(name, module.one_input, MUTANTS, SECONDS)


def test_a_short_run_ends_by_its_number_or_its_time() -> None:
    seen: list[bytes] = []
    seeds = len(harness.corpus("handshake"))
    assert harness.briefly("handshake", seen.append, 50, 1.0, clock=lambda: 0.0) == 50
    assert len(seen) == seeds + 50
    ticks = iter(range(100))
    assert harness.briefly("handshake", seen.append, 50, 10.0, clock=lambda: float(next(ticks))) == 9
    assert seen[seeds + 50 + seeds :] == seen[seeds : seeds + 9]  # the same mutants


def test_what_is_found_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "FOUND", tmp_path)

    def one_input(data: bytes) -> None:
        assert len(data) < 20, "found"

    with pytest.raises(AssertionError, match="found"):
        harness.briefly("handshake", one_input, 2000, 1.0, clock=lambda: 0.0)
    assert harness._for_long("handshake", one_input, 1.0, clock=lambda: 0.0) == 1
    (saved,) = tmp_path.iterdir()
    assert len(saved.read_bytes()) >= 20


def test_a_target_is_a_program() -> None:
    command = [sys.executable, "-m", f"{__package__}.fuzz_handshake", "-atheris=0", "-max_total_time=1"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
