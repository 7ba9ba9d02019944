"""Models for the backends that call libraries, and their results beside the C backend's."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import farcall as fc
from farcall.backends.base import Backend
from farcall.errors import FarcallError
from farcall.library._libraries import LibraryNotFoundError, open_library
from farcall.library._manifest import LibraryInfo

from .onnx_nodes import data_of, model_of

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


def need(soname: str, package: str) -> None:
    """Skip the tests of a module without the library, except where it must be there."""
    try:
        open_library(LibraryInfo(soname, "test", (), (), package))
    except LibraryNotFoundError as error:
        pytest.skip(f"pip install {package}: {error} ({platform.machine()})", allow_module_level=True)


def model(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    """The model whose graph is ``text`` in ONNX's own language, with constants; results have any shape."""
    made = parser.parse_model(HEAD + text)
    for result in made.graph.output:
        result.type.tensor_type.ClearField("shape")
    for name, data in constants.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return made


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def same_as_c(made: onnx.ModelProto, backend: str | Backend, *calls: Sequence[np.ndarray]) -> None:
    """One artifact of each gives the same results for all calls."""
    ours = fc.partition(made, backends=[backend, "c"])
    name = backend if isinstance(backend, str) else backend.name
    assert any(region.backend == name for region in ours.regions), "the backend takes nothing"
    one, other = ours.build().load()["main"], fc.partition(made, backends=["c"]).build().load()["main"]
    for inputs in calls:
        for found, wanted in zip(_several(one(*inputs)), _several(other(*inputs)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def _several(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def onnx_cases(operators: set[str]) -> Iterator[TestCase]:
    """ONNX's node tests of these operators, with their own input and output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind="node"):
            if case.model is not None and {node.op_type for node in case.model.graph.node} <= operators:
                yield case


def check_onnx_case(case: TestCase, backend: str | Backend) -> bool:
    """Run a case over ``backend,c``; whether the backend took a part of it."""
    try:
        plan = fc.partition(model_of(case), backends=[backend, "c"])
    except FarcallError:
        return False  # neither takes it; test_onnx_nodes.py knows these
    if all(region.backend == "c" for region in plan.regions):
        return False
    main = plan.build().load()["main"]
    for inputs, outputs in data_of(case):
        for one, other in zip(_several(main(*inputs)), outputs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5, err_msg=case.name)
    return True
