"""Quantized operators against the reference evaluator, whose integers are exact."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest
from onnxruntime import InferenceSession

from farcall.toolchain._target import host_cpu_flags

from ..exact_bytes import seven_bits
from .cases import Case, check, refusal
from .harness import NATIVE, compile_regions, whole_region

I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)


def narrow(*shape: int, dtype: np.dtype = U8, seed: int = 0) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 40).astype(np.float32)


def run(case: Case) -> list[np.ndarray]:
    """What the backend's code computes, where the reference evaluator has no answer or another one."""
    (compiled,) = compile_regions([whole_region(case.model(), name="c_run")], flags=("-O1",))
    return compiled(*case.feeds())


def test_matmul_integer() -> None:
    shapes = [((3, 4), (4, 5)), ((17, 300), (300, 33)), ((4,), (4, 3)), ((2, 3, 4), (4, 5)), ((0, 4), (4, 5))]
    cases = [
        Case("MatMulInteger", [narrow(*a, dtype=x), narrow(*b, dtype=y, seed=1), *zeros(x, y)], {}, constants)
        for a, b in shapes
        for x, y, zeros, constants in [
            (U8, I8, lambda x, y: [], ()),
            (I8, U8, lambda x, y: [np.array(3, x)], (1,)),
            (U8, U8, lambda x, y: [np.array([7], x), np.array(119, y)], (1, 2, 3)),
            (I8, I8, lambda x, y: [np.array([-7], x), np.array(119, y)], ()),
        ]
    ]
    check(cases, flags=["-O0"])


AVX2 = ["-mavx2"] if "avx2" in host_cpu_flags() else []


@pytest.mark.parametrize("flags", [["-O2"], ["-O3", *AVX2], ["-O3", *NATIVE]])
def test_products_of_the_largest_bytes(flags: list[str]) -> None:
    """No pair of products saturates: in vectors of 16, 32 and 64 bytes, rows and columns that fill none.

    The last sizes need several parts of the copies of rows, of columns, and along K.
    """
    cases = []
    for dtype, other in ((U8, I8), (I8, U8), (U8, U8), (I8, I8)):
        for m, k, n in ((1, 3, 5), (6, 514, 37), (9, 64, 16), (35, 300, 133), (133, 300, 35)):
            low = np.iinfo(other).min if other == I8 else 255
            a = np.full((m, k), 255 if dtype == U8 else -128, dtype)
            b = np.full((k, n), low, other)
            a[0], b[:, 0] = narrow(k, dtype=dtype), narrow(k, dtype=other)
            cases.append(Case("MatMulInteger", [a, b], {}, [1]))
            image, weights = a.T.reshape(1, k, m, 1), b.T.reshape(n, k, 1, 1)
            cases.append(Case("ConvInteger", [image, weights], {}, [1]))
    check([case for case in cases if case.op == "MatMulInteger" or case.operands[1].dtype == I8], flags=flags)


def at_the_end_of_memory(data: np.ndarray) -> np.ndarray:
    """A copy, behind which is a page that cannot be read."""
    size = -(-data.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + size), mmap.PAGESIZE, 0) == 0
    copy = np.frombuffer(pages, data.dtype, data.size, size - data.nbytes).reshape(data.shape)
    copy[:] = data
    return copy


@pytest.mark.parametrize("flags", [["-O2"], ["-O3", *NATIVE]])
def test_products_read_no_byte_behind_the_last_row(flags: list[str]) -> None:
    for m, k in ((5, 4), (33, 4), (9, 8), (3, 4), (13, 64)):
        a, b = narrow(m, k), narrow(k, 20, dtype=I8, seed=1)
        case = Case("MatMulInteger", [a, b], {}, [1])
        (compiled,) = compile_regions([whole_region(case.model(), name="c_run")], flags=flags)
        np.testing.assert_array_equal(compiled(at_the_end_of_memory(a))[0], a.astype("i4") @ b.astype("i4"))


def test_matmul_integer_with_a_zero_point_for_each_row_and_column() -> None:
    a, b = narrow(2, 6, 9), narrow(2, 9, 5, dtype=I8, seed=1)
    rows, columns = narrow(2, 6, 1, seed=2), narrow(2, 1, 5, dtype=I8, seed=3)
    check(
        [
            Case("MatMulInteger", [a, b, rows, columns]),
            Case("MatMulInteger", [a, b, rows, columns], constants=(1, 3)),
            Case("MatMulInteger", [a[0], b[0], rows[0], columns[0]]),
            Case("MatMulInteger", [a[0], b[0], None, columns[0, 0]], constants=(1, 3)),
        ]
    )


def test_a_vector_of_zero_points_belongs_to_the_rows_of_a_matrix() -> None:
    """The specification's rule; the reference evaluator would add them along the columns."""
    a, b, rows = narrow(4, 4), narrow(4, 4, seed=1), narrow(4, seed=2)
    vector = run(Case("MatMulInteger", [a, b, rows]))
    np.testing.assert_array_equal(vector[0], Case("MatMulInteger", [a, b, rows[:, None]]).expected()[0])


def test_conv_integer() -> None:
    cases = []
    for x, w, group, attributes in [
        ((1, 1, 3, 3), (1, 1, 2, 2), 1, {}),
        ((2, 4, 9, 7), (8, 4, 3, 3), 1, {"pads": [1, 1, 1, 1]}),
        ((2, 4, 9, 7), (8, 2, 3, 3), 2, {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ((1, 6, 8, 8), (6, 1, 3, 3), 6, {"pads": [1, 1, 1, 1], "dilations": [1, 2]}),
        ((1, 5, 6, 6), (7, 5, 1, 1), 1, {}),
        ((2, 3, 20), (5, 3, 4), 1, {"auto_pad": "SAME_UPPER"}),
    ]:
        for dtype, zeros, fixed in [(U8, 0, False), (I8, 1, True), (U8, 2, False), (I8, 2, True)]:
            items = [narrow(*x, dtype=dtype), narrow(*w, dtype=I8, seed=1)]
            items += [np.array(9, dtype), np.array(-3, I8)][:zeros]
            constants = tuple(i for i in (1, 3) if i < len(items)) if fixed else ()
            cases.append(Case("ConvInteger", items, {"group": group, **attributes}, constants))
    check(cases, flags=["-O0"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantize_rounds_to_even_and_saturates(dtype: type) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e6, -1e6, 3.49, -3.51, 254.7], np.float32)
    zero = np.array(5, dtype)
    check(
        [
            Case("QuantizeLinear", [x, np.array(1, np.float32), zero]),
            Case("QuantizeLinear", [x, np.array(0.37, np.float32), zero], constants=(1, 2)),
        ]
    )


def scales(count: int, seed: int) -> np.ndarray:
    """Multiples of a quarter, so that many products are halfway between two integers."""
    return np.random.default_rng(seed).integers(1, 9, count).astype(np.float32) / 4


def exact(cases: list[Case], *flags: str) -> None:
    """Compare with onnxruntime: each bit, also of ties."""
    regions = [whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)]
    for case, item in zip(cases, compile_regions(regions, flags=["-O0", *flags]), strict=True):
        session = InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
        expected = session.run(None, dict(zip(case.names(), case.feeds(), strict=True)))
        (got,) = item(*case.feeds())
        np.testing.assert_array_equal(got, expected[0], err_msg=f"{case.op} {dict(case.attributes)}")


def test_qlinear_matmul() -> None:
    cases = []
    shapes = [((3, 4), (4, 5)), ((17, 300), (300, 33)), ((2, 3, 4), (4, 5)), ((2, 1, 6, 4), (3, 4, 5))]
    for number, ((a, b), x, y) in enumerate(itertools.product(shapes, (U8, I8), (U8, I8))):
        if x == I8 and y == U8:
            continue  # onnxruntime has no such kernel
        each = b[-1] if number % 2 and len(b) == 2 else 1
        left = [narrow(*a, dtype=x), scales(1, number)[0], np.array(3, x)]
        weights = seven_bits(*b, seed=1) if y == I8 else narrow(*b, seed=1)
        right = [weights, scales(each, 1), np.full(each, -7 % 100, y)]
        out = [scales(1, 2)[0] * np.float32(1 << a[-1].bit_length() + 6), np.array(5, x)]
        cases += [
            Case("QLinearMatMul", list(map(np.asarray, (*left, *right, *out))), constants=constants)
            for constants in ((), (1, 2, 3, 4, 5, 6, 7))
        ]
    exact(cases)


def test_qlinear_matmul_by_rows() -> None:
    rows = [narrow(4, 6), scales(4, 0), narrow(4, seed=2)]
    rest = [narrow(6, 5, seed=1), scales(5, 1), narrow(5, seed=3), np.float32(9000), np.array(100, U8)]
    (got,) = run(Case("QLinearMatMul", [*rows, *rest]))
    a, b = (x.astype(int) for x in (rows[0] - rows[2][:, None].astype(int), rest[0] - rest[2].astype(int)))
    expected = np.rint((a @ b).astype(np.float32) * (rows[1][:, None] * rest[1] / rest[3])) + 100
    np.testing.assert_array_equal(got, np.clip(expected, 0, 255).astype(U8))


def test_qlinear_conv() -> None:
    cases = []
    for x, w, group, attributes in [
        ((1, 1, 3, 3), (1, 1, 2, 2), 1, {}),
        ((2, 4, 9, 7), (8, 4, 3, 3), 1, {"pads": [1, 1, 1, 1]}),
        ((2, 4, 9, 7), (8, 2, 3, 3), 2, {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ((1, 6, 8, 8), (6, 1, 3, 3), 6, {"pads": [1, 1, 1, 1], "dilations": [1, 2]}),
        ((2, 5, 6, 6), (7, 5, 1, 1), 1, {}),
        ((2, 3, 20), (5, 3, 4), 1, {"auto_pad": "SAME_UPPER"}),
        ((1, 2, 4, 5, 6), (5, 2, 2, 3, 3), 1, {"pads": [0, 1, 1, 1, 1, 0]}),
        ((1, 1, 2, 700), (4, 1, 1, 2), 1, {}),  # rows that are longer than a block
        ((1, 9, 26, 26), (16, 9, 1, 1), 1, {}),
        ((1, 6, 9, 9), (8, 3, 3, 2), 2, {"pads": [1, 1, 1, 1], "dilations": [2, 1], "strides": [1, 2]}),
        ((2, 8, 9, 8), (6, 4, 3, 3), 2, {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ((1, 4, 9, 8), (6, 4, 2, 3), 1, {"strides": [2, 3]}),
        # One, two and four columns behind the last vector.
        ((1, 20, 7, 7), (29, 20, 3, 3), 1, {"pads": [1, 1, 1, 1]}),
        ((1, 520, 3, 6), (5, 520, 3, 3), 1, {"pads": [1, 1, 1, 1]}),
        ((1, 400, 14, 14), (26, 400, 1, 1), 1, {}),
    ]:
        outs = w[0]
        for number, (dtype, each, bias) in enumerate([(U8, 1, True), (I8, outs, False), (U8, outs, True)]):
            left = [narrow(*x, dtype=dtype), scales(1, number)[0], np.array(9, dtype)]
            right = [seven_bits(*w, seed=1), scales(each, 1), np.zeros(each, I8)]
            out = [scales(1, 2)[0] * np.float32(256), np.array(-5 % 100, dtype)]
            offsets = [narrow(outs, dtype=np.dtype(np.int16)).astype(np.int32) >> 3] if bias else []
            operands = list(map(np.asarray, (*left, *right, *out, *offsets)))
            constants = tuple(range(1, len(operands))) if number else ()
            cases.append(Case("QLinearConv", operands, {"group": group, **attributes}, constants))
    exact(cases[::2])
    exact(cases, *NATIVE)


def test_quantize_and_dequantize_by_axis() -> None:
    scale = np.array([0.5, 2.0, 0.1, 7.0], np.float32)
    zero = np.array([0, 3, 128, 255], np.uint8)
    x = floats(2, 4, 5)
    cases = [
        Case("QuantizeLinear", [x, np.array(0.7, np.float32)]),
        Case("QuantizeLinear", [x, scale, zero], {"axis": 1}),
        Case("QuantizeLinear", [floats(3, 4), scale, zero], {"axis": -1}, constants=(1, 2)),
        Case("DequantizeLinear", [narrow(2, 4, 5), scale, zero], {"axis": 1}),
        Case("DequantizeLinear", [narrow(2, 5, 4, dtype=I8), scale, zero.astype(np.int8)], {"axis": 2}),
        Case("DequantizeLinear", [np.array([2**31 - 1, -5, 0], np.int32), np.array(0.25, np.float32)]),
    ]
    check(cases)


def test_infinities_saturate_and_not_a_number_becomes_the_lowest() -> None:
    """The reference evaluator casts infinities to int32, whose result is arbitrary."""
    x = np.array([np.inf, 1e30, -np.inf, np.nan], np.float32)
    (y,) = run(Case("QuantizeLinear", [x, np.array(1, np.float32), np.array(4, np.int8)]))
    assert y.tolist() == [127, 127, -128, -128]


def test_dynamic_quantize() -> None:
    check(
        [
            Case("DynamicQuantizeLinear", [x], outputs=3)
            for x in (floats(3, 7), np.abs(floats(9)) + 1, -np.abs(floats(4, 2)) - 3)
        ]
    )


def test_dynamic_quantize_of_zeros_has_scale_one() -> None:
    y, scale, zero = run(Case("DynamicQuantizeLinear", [np.zeros((2, 3), np.float32)], outputs=3))
    assert (y == 0).all() and scale == 1 and zero == 0


def test_what_is_refused_says_why() -> None:
    assert "one for each row" in refusal(Case("MatMulInteger", [narrow(2, 3), narrow(3, 4), narrow(5)]))
    assert "2 elements for axis 1 of size 4" in refusal(
        Case("QuantizeLinear", [floats(3, 4), np.ones(2, np.float32), np.zeros(2, np.uint8)])
    )
    assert "is needed for blocks of 2 on axis 0" in refusal(
        Case("DequantizeLinear", [narrow(4, 4), np.ones((3, 4), np.float32)], {"block_size": 2, "axis": 0})
    )
    with_two_scales = [narrow(2, 3), np.ones(2, np.float32), np.uint8([0, 0]), narrow(3, 4)]
    rest = [np.ones(3, np.float32), np.uint8([0, 0, 0]), np.ones((), np.float32), np.uint8(0)]
    assert "neither one number" in refusal(Case("QLinearMatMul", [*with_two_scales, *rest]))


def test_blocks_have_scales_of_their_own() -> None:
    cases = []
    for shape, axis, size in [((4, 6), 0, 2), ((4, 6), 1, 4), ((2, 5, 3), -2, 2), ((2, 3, 9), 2, 9)]:
        blocks = list(shape)
        blocks[axis] = -(-shape[axis] // size)
        scale = np.abs(floats(*blocks)) / 40 + np.float32(0.1)
        attributes = {"axis": axis, "block_size": size}
        for dtype in (U8, I8, np.dtype(np.int16)):
            zero = narrow(*blocks, dtype=dtype, seed=1)
            cases.append(Case("DequantizeLinear", [narrow(*shape, dtype=dtype), scale, zero], attributes))
            cases.append(Case("QuantizeLinear", [floats(*shape), scale, zero], attributes, constants=(1, 2)))
        cases.append(Case("DequantizeLinear", [narrow(*shape), scale.astype(np.float16)], attributes))
    check(cases)


def test_symbolic_sizes() -> None:
    scale, zero = np.float32([0.5]), np.array(3, np.uint8)
    x, w = narrow(2, 3, 8, 7), narrow(5, 3, 3, 3, dtype=I8, seed=1)
    conv = [x, scale, zero, w, np.float32([0.01]), np.array(0, I8), np.float32([2]), zero]
    matmul = [x, scale, zero, narrow(7, 4), scale, zero, np.float32([300]), zero]
    named = ["n", 3, "h", 7]
    fixed = tuple(range(1, 8))
    same = {"auto_pad": "SAME_LOWER"}
    check(
        [
            Case("QLinearConv", conv, {"strides": [2, 1]}, constants=fixed, symbolic={0: named}),
            Case("QLinearConv", conv, same, constants=fixed, symbolic={0: ["n", 3, "h", "k"]}),
            Case("QLinearMatMul", matmul, constants=(3,), symbolic={0: named}),
        ]
    )


def test_constant_matrices_of_bytes() -> None:
    """All dtypes and zero points, around the sizes of tiles: 12 rows, 32 columns, and fours along K."""
    rng, cases = np.random.default_rng(3), []
    sizes = [(1, 4, 16), (3, 5, 17), (13, 8, 33), (25, 31, 48), (100, 12, 40), (0, 4, 3)]
    for (m, k, n), x, y in itertools.product(sizes, (U8, I8), (U8, I8)):
        a, b = narrow(m, k, dtype=x), narrow(k, n, dtype=y, seed=1)
        each = narrow(n, dtype=y, seed=2) if n % 2 else narrow(1, dtype=y, seed=2)
        zeros = [narrow(1, dtype=x, seed=int(rng.integers(9))), each]
        cases.append(Case("MatMulInteger", [a, b, *zeros], {}, (1, 3)))
    check(cases[::2], flags=["-O1"])  # without the instructions that a processor may have for it
    check(cases, flags=["-O1", *NATIVE])
