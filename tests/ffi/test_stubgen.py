"""``farcall stubgen``: the content of the stubs, that type checkers accept them, and the command."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import farcall.cli
from farcall import ffi
from farcall.ffi._exported import Exported, Parameter, Type, read, read_module
from farcall.ffi._stubs import stub

from ..terminal import Cli

NONE, INT, TENSOR, VIEW, STR = (
    Type("None"),
    Type("int"),
    Type("ffi.Tensor"),
    Type("DLTensor*"),
    Type("ffi.String"),
)


@pytest.fixture(scope="module")
def text(torch_kernels: Path) -> str:
    return stub("kernels.so", read_module(ffi.load_library(str(torch_kernels))))


def definitions(text: str) -> dict[str, ast.FunctionDef]:
    """The last definition of each name: the one that carries the text."""
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def line(text: str, name: str) -> str:
    """The last definition of a function."""
    return [one for one in text.splitlines() if one.startswith(f"def {name}(")][-1]


def one(parameters: tuple[Parameter, ...] | None, result: Type = NONE, name: str = "f", **more: Any) -> str:
    return line(stub("k.so", [Exported(name, parameters, result, **more)]), name)


def test_functions(text: str) -> None:
    assert line(text, "scale") == "def scale(x: _Tensor, by: float = 2.0) -> _Tensor:"
    assert (
        "def scale(x: _npt.NDArray[_typing.Any], by: float = 2.0) -> _npt.NDArray[_typing.Any]: ..." in text
    )
    assert line(text, "add_into").endswith(
        "(a: _SupportsDLPack, b: _SupportsDLPack, out: _SupportsDLPack) -> None: ..."
    )
    assert line(text, "both") == "def both(arg1: _Tensor, /) -> tuple[_Tensor, _Tensor]: ..."
    assert line(text, "multiples") == "def multiples(x: _Tensor, n: int = 2) -> tuple[_Tensor, ...]: ..."
    assert line(text, "zeros").endswith("-> _ffi.Tensor: ...")
    assert line(text, "apply") == "def apply(f: _abc.Callable[[int], int]) -> int: ..."
    assert line(text, "packed") == "def packed(*args: _typing.Any) -> _typing.Any: ..."
    assert line(text, "renamed") == (
        "def renamed(named: _abc.Mapping[str, _Tensor]) -> dict[str, _Tensor]: ..."
    )
    assert "unit: str = 'a\"b'" in line(text, "total")


def test_texts(text: str) -> None:
    assert ast.get_docstring(definitions(text)["scale"]) == (
        'Multiplies.\n\nBy """ and \\ too"\n\nArgs:\n    x: what to scale\n    by: the factor'
    )
    assert ast.get_docstring(definitions(text)["add_into"]) is None


@pytest.mark.parametrize(
    "doc", ['"', '"""', "\\", 'a\\"', "one\ntwo", "a\0b", "é\r\u2028x", "tab\there", 'x"\n"']
)
def test_any_text_survives(doc: str) -> None:
    found = definitions(stub("k.so", [Exported("f", (), doc=doc)]))["f"]
    assert ast.get_docstring(found, clean=False) is not None
    assert ast.get_docstring(found) == doc.expandtabs() or ast.get_docstring(found) == doc


@pytest.mark.parametrize(
    ("type_", "taken", "given"),
    [
        (INT, "int", "int"),
        (Type("None"), "None", "None"),
        (Type("ffi.Bytes"), "bytes | bytearray | memoryview", "bytes"),
        (Type("ffi.Shape"), "_abc.Sequence[int]", "_ffi.Shape"),
        (Type("DataType"), "_typing.Any", "_ffi.dtype"),
        (Type("Device"), "_typing.Any", "_ffi.Device"),
        (Type("my.Object"), "_typing.Any", "_typing.Any"),
        (Type("ffi.Array", (INT,)), "_abc.Sequence[int]", "tuple[int, ...]"),
        (Type("ffi.Array"), "_abc.Sequence[_typing.Any]", "tuple[_typing.Any, ...]"),
        (Type("ffi.List", (STR,)), "_abc.Sequence[str]", "list[str]"),
        (Type("ffi.Map", (STR, INT)), "_abc.Mapping[str, int]", "dict[str, int]"),
        (Type("ffi.Dict"), "_abc.Mapping[_typing.Any, _typing.Any]", "dict[_typing.Any, _typing.Any]"),
        (Type("Tuple", (INT, STR)), "tuple[int, str]", "tuple[int, str]"),
        (Type("Tuple"), "tuple[()]", "tuple[()]"),
        (Type("Optional", (INT,)), "int | None", "int | None"),
        (Type("Variant", (INT, STR, INT)), "int | str", "int | str"),
        (Type("ffi.Function"), "_abc.Callable[..., _typing.Any]", "_ffi.Function"),
        (Type("ffi.Function", (Type("None"), VIEW)), "_abc.Callable[[_ffi.Tensor], None]", "_ffi.Function"),
    ],
)
def test_types(type_: Type, taken: str, given: str) -> None:
    assert one((Parameter("x", type_),), type_) == f"def f(x: {taken}) -> {given}: ..."


class TestParameters:
    @pytest.mark.parametrize(
        ("type_", "default", "shown"),
        [
            (INT, 3, " = 3"),
            (INT, None, " = ..."),
            (INT, 1.5, " = ..."),
            (Type("bool"), True, " = True"),
            (Type("float"), 2, " = 2"),
            (Type("float"), float("inf"), " = ..."),
            (STR, "a'b", ' = "a\'b"'),
            (Type("DataType"), "float32", " = ..."),
            (Type("Optional", (INT,)), None, " = None"),
            (Type("Optional", (INT,)), 4, " = 4"),
            (INT, NotImplemented, " = ..."),
            (INT, ..., ""),
        ],
    )
    def test_defaults(self, type_: Type, default: Any, shown: str) -> None:
        assert one((Parameter("x", type_, default),)).endswith(f"{shown}) -> None: ...")

    def test_a_default_with_a_required_parameter_behind_it(self) -> None:
        parameters = (Parameter("a", INT, 1), Parameter("b", INT), Parameter("c", INT, 2))
        assert one(parameters) == "def f(a: int, b: int, c: int = 2) -> None: ..."

    @pytest.mark.parametrize("names", [("a.b", "c"), ("for", "c"), ("c", "c"), (None, "c")])
    def test_names_that_are_none(self, names: tuple[str | None, ...]) -> None:
        parameters = tuple(Parameter(name, INT) for name in names)
        assert one(parameters) == "def f(arg1: int, arg2: int, /) -> None: ..."

    def test_only_optional_tensors_say_nothing_of_the_result(self) -> None:
        parameters = (Parameter("x", Type("Optional", (TENSOR,))),)
        assert one(parameters, TENSOR) == "def f(x: _SupportsDLPack | None) -> _typing.Any: ..."


class TestNames:
    def test_one_that_python_cannot_define(self) -> None:
        text = stub("k.so", [Exported("lambda", ()), Exported("a\n.b", ())])
        assert "# 'lambda' is not a name in Python: use module['lambda']" in text
        assert definitions(text) == {}

    def test_one_that_hides_a_type(self) -> None:
        functions = [
            Exported("int", (Parameter("x", INT),), Type("ffi.Array", (INT,))),
            Exported("tuple", ()),
        ]
        text = stub("k.so", functions)
        assert line(text, "int") == "def int(x: _builtins.int) -> _builtins.tuple[_builtins.int, ...]: ..."

    def test_order_does_not_matter(self) -> None:
        functions = [Exported(name, ()) for name in "cab"]
        assert stub("k.so", functions) == stub("k.so", functions[::-1])
        assert list(definitions(stub("k.so", functions))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"type_schema": "{"},
        {"type_schema": "[]"},
        {"type_schema": "{}"},
        {"type_schema": json.dumps({"type": "ffi.Function"})},
    ],
)
def test_metadata_that_says_nothing(metadata: dict[str, Any] | None) -> None:
    assert read("f", metadata, None) == Exported("f")


MYPY = """
[mypy]
[mypy-farcall.*]
follow_imports = silent
[mypy-farcall.artifact.*,farcall.rpc.*,torch.*]
follow_imports = skip
"""
USES = """
import numpy as np
import numpy.typing as npt
import farcall.ffi
import kernels


class Mine:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


a = np.ones(3, np.float32)
t = Mine()
reveal_type(kernels.scale(a))
reveal_type(kernels.scale(t, by=3.0))
reveal_type(kernels.scale(farcall.ffi.empty((3,))))
reveal_type(kernels.multiples(t, 2))
reveal_type(kernels.both(a))
reveal_type(kernels.zeros((2, 3)))
reveal_type(kernels.total(None, [1.0, 2.0]))
reveal_type(kernels.renamed({"a": t}))
kernels.add_into(a, t, a)
kernels.apply(lambda x: x + 1)
kernels.packed(1, "two")
"""
REVEALED = [
    "ndarray",
    "uses.Mine",
    "farcall._core.Tensor",
    "tuple[uses.Mine, ...]",
    "tuple[ndarray",
    "farcall._core.Tensor",
    "float",
    "dict[str, uses.Mine]",
]
MISUSES = [
    "kernels.scale(3)",
    'kernels.scale(a, by="x")',
    "kernels.scale(x=a, bye=1.0)",
    "kernels.both(arg1=a)",
    "kernels.zeros(4)",
    "kernels.nonsense()",
]


def test_mypy_takes_it(text: str, digits_artifact: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    from farcall.cli.stubgen import functions_of

    (tmp_path / "kernels.pyi").write_text(text)
    (tmp_path / "digits.pyi").write_text(stub("digits.so", functions_of(digits_artifact)))
    uses = [*USES.splitlines(), *MISUSES]
    (tmp_path / "uses.py").write_text("\n".join(uses) + "\n")
    (tmp_path / "mypy.ini").write_text(MYPY)
    source = str(Path(farcall.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=mypy.ini", "--hide-error-context", "."],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": source}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "pyi" not in found.stdout, found.stdout
    revealed = [one.split('"')[1] for one in found.stdout.splitlines() if "Revealed type" in one]
    for expected, got in zip(REVEALED, revealed, strict=True):
        assert expected in got.replace("builtins.", "").replace("numpy.", "")
    bad = {int(one.split(":")[1]) for one in found.stdout.splitlines() if ": error:" in one}
    assert bad == set(range(len(uses) - len(MISUSES) + 1, len(uses) + 1)), found.stdout


class TestCommand:
    def test_prints(self, cli: Cli, torch_kernels: Path, text: str) -> None:
        code, out, err = cli("stubgen", torch_kernels)
        assert (code, err) == (0, "")
        assert out == text.replace("kernels.so", torch_kernels.name)

    def test_writes_and_checks(self, cli: Cli, torch_kernels: Path, tmp_path: Path) -> None:
        assert cli("stubgen", torch_kernels, "-o", "k.pyi") == (0, "", "")
        written = (tmp_path / "k.pyi").read_text()
        assert cli("stubgen", torch_kernels, "-o", "k.pyi", "--check") == (0, "", "")
        (tmp_path / "k.pyi").write_text(written.replace("by: float = 2.0", "by: float = 3.0"))
        code, out, err = cli("stubgen", torch_kernels, "-o", "k.pyi", "--check")
        assert code == 1
        assert "-def scale(x: _Tensor, by: float = 3.0) -> _Tensor:\n+def scale(" in out
        assert "k.pyi is not up to date; run `farcall stubgen` without --check" in err
        assert "3.0" in (tmp_path / "k.pyi").read_text()

    def test_check_of_a_file_that_is_not_there(self, cli: Cli, torch_kernels: Path, tmp_path: Path) -> None:
        code, out, err = cli("stubgen", torch_kernels, "-o", "none.pyi", "--check")
        assert code == 1
        assert "+def scale(" in out
        assert "not up to date" in err
        assert not (tmp_path / "none.pyi").exists()

    def test_check_needs_a_file(self, cli: Cli, torch_kernels: Path) -> None:
        code, _, err = cli("stubgen", torch_kernels, "--check")
        assert code == 2
        assert "name the file with -o FILE.pyi" in err

    def test_an_artifact_by_its_signature(self, cli: Cli, digits_artifact: Path) -> None:
        _, out, _ = cli("stubgen", digits_artifact)
        main = definitions(out)
        assert set(main) == {"main"}
        assert "float32[" in (ast.get_docstring(main["main"]) or "")
        assert "-> _Tensor:" in line(out, "main")

    def test_no_such_file(self, cli: Cli) -> None:
        code, out, err = cli("stubgen", "nowhere.so")
        assert (code, out) == (2, "")
        assert "no such file: 'nowhere.so'" in err

    def test_no_library(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "text.so").write_text("not a library")
        code, _, err = cli("stubgen", "text.so", "-o", "text.pyi")
        assert code == 1
        assert "text.so" in err
        assert not (tmp_path / "text.pyi").exists()

    def test_a_library_without_metadata(self, cli: Cli, compile_kernels: Callable[..., Path]) -> None:
        body = "{ (void)args, (void)result; return num_args; }"
        source = f"#include <farcall/c_api.h>\nFARCALL_KERNEL(plain) {body}\n"
        code, out, err = cli("stubgen", compile_kernels("plain_stub", source))
        assert (code, err) == (0, "")
        assert "def plain(*args: _typing.Any) -> _typing.Any: ..." in out
