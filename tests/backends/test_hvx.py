"""The example backend for the vector unit of Hexagon, run by an emulator, and the quantised model for it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import farcall as fc
from farcall.backends._ctext import c_array
from farcall.backends.base import RegionCode
from farcall.graph import Region
from farcall.graph.dims import dims, evaluate
from farcall.toolchain import Target

from ..exact_bytes import exact_options
from .cases import Case
from .harness import ROOT, whole_region

spec = importlib.util.spec_from_file_location("hvx", ROOT / "examples/backends/hvx.py")
assert spec is not None and spec.loader is not None
hvx = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hvx)

TARGET = ("-target", "hexagon-linux-musl")
CPU = "-mcpu=hexagonv67"


def compiler() -> list[str]:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the ziglang package")
    return [sys.executable, "-m", "ziglang", "cc", *TARGET, "-O2", f"-I{ROOT / 'include'}"]


def emulator() -> list[str]:
    found = shutil.which("qemu-hexagon") or shutil.which("qemu-hexagon-static")
    if found is None:
        pytest.skip("needs qemu-hexagon (Debian's qemu-user)")
    return [found, "-cpu", "v67"]


def bytes_of(*shape: int, dtype: type = np.uint8, seed: int = 0) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def conv(x: tuple[int, ...], w: tuple[int, ...], **attributes: object) -> Case:
    return Case("ConvInteger", [bytes_of(*x), bytes_of(*w, dtype=np.int8, seed=1)], attributes, constants=[1])


def matmul(m: int, k: int, n: int) -> Case:
    return Case("MatMulInteger", [bytes_of(m, k), bytes_of(k, n, dtype=np.int8, seed=1)], constants=[1])


CASES = [
    matmul(1, 1, 1), matmul(3, 4, 32), matmul(2, 37, 45), matmul(5, 256, 64), matmul(4, 64, 10),
    conv((1, 1, 3, 3), (1, 1, 2, 2)),
    conv((2, 1, 8, 8), (16, 1, 3, 3), pads=[1, 1, 1, 1]),
    conv((1, 5, 9, 7), (6, 5, 3, 2), pads=[0, 1, 2, 0], strides=[2, 1]),
    conv((2, 32, 4, 4), (64, 32, 3, 3), pads=[1, 1, 1, 1]),
    conv((1, 3, 6, 6), (7, 3, 1, 1)),
]  # fmt: skip

MAIN = """
#include <stdio.h>
#include <stdlib.h>
typedef int (*region)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static int call(region function, const void* const* table, void* x, int xrank, int64_t* xdims, void* y,
    int yrank, int64_t* ydims, int64_t workspace, size_t size) {
  DLTensor in = {x, {1, 0}, xrank, {1, 8, 1}, xdims, 0, 0}, out = {y, {1, 0}, yrank, {0, 32, 1}, ydims, 0, 0};
  TVMFFIAny args[3] = {{.type_index = 7, .v_ptr = &in}, {.type_index = 7, .v_ptr = &out}, {.type_index = 4}};
  TVMFFIAny result = {0};
  args[2].v_ptr = workspace ? aligned_alloc(64, (size_t)(workspace + 63) / 64 * 64) : NULL;
  if (function((void*)table, args, workspace ? 3 : 2, &result)) return 1;
  return fwrite(y, 1, size, stdout) != size;
}
"""


def constants_in_c(constants: Mapping[str, np.ndarray], folder: Path) -> str:
    """Constants as an object, as an artifact would link them."""
    lines: list[str] = []
    for name, data in constants.items():
        data.tofile(folder / f"{name}.bin")
        parts = ('.section .rodata,"a"', ".balign 64", f".globl {name}", f"{name}:", f'.incbin "{name}.bin"')
        text = "\\n".join(part.replace('"', '\\"') for part in (*parts, ".text"))
        lines.append(f'__asm__("{text}\\n");')
    return "\n".join(lines) + "\n"


def program(regions: list[tuple[Region, RegionCode, np.ndarray]]) -> str:
    """A C program that calls each region with its array, and writes the results to standard output."""
    functions, calls = [], []
    for number, (region, code, x) in enumerate(regions):
        (out,) = region.outputs
        shape = [evaluate(dim, {}) for dim in dims(out)]
        name = f"__tvm_ffi_{region.name}"
        functions += [
            f"int {name}(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);",
            f"static uint8_t x{number}[] = {c_array(x)};\nstatic int32_t y{number}[{np.prod(shape)}];",
            f"static int64_t i{number}[] = {{{', '.join(map(str, x.shape))}}};",
            f"static int64_t o{number}[] = {{{', '.join(map(str, shape))}}};",
            *(f"extern const unsigned char {constant}[];" for constant in code.constants),
            f"static const void* const table{number}[] = {{{', '.join([*code.constants, '0'])}}};",
        ]
        places = f"x{number}, {x.ndim}, i{number}, y{number}, {len(shape)}, o{number}"
        calls.append(
            f"call({name}, table{number}, {places}, {evaluate(code.workspace, {})}, sizeof y{number})"
        )
    body = " || ".join(calls)
    head = "#include <stdint.h>\n#include <farcall/c_api.h>\n"
    return f"{head}{MAIN}" + "\n".join(functions) + f"\nint main(void) {{ return {body}; }}\n"


@pytest.mark.long
def test_products_are_exact_under_emulation(tmp_path: Path) -> None:
    run = emulator()
    backend = hvx.HvxBackend()
    found = [whole_region(case.model(), backend, f"hvx_{i}") for i, case in enumerate(CASES)]
    regions = [
        (r, backend.compile(r, Target.host(), {}), c.feeds()[0]) for r, c in zip(found, CASES, strict=True)
    ]
    things = []
    for region, code, _ in regions:
        (text,) = code.texts.values()
        (tmp_path / f"{region.name}.c").write_text(text + constants_in_c(code.constants, tmp_path))
        things.append(f"{region.name}.o")
        flags = [*code.compile_flags, "-c", f"{region.name}.c", "-o", things[-1]]
        subprocess.run([*compiler(), *flags], cwd=tmp_path, check=True)
    (tmp_path / "main.c").write_text(program(regions))
    subprocess.run([*compiler(), CPU, "-static", "main.c", *things, "-o", "main"], cwd=tmp_path, check=True)
    printed = subprocess.run([*run, str(tmp_path / "main")], capture_output=True, check=True).stdout
    for case in CASES:
        (expected,) = case.expected()
        ours, printed = printed[: expected.nbytes], printed[expected.nbytes :]
        np.testing.assert_array_equal(np.frombuffer(ours, np.int32).reshape(expected.shape), expected)
    assert not printed


def test_the_compiler_writes_vector_multiplications(tmp_path: Path) -> None:
    code = hvx.HvxBackend().compile(
        whole_region(matmul(2, 64, 64).model(), hvx.HvxBackend(), "hvx_0"), Target.host(), {}
    )
    (text,) = code.texts.values()
    (tmp_path / "region.c").write_text(text)
    subprocess.run([*compiler(), *code.compile_flags, "-S", "region.c"], cwd=tmp_path, check=True)
    assert "+= vrmpy(" in (tmp_path / "region.s").read_text()


def test_what_the_vector_unit_lacks_falls_to_others() -> None:
    model = conv((1, 4, 5, 5), (4, 2, 3, 3), group=2).model()
    assert fc.partition(model, backends=[hvx.HvxBackend(), "c"]).regions[0].backend == "c"


def test_the_quantised_digits_are_as_accurate_as_the_model_in_floats() -> None:
    path = ROOT / "examples/digits/digits_int8.onnx"
    data = np.load(ROOT / "examples/digits/test.npz")
    images = data["images"].astype(np.float32) / 16
    plan = fc.partition(path, backends=[hvx.HvxBackend(), "c"])
    assert sum(len(region.nodes) for region in plan.regions if region.backend == "hvx") == 5
    logits = fc.partition(path, backends=["c"]).build().load()["main"](images)
    session = ort.InferenceSession(path, exact_options(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(logits, session.run(None, {"image": images})[0], rtol=1e-5, atol=1e-5)
    assert (np.asarray(logits).argmax(1) == data["labels"]).mean() >= 0.99
