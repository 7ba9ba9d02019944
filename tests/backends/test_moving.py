"""Tile, OneHot, EyeLike, ReverseSequence, TopK, Det and TfIdfVectorizer against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from farcall.graph import load_model
from farcall.graph.dims import dims

from .cases import Case, check, compare, refusal


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


def test_tile() -> None:
    x = normal(2, 1, 3)
    cases = [
        Case("Tile", [x, ints(*times)], {}, [1]) for times in ((1, 1, 1), (3, 2, 2), (0, 4, 1), (1, 5, 1))
    ]
    cases += [
        Case("Tile", [x > 0, ints(2, 1, 2)], {}, [1], opset=6),
        Case("Tile", [x, ints(1, 2, 3)], {}, [1], symbolic={0: ["a", "b", "c"]}),
        Case("Tile", [x[:, :0], ints(2, 3, 1)], shapes={0: [4, 0, 3]}),
    ]
    *_, symbolic, empty, late = check([*cases, Case("Tile", [x, ints(2, 1, 3)], shapes={0: [4, 1, 9]})])
    np.testing.assert_array_equal(symbolic(normal(0, 2, 3))[0], np.zeros((0, 4, 9)))
    assert empty(x[:, :0], ints(2, 2**62, 1))[0].size == 0
    for wrong in ((2, 1, 2), (2, 2, 3), (-2, 1, 3), (2**62, 1, 3)):
        with pytest.raises(RuntimeError):
            late(x, ints(*wrong))


def test_one_hot() -> None:
    values = np.float32([0.5, 2])
    indices = ints(3, -4, 0, 4, -5, 2**62).reshape(2, 3)
    depth = np.array(4, np.int64)
    cases = [
        Case("OneHot", [given, depth.astype(kind), values], {"axis": axis}, [1])
        for given, kind, axis in (
            (indices, "int64", -1),
            (indices.astype(np.int32), "float32", 0),
            (indices.astype(np.uint64), "uint8", 1),
            (np.float64([[1, 3]]), "int32", -2),
        )
    ]
    cases += [Case("OneHot", [indices, depth, values.astype(np.int16)], {}, [1], symbolic={0: ["a", "b"]})]
    late = Case("OneHot", [ints(1), np.float32(3).reshape(()), values.astype(np.int8)], shapes={0: [1, 3]})
    old = Case("OneHot", [ints(1, -1), depth, values], {}, [1], opset=9)
    first, second = check([*cases, late, Case("OneHot", [ints(1, 2), depth, values], {}, [1], opset=9)])[-2:]
    for wrong in (4, -1, np.nan):
        with pytest.raises(RuntimeError):
            first(ints(1), np.float32(wrong).reshape(()), values.astype(np.int8))
    # Before opset 11, negative indices are outside.
    np.testing.assert_array_equal(second(*old.feeds([ints(1, -1), depth, values]))[0][1], [0.5] * 4)


def test_eyes() -> None:
    x = normal(3, 5)
    cases = [
        Case("EyeLike", [x], {"k": k, "dtype": kind})
        for k, kind in (
            (0, TensorProto.FLOAT),
            (2, TensorProto.INT8),
            (-2, TensorProto.DOUBLE),
            (9, TensorProto.BOOL),
        )
    ]
    cases += [Case("EyeLike", [x.astype(np.uint16)], symbolic={0: ["a", "b"]})]
    region = check([*cases, Case("EyeLike", [x], {"k": 2**63 - 1})])[-2]
    assert region(np.zeros((2, 1), np.uint16))[0].tolist() == [[1], [0]]


def test_reverse_sequences() -> None:
    x = normal(4, 3, 2)
    cases = [
        Case("ReverseSequence", [x, ints(4, 0, 2)]),
        Case("ReverseSequence", [x > 0, ints(1, 3, 2, 0)], {"batch_axis": 0, "time_axis": 1}),
        Case("ReverseSequence", [x[..., 0], ints(4, 1, 3)], symbolic={0: ["t", "b"], 1: ["n"]}),
    ]
    region = check(cases)[-1]
    for wrong in ([1, 5, 0], [-1, 0, 0], [2**63 - 1, 0, 0]):
        with pytest.raises(RuntimeError):
            region(x[..., 0], ints(*wrong))
    with pytest.raises(RuntimeError):
        region(x[..., 0], ints(1, 1))


def test_the_first_k() -> None:
    x = np.random.default_rng(0).integers(0, 9, (3, 50, 4)).astype(np.float32)
    k = ints(7)
    cases = [
        Case("TopK", [x, k], {"axis": axis, "largest": largest}, [1], outputs=2)
        for axis, largest in ((1, 1), (-2, 0))
    ]
    cases += [
        Case("TopK", [x.astype(kind), ints(count)], {"axis": axis, "sorted": 1}, [1], outputs=2)
        for kind, count, axis in (("int8", 3, 0), ("uint64", 0, 2), ("float64", 50, 1), ("int32", 4, 2))
    ]
    nan = np.float32([3, np.nan, -np.inf, np.nan, np.inf, 3])
    cases += [Case("TopK", [nan, ints(6)], {"largest": i}, [1], outputs=2) for i in (0, 1)]
    rare = np.where(np.arange(300) % 97 == 96, np.nan, x.reshape(2, 300))
    cases += [Case("TopK", [rare, ints(n)], {"largest": i}, [1], outputs=2) for i in (0, 1) for n in (2, 9)]
    cases += [
        Case("TopK", [x], {"k": 3, "axis": 1}, opset=6, outputs=2),
        Case("TopK", [x[:0], k], {"axis": 1}, [1], outputs=2),
    ]
    symbolic = Case("TopK", [x[0], ints(3)], {"axis": 0}, [1], outputs=2, symbolic={0: ["n", "m"]})
    late = Case("TopK", [x[0, 0], ints(2)], outputs=2, shapes={0: [2], 1: [2]})
    first, second = check([*cases, symbolic, late])[-2:]
    compare(symbolic, first(x[1, :5]), symbolic.expected([x[1, :5], ints(3)]))
    with pytest.raises(RuntimeError):
        first(x[0, :2])
    for wrong in (1, 3, -1):
        with pytest.raises(RuntimeError):
            second(x[0, 0], ints(wrong))


def test_determinants() -> None:
    square = normal(2, 3, 5, 5)
    square[0, 1, :, 2] = 0
    square[1, 1, 0, 0] = 0
    cases = [Case("Det", [square], rtol=1e-4), Case("Det", [normal(1, 1).astype(np.float64)])]
    region = check([*cases, Case("Det", [square], symbolic={0: ["a", "b", "n", "m"]}, rtol=1e-4)])[-1]
    assert region(normal(1, 2, 0, 0))[0].tolist() == [[1, 1]]


def test_ngrams() -> None:
    pool = {
        "ngram_counts": [0, 3, 9],
        "pool_int64s": [1, 2, 3, 1, 2, 2, 1, 3, 3, 1, 2, 3, 2, 2, 2],
        "ngram_indexes": [4, 1, 2, 0, 3, 5, 7, 6],
        "min_gram_length": 1,
        "max_gram_length": 3,
        "weights": [0.5 * i for i in range(8)],
    }
    x = np.random.default_rng(0).integers(1, 4, (3, 9))
    cases = [
        Case("TfIdfVectorizer", [x], {**pool, "mode": mode, "max_skip_count": skips})
        for mode in ("TF", "IDF", "TFIDF")
        for skips in (0, 2)
    ]
    cases += [
        Case("TfIdfVectorizer", [x[0, :2].astype(np.int32)], {**pool, "mode": "TFIDF", "max_skip_count": 20}),
        Case(
            "TfIdfVectorizer",
            [x],
            {**pool, "mode": "TF", "max_skip_count": 1, "min_gram_length": 2},
            symbolic={0: ["n", "c"]},
        ),
    ]
    check(cases)
    bad = {**pool, "mode": "TF", "max_skip_count": 0, "ngram_counts": [0, 7, 3]}
    assert "do not fit the pool" in refusal(Case("TfIdfVectorizer", [x], bad, shapes={0: [3, 8]}))


def test_a_known_condition_gives_known_dims() -> None:
    x = normal(4, 3)
    flags = np.array([True, False, False, True])
    cases = [
        Case("Compress", [x, flags], {"axis": 0}, [1], shapes={0: [2, 3]}),
        Case("Compress", [x, flags[:2]], {"axis": -1}, [1], symbolic={0: ["n", "m"]}, shapes={0: ["n", 1]}),
        Case("Compress", [x, flags], {}, [1], shapes={0: [2]}),
    ]
    check(cases)
    late = Case("Compress", [x, flags], {"axis": 0}, [1], shapes={0: ["k", 3]})
    (node,) = load_model(late.model()).graph
    assert dims(node.outputs[0]) == (2, 3)
