"""MatMul, Gemm, Softmax and reductions against the reference evaluator."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.backends.c import CBackend
from farcall.toolchain import Source, Target, compile_sources, find_compiler
from farcall.toolchain._target import cpu_level, host_cpu_flags

from .cases import Case, check
from .harness import compile_model, compile_regions, whole_region

LEVEL = "x86-64-v3"  # of CPUs with AVX2 and FMA


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(*shape: int, dtype: type = np.int32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**30, shape).astype(dtype)


SHAPES = [
    ((3, 4), (4, 5)), ((17, 300), (300, 33)), ((1, 40), (40, 16)), ((4,), (4,)), ((4,), (4, 3)),
    ((2, 4), (4,)),
    ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((5, 1, 3, 4), (2, 4, 2)), ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((13, 7), (7, 31)), ((2, 0, 4), (2, 4, 5)),
]  # fmt: skip


def test_matmul() -> None:
    cases = [
        Case("MatMul", [normal(*a, dtype=dtype), normal(*b, seed=1, dtype=dtype)], rtol=1e-4, atol=1e-4)
        for a, b in SHAPES
        for dtype in (np.float32, np.float64)
    ]
    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        cases.append(
            Case("MatMul", [whole(5, 9, dtype=dtype), whole(9, 20, dtype=dtype, seed=1)])
        )  # wraps around
    check(cases)


# Around the heights and widths of tiles, groups and panels, and around a block of the inner dimension.
SIZES = [
    (m, n, k) for m in (1, 3, 4, 6, 7, 12, 13, 97) for n in (1, 16, 17, 31, 32, 33, 49) for k in (1, 256, 259)
]


def test_products_of_all_sizes() -> None:
    """One function for all sizes; compiled for this machine, whose vectors are the widest."""
    case = Case("MatMul", [normal(2, 3), normal(3, 2)], symbolic={0: ["m", "k"], 1: ["k", "n"]}, rtol=1e-4)
    (product,) = check([case], native_flags())
    for m, n, k in SIZES:
        a, b = normal(m, k), normal(k, n, seed=1)
        np.testing.assert_allclose(product(a, b)[0], a @ b, rtol=1e-4, atol=1e-4)


def test_products_with_constants_of_all_sizes() -> None:
    """A constant is packed when the model is built."""
    shapes = sorted({(k, n) for _, n, k in SIZES if k != 256})
    products = check(
        [
            Case(
                "Gemm",
                [normal(2, k), normal(n, k), normal(n)],
                {"transB": 1},
                [1],
                symbolic={0: ["m", k]},
                rtol=1e-3,
            )
            for k, n in shapes
        ],
        native_flags(),
    )
    for (k, n), product in zip(shapes, products, strict=True):
        b, bias = normal(n, k), normal(n)
        for m in (1, 2, 4, 13, 60):
            a = normal(m, k)
            np.testing.assert_allclose(product(a, bias)[0], a @ b.T + bias, rtol=1e-3, atol=1e-4)


# Around the numbers of rows and columns that are few, and around the tiles of dots.
THIN = [
    (m, n, k)
    for m in (1, 2, 3, 5, 9, 19, 50)
    for n in (1, 2, 3, 4, 7, 15, 20, 31, 70)
    for k in (0, 1, 2, 7, 12, 67, 300)
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_products_with_few_rows_or_columns(dtype: type) -> None:
    """One function for all sizes, of which some are computed by dots, by sums, and in blocks."""

    def make(*shape: int, seed: int = 0) -> np.ndarray:
        return (normal(*shape, seed=seed) * (1000 if dtype == np.int32 else 1)).astype(dtype)

    cases = []
    for trans_a, trans_b in itertools.product((0, 1), (0, 1)):
        symbols = {
            0: ["k", "m"] if trans_a else ["m", "k"],
            1: ["n", "k"] if trans_b else ["k", "n"],
            2: ["n"],
        }
        operands, turns = [make(2, 2), make(2, 2), make(2)], {"transA": trans_a, "transB": trans_b}
        cases.append(Case("Gemm", operands, turns, symbolic=symbols, rtol=1e-4))
    products = check(cases, native_flags())
    for m, n, k in THIN:
        a, b, c = make(m, k), make(k, n, seed=1), make(n, seed=2)
        for case, product in zip(cases, products, strict=True):
            turns = case.attributes.values()
            given = [np.ascontiguousarray(x.T) if turn else x for x, turn in zip((a, b), turns, strict=True)]
            np.testing.assert_allclose(product(*given, c)[0], a @ b + c, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("m", "n"), [(1, 40), (2, 40), (3, 5), (40, 1), (40, 6), (20, 20)])
@pytest.mark.parametrize("special", [np.nan, np.inf, 0.0, 1e-42])
def test_products_with_few_rows_or_columns_of_special_numbers(m: int, n: int, special: float) -> None:
    """What is not finite reaches its row alone, and zeros that fill tiles reach nothing."""
    a, b = normal(m, 67), normal(67, n, seed=1)
    a[m // 2] = special
    a[0, 66] = special
    turned = [a, np.ascontiguousarray(b.T)]
    check(
        [
            Case(*what, constants=constants, rtol=1e-4, atol=1e-4)
            for what in (("MatMul", [a, b]), ("Gemm", turned, {"transB": 1}))
            for constants in ([], [1])
        ],
        native_flags(),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_short_rows_are_read_alone(dtype: type) -> None:
    """A vector of the end of a row has elements of the next one, which is not finite."""
    symbols = {0: ["m", "k"], 1: ["k", "n"]}, {0: ["m", "k"], 1: ["n", "k"]}
    plain, turned = check(
        [
            Case("MatMul", [normal(2, 2, dtype=dtype), normal(2, 2, dtype=dtype)], symbolic=symbols[0]),
            Case(
                "Gemm",
                [normal(2, 2, dtype=dtype), normal(2, 2, dtype=dtype)],
                {"transB": 1},
                symbolic=symbols[1],
            ),
        ],
        native_flags(),
    )
    for m, n, k in itertools.product((16, 18, 23, 41), (1, 2, 3), (1, 2, 3, 5, 6, 7, 31, 33, 50)):
        a, b = normal(m, k, dtype=dtype), normal(k, n, seed=1, dtype=dtype)
        a[1::2] = np.nan
        across = np.ascontiguousarray(b.T)
        for made in (plain(a, b)[0], turned(a, across)[0], turned(across, a)[0].T):
            np.testing.assert_allclose(made[::2], a[::2] @ b, rtol=1e-4, atol=1e-4)
            assert np.isnan(made[1::2]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_few_steps_of_long_rows(dtype: type) -> None:
    symbols = {0: ["m", "k"], 1: ["k", "n"], 2: ["n"]}
    operands = [normal(2, 2, dtype=dtype), normal(2, 2, dtype=dtype), normal(2, dtype=dtype)]
    (product,) = check([Case("Gemm", operands, symbolic=symbols)], native_flags())
    for m, n, k in itertools.product((1, 2, 4, 7, 13), (64, 101), (2, 3, 4, 8, 9)):
        a, b, c = (normal(*shape, dtype=dtype) for shape in ((m, k), (k, n), (n,)))
        np.testing.assert_allclose(product(a, b, c)[0], a @ b + c, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_transposed_operands_that_fill_no_squares(dtype: type) -> None:
    """A panel of them is turned by squares of 16 bytes, whose sides divide neither of these sizes."""
    a, b = (np.arange(rows * 71).reshape(rows, 71).astype(dtype) % 13 for rows in (21, 39))
    attributes = [{"transB": 1}, {"transA": 1, "transB": 1}]
    check([Case("Gemm", [x, b], turns) for x, turns in zip((a, a.T.copy()), attributes, strict=True)])
    check([Case("Gemm", [a, b], attributes[0])], native_flags())


@pytest.mark.parametrize("rows", [100, 101, 386])
@pytest.mark.parametrize(("dtype", "depth"), [(np.float32, 2048), (np.float64, 1024)])
def test_rows_a_page_apart_are_gathered(rows: int, dtype: type, depth: int) -> None:
    """Memory is for 102 rows, and for all that fit: 384. The last two of 386 fill no tile."""
    a, b = normal(rows, depth).astype(dtype), normal(depth, 100, seed=1).astype(dtype)
    start = normal(1, 100, seed=2).astype(dtype)
    for constants in ([], [1]):
        check([Case("Gemm", [a, b, start], constants=constants, rtol=1e-3, atol=1e-3)], native_flags())


def test_rows_whose_distance_is_known_late_are_gathered_on_the_stack() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[m, k] a, float[k, n] b) => (float[m, n] c) { c = MatMul(a, b) }""")
    a, b = normal(101, 1024), normal(1024, 100, seed=1)
    found = fc.partition(model).build().load()["main"](a, b)
    np.testing.assert_allclose(np.from_dlpack(found), a @ b, rtol=1e-3, atol=1e-3)


def test_a_few_rows_of_few_and_many_steps() -> None:
    """Pairs of rows read eight rows of the matrix at once, fewer rows of it are one sum."""
    sizes = itertools.product((1, 2, 3), (1, 7, 8, 17), (5, 40))
    operands = [(normal(m, k), normal(k, n, seed=1)) for m, k, n in sizes]
    cases = [Case("MatMul", list(pair), rtol=1e-4, atol=1e-4) for pair in operands]
    starts = [Case("Gemm", [a, b, normal(b.shape[1])], rtol=1e-4, atol=1e-4) for a, b in operands[::3]]
    check([*cases, *starts], native_flags())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_short_rows_times_a_few_columns(dtype: type) -> None:
    """Padded rows of the result overlap the next ones, except the last; starts differ by row or column."""
    cases = []
    for m, k, n in [(16, 1, 1), (37, 64, 3), (21, 5, 4), (33, 30, 7), (40, 3, 8), (37, 64, 12), (19, 2, 15)]:
        a, b = (np.arange(x * y).reshape(x, y).astype(dtype) % 11 for x, y in ((m, k), (k, n)))
        cases.append(Case("MatMul", [np.stack([a, a + 1]), b]))
        c = np.arange(m * n).reshape(m, n).astype(dtype) % 5
        starts = [c, c[:, :1].copy(), c[0]] if n in (3, 12) else []
        cases += [Case("Gemm", [a, b.T.copy(), start], {"transB": 1}) for start in starts]
        cases += [Case("Gemm", [a, b, start]) for start in starts]
    check(cases, native_flags())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows_of_a_transposed_operand_are_packed(dtype: type) -> None:
    """More rows than are packed at once, of more of K."""
    a, b = normal(270, 200).astype(dtype), normal(270, 100, seed=1).astype(dtype)
    operands = [(b, {"transA": 1}), (b.T.copy(), {"transA": 1, "transB": 1})]
    check([Case("Gemm", [a, x], turns, rtol=1e-3, atol=1e-3) for x, turns in operands], native_flags())


def test_every_number_of_rows_up_to_some_tiles() -> None:
    """The last tiles overlap others, each in its own way; also with a start for each row or column."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[m, 19] a, float[19, 49] b, float[m, 1] s)
      => (float[m, 49] plain, float[m, 49] rows, float[m, 49] packed)
    <float[19, 49] w, float[49] t> {
      plain = MatMul(a, b)
      rows = Gemm(a, b, s)
      packed = Gemm(a, w, t)
    }""")
    b, w, t = normal(19, 49, seed=1), normal(19, 49, seed=2), normal(49, seed=3)
    model.graph.initializer.extend(numpy_helper.from_array(x, name) for x, name in ((w, "w"), (t, "t")))
    main = fc.partition(model).build().load()["main"]
    for m in range(1, 41):
        a, s = normal(m, 19), normal(m, 1, seed=4)
        plain, rows, packed = map(np.from_dlpack, main(a, b, s))
        np.testing.assert_allclose(plain, a @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(rows, a @ b + s, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(packed, a @ w + t, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(cpu_level(host_cpu_flags()) not in {LEVEL, "x86-64-v4"}, reason=f"needs a CPU of {LEVEL}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiles_of_cpus_with_fma(dtype: type) -> None:
    """The assembly for CPUs without AVX-512: steps that are no multiple of four, rows that fill no tile."""
    sizes = [(12, 96, 32), (13, 99, 40), (7, 257, 48), (8, 97, 40), (20, 96, 16), (31, 98, 17)]
    cases = [
        Case("MatMul", [normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)], constants=constants, atol=1e-4)
        for m, k, n in sizes
        for constants in ((), (1,))
    ]
    for channels in range(1, 10):
        image, weights = normal(1, channels, 5, 9, dtype=dtype), normal(13, channels, 1, 1, dtype=dtype)
        cases.append(Case("Conv", [image, weights, normal(13, dtype=dtype)], constants=(1, 2)))
    check(cases, ["-O1", f"-march={LEVEL}"])


def native_flags() -> list[str]:
    """Flags with which the harness compiles for the level of this machine."""
    return ["-O1", *find_compiler().target_flags(Target.host())]


@pytest.mark.parametrize("rows", range(27, 33))
def test_products_of_known_sizes_compile_without_warnings(rows: int) -> None:
    """31 and 32 rows leave none for a band of four: gcc found an overflow in that loop, which never runs."""
    code = CBackend().compile(
        whole_region(Case("MatMul", [normal(rows, 128), normal(128, 729)]).model(), name=f"c_{rows}"),
        Target.host(),
        {},
    )
    flags = ("-Wall", "-Wextra", "-Werror", *code.compile_flags)
    target = Target.host()
    texts = {**code.texts, **{f"{kernels.name}.c": kernels.text for kernels in code.kernels}}
    compile_sources(find_compiler(), target, [Source(*item, flags) for item in texts.items()])


def test_gemm() -> None:
    cases = []
    for trans_a, trans_b, const in itertools.product((0, 1), (0, 1), (True, False)):
        a = normal(6, 9) if not trans_a else normal(9, 6)
        b = normal(9, 21, seed=1) if not trans_b else normal(21, 9, seed=1)
        attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 0.25}
        for c in (normal(6, 21), normal(21), normal(6, 1), normal(1), np.float32(3).reshape(())):
            cases.append(Case("Gemm", [a, b, c], attributes, [1] if const else [], rtol=1e-4, atol=1e-4))
        cases.append(
            Case("Gemm", [a, b], {"transA": trans_a, "transB": trans_b}, [1] if const else [], rtol=1e-4)
        )
    cases.append(Case("Gemm", [whole(3, 4) % 1000, whole(4, 5) % 1000, whole(5)]))
    cases.append(Case("Gemm", [normal(3, 0), normal(0, 5), normal(5)]))
    check(cases)


def test_matmul_symbolic() -> None:
    case = Case(
        "MatMul", [normal(2, 3, 8), normal(8, 5)], symbolic={0: ["b", "s", 8]}, constants=[1], rtol=1e-4
    )
    (region,) = check([case])
    for shape in [(1, 1, 8), (4, 50, 8), (0, 3, 8)]:
        x = normal(*shape)
        np.testing.assert_allclose(region(x)[0], x @ case.operands[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op: str) -> None:
    x = normal(2, 3, 70) * 5
    cases = [Case(op, [x], {"axis": axis}, rtol=1e-4) for axis in (0, 1, 2, -1, -2)]
    cases += [Case(op, [x.astype(np.float64)]), Case(op, [normal(0, 4)])]
    check(cases)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_before_opset_13_flattens(op: str) -> None:
    """The reference evaluator has only the later meaning."""
    x = normal(2, 3, 70) * 5
    cases = [Case(op, [x], {"axis": axis}, opset=11) for axis in (0, 1, 2)]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for axis, region in enumerate(regions):
        rows = x.reshape(int(np.prod(x.shape[:axis])), -1).astype(np.float64)
        e = np.exp(rows - rows.max(1, keepdims=True))
        expected = e / e.sum(1, keepdims=True)
        expected = np.log(expected) if op == "LogSoftmax" else expected
        np.testing.assert_allclose(region(x)[0], expected.reshape(x.shape), rtol=1e-4, atol=1e-5)


def test_softmax_of_large_numbers() -> None:
    x = np.array([[1e4, 0, -1e4], [-np.inf, 0, 0]], np.float32)
    softmax, log_softmax = check([Case("Softmax", [x]), Case("LogSoftmax", [x[:, 1:] / 1e4])])
    np.testing.assert_allclose(log_softmax(np.float32([[0, 1e4], [0, 0]]))[0][0], [-1e4, 0])
    assert softmax(x)[0][0].tolist() == [1, 0, 0]


REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare",
              "ReduceL1", "ReduceL2", "ReduceLogSumExp"]  # fmt: skip


@pytest.mark.parametrize("late", [False, True])
def test_reductions(late: bool) -> None:
    x = normal(2, 3, 5, 40)
    cases = []
    for op in REDUCTIONS:
        for axes, keep in [([1], 1), ([0, 2], 0), ([-1], 1), ([0, 1, 2, 3], 0), ([3, 1], 1)]:
            shape = np.sum(x, axis=tuple(axes), keepdims=bool(keep)).shape
            operand = np.array(axes, np.int64)
            cases.append(
                Case(
                    op,
                    [x, operand],
                    {"keepdims": keep},
                    [] if late else [1],
                    shapes={0: shape},
                    rtol=1e-4,
                    atol=1e-5,
                )
            )
    check(cases)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_of_sums_of_exponentials(dtype: type) -> None:
    """Of numbers that exp makes infinite or 0, of infinities and of NaN, along rows and columns."""
    x = normal(67, 67).astype(dtype)
    x[3], x[:, 5] = 3e4, 3e4
    x[7], x[:, 9] = -3e4, -3e4
    x[11, 20], x[21, 12], x[30] = np.inf, np.nan, -np.inf
    regions = check([Case("ReduceLogSumExp", [normal(67, 67).astype(dtype), axis], {}, [1])
                     for axis in np.array([[0], [1]])])  # fmt: skip
    for axis, region in enumerate(regions):
        with np.errstate(invalid="ignore"):
            expected = np.logaddexp.reduce(x.astype(np.float64), axis, keepdims=True)
        np.testing.assert_allclose(region(x)[0], expected, rtol=1e-6)
        assert region(np.full((67, 67), -np.inf, dtype))[0].max() == -np.inf


def test_reductions_of_integers_and_of_nothing() -> None:
    axes = np.array([1], np.int64)
    numbers = np.random.default_rng(0).integers(-100, 100, (3, 50))
    cases = []
    for dtype in (np.int32, np.int64):
        for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"):
            cases.append(Case(op, [numbers.astype(dtype), axes], {}, [1]))
    cases += [Case("ReduceMean", [np.abs(numbers).astype(np.int32), axes], {}, [1])]
    cases += [
        Case(op, [normal(2, 0, 3), axes], {}, [1])
        for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")
    ]
    cases += [
        Case("ReduceSum", [normal(2, 3), np.array([], np.int64)], {"noop_with_empty_axes": n}, [1])
        for n in (0, 1)
    ]
    cases += [
        Case("ReduceMean", [normal(2, 3)]),
        Case("ReduceSum", [normal(2, 3, 4)], {"axes": [-1, 0]}, opset=11),
    ]
    cases += [
        Case("ReduceMax", [np.array([1, np.nan, 3], np.float32)]),
        Case("ReduceSum", [np.float32(3).reshape(())]),
    ]
    cases += [Case("ReduceMean", [(normal(1, 300000) + 100), axes], {}, [1], rtol=1e-6)]
    check(cases)


def test_rows_that_are_shorter_than_the_lanes_of_a_sum() -> None:
    """What cancels shows that sums are of doubles, whichever lane an element is in."""
    cases = []
    for length in (1, 3, 4, 15, 16, 19, 37, 49, 64, 65, 100):
        x = np.random.default_rng(length).permutation(np.resize([1e9, -1e9, 1, 2, 3, -6], (5, length)).T).T
        axes = np.array([1], np.int64)
        for op in ("ReduceMean", "ReduceMax", "ReduceL1"):
            cases.append(Case(op, [x.astype(np.float32), axes], {}, [1], rtol=1e-6))
        exact = x.astype(np.float32).astype(np.float64).mean(1, keepdims=True).astype(np.float32)
        region = compile_model(cases[-3].model())
        np.testing.assert_array_equal(region(x.astype(np.float32))[0], exact)
    sums = ["farcall_sum_of_row(p0" in _source(case.model()) for case in cases[::3]]
    assert sums == [False, *[True] * 8, False, False]
    check(cases[1::3] + cases[2::3])


def _source(model: onnx.ModelProto) -> str:
    return "".join(CBackend().compile(whole_region(model), Target.host(), {}).sources.values())


def test_late_axes_are_checked() -> None:
    case = Case("ReduceSum", [normal(2, 3), np.array([1], np.int64)], shapes={0: (2, 1)})
    (region,) = check([case])
    for wrong in ([0], [2], [-3]):
        with pytest.raises(RuntimeError):
            region(normal(2, 3), np.array(wrong, np.int64))


def test_two_products_that_read_one_weight_in_different_ways() -> None:
    """Each packs the weight for itself: in other groups, or transposed."""
    rng = np.random.default_rng(4)
    weight = rng.standard_normal((24, 4, 1, 1)).astype(np.float32)
    square = rng.standard_normal((40, 40)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "weight"], ["one"], group=1),
            helper.make_node("Conv", ["z", "weight"], ["two"], group=3),
            helper.make_node("MatMul", ["m", "square"], ["three"]),
            helper.make_node("Gemm", ["m", "square"], ["four"], transB=1),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 12, 8, 8]),
            helper.make_tensor_value_info("m", TensorProto.FLOAT, [20, 40]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("one", "two", "three", "four")],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(square, "square")],
    )
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )
    feeds = {
        item.name: rng.standard_normal([d.dim_value for d in item.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for item in model.graph.input
    }
    compiled = compile_model(model)
    got = compiled(*(feeds[str(value.name)] for value in compiled.region.inputs))
    for ours, theirs in zip(got, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
