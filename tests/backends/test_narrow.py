"""Floats of 16 and 8 bits: conversions as the reference rounds them, and operators in float32 between."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

import farcall as fc

from .cases import Case, check

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
FLOAT8 = {
    TensorProto.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    TensorProto.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    TensorProto.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    TensorProto.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    TensorProto.FLOAT8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
}
NARROW = {TensorProto.FLOAT16: F16, TensorProto.BFLOAT16: BF16, **FLOAT8}


def edges() -> np.ndarray:
    """Floats of every exponent, ties between neighbouring codes, infinities and NaN."""
    rng = np.random.default_rng(0)
    some = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    codes = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (codes[:-1] + codes[1:]) / 2
    special = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 465, 57344, 61440, 65504, 65519, 65520])
    return np.concatenate([some, codes, ties, special, np.nextafter(ties, np.float32(np.inf))])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_code_is_read_and_every_float_rounded() -> None:
    cases = []
    for number, dtype in NARROW.items():
        codes = np.arange(2 ** (8 * dtype.itemsize), dtype=f"uint{8 * dtype.itemsize}").view(dtype)
        cases.append(Case("Cast", [codes], {"to": TensorProto.FLOAT}, opset=24))
        for saturate in (0, 1) if dtype.itemsize == 1 else (1,):
            modes = ("up", "down", "nearest") if number == TensorProto.FLOAT8E8M0 else ("up",)
            for mode in modes:
                attributes = {"to": number, "saturate": saturate, "round_mode": mode}
                cases.append(Case("Cast", [edges()], attributes, opset=24))
    doubles = np.concatenate(
        [edges().astype(np.float64) * (1 + 1e-12), [1e300, -1e-300, 1 + 2.0**-11 + 1e-15]]
    )
    cases.append(Case("Cast", [doubles], {"to": TensorProto.FLOAT16}, opset=24))
    cases.append(Case("Cast", [np.arange(-300, 300)], {"to": TensorProto.FLOAT16}, opset=24))
    cases.append(Case("Cast", [np.arange(-9, 9).astype(BF16)], {"to": TensorProto.BOOL}, opset=24))
    for case in cases:
        case.rtol = case.atol = 0
    check(cases)


@dataclass(frozen=True)
class Halves:
    """Every float16, some floats, and both as the other type."""

    codes: np.ndarray
    floats: np.ndarray
    widened: np.ndarray
    narrowed: np.ndarray

    model = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (float16[n] codes, float[m] floats) => (float[n] widened, float16[m] narrowed) {
      widened = Cast<to = 1>(codes) narrowed = Cast<to = 10>(floats)
    }""")

    def check(self, results: Sequence[fc.Tensor]) -> None:
        for got, wanted in zip(map(np.asarray, results), (self.widened, self.narrowed), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.fixture(scope="module")
def halves() -> Halves:
    with np.errstate(invalid="ignore", over="ignore"):
        codes, floats = np.arange(2**16, dtype=np.uint16).view(F16), edges()
        return Halves(codes, floats, codes.astype(np.float32), floats.astype(F16))


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_float16_by_the_instructions_of_this_machine(halves: Halves, monkeypatch: pytest.MonkeyPatch) -> None:
    """GCC compiles integer code, and so the other tests of this machine do not run them."""
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc")
    halves.check(fc.partition(halves.model).build().load()["main"](halves.codes, halves.floats))


@pytest.mark.parametrize("machine", ["aarch64", "s390x"])
def test_float16_on_other_machines(machine: str, halves: Halves, tmp_path: Path) -> None:
    """The first has instructions for it, the second does not."""
    if shutil.which(f"qemu-{machine}") is None:
        pytest.skip(f"needs qemu-{machine}")
    path = fc.partition(halves.model).build(f"{machine}-linux-musl").save(tmp_path / "model.so")
    with fc.launch(f"emulator:{machine}") as device, device.connect() as session:
        given = [session.tensor(one) for one in (halves.codes, halves.floats)]
        halves.check([one.numpy() for one in session.load_module(path)["main"](*given)])


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_operators_compute_in_float32(dtype: np.dtype) -> None:
    rng = np.random.default_rng(1)

    def x(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    unit = 2.0**-10 if dtype == F16 else 2.0**-7
    cases = [
        Case("Add", [x(3, 4), x(4)]),
        Case("Sigmoid", [x(3, 4)]),
        Case("MatMul", [x(5, 40), x(40, 7)], constants=[1]),
        Case("ReduceSum", [x(4, 5), np.int64([1])], constants=[1]),
        Case("Softmax", [x(4, 30)]),
        Case("Transpose", [x(2, 3, 4)], {"perm": [2, 0, 1]}),
        Case("Gather", [x(5, 3), np.int64([4, -1, 0])]),
        Case("Concat", [x(2, 3), x(4, 3)], {"axis": 0}),
        Case("Where", [np.array([True, False]), x(2), x(2)]),
        Case("Reshape", [x(2, 6), np.int64([3, 4])], constants=[1]),
        Case("Pad", [x(2, 3), np.int64([1, 0, 0, 2]), x(1)[0]], constants=[1]),
    ]
    if dtype == F16:  # ONNX has no bfloat16 for these
        cases.append(Case("Conv", [x(1, 3, 8, 8), x(5, 3, 3, 3), x(5)], {"pads": [1, 1, 1, 1]}, [1, 2]))
        cases.append(Case("MaxPool", [x(1, 2, 6, 6)], {"kernel_shape": [2, 2]}))
    for case in cases:
        case.rtol, case.atol = 2 * unit, 2 * unit
    check(cases)


def chain(dtype: int) -> onnx.ModelProto:
    """Two operators on a symbolic batch, with a constant, and a value that is used twice."""
    text = f"""<ir_version: 11, opset_import: ["": 24]>
    g (T[n, 4] x) => (T[n, 4] y, T[4, n] z) {{
      wide = Cast<to = 1>(x) double = Add(wide, wide)
      y = Cast<to = {dtype}>(double)
      z = Transpose(y)
    }}"""
    name = {1: "float", 10: "float16", 16: "bfloat16"}.get(dtype) or TensorProto.DataType.Name(dtype).lower()
    return onnx.parser.parse_model(text.replace("T[", f"{name}["))


@pytest.mark.parametrize("number", NARROW)
def test_they_cross_every_border(number: int, tmp_path: Path) -> None:
    """An artifact takes and returns them, here and on a server, and its signature names them."""
    dtype = NARROW[number]
    path = tmp_path / "model.so"
    fc.partition(chain(number), backends=["c"]).build().save(path)
    x = np.float32([[1, 2, 0.5, 4], [8, 0.25, 16, 1]]).astype(dtype)
    expected = (x.astype(np.float32) * 2).astype(dtype)
    module = fc.load_module(path)
    assert str(module["main"].signature).startswith(f"(x: {dtype.name}[n, 4])")
    with fc.connect(f"pipe:{sys.executable} -m farcall serve --stdio") as session:
        for main in (module["main"], session.load_module(path)["main"]):
            y, z = map(np.asarray, main(x))
            assert y.dtype == z.dtype == dtype
            np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
            np.testing.assert_array_equal(z.astype(np.float32), expected.T.astype(np.float32))


@pytest.mark.parametrize("value", [0.5, 1.5])
def test_a_constant_of_one_element_is_read(value: float) -> None:
    """It becomes a literal in the code, not a table."""
    dtypes = {
        **NARROW,
        TensorProto.FLOAT4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
        TensorProto.INT4: np.dtype(ml_dtypes.int4),
        TensorProto.UINT2: np.dtype(ml_dtypes.uint2),
    }
    constants = [np.array(value).astype(dtype) for dtype in dtypes.values()]
    names = [f"k{number}" for number in dtypes]
    nodes = [onnx.helper.make_node("Cast", [name], [f"y{name}"], to=TensorProto.FLOAT) for name in names]
    results = [onnx.helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, []) for name in names]
    given = [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [])]
    weights = [onnx.numpy_helper.from_array(*item) for item in zip(constants, names, strict=True)]
    graph = onnx.helper.make_graph(nodes, "g", given, results, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)], ir_version=11)
    found = fc.partition(model, backends=["c"]).build().load()["main"](np.float32(0))
    assert [float(np.from_dlpack(one)) for one in found] == [float(one) for one in constants]
