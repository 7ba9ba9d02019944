"""The public names exist, are the same for type checkers, and import nothing heavy until they are used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import farcall as fc

from .test_house import public_modules
from .tree import ROOT


def test_every_public_name_resolves() -> None:
    assert set(fc.__all__) == {"__version__", *fc._LAZY}
    for name in dir(fc):
        assert getattr(fc, name) is not None


def typed_names() -> dict[str, str]:
    """What type checkers see in farcall: each name, and the module that it is imported from."""
    (block,) = [node for node in ast.parse(Path(fc.__file__).read_text()).body if is_for_checkers(node)]
    return {
        alias.asname or alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def is_for_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def test_type_checkers_see_the_same_names() -> None:
    assert typed_names() == {**dict.fromkeys(fc._ROOMS, "farcall"), **fc._LAZY}


def test_every_room_is_public() -> None:
    assert {f"farcall.{room}" for room in fc._ROOMS} == {
        module for module in public_modules() if module.count(".") == 1
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = fc.nonsense
    with pytest.raises(AttributeError, match=r"no attribute 'conect'; did you mean `connect`\?$"):
        _ = fc.conect


def test_a_traceback_suggests_a_name_once() -> None:
    out = subprocess.run(
        [sys.executable, "-c", "import farcall; farcall.conect"], capture_output=True, text=True, check=False
    )
    assert out.stderr.lower().count("did you mean") == 1


@pytest.mark.parametrize("module", sorted(public_modules()))
def test_dir_shows_only_public_names(module: str) -> None:
    found = importlib.import_module(module)
    submodules = {name.rpartition(".")[2] for name in public_modules() if name.startswith(f"{module}.")}
    assert {*found.__all__} <= {*dir(found)} <= {*found.__all__, *submodules}
    assert all(hasattr(found, name) for name in dir(found))


def test_import_farcall_imports_nothing_else() -> None:
    """Without site-packages, whose hook of an editable installation imports more."""
    code = "import sys; before = {*sys.modules}; import farcall; print(*{*sys.modules} - before)"
    command = [sys.executable, "-S", "-c", code]
    out = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert {*out.stdout.split()} <= {"farcall", "__future__"}


@pytest.mark.parametrize("statement", ["import farcall.ffi", "import farcall.cli"])
def test_import_brings_in_nothing_heavy(statement: str) -> None:
    heavy = {"numpy", "onnx", "onnx_ir", "torch", "asyncio", "rich"}
    code = f"import sys; {statement}; print(*sorted({heavy!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []
