"""The page of compatibility says what the tests, the packages and the code's constants say."""

from __future__ import annotations

import re
import tomllib

import pytest
from onnx import defs, parser

import farcall as fc
from farcall import _core
from farcall.library._manifest import FORMAT
from farcall.rpc import tokens
from farcall.toolchain import MACHINES as SERVED

from .cpp.test_compilers import TARGETS
from .test_docs import DOCS, PROJECT
from .tree import ROOT
from .wire.test_wire import MACHINES as DECODING

PAGE = (DOCS / "compatibility.md").read_text()
PINNED = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["test"]


def row(name: str) -> list[str]:
    """The cells of a row of the page's tables, by its first cell."""
    (line,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


def test_versions_of_python_are_those_of_the_package() -> None:
    found = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert row("Python") == [f"CPython {', '.join(found)}"]
    assert PROJECT["requires-python"] == f">={found[0]}"
    for version in found:  # what was tried of its wheel, on each architecture
        assert len(row(f"CPython {version}")) == 2


@pytest.mark.parametrize(
    ("package", "shown"),
    [
        ("apache-tvm-ffi", "| Apache TVM FFI | {} |"),
        ("apache-tvm", "| Apache TVM | {} |"),
        ("iree-base-compiler", "| IREE | {} |"),
        ("onnxruntime", "onnxruntime {} "),
        ("torch", "torch {}\n"),
        ("jax", "jax {}."),
    ],
)
def test_versions_are_those_that_the_tests_install(package: str, shown: str) -> None:
    (version,) = [text.partition("==")[2] for text in PINNED if text.startswith(f"{package}==")]
    assert shown.format(version) in PAGE


def test_formats_are_those_of_the_code() -> None:
    assert row("artifact")[0] == str(FORMAT)
    assert row("token file")[0] == str(tokens._VERSION)
    mailbox = (ROOT / "native/session/posix/channel_mailbox.c").read_text()
    assert row("mailbox")[0] == "".join(re.findall(r"\bVERSION = (\d+)", mailbox))
    assert row("TVM's RPC protocol")[0] == _core.PROTOCOL_VERSION


@pytest.mark.parametrize("opset", range(1, defs.onnx_opset_version() + 1))
def test_models_of_every_opset_are_taken(opset: int) -> None:
    assert row("opsets of the domain `ai.onnx`")[0].startswith("all, to the newest")
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g (float[4] x) => (float[4] y) {{ y = Relu(x) }}'
    assert len(fc.partition(parser.parse_model(text)).partition.regions) == 1


def test_machines_are_those_of_the_tests() -> None:
    rows = [
        line.strip("|").split("|")
        for line in PAGE.splitlines()
        if re.match(r"\| [\w\- ,()]+ \| `\w+-linux", line)
    ]
    cells = {re.findall(r"`(\w+)-linux", each[1])[0]: [cell.strip() for cell in each[2:]] for each in rows}
    assert {arch for arch, (kernels, _, _) in cells.items() if kernels} == {
        text.partition("-")[0] for text in TARGETS
    }
    assert {arch for arch, (_, served, _) in cells.items() if served} == {
        machine.target.arch for machine in SERVED
    }
    others = {triple[0].partition("-")[0] for triple in DECODING.values()}
    assert {arch for arch, (_, _, codec) in cells.items() if codec} == others | {"x86_64"}
