"""How much memory an artifact takes, and what it does with it: kept between calls, shared by processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import farcall as fc
from farcall.cli.inspect import command
from farcall.errors import ArtifactError, UsageError

from ..tree import ROOT
from .stub_backend import model

WIDE = 1024
W = np.full((WIDE, WIDE), 0.001, np.float32)
LAYERS = [("MatMul", "x w", "a"), ("Softmax", "a", "b"), ("MatMul", "b w", "c"), ("Softmax", "c", "r")]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    proto = model(LAYERS, {"x": ["batch", WIDE]}, {"r": ["batch", WIDE]}, {"w": W})
    built = fc.partition(proto, backends=["c"]).build()
    return built.save(tmp_path_factory.mktemp("memory") / "layers.so")


def test_a_module_tells_its_memory(artifact: Path) -> None:
    x = np.ones((8, WIDE), np.float32)
    found = fc.load_module(artifact).memory(x)
    assert found.constants >= W.nbytes
    assert found.results == x.nbytes
    assert 2 * x.nbytes <= found.least <= found.workspace <= 1.05 * found.least
    assert found.overhead == pytest.approx(found.workspace / found.least - 1)
    assert str(found).startswith("constants 4.0 MiB, workspace 64.0 KiB, least 64.0 KiB")
    assert fc.load_module(artifact).memory(x=x) == found


def test_sizes_that_the_arguments_do_not_tell_are_asked_for(artifact: Path) -> None:
    with pytest.raises(UsageError, match="pass the arguments of main"):
        fc.load_module(artifact).memory()


def test_an_artifact_of_the_first_version_does_not_know_its_memory() -> None:
    with pytest.raises(ArtifactError, match="build it again"):
        fc.load_module(ROOT / "tests" / "data" / "format1" / "affine.so").memory()


def test_inspect_shows_the_memory(artifact: Path) -> None:
    shown = CliRunner().invoke(command, [str(artifact)], catch_exceptions=False).output
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "workspace 8192*batch B in a call" in rows
    assert "at least 8192*batch B, by any plan" in rows
    assert "results 4096*batch B in a call" in rows


def test_the_scratch_memory_of_threads_is_told(tmp_path: Path) -> None:
    """A convolution by Winograd's method keeps transformed tiles, in each thread."""
    proto = model(
        [("Conv", "x w", "r")],
        {"x": ["batch", 64, 30, 30]}, {"r": ["batch", 64, 28, 28]},
        {"w": np.ones((64, 64, 3, 3), np.float32)},
    )  # fmt: skip
    path = fc.partition(proto, backends=["c"]).build().save(tmp_path / "conv.so")
    found = fc.load_module(path).memory(np.ones((1, 64, 30, 30), np.float32))
    assert 64 * 28 * 28 < found.scratch <= found.workspace  # the caller's thread has it in the workspace
    assert str(found).endswith(" in each other thread")
    shown = CliRunner().invoke(command, [str(path)], catch_exceptions=False).output
    assert "in each beyond the first" in shown


def test_calls_after_the_first_touch_no_new_memory(artifact: Path) -> None:
    """The workspace of 4 MiB, a thousand pages, is kept; the result goes back to the allocator each time."""
    main, x = fc.load_module(artifact)["main"], np.ones((512, WIDE), np.float32)
    for _ in range(3):
        main(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        main(x)
    result = x.nbytes // resource.getpagesize()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 5 * (result + 20)


_READS = """
import sys, numpy as np, farcall as fc
fc.load_module(sys.argv[1])["main"](np.ones((2, 1024), np.float32))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc/PID/smaps")
def test_processes_share_the_weights(artifact: Path) -> None:
    """Two processes that have read all weights: the kernel counts these pages as shared and clean."""
    with artifact.open("rb") as file:
        os.fsync(file)  # a page that is not on disk yet is not clean
    others = [
        subprocess.Popen(
            [sys.executable, "-c", _READS, str(artifact)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for other in others:
            assert other.stdout is not None and other.stdout.readline() == b"ready\n"
        for other in others:
            assert shared_clean(other.pid, artifact.stat().st_ino) >= W.nbytes
    finally:
        for other in others:
            other.communicate()


def shared_clean(pid: int, inode: int) -> int:
    """The bytes of a file's mappings that other processes map, too, and that nobody has written."""
    total, own = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            own = words[4] == str(inode)
        elif own and words[0] == "Shared_Clean:":
            total += int(words[1]) * 1024
    return total
