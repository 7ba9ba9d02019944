"""The most likely mistakes of a user of the Python API; ``tests/golden/mistakes`` has the message of each.

``python -m tests.mistakes`` writes these files anew: look at the differences before you commit them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

import farcall as fc
from farcall.rpc import Limits, Server, Session
from farcall.rpc.tokens import TokenFile

from .rpc.servers import INIT
from .tree import ROOT

GOLDEN = ROOT / "tests" / "golden" / "mistakes"
X = np.zeros((2, 4), "float32")
ADD = "add (float[N,4] x, float[N,4] y) => (float[N,4] z) {z = Add(x, y)}"
NOISE = "noise (float[N,4] x) => (float[N,4] y) {y = RandomUniformLike(x)}"


def model(text: str) -> onnx.ModelProto:
    """A model from ONNX's text form of a graph."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


class World:
    """What mistakes are made with, in an empty folder; each object is made when a mistake first uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def model(self) -> Path:
        path = self.folder / "add.onnx"
        onnx.save(model(ADD), path)
        return path

    @cached_property
    def add(self) -> fc.Module:
        path = self.folder / "add.so"
        fc.partition(self.model).build().save(path)
        return fc.load_module(path)

    @cached_property
    def server(self) -> Server:
        return Server(init=INIT)

    @cached_property
    def session(self) -> Session:
        return fc.connect(self.server.url)

    def close(self) -> None:
        for name in ("session", "server"):
            if name in vars(self):
                vars(self)[name].close()


Mistake = Callable[[World], object]
MISTAKES: dict[str, Mistake] = {
    # files
    "a file that is missing": lambda w: fc.load_module(w.folder / "nothing.so"),
    "a model that is missing": lambda w: fc.partition(w.folder / "nothing.onnx"),
    "a model where a library is expected": lambda w: fc.load_module(w.model),
    "a file that is missing for a server": lambda w: w.session.load_module(w.folder / "nothing.so"),
    "a C++ file that is missing": lambda w: fc.cpp.load("missing", cpp_files=str(w.folder / "nothing.cpp")),
    "a certificate that is missing": lambda w: fc.connect(
        "tls://127.0.0.1:1", tls=fc.rpc.Tls.of(w.folder / "certs" / "client")
    ),
    # calls
    "a number in place of a tensor": lambda w: w.add(X, 7),
    "an argument too many": lambda w: w.add(X, X, 7),
    "an argument too few": lambda w: w.add(X),
    "an argument of another dtype": lambda w: w.add(X, X.astype("float64")),
    "an argument of another shape": lambda w: w.add(X, X[:1]),
    "an argument of another name": lambda w: w.add(X, z=X),
    "a function that does not exist": lambda w: w.add["man"],
    "a tensor of a server for a local function": lambda w: w.add(w.session.tensor(X), X),
    # descriptions
    "a dtype that does not exist": lambda w: fc.dtype("float33"),
    "a bracket that is missing in a signature": lambda w: fc.Signature.of({"x": "float32[n"}),
    # models and kernels
    "a backend that is not installed": lambda w: fc.partition(w.model, backends=["npu", "c"]),
    "an operator that no backend takes": lambda w: fc.partition(model(NOISE)),
    "a C++ function that does not exist": lambda w: fc.cpp.load_inline(
        "mistake", cpp_sources="int64_t f(int64_t a) { return a; }", functions="g"
    ),
    # servers
    "a server that does not run": lambda w: fc.connect("tcp://127.0.0.1:1"),
    "a URL of ssh": lambda w: fc.connect("ssh://me@board"),
    "a URL without a port": lambda w: fc.connect("tcp://board"),
    "a key that the server does not have": lambda w: fc.connect(w.server.url, key="other"),
    "a function that the server does not have": lambda w: w.session.get_function("test.ad"),
    "a limit that does not exist": lambda w: Limits(call_secs=3),  # type: ignore[call-arg]
    "a scope that does not exist": lambda w: TokenFile(w.folder / "tokens.json").create("me", ("cal",)),
    "a module of farcall that does not exist": lambda w: fc.conect,  # type: ignore[attr-defined]
}


def message(mistake: Mistake, world: World) -> str:
    """The class and the text of the error, without what differs in each run."""
    try:
        mistake(world)
    except Exception as error:
        text = f"{type(error).__name__}: {error}\n"
        if isinstance(error, fc.errors.ToolchainError):
            text = text.splitlines(keepends=True)[0]  # the rest is the compiler's
    else:
        text = "no error\n"
    for path in (world.folder, ROOT, Path.home()):
        text = text.replace(str(path), "FOLDER")
    text = re.sub(r"remote\[\d+\]", "remote[N]", text)
    return re.sub(r"(tcp://127\.0\.0\.1):\d{5}\b", r"\1:PORT", text)


def golden(name: str) -> Path:
    """The file with the message of a mistake."""
    return GOLDEN / f"{name.replace(' ', '-').lower()}.txt"


def write() -> None:
    """Write all files anew."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name, mistake in MISTAKES.items():
            golden(name).write_text(message(mistake, world))
        world.close()


if __name__ == "__main__":
    write()
