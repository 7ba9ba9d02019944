"""Artifacts that bring the loader of their modules: they run where nobody has heard of the kind."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.backends.base import RegionModule
from farcall.errors import BackendError, ToolchainError
from farcall.graph import Region
from farcall.toolchain import Target

from ..native.small_server import named, small_server
from .stub_backend import Stub, model, plan

LOADER = """
#include <farcall/module.h>
extern FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;

static int scale(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const float factor = (float)*(const signed char*)self;
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  int64_t count = 1;
  for (int i = 0; i < x->ndim; ++i) count *= x->shape[i];
  for (int64_t i = 0; i < count; ++i) ((float*)y->data)[i] = ((const float*)x->data)[i] * factor;
  (void)n, (void)result;
  return 0;
}

FARCALL_MODULE_LOADER(acme_scale) {
  const struct FarcallModuleKind kind = {"acme.scale", 1, 1, NULL};
  const struct FarcallModuleFunction functions[] = {{"scale", scale, NULL}};
  struct FarcallBlob blob;
  TVMFFIObjectHandle module;
  if (__farcall_runtime->blob_read(&kind, args, &blob) != 0) return -1;
  const struct FarcallModuleSpec spec = {
      .struct_size = sizeof spec, .kind = "acme.scale", .functions = functions, .function_count = 1,
      .state = (void*)blob.data};
  if (__farcall_runtime->module_create(&spec, &module) != 0) return -1;
  *result = (TVMFFIAny){.type_index = kTVMFFIModule, .v_obj = module};
  return 0;
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
MODEL = model([("Neg", "x", "a"), ("Abs", "a", "b"), ("Neg", "b", "y")], {"x": ["n", 3]}, {"y": ["n", 3]})


class Bringing(Stub):
    def __init__(self, loader: str = LOADER) -> None:
        super().__init__("acme", ["Neg"])
        self._loader = loader

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Any:
        loader = self._loader.replace("{name}", region.name)
        return RegionModule("acme.scale", 1, b"\xff", function="scale", loader=loader)


def build(loader: str = LOADER) -> Any:
    return plan(MODEL, Bringing(loader), Stub("cpu", ["Abs"])).build()


def test_it_is_loaded_where_nobody_knows_the_kind() -> None:
    module = build().load()
    assert [one.kind for one in module.imports] == ["acme.scale"]
    np.testing.assert_array_equal(module["main"](X), -np.abs(X))


def test_a_server_that_does_not_know_the_kind(tmp_path: Path) -> None:
    path = build().save(tmp_path / "m.so")
    with fc.connect(f"pipe:{sys.executable} -m farcall serve --stdio") as session:
        np.testing.assert_array_equal(session.load_module(path)["main"](X).numpy(), -np.abs(X))


def test_a_board_without_python(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    machine = named("x86_64")
    program = " ".join(small_server(machine, tmp_path_factory))
    artifact = plan(MODEL, Bringing(), Stub("cpu", ["Abs"])).build(str(machine.target))
    path = artifact.save(tmp_path / "m.so")
    with fc.connect(f"pipe:{program} --stdio --workpath {tmp_path}", timeout=60) as session:
        main = session.load_module(path)["main"]
        np.testing.assert_array_equal(main(session.tensor(X)).numpy(), -np.abs(X))


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (LOADER + "/* {name} */", "they bring different loaders"),
        ("int nothing;", r"region `acme_0` brings does not export `__farcall_load_acme_scale`"),
    ],
)
def test_a_loader_that_is_not_one(loader: str, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        build(loader)


def test_it_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: Target) -> None:
        raise ToolchainError("no C compiler found")

    monkeypatch.setattr("farcall.artifact._build.find_compiler", refuse)
    alone = model([("Neg", "x", "y")], {"x": ["n", 3]}, {"y": ["n", 3]})
    with pytest.raises(ToolchainError, match="region `acme_0` brings the loader of its module"):
        plan(alone, Bringing()).build()
