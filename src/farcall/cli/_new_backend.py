"""The files of a new package with a backend, which its author then edits."""

from __future__ import annotations

COMMON = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME-backend"
version = "0.0.1"
description = "The farcall backend NAME."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["farcall[compile]"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."farcall.backends"]
NAME = "NAME_backend:CLASS"
MODULES
[tool.setuptools.packages.find]
where = ["src"]
""",
    "README.md": """\
# NAME, a backend for farcall

Install it, check it, and build a model with it:

```text
pip install -e ".[test]"
pytest
farcall build model.onnx -o model.so --backends NAME,c
```

`src/NAME_backend/__init__.py` says which operators the backend takes, and makes their code.
""",
    "tests/test_NAME.py": '''\
"""The backend keeps farcall's contract: ONNX's node tests, and farcall's own rules."""

import farcall as fc
from farcall.testing import check_backend
from NAME_backend import OPERATORS


def test_the_contract():
    print(check_backend("NAME", operators=OPERATORS))


def test_it_is_installed():
    assert fc.backend("NAME").name == "NAME"
''',
}

C = {
    "src/NAME_backend/__init__.py": '''\
"""The backend NAME writes C."""

import onnx_ir as ir
from farcall.backends.c_backend_kit import CBackendKit
from farcall.graph.dims import dims, product

OPERATORS = {  # each as a C expression of one element
    "Relu": "x < 0 ? 0 : x",
    "Neg": "-x",
}


class CLASS(CBackendKit):
    name = "NAME"

    def check(self, node):
        if node.op_type not in OPERATORS:
            return f"only {', '.join(OPERATORS)}"
        return None if node.inputs[0].dtype == ir.DataType.FLOAT else "only float32"

    def emit(self, match, out):
        (node,) = match.nodes
        source, target = out.pointer(node.inputs[0]), out.pointer(node.outputs[0])
        with out.loop("i", product(dims(node.outputs[0]))):
            out.line(f"const float x = {source}[i];")
            out.line(f"{target}[i] = {OPERATORS[node.op_type]};")
''',
}

MODULE = {
    "src/NAME_backend/__init__.py": '''\
"""The backend NAME makes programs, which the loader in `loader.py` runs."""

import json

import onnx_ir as ir
from farcall.backends.base import Backend, RegionModule

from NAME_backend.loader import OPERATORS, VERSION


class CLASS(Backend):
    name = "NAME"

    def check(self, node):
        if node.op_type not in OPERATORS:
            return f"only {', '.join(OPERATORS)}"
        return None if node.inputs[0].dtype == ir.DataType.FLOAT else "only float32"

    def compile(self, region):
        numbers = {value: i for i, value in enumerate((*region.inputs, *region.constants))}
        steps = []
        for node in region.nodes:
            steps.append([node.op_type, [numbers[value] for value in node.inputs]])
            numbers[node.outputs[0]] = len(numbers)
        program = {
            "function": region.name,  # no other module of the artifact may have it
            "inputs": len(region.inputs),
            "steps": steps,
            "outputs": [numbers[value] for value in region.outputs],
        }
        constants = {f"w{i}": value.const_value.numpy() for i, value in enumerate(region.constants)}
        data = json.dumps(program).encode()
        return RegionModule("NAME", VERSION, data, constants)
''',
    "src/NAME_backend/loader.py": '''\
"""The loader of modules of kind `NAME`. It needs no compiler and no ONNX, only numpy."""

import json

import farcall as fc
import numpy as np

VERSION = 1  # of the program's format: a loader refuses the versions that it does not know
OPERATORS = {"Relu": lambda x: np.maximum(x, 0), "Neg": np.negative}


class Program:
    def __init__(self, data):
        self.__dict__.update(json.loads(data))
        self.constants = []

    def init(self, constants):
        """Called once, with views of the artifact's memory."""
        self.constants = [np.from_dlpack(one) for one in constants]

    def run(self, *tensors):
        arrays = [np.from_dlpack(one) for one in tensors]
        values = arrays[: self.inputs] + self.constants
        for operator, operands in self.steps:
            values.append(OPERATORS[operator](*(values[i] for i in operands)))
        for array, i in zip(arrays[self.inputs :], self.outputs):
            array[...] = values[i]


@fc.module_kind("NAME", versions=(VERSION,))
def load(blob):
    program = Program(blob.data)
    name = program.function
    return fc.ffi.new_module("NAME", {name: program.run, f"__init_{name}": program.init})
''',
}

LIBRARY = {
    "src/NAME_backend/__init__.py": '''\
"""The backend NAME calls a library of the system: here libm stands for that of a vendor."""

import onnx_ir as ir
from farcall.backends.base import Library
from farcall.backends.c_backend_kit import CBackendKit
from farcall.graph.dims import dims, product

OPERATORS = {"Erf": "erff", "Tanh": "tanhf"}  # each and its function of the library
LIBRARY = Library("libm.so.6", list(OPERATORS.values()), cure="install the C library of GNU")


class CLASS(CBackendKit):
    name = "NAME"
    libraries = [LIBRARY]

    def check(self, node):
        if node.op_type not in OPERATORS:
            return f"only {', '.join(OPERATORS)}"
        return None if node.inputs[0].dtype == ir.DataType.FLOAT else "only float32"

    def emit(self, match, out):
        (node,) = match.nodes
        source, target = out.pointer(node.inputs[0]), out.pointer(node.outputs[0])
        out.line(f"float {OPERATORS[node.op_type]}(float);")
        with out.loop("i", product(dims(node.outputs[0]))):
            out.line(f"{target}[i] = {OPERATORS[node.op_type]}({source}[i]);")
''',
}

KINDS = {"c": C, "module": MODULE, "library": LIBRARY}
_MODULES = """
[project.entry-points."farcall.modules"]
NAME = "NAME_backend.loader:load"
"""


def files(name: str, kind: str) -> dict[str, str]:
    """The files of the package, by their paths in it.

    Args:
        name: of the backend, a short C identifier.
        kind: of :data:`KINDS`.
    """
    words = {
        "MODULES": _MODULES if kind == "module" else "",
        "CLASS": "".join(word.capitalize() for word in name.split("_")) + "Backend",
        "NAME": name,  # last: the other texts have it
    }
    return {_filled(path, words): _filled(text, words) for path, text in {**COMMON, **KINDS[kind]}.items()}


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
