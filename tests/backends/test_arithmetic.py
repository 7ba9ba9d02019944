"""Elementwise operators against the reference evaluator, and the corners where C differs from numpy."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from onnx import parser

import farcall as fc
from farcall.backends.c import CBackend
from farcall.toolchain import Target

from .cases import Case, check, refusal
from .harness import CC, COMPILE, whole_region

FLOATS = [np.float32, np.float64]
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
SHAPES = [((2, 3), (2, 3)), ((2, 3), (3,)), ((4, 1, 3), (2, 1)), ((), (2,)), ((0, 3), (1, 3)), ((), ())]


def numbers(dtype: type, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.floating):
        return (rng.standard_normal(shape) * 3).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_binary(op: str) -> None:
    cases = []
    for dtype in FLOATS + SIGNED + UNSIGNED:
        for number, (left, right) in enumerate(SHAPES):
            a, b = numbers(dtype, left, number), numbers(dtype, right, number + 100)
            if op == "Div" and dtype not in FLOATS:
                b = np.where(b == 0, dtype(1), b).astype(dtype)
                a = (a // 2).astype(dtype)  # the smallest by -1 has a test of its own
                a, b = a.reshape(left), b.reshape(right)
            cases.append(Case(op, [a, b]))
    if op == "Div":  # the reference floors; ONNX truncates since version 14 of the operator
        for case in cases:
            if case.operands[0].dtype.type in SIGNED:
                case.operands = [np.abs(case.operands[0]), np.abs(np.maximum(case.operands[1], -127)) | 1]
    check(cases)


def test_integer_division_truncates_and_never_traps() -> None:
    a = np.array([7, -7, 5, np.iinfo(np.int32).min], np.int32)
    b = np.array([2, 2, 0, -1], np.int32)
    for dtype in (np.int32, np.int64, np.int8):
        low = np.iinfo(dtype).min
        x = np.array([7, -7, 5, low], dtype)
        (region,) = _compiled([Case("Div", [x, b.astype(dtype)])])
        np.testing.assert_array_equal(region(x, b.astype(dtype))[0], np.array([3, -3, 0, low], dtype))
    assert a[3] == -(2**31)


def _compiled(cases: list[Case]) -> list:
    from .harness import compile_regions, whole_region

    return compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])


UNARY = ["Sqrt", "Exp", "Log", "Tanh", "Sigmoid", "Relu", "LeakyRelu", "Neg", "Abs", "Erf", "Elu", "Selu",
         "Softplus", "Softsign", "Reciprocal", "Floor", "Ceil", "Round", "Sin", "Cos", "Sign",
         "HardSigmoid", "HardSwish"]  # fmt: skip
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan]


def test_unary() -> None:
    cases = []
    for dtype in FLOATS:
        for op in UNARY:
            wide = Case(op, [np.concatenate([numbers(dtype, (40,)), np.array(EDGES, dtype)])])
            cases += [wide, Case(op, [numbers(dtype, (2, 0))])]
            if op != "Softsign":  # the reference evaluator refuses its own scalar
                cases += [Case(op, [numbers(dtype, ())])]
    for case in cases:
        if case.op in (
            "Softplus",
            "HardSwish",
            "Selu",
            "Elu",
            "Exp",
        ):  # infinities meet in the reference's formula
            case.operands = [np.where(np.abs(x) > 80, x.dtype.type(80), x) for x in case.operands]
    check(cases)


@pytest.mark.parametrize("backends", [["c"], ["json", "c"]])
def test_exponential_units_keep_their_digits_near_zero(backends: list[str]) -> None:
    """exp(x) - 1 has few of them: exp(x) is rounded to 1 first."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[n] x, double[n] d) => (float[n] a, double[n] b, float[n] c, double[n] e, float[n] f) {
      a = Elu(x) b = Elu(d) c = Selu(x) e = Selu(d) f = Celu(x)
    }""")
    main = fc.partition(model, backends=backends).build().load()["main"]
    d = -np.logspace(-30, 2, 200)
    x = d.astype(np.float32)
    scale = 1.67326319217681884765625 * 1.05070102214813232421875
    for found, given, factor in zip(main(x, d), (x, d, x, d, x), (1, 1, scale, scale, 1), strict=True):
        true = np.expm1(given.astype(np.float64)) * factor
        eps = 8 * np.finfo(given.dtype).eps
        np.testing.assert_allclose(np.from_dlpack(found), true, rtol=eps)


@pytest.mark.parametrize("dtype", SIGNED)
def test_integer_unary_wraps(dtype: type) -> None:
    x = np.array([np.iinfo(dtype).min, -1, 0, 5, np.iinfo(dtype).max], dtype)
    check([Case("Neg", [x]), Case("Abs", [x]), Case("Relu", [x]), Case("Sign", [x])])


def test_power() -> None:
    x = np.array([0.5, 2.0, 3.0, -2.0], np.float32)
    cases = [
        Case("Pow", [x, np.array(e, kind)]) for e in (0, 1, 2, 3) for kind in (np.float32, np.int32, np.int64)
    ]
    cases += [Case("Pow", [x, np.array([2.0], np.float32)], constants=[1])]
    i = np.array([0, 1, -1, 3, -7], np.int32)
    cases += [Case("Pow", [i, np.array(3, np.float32)], constants=[1])]
    cases += [Case("Pow", [i, np.array(e, np.int64)]) for e in (0, 1, 2, 5)]
    cases += [Case("Pow", [np.abs(i).astype(np.int64), np.array(1.5, np.float32)])]
    check(cases)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_powers_that_are_known_are_those_of_pow(kind: str) -> None:
    """Those of onnxruntime and, for one exponent, of numpy are no powers of -0 and -infinity, but Sqrt."""
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g ({kind}[n] x) => ({kind}[n] a, {kind}[n] b, {kind}[n] c)
    <float cube = {{3.0}}, float half = {{0.5}}, float inverse = {{-0.5}}> {{
      a = Pow(x, cube) b = Pow(x, half) c = Pow(x, inverse)
    }}""")
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1, 2, 0.1, 1e13, 3e-14])
    x = x.astype(np.float32 if kind == "float" else np.float64)
    main = fc.partition(model).build().load()["main"]
    with np.errstate(all="ignore"):
        for found, power in zip(main(x), (3, 0.5, -0.5), strict=True):
            true = np.power(x, np.full_like(x, power))
            np.testing.assert_allclose(np.from_dlpack(found), true, rtol=4 * np.finfo(x.dtype).eps)
            np.testing.assert_array_equal(np.signbit(found)[:4], np.signbit(true)[:4])


def test_clip_and_extremes_keep_nan() -> None:
    x = np.array([np.nan, -np.inf, -2, 0, 3, np.inf], np.float32)
    one = np.array(1, np.float32)
    check(
        [
            Case("Clip", [x, -one, one]),
            Case("Clip", [x, None, one]),
            Case("Clip", [x, -one]),
            Case("Clip", [x]),
            Case("Clip", [x, -one, one], constants=[1, 2]),
            Case("Relu", [x]),
            Case("Clip", [x, one, -one], constants=[1, 2]),  # min > max: everything is max
            Case("Clip", [x], {"min": -0.5, "max": 2.0}, opset=6),
            Case("Clip", [np.array([1, 9, -4], np.int8), np.array(0, np.int8), np.array(5, np.int8)]),
            Case("Max", [x, -x, one]),
            Case("Min", [x, -x]),
            Case("Max", [np.array([3, -4], np.int64), np.array([[1], [5]], np.int64)]),
        ]
    )


@pytest.mark.skipif(CC.family != "gcc" or Target.host().arch != "x86_64", reason="about gcc for x86-64")
def test_a_known_bound_is_one_instruction_of_a_vector() -> None:
    x, six = np.zeros(100, np.float32), np.array(6, np.float32)
    for case in (Case("Clip", [x, six / 6, six], constants=[1, 2]), Case("HardSwish", [x])):
        code = CBackend().compile(whole_region(case.model()), Target.host(), {})
        (text,) = code.texts.values()
        command = [*COMPILE, *CC.cautions, "-O3", "-march=x86-64-v3", "-S", "-x", "c", "-", "-o", "-"]
        made = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
        assert "vmaxps" in made
        assert "vcmp" not in made


def test_comparisons_logic_and_where() -> None:
    a, b = numbers(np.float32, (3, 4), 1), numbers(np.float32, (4,), 2)
    a[0, 0] = np.nan
    big = np.array([2**62, -(2**63), 2**53 + 1, 5], np.int64)
    flags = np.array([True, False, True, True])
    cases = [Case(op, [a, b]) for op in ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")]
    cases += [Case(op, [big, big[::-1].copy()]) for op in ("Less", "Equal")]
    cases += [Case(op, [flags, flags[::-1].copy()]) for op in ("And", "Or", "Xor")]
    cases += [Case("Not", [flags]), Case("Where", [flags, a, b]), Case("Where", [flags, big, big[:1]])]
    cases += [Case("IsNaN", [a]), Case("IsInf", [np.array(EDGES, np.float32)], {"detect_negative": 0})]
    check(cases)


def test_cast() -> None:
    from onnx import TensorProto

    targets = {
        TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.INT8: np.int8,
        TensorProto.INT32: np.int32, TensorProto.INT64: np.int64, TensorProto.UINT8: np.uint8,
        TensorProto.UINT64: np.uint64, TensorProto.BOOL: np.bool_,
    }  # fmt: skip
    cases = []
    for source in FLOATS:
        x = np.array([0.0, -0.0, 1.9, -1.9, 100.5], source)
        cases += [
            Case("Cast", [np.abs(x) if "uint" in t.__name__ else x], {"to": k}) for k, t in targets.items()
        ]
    for source in SIGNED + UNSIGNED:
        cases += [Case("Cast", [numbers(source, (9,))], {"to": k}) for k in targets]
    cases += [Case("Cast", [np.array([True, False])], {"to": k}) for k in targets]
    check(cases)


def test_cast_out_of_range_is_defined() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9], np.float32)
    from onnx import TensorProto

    regions = _compiled([Case("Cast", [x], {"to": k}) for k in (TensorProto.INT32, TensorProto.INT64)])
    assert regions[0](x)[0].tolist() == [-(2**31)] * 6
    assert regions[1](x)[0].tolist() == [-(2**63)] * 5 + [3_000_000_000]


def test_batch_normalization() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    stats = [rng.random(3).astype(np.float32) + 0.5 for _ in range(4)]
    check(
        [
            Case("BatchNormalization", [x, *stats]),
            Case("BatchNormalization", [x, *stats], {"epsilon": 1e-2}, constants=[1, 2, 3, 4]),
            Case("BatchNormalization", [x[:, :, 0, 0].copy(), *stats]),
            Case("BatchNormalization", [x[:0], *stats], opset=9),
        ]
    )


def test_mod() -> None:
    a, b = numbers(np.float32, (40,)), numbers(np.float32, (40,), 1)
    i, j = numbers(np.int32, (40,)), numbers(np.int32, (40,), 1)
    cases = [Case("Mod", [a, b], {"fmod": 1}), Case("Mod", [i, j]), Case("Mod", [i, j], {"fmod": 1})]
    cases += [Case("Mod", [i.astype(np.uint32), np.abs(j).astype(np.uint32)])]
    floored = Case("Mod", [a, b], opset=28)
    check(cases)
    (region,) = _compiled([floored])
    np.testing.assert_allclose(region(a, b)[0], np.mod(a, b), rtol=1e-6)


def test_older_broadcast() -> None:
    a, b = numbers(np.float32, (2, 3, 4)), numbers(np.float32, (3,), 1)
    case = Case("Add", [a, b], {"broadcast": 1, "axis": 1}, opset=6)
    (region,) = _compiled([case])
    np.testing.assert_allclose(region(a, b)[0], a + b[:, None])


def test_refusals_say_why() -> None:
    assert refusal(Case("Identity", [np.ones(3, np.complex64)])) == "input 0 (`x0`) is complex64"
    assert "no loops for" in refusal(Case("ImageDecoder", [np.ones(3, np.uint8)], shapes={0: [1, 1, 3]}))
    check([Case("Not", [np.ones(3, bool)], opset=1)])
