"""The running side (load, call, connect, serve) works with msgspec alone: without numpy, click and rich."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = ["numpy", "ml_dtypes", "click", "rich", "onnx", "onnx_ir", "sympy", "torch"]


PROGRAM = """
import array
import sys

import farcall as fc

def message(kind, function):
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError("no error")

path, exports = sys.argv[1:]
pixels = memoryview(array.array("f", range(64))).cast("B").cast("f", (1, 1, 8, 8))
module = fc.load_module(path)

# Tensors come from any library with DLPack, from farcall, or from Python's buffers, and are read as buffers.
image = fc.ffi.empty((1, 1, 8, 8), "float32")
memoryview(image).cast("B")[:] = pixels.cast("B")
here = memoryview(module["main"](image)).tolist()
assert memoryview(module["main"](pixels)).tolist() == here
assert module._repr_html_() and "main" in module
wrong = fc.ffi.empty((1,), "int8")
assert "expected float32" in message(fc.errors.ArgumentError, lambda: module["main"](wrong))

with fc.serve(exports) as server, fc.connect(server.url) as session:
    far = session.load_module(path)
    remote = session.tensor(image)
    result = far["main"](remote)
    assert memoryview(result.to("cpu")).tolist() == here
    target = fc.ffi.empty(tuple(result.shape), "float32")
    session.copy(result, target)
    assert memoryview(target).tolist() == here
    assert far["main"].submit(image).result().shape == (1, 10)
    assert far.benchmark("main", remote, number=1, repeat=1).mean > 0
    assert session.get_function("bare.add")(20, 22) == 42
    session.upload(b"hello", "greeting.txt")
    assert session.download("greeting.txt") == b"hello"
    for needs_numpy in (result.numpy, lambda: session.view(result, 0), lambda: module["main"]([1.0])):
        assert "package numpy; run: pip install numpy" in message(fc.errors.MissingExtraError, needs_numpy)

print("done")
"""

EXPORTS = """
import farcall as fc

def register():
    fc.register_global_func("bare.add", lambda a, b: a + b)
"""


@pytest.fixture
def hiding(tmp_path: Path) -> dict[str, str]:
    """The environment of a process, and of its children, in which the packages cannot be imported."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    for name in HIDDEN:
        text = f'raise ModuleNotFoundError("No module named {name!r}", name={name!r})'
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    paths = filter(None, (str(folder), str(tmp_path), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_load_call_connect_serve(hiding: dict[str, str], digits_artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "bare_exports.py").write_text(EXPORTS, encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program, digits_artifact, "bare_exports:register"],
        env=hiding,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
