"""What a region, a loader or its constants get wrong is told with region, backend and kind."""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import farcall as fc
from farcall.backends._host import OnnxRuntimeBackend, ReferenceBackend
from farcall.backends.base import Backend, Code, RegionCode, RegionModule
from farcall.backends.json import JsonBackend
from farcall.errors import ArtifactError, BackendError, ToolchainError
from farcall.graph import Region
from farcall.rpc import Server
from farcall.toolchain import Target

from ..graph.graphs import text_model

Arrays: TypeAlias = dict[str, Any]
X = np.ones((1, 64), np.float32)
SMALL = "g (float[4] x) => (float[4] y) { y = Exp(x) }"
SILENT = """#include <farcall/c_api.h>
FARCALL_KERNEL(%s) { (void)self; (void)args; (void)num_args; (void)result; return -1; }"""


def test_a_region_that_fails_without_an_error_is_named() -> None:
    class Silent(Backend):
        name = "silent"

        def check(self, node: Any) -> str | None:
            return None

        def compile(self, region: Region) -> RegionCode:  # type: ignore[override]
            return RegionCode({f"{region.name}.c": SILENT % region.name})

    main = (
        fc.partition(text_model("g (float[4] x) => (float[4] y) { y = Exp(x) }"), [Silent()])
        .build()
        .load()["main"]
    )
    with pytest.raises(RuntimeError, match="region `silent_0` of backend `silent`: it failed without"):
        main(np.ones(4, np.float32))


CALLS = SILENT.replace("-1", "missing()").replace("FARCALL", "int missing(void);\nFARCALL")
OTHER = "#include <farcall/c_api.h>\nint other_%s(void) { return 1; }"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int broken(", r"^region `given_0` of backend `given`: compile given_0\.c for "),
        (CALLS, "^region `given_0` of .*missing"),
        (OTHER, "define `__tvm_ffi_given_0` but other_given_0;"),
    ],
)
def test_code_that_cannot_be_built_is_named(text: str, message: str) -> None:
    class Given(Backend):
        name = "given"

        def check(self, node: Any) -> str | None:
            return None

        def compile(self, region: Region) -> RegionCode:  # type: ignore[override]
            return RegionCode({f"{region.name}.c": text.replace("%s", region.name)})

    with pytest.raises((BackendError, ToolchainError), match=re.compile(message, re.DOTALL)):
        fc.partition(text_model(SMALL), [Given()]).build()


def test_an_exception_of_a_module_stays_and_its_traceback_names_the_region() -> None:
    """The exception is the same object, so that a program can catch it by its class."""

    class Unit(Backend):
        name = "unit"

        def check(self, node: Any) -> str | None:
            return None

        def compile(self, region: Region) -> RegionModule:  # type: ignore[override]
            return RegionModule("test.unit", 1, b"", function=region.name)

    class BusyError(Exception):
        pass

    def busy(*_: Any) -> None:
        raise BusyError("unit 3")

    @fc.module_kind("test.unit", override=True)
    def load(blob: Any) -> Any:
        return fc.ffi.new_module(blob.kind, {"unit_0": busy})

    plan = fc.partition(text_model(SMALL), [Unit()])
    with pytest.raises(BusyError) as caught:
        plan.build().load()["main"](np.ones(4, np.float32))
    assert "region `unit_0` of backend `unit`" in "".join(traceback.format_exception(caught.value))
    fc.remove_global_func("ffi.Module.load_from_bytes.test.unit")


def test_an_exception_of_a_module_on_a_server_names_the_region(tmp_path: Path) -> None:
    """Over there is another object: it gets the names in its message."""
    model = text_model("g (float[4] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }")
    path = fc.partition(model, ["onnxruntime"]).build().save(tmp_path / "m.so")
    with Server() as server, fc.connect(server.url) as session:
        main = session.load_module(path)["main"]
        with pytest.raises(RuntimeError, match=r"region `onnxruntime_0` of backend `onnxruntime`: .*Gather"):
            main(np.ones(4, np.float32), np.array([9]))


def weighted() -> onnx.ModelProto:
    model = text_model("g (float[1,64] x) => (float[1,64] y) { a = MatMul(x, w) y = Abs(a) }")
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def changed(base: type[Backend], change: Callable[[Arrays], Arrays]) -> Backend:
    """A backend that gives a module other constants than those that it needs."""

    class Changed(base):  # type: ignore[misc, valid-type]
        def finish(
            self, regions: Sequence[Region], codes: Sequence[Code], target: Target, options: Mapping[str, Any]
        ) -> Sequence[Code]:
            found = super().finish(regions, codes, target, options)
            return [dataclasses.replace(code, constants=change(dict(code.constants))) for code in found]

    made: Backend = Changed()
    return made


CHANGES: dict[str, Callable[[Arrays], Arrays]] = {
    "another dtype": lambda arrays: {name: one.astype(np.float64) for name, one in arrays.items()},
    "another dtype of the same size": lambda arrays: {
        name: one.view(np.int32) for name, one in arrays.items()
    },
    "another shape": lambda arrays: {name: one[:5] for name, one in arrays.items()},
    "one more": lambda arrays: {**arrays, "more": np.ones(3)},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("backend", [OnnxRuntimeBackend, ReferenceBackend, JsonBackend])
@pytest.mark.parametrize("alone", [True, False])
def test_constants_that_a_module_does_not_take(backend: type[Backend], change: str, alone: bool) -> None:
    """Of a graph that is data alone, the build already finds it; of all others, the load."""
    name = backend.name
    wrong, rules = changed(backend, CHANGES[change]), {} if alone else {"exclude": {name: ["Abs*"]}}
    with pytest.raises((ArtifactError, BackendError)) as caught:
        fc.partition(weighted(), [wrong, "c"], **rules).build().load()["main"]
    text = str(caught.value)
    assert f"region `{name}_0` of backend `{name}`" in text and f"of kind `farcall.{name}`" in text
    assert isinstance(caught.value, BackendError if alone and backend is JsonBackend else ArtifactError)


@pytest.mark.parametrize("backend", [OnnxRuntimeBackend, ReferenceBackend])
def test_constants_that_are_not_there(backend: type[Backend]) -> None:
    main = fc.partition(weighted(), [changed(backend, lambda _: {})]).build().load()["main"]
    with pytest.raises(RuntimeError, match="it got none of its 1 constants"):
        main(X)
