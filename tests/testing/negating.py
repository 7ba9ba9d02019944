"""A backend for Neg, in right and in wrong ways."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

import farcall as fc
from farcall.backends.base import Backend, Code, RegionCode, RegionModule
from farcall.graph import Region
from farcall.graph.dims import dims
from farcall.toolchain import Target

TEXT = """#include <sched.h>
#include <stdlib.h>
#include <farcall/c_api.h>
{before}
FARCALL_KERNEL({name}) {{
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  const float* from = x->data;
  float* to = y->data;
  int64_t n = 1;
  for (int i = 0; i < x->ndim; ++i) n *= x->shape[i];
  {body}
  return 0;
}}
"""
LOOP = "for (int64_t i = 0; i < n; ++i) to[i] = -from[i];"
PACKED = """FARCALL_KERNEL({name}_init) {{
  float* factor = malloc(sizeof *factor);
  *factor = -1;
  *result = (TVMFFIAny){{.type_index = kTVMFFIOpaquePtr, .v_ptr = factor}};
  return 0;
}}
FARCALL_KERNEL({name}_destroy) {{
  free(self);
  return 0;
}}"""


class Negating(Backend):
    """Takes Neg, each node in a region of its own."""

    name = "neg"
    before = ""
    body = LOOP
    state = False

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type == "Neg" else "only Neg"

    def accept(self, region: Region) -> Any:
        return None if len(region.nodes) == 1 else region.matches[:1]

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Code:
        before = self.before.format(name=region.name)
        text = TEXT.format(name=region.name, before=before, body=self.body)
        return RegionCode({f"{region.name}.c": text}, state=self.state)


class Stateful(Negating):
    before = PACKED
    state = True
    body = "for (int64_t i = 0; i < n; ++i) to[i] = from[i] * *(const float*)self;"


class Module(Negating):
    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Code:
        return RegionModule("negating", 1, b"-1", function="negate")


class OneName(Module):
    """Its modules differ, and their functions have one name."""

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Code:
        return RegionModule("negating", 1, b"-1." + b"0" * int(region.name.split("_")[1]), function="negate")


def register() -> None:
    """Register the kind of `Module`, here or in a server."""

    def load(blob: fc.Blob) -> Any:
        factor = np.float32(blob.data)

        def negate(x: Any, y: Any) -> None:
            np.multiply(np.from_dlpack(x), factor, out=np.from_dlpack(y))

        return fc.ffi.new_module("negating", {"negate": negate})

    fc.module_kind("negating", versions=(1,), override=True)(load)


class FailsIfEmpty(Negating):
    body = "if (n == 0) return -1;" + LOOP


class NotThreadSafe(Negating):
    before = "static float scratch[4096];"
    body = """for (int64_t i = 0; i < n; ++i) scratch[i] = -from[i];
  for (int i = 0; i < 2000; ++i) sched_yield();
  for (int64_t i = 0; i < n; ++i) to[i] = scratch[i];"""


class WantsAlignment(Negating):
    body = "from = (const float*)((uintptr_t)from & ~(uintptr_t)15);" + LOOP


class WritesBeyond(Negating):
    body = LOOP + " to[n] = 0;"


class ReadsBeyond(Negating):
    body = LOOP + " if (*(const volatile float*)(from + n) == 1) return 0;"


class WritesInputs(Negating):
    """What the caller sees of it depends on the caller, who may use an input twice."""

    body = LOOP + " ((float*)x->data)[0] = to[0];"


class KnowsTheSize(Negating):
    """The size that it was compiled for first stays in its code."""

    body = "static int64_t first; if (!first) first = n; if (n > first) n = first;" + LOOP


class AlwaysAnother(Negating):
    def __init__(self) -> None:
        self._count = itertools.count()

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Code:
        made = f'{{{{ return "{next(self._count)}"; }}}}'
        self.before = "const char* made_{name}(void);\nconst char* made_{name}(void) " + made
        return super().compile(region, target, options)


class Wrong(Negating):
    body = LOOP + " if (n > 2) to[2] = 0;"


class Crashes(Negating):
    """Its code writes where nothing is, for tensors of three dims."""

    body = "if (x->ndim == 3) *(volatile int*)8 = 1;" + LOOP


class Aborts(Negating):
    body = 'if (x->ndim == 3) { fputs("unit: out of tiles\\n", stderr); abort(); }' + LOOP
    before = "#include <stdio.h>"


class Hangs(Negating):
    body = "for (volatile int on = 1; x->ndim == 3 && on;) {}" + LOOP


class CrashesWhenAsked(Negating):
    def check(self, node: ir.Node) -> str | None:
        if node.op_type == "Neg" and node.inputs[0] is not None and len(node.inputs[0].shape or ()) == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().check(node)


class Exits(Negating):
    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Code:
        if len(region.inputs[0].shape or ()) == 3:
            os._exit(3)
        return super().compile(region, target, options)


class CrashesIfSymbolic(Negating):
    def check(self, node: ir.Node) -> str | None:
        if node.op_type == "Neg" and not isinstance(dims(node.outputs[0])[0], int):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().check(node)
