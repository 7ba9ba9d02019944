"""The metadata of exported functions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from farcall.ffi import Module


def metadata(kernels: Module, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(kernels[f"_metadata_{name}"]())
    value["type_schema"] = json.loads(value["type_schema"])
    return value


def test_types_are_those_of_tvm_ffi(kernels: Module) -> None:
    schema = metadata(kernels, "half")["type_schema"]
    optional = {"type": "Optional", "args": [{"type": "int"}]}
    assert schema == {"type": "ffi.Function", "named_args": {"return": [optional], "params": [optional]}}


@pytest.mark.parametrize(
    ("name", "params", "result"),
    [
        ("asked", ["DLTensor*"], "ffi.String"),
        ("keep", ["ffi.Tensor"], "ffi.Tensor"),
        ("mean", ["float", "float"], "float"),
        ("length", ["ffi.String", "ffi.Bytes"], "int"),
        ("kinds", ["DataType", "Device"], "ffi.String"),
        ("apply", ["ffi.Function", "int"], "Any"),
        ("dims", ["ffi.Shape"], "ffi.Shape"),
        ("total", ["ffi.Map"], "ffi.String"),
        ("swap", ["Tuple"], "Tuple"),
        ("nothing", [], "None"),
        ("pointer", ["void*"], "bool"),
    ],
)
def test_schemas(kernels: Module, name: str, params: list[str], result: str) -> None:
    named = metadata(kernels, name)["type_schema"]["named_args"]
    assert [param["type"] for param in named["params"]] == params
    assert [one["type"] for one in named["return"]] == [result]


def test_a_typed_callback_has_its_own_schema(kernels: Module) -> None:
    callback = metadata(kernels, "apply_typed")["type_schema"]["named_args"]["params"][0]
    assert callback["named_args"] == {"return": [{"type": "int"}], "params": [{"type": "int"}]}


def test_names_defaults_and_texts(kernels: Module) -> None:
    assert metadata(kernels, "options")["parameters"] == [
        {"name": "n", "doc": "how many"},
        {"name": "mode", "default": "a much longer text"},
        {"name": "by", "default": 1.5},
        {"name": "limit", "default": None},
    ]
    assert metadata(kernels, "kinds")["parameters"] == [
        {"name": "dtype", "default": "float32"},
        {"name": "device", "default": "cpu:0"},
    ]
    assert kernels["_doc_options"]() == "Has defaults of every kind."
    assert kernels["_doc_add"]() == ""


def test_a_const_view_is_said_to_be_read_only(kernels: Module) -> None:
    assert metadata(kernels, "doubled")["parameters"] == [{"name": "x", "read_only": True}]
    assert metadata(kernels, "add_one")["parameters"] == [{"name": "x"}]


def test_a_result_like_a_parameter(kernels: Module) -> None:
    assert metadata(kernels, "doubled")["shape_like"] == "x"
    assert "shape_like" not in metadata(kernels, "columns")
    with pytest.raises(ValueError, match=r'farcall::like\("y"\) names no parameter'):
        kernels["_metadata_unlike"]()


def test_names_that_were_not_given_are_said_to_be_made_up(kernels: Module) -> None:
    assert metadata(kernels, "add")["named"] is True
    assert metadata(kernels, "narrow")["named"] is False


def test_a_function_that_checks_by_itself_has_no_parameters(kernels: Module) -> None:
    assert metadata(kernels, "count_all") == {"type_schema": {"type": "ffi.Function"}}


def test_a_modules_list_has_functions_only(kernels: Module) -> None:
    names = kernels.function_names()
    assert "options" in names
    assert not [name for name in names if name.startswith(("_metadata_", "_doc_"))]
