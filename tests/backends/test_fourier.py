"""DFT, STFT, windows and mel weights against numpy and the reference evaluator."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import farcall as fc

from .cases import Case, check, refusal
from .harness import Compiled, compile_regions, whole_region


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def scalar(value: int, kind: type = np.int64) -> np.ndarray:
    return np.asarray(value, kind)


def test_dft() -> None:
    """All axes, real and complex, forward and inverse; lengths that cut or extend the signal."""
    cases = []
    for parts, axis, inverse, half in product((1, 2), (0, 1, -2), (0, 1), (0, 1)):
        x, flags = normal(3, 4, 10, parts), {"inverse": inverse, "onesided": half}
        if half and parts != 1 + inverse:
            continue  # half of a spectrum is that of real numbers
        if axis == 1:
            cases.append(Case("DFT", [x], {"axis": axis, **flags}, opset=17))
        else:
            length = scalar(7) if axis else scalar(13, np.int32)
            cases.append(Case("DFT", [x, length, scalar(axis)], flags, constants=[1, 2], opset=20))
    cases += [
        Case("DFT", [normal(2, 400, 1)], {"onesided": 1}, opset=20),
        Case("DFT", [normal(2, 33, 2, dtype=np.float64)], {"inverse": 1}, opset=20, rtol=1e-9, atol=1e-12),
        Case("DFT", [normal(134, 1)], {"onesided": 1}, opset=20),  # twice a large prime
    ]
    for case in cases:
        case.atol = max(case.atol, 1e-5) if case.operands[0].dtype == np.float32 else case.atol
    check(cases, ["-O0"])  # the time goes into the compiler


@pytest.fixture(scope="module")
def transform() -> Compiled:
    """Complex transforms of any length, in double."""
    case = Case("DFT", [normal(1, 4, 2, dtype=np.float64)], opset=20, symbolic={0: ["b", "n", 2]})
    return compile_regions([whole_region(case.model())], flags=["-O2"])[0]


@pytest.mark.parametrize("batch", [1, 2])
def test_the_error_of_any_length(transform: Compiled, batch: int) -> None:
    lengths = [*range(1, 141), 61 * 64, 67 * 8, 997, 1009, 1024, 4096, 5 * 7 * 11 * 13, 65536, 65537]
    for n in lengths:
        x = normal(batch, n, 2, seed=n, dtype=np.float64)
        (got,) = transform(x)
        expected = np.fft.fft(x[..., 0] + 1j * x[..., 1])
        difference = np.linalg.norm(got[..., 0] + 1j * got[..., 1] - expected)
        assert difference <= 1e-14 * np.linalg.norm(expected), n
    assert transform(np.zeros((0, 5, 2)))[0].shape == (0, 5, 2)
    with pytest.raises(RuntimeError):  # as numpy: no transform of nothing
        transform(np.zeros((2, 0, 2)))


def test_dft_of_an_axis_that_only_the_call_knows() -> None:
    x = normal(3, 4, 6, 2)
    shapes = {
        0: ((3, 4, 6, 2), (2, 4, 6, 2)),
        1: ((3, 4, 6, 2), (3, 3, 6, 2)),
        -2: ((3, 4, 6, 2), (3, 4, 4, 2)),
    }
    cases = [
        Case("DFT", [x[..., : 2 - half], None, scalar(axis)], {"onesided": half}, opset=20, atol=1e-5,
             shapes={0: shapes[axis][half]})
        for axis, half in product(shapes, (0, 1))
    ]  # fmt: skip
    regions = check(cases, ["-O0"])
    for wrong in (3, -1, 4, -5):
        with pytest.raises(RuntimeError):
            regions[0](x, scalar(wrong))


def test_stft() -> None:
    x, z, window = normal(2, 40, 1), normal(2, 40, 2), np.hanning(16).astype(np.float32)
    cases = [
        Case("STFT", [x, scalar(8), None, scalar(16)], constants=[1, 3], opset=17),
        Case("STFT", [x, scalar(5, np.int32), window], constants=[1], opset=17),
        Case("STFT", [x, scalar(7), window, scalar(16)], {"onesided": 0}, constants=[1, 3], opset=17),
        Case("STFT", [z, scalar(3), window, scalar(16)], {"onesided": 0}, constants=[1, 3], opset=17),
        Case("STFT", [x, scalar(1), None, scalar(40)], constants=[1, 3], opset=17),
        Case("STFT", [x, scalar(9), None, scalar(11)], opset=17, shapes={0: (2, 4, 6, 2)}),
    ]
    for case in cases:
        case.atol = 1e-4
    cases[1].shapes, cases[4].shapes = {0: (2, 5, 9, 2)}, {0: (2, 1, 21, 2)}  # ONNX infers both sides
    cases[0].symbolic = {0: ["b", "n", 1]}
    regions = check(cases, ["-O0"])
    for step, length in ((0, 11), (-1, 11), (9, 0), (9, 12), (2**62, 11)):
        with pytest.raises(RuntimeError):
            regions[-1](x, scalar(step), scalar(length))


def test_windows_and_mel_weights() -> None:
    names = ("HannWindow", "HammingWindow", "BlackmanWindow")
    double = {"output_datatype": onnx.TensorProto.DOUBLE}
    cases = [
        Case(name, [scalar(7)], {"periodic": periodic, **kind}, opset=17, shapes={0: (7,)})
        for name, periodic, kind in product(names, (0, 1), ({}, double))
    ]
    cases.append(Case("HannWindow", [scalar(0)], opset=17, shapes={0: (0,)}))
    edges = [
        (8, 16, 8192, 0, 4096),
        (40, 400, 16000, 0, 8000),
        (5, 64, 8000, 300, 3400.5),
        (0, 8, 8000, 0, 4000),
    ]
    cases += [
        Case(
            "MelWeightMatrix",
            [*map(scalar, numbers[:3]), *map(np.float32, numbers[3:])],
            opset=17,
            shapes={0: (numbers[1] // 2 + 1, numbers[0])},
        )
        for numbers in edges
    ]
    regions = check(cases, ["-O0"])
    first = [*map(scalar, edges[0][:3]), *map(np.float32, edges[0][3:])]
    for at, wrong in ((4, 9000), (3, -2000), (4, np.nan), (2, 0), (0, -1), (1, -4)):
        items = [*first[:at], np.asarray(wrong, first[at].dtype), *first[at + 1 :]]
        with pytest.raises(RuntimeError):
            regions[-4](*items)


def test_a_symmetric_window_of_one_element() -> None:
    """PyTorch's is 1; ONNX's formula divides zero by zero."""
    case = Case("HannWindow", [scalar(1)], {"periodic": 0}, opset=17, shapes={0: (1,)})
    (region,) = compile_regions([whole_region(case.model())])
    np.testing.assert_array_equal(region(*case.operands)[0], [1])


SIZES = """g (float[n, 2] x, int64 length, int64 axis, float[1, m, 1] signal, int64 step, int64 frame,
  int32 size)
 => (float[] cut, float[] half, float[] frames, float[] w, float[] mel) {
   bound = Constant <value = float {100.0}> ()
   zero = Constant <value = float {0.0}> ()
   rate = Constant <value = int32 {200}> ()
   cut = DFT (x, length, axis)
   half = DFT <onesided = 1, inverse = 1> (x, length)
   frames = STFT (signal, step, "", frame)
   w = BlackmanWindow <periodic = 0> (size)
   mel = MelWeightMatrix (size, size, rate, zero, bound) }"""


def test_sizes_that_only_the_call_knows() -> None:
    graph = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {SIZES}')
    main = fc.partition(graph).build().load()["main"]
    evaluator = ReferenceEvaluator(graph)
    for n, length, m, step, frame, size in (
        (5, 8, 30, 4, 7, 12),
        (3, 2, 200, 9, 150, 2),
        (70, 67, 9, 1, 9, 30),
    ):
        feeds = {
            "x": normal(n, 2), "length": scalar(length), "axis": scalar(0), "signal": normal(1, m, 1),
            "step": scalar(step), "frame": scalar(frame), "size": scalar(size, np.int32),
        }  # fmt: skip
        for got, expected in zip(main(*feeds.values()), evaluator.run(None, feeds), strict=True):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"DFT `.*`: a transform of -3 elements; expected at least 1"):
        main(*(feeds | {"length": scalar(-3)}).values())
    with pytest.raises(ValueError, match=r"STFT `.*`: frame_step is 0; expected at least 1"):
        main(*(feeds | {"step": scalar(0)}).values())


def test_refusals() -> None:
    assert "expected a last dim of 1 or 2" in refusal(Case("DFT", [normal(2, 4, 3)], opset=20))
    assert "input 1 has the dims (2,)" in refusal(
        Case("DFT", [normal(2, 4, 2), np.int64([4, 4])], opset=20, shapes={0: (2, 4, 2)})
    )


def test_a_signal_shorter_than_a_frame() -> None:
    """onnxruntime and the reference refuse it, too."""
    operands = [normal(1, 9, 1), scalar(4), normal(8), scalar(8)]
    case = Case("STFT", operands, constants=[1, 3], symbolic={0: [1, "n", 1]})
    main = fc.partition(case.model()).build().load()["main"]
    assert np.from_dlpack(main(normal(1, 8, 1), normal(8))).shape == (1, 1, 5, 2)
    with pytest.raises(ValueError, match="the signal has 7 elements; a frame has 8"):
        main(normal(1, 7, 1), normal(8))
