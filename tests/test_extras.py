"""Whatever needs a package of an extra says so, and how to install it, where that package is missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from .tree import ROOT

# Hides packages from a process, as if they were not installed.
HIDE = """
import importlib.machinery, sys
class Hide(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden!r} else super().find_spec(name, path, target)
sys.meta_path = [Hide if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
import farcall as fc
try:
    {code}
except fc.errors.UsageError as error:
    print(type(error).__name__, error)
"""
DIGITS = str(ROOT / "examples/digits/digits.onnx")
READ = f"fc.partition({DIGITS!r})"
CERTIFY = "import pathlib, farcall.rpc.certificates as c; c.make_certificates(pathlib.Path('c'), ['a'], 1)"

# What a user does, with the packages that are missing: who needs which, and the extra that has it.
CASES = {
    "a model, without onnx": (["onnx"], READ, "reading models", "onnx", "compile"),
    "a model, without onnx_ir": (["onnx_ir"], READ, "reading models", "onnx_ir", "compile"),
    "a model, without sympy": (["sympy"], READ, "reading models", "sympy", "compile"),
    "the room of models": (["onnx"], "import farcall.graph", "reading models", "onnx", "compile"),
    "WebSocket": (
        ["websockets"],
        "fc.connect('ws://127.0.0.1:1')",
        "a ws:// or wss:// URL",
        "websockets",
        "ws",
    ),
    "certificates": (["cryptography"], CERTIFY, "`farcall cert`", "cryptography", "tls"),
}


def without(packages: list[str], code: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", HIDE.format(hidden=set(packages), code=code)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", CASES)
def test_a_missing_package_is_named_with_its_cure(case: str) -> None:
    packages, code, purpose, package, extra = CASES[case]
    done = without(packages, code)
    message = f"{purpose} needs the package {package}; run: pip install 'farcall[{extra}]'"
    assert done.stdout == f"MissingExtraError {message}\n", done.stderr


def test_a_missing_compiler_is_named_with_its_cure() -> None:
    done = without(["ziglang"], "import os; os.environ.update(PATH='', CC=''); fc.toolchain.find_compiler()")
    assert done.stdout == (
        "ToolchainError no C compiler found (looked for CC, cc, gcc, clang and ziglang); "
        "run: pip install 'farcall[zig]'\n"
    )


def test_every_extra_has_its_case() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {case[-1] for case in CASES.values()} | {"zig", "all"} == set(extras)


@pytest.mark.parametrize("command", ["demo", f"build {DIGITS}", f"inspect {DIGITS}"])
def test_a_command_names_the_extra(command: str) -> None:
    code = f"import farcall.cli; sys.argv[1:] = {command.split()!r}; farcall.cli.main()"
    done = without(["onnx", "onnx_ir", "sympy"], code)
    assert "needs the package onnx; run: pip install 'farcall[compile]'" in done.stderr
    assert "Traceback" not in done.stderr
