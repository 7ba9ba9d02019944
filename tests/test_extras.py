"""Without an optional package, an error names it and the command that installs it; the rest works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Hides the packages, then prints the error of each expression.
PROGRAM = """
import importlib, json, sys
hidden, expressions = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(hidden))
import farcall as fc
from farcall.cli import main

def command(*words):
    sys.argv = ["farcall", *words, "--debug"]
    main()

for expression in expressions:
    try:
        eval(expression)
        print("no error")
    except ImportError as error:
        print(f"{type(error).__name__}: {error}")
"""


def errors(hidden: list[str], expressions: list[str], folder: Path) -> list[str]:
    """The error of each expression in a process without these packages."""
    words = [sys.executable, "-c", PROGRAM, json.dumps([hidden, expressions])]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("package", ["onnx", "onnx_ir"])
def test_models_need_the_extra_compile(package: str, tmp_path: Path) -> None:
    expressions = [
        "fc.partition('model.onnx')",
        "fc.graph.load_model",
        "importlib.import_module('farcall.backends.base')",
        "importlib.import_module('farcall.backends.c')",
        "importlib.import_module('farcall.backends.c_backend_kit')",
        "command('demo')",
        "command('build', 'model.onnx')",
    ]
    cure = "run: pip install 'farcall[compile]'"
    expected = f"MissingExtraError: reading models needs the package {package}; {cure}"
    assert errors([package], expressions, tmp_path) == [expected] * len(expressions)
    assert not list(tmp_path.iterdir())


def test_models_of_torch_need_the_extra_torch(tmp_path: Path) -> None:
    expressions = ["fc.torch.export", "importlib.import_module('farcall.torch')"]
    cure = "run: pip install 'farcall[torch]'"
    expected = f"MissingExtraError: torch's ONNX exporter needs the package onnxscript; {cure}"
    assert errors(["onnxscript"], expressions, tmp_path) == [expected] * 2


def test_the_command_without_click_says_so(tmp_path: Path) -> None:
    code = "import sys; sys.modules['click'] = None; from farcall.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the command farcall needs the package click; run: pip install click\n"


def test_channels_and_certificates_need_their_extras(tmp_path: Path) -> None:
    expressions = ["fc.connect('ws://127.0.0.1:1')", "command('cert', 'certs')", "fc.backends.names()"]
    web, secure, names = errors(["websockets", "cryptography", "onnx"], expressions, tmp_path)
    assert web.endswith("a ws:// or wss:// URL needs the package websockets; run: pip install 'farcall[ws]'")
    assert secure.endswith("`farcall cert` needs the package cryptography; run: pip install 'farcall[tls]'")
    assert names == "no error"
