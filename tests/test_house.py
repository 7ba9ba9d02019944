"""The rooms of src/farcall: which modules are public, and that no import hides from `lint-imports`."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from farcall.cli import _COMMANDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
FILES = sorted((SOURCE / "farcall").rglob("*.py"))

# `lint-imports` does not see imports by a module name as text. Each one has a reason here.
BY_TEXT = {
    "farcall/__init__.py": "the table of public names: `import farcall` stays light",
    "farcall/cli/__init__.py": "a command is the module of its name",
    "farcall/cli/_checks.py": "`farcall doctor` tries optional packages",
    "farcall/backends/__init__.py": "backends of other packages",
    "farcall/ffi/_kinds.py": "the loader of a kind of farcall's own, which sessions bring",
    "farcall/rpc/server/_worker.py": "`--init MODULE:FUNCTION`",
}


IMPORT_BY_TEXT = re.compile(r"importlib\.import_module\(|from importlib import .*import_module|__import__\(")


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def public_modules() -> set[str]:
    """The modules that docs/reference.md lists."""
    _, _, rest = (ROOT / "docs/reference.md").read_text().partition("\n## Modules\n")
    return set(re.findall(r"`(farcall[\w.]*)`", rest.partition("\n## ")[0]))


def test_a_module_that_is_not_listed_as_public_begins_with_an_underscore() -> None:
    commands = {f"farcall.cli.{name}" for name in _COMMANDS}
    public = {
        module_of(file) for file in FILES if file.name != "__init__.py" and not file.name.startswith("_")
    }
    assert public - commands == {name for name in public_modules() if not is_package(name)}


def is_package(module: str) -> bool:
    return (SOURCE / module.replace(".", "/") / "__init__.py").is_file()


def test_a_package_that_is_not_listed_as_public_has_no_names() -> None:
    packages = {module_of(file): file for file in FILES if file.name == "__init__.py"}
    for name in packages.keys() - public_modules():
        (docstring,) = ast.parse(packages[name].read_text()).body
        assert isinstance(docstring, ast.Expr), name


@pytest.mark.parametrize("module", sorted(public_modules()))
def test_a_public_module_says_what_it_has(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__doc__, module


def test_imports_by_text_are_those_with_a_reason() -> None:
    found = {str(file.relative_to(SOURCE)) for file in FILES if IMPORT_BY_TEXT.search(file.read_text())}
    assert found == set(BY_TEXT)


# ---- native/python ----

VALUE_BINDINGS = sorted(
    {*(ROOT / "native/python").glob("*.[ch]"), *(ROOT / "native/python/abi").glob("*.[ch]")}
)


@pytest.mark.parametrize(
    "file", [f for f in VALUE_BINDINGS if f.name != "init.c"], ids=lambda file: file.name
)
def test_value_bindings_include_nothing_of_a_session(file: Path) -> None:
    """They reach sessions through python/session_hooks.h; only init.c, the module's start, knows both."""
    assert not re.findall(r'#include "(?:session|python/rpc)/.*', file.read_text())


def test_a_function_of_the_c_backend_has_a_name_of_its_own() -> None:
    """The texts of any two operators may meet in one file of C. ``{kind}`` and ``KIND`` stand for a type."""
    function = re.compile(r"static (?:[^;{}=]|\{+\w+\}+)*?\b(farcall_(?:\w|\{\w+\})+)\(")
    rooms: dict[str, set[str]] = {}
    for file in sorted((ROOT / "src/farcall/backends/c").glob("*.py")):
        for name in function.findall(file.read_text()):
            rooms.setdefault(re.sub(r"\{\w+\}|[A-Z]{2,}", "*", name), set()).add(file.name)
    assert len(rooms) > 100
    assert {name: files for name, files in rooms.items() if len(files) > 1} == {}
