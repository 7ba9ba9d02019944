"""Convolutions by Winograd's method: odd shapes, errors against float64, choice, and the option."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farcall as fc
from farcall.backends.c import _winograd
from farcall.backends.c._region import generate
from farcall.backends.c._winograd_matrices import amplification, matrices
from farcall.backends.c._winograd_text import Tile

from .cases import Case, check
from .harness import NATIVE, whole_region
from .test_windows import normal

UNIT = 2.0**-24


def conv(
    x: Sequence[int], outs: int, pads: Sequence[int] = (1, 1, 1, 1), group: int = 1, **more: object
) -> Case:
    operands = [normal(*x), normal(outs, x[1] // group, 3, 3, seed=1), normal(outs, seed=2)]
    attributes = {"group": group, "pads": list(pads)}
    return Case("Conv", operands, attributes, [1, 2], rtol=3e-4, atol=3e-4, **more)  # type: ignore[arg-type]


@pytest.fixture(params=[4, 2])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tile:
    """The only tiles that are used, wherever they are possible."""
    monkeypatch.setattr(_winograd, "_GAIN", float("inf"))
    tile = Tile(request.param)
    monkeypatch.setattr(_winograd, "_TILES", (tile, tile))
    return tile


def test_the_matrices_convolve(tile: Tile) -> None:
    """In exact arithmetic: for each input and weight that is 1, the others 0."""
    left, right, back = matrices(tile)
    for place in range(tile.inputs):
        for tap in range(3):
            made = back @ (left[:, place] * right[:, tap])
            expected = [1.0 if place == out + tap else 0.0 for out in range(tile.outputs)]
            np.testing.assert_allclose(made, expected, atol=1e-12)


def test_odd_shapes(tile: Tile) -> None:
    """Planes smaller than a tile, tails, pads of all sizes, groups, channels that do not fill rows."""
    check(
        [
            conv((1, 16, 14, 14), 24),
            conv((2, 8, 7, 9), 13, (0, 0, 0, 0)),
            conv((3, 18, 5, 4), 22, (2, 1, 0, 2), group=2),
            conv((2, 33, 28, 30), 50),
            conv((9, 9, 8, 8), 32),
            conv((2, 8, 3, 3), 8, (0, 0, 0, 0)),
            conv((1, 8, 1, 1), 9),
            conv((1, 8, 60, 3), 8, (1, 2, 1, 2)),
            conv((1, 300, 6, 6), 110),
            conv((1, 8, 10, 300), 8, (3, 4, 5, 6)),
        ],
        flags=("-O3", *NATIVE),
    )


VOLUMES = {
    "a volume": ((2, 9, 4, 7, 6), (14, 9, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    "depth by windows": (
        (1, 16, 6, 5, 9), (12, 8, 2, 3, 3),
        {"pads": [2, 0, 1, 1, 2, 1], "dilations": [3, 1, 1], "group": 2},
    ),
    "depth by strides": (
        (2, 8, 5, 9, 4), (8, 8, 3, 3, 3), {"pads": [1, 1, 1, 0, 1, 1], "strides": [2, 1, 1]}
    ),
    "one tap of depth": ((1, 8, 3, 6, 6), (9, 8, 1, 3, 3), {"pads": [0, 1, 1, 0, 1, 1]}),
    "two axes before": ((1, 8, 3, 2, 5, 6), (8, 8, 2, 3, 3, 3), {"pads": [0, 1, 1, 1, 1, 1, 1, 1]}),
}  # fmt: skip


def volume(x: Sequence[int], w: Sequence[int], attributes: dict[str, object], **more: Any) -> Case:
    operands = [normal(*x), normal(*w, seed=1), normal(w[0], seed=2)]
    return Case("Conv", operands, attributes, [1, 2], rtol=3e-4, atol=3e-4, **more)


def test_volumes(tile: Tile) -> None:
    check([volume(*case) for case in VOLUMES.values()], flags=("-O3", *NATIVE))


def test_any_number_of_volumes(tile: Tile) -> None:
    x, w, attributes = VOLUMES["a volume"]
    case = volume(x, w, attributes, symbolic={0: ["n", *x[1:]]})
    (region,) = check([case])
    for count in (0, 1, 20):
        given = normal(count, *x[1:], seed=count)
        (expected,) = case.expected([given, *case.operands[1:]])
        np.testing.assert_allclose(region(given)[0], expected, rtol=3e-4, atol=3e-4)


def test_any_number_of_images(tile: Tile) -> None:
    case = conv((2, 9, 6, 5), 14, symbolic={0: ["n", 9, 6, 5]})
    (region,) = check([case])
    for count in (1, 3, 40, 131):
        x = normal(count, 9, 6, 5, seed=count)
        (expected,) = case.expected([x, *case.operands[1:]])
        np.testing.assert_allclose(region(x)[0], expected, rtol=3e-4, atol=3e-4)
    assert region(normal(0, 9, 6, 5))[0].shape == (0, 14, 6, 5)


@pytest.mark.parametrize("channels", [8, 64, 400])
def test_the_error_is_within_its_bound(tile: Tile, channels: int) -> None:
    """The stated bound, which no numbers reach, and what random numbers do."""
    case = conv((1, channels, 12, 12), 16)
    (region,) = check([case])
    x, w, b = (np.asarray(item, np.float64) for item in case.operands)
    around = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (1, 2))
    exact = np.einsum("cyxij,mcij->myx", windows, w) + b[:, None, None]
    error = np.abs(region(case.operands[0])[0][0] - exact)
    bound = (channels + 32) * UNIT * amplification(tile) * 9 * channels * np.abs(x).max() * np.abs(w).max()
    assert error.max() <= bound
    assert np.sqrt((error**2).mean()) <= (10 + channels**0.5) * UNIT * exact.std()


def model(size: int, batch: int | str = 1) -> onnx.ModelProto:
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 32, size, size])]
    data = [numpy_helper.from_array(normal(32, 32, 3, 3), "w")]
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "g", given, made, data)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_the_option_turns_it_off(tmp_path: Path) -> None:
    """Without it, an infinity stays within the windows that read it, and constants are smaller."""
    x = normal(1, 32, 28, 28)
    x[0, 0, 13, 13] = np.inf
    found = {}
    for enabled in (True, False):
        plan = fc.partition(model(28), backends=[fc.backend("c", winograd=enabled)])
        path = plan.build().save(tmp_path / f"{enabled}.so")
        result = np.asarray(fc.load_module(path)["main"](x))
        found[enabled] = int((~np.isfinite(result[0, 0])).sum()), path.stat().st_size
    assert found[False][0] == 9
    assert 9 < found[True][0] <= 64
    assert found[True][1] > found[False][1] + 32 * 32 * 9 * 4


@pytest.mark.parametrize("count", [2, 3, 7])
def test_results_do_not_depend_on_the_number_of_threads(tmp_path: Path, count: int) -> None:
    path = fc.partition(model(29, "n"), backends=["c"]).build().save(tmp_path / "model.so")
    main = fc.load_module(path)["main"]
    for batch in (1, 5):
        x = normal(batch, 32, 29, 29)
        np.testing.assert_array_equal(main(x, threads=1), main(x, threads=count))


@pytest.mark.parametrize(("size", "channels", "steps"), [(28, 32, 2), (14, 128, 2), (56, 32, 1)])
def test_threads_that_share_a_block_transform_its_inputs_once(size: int, channels: int, steps: int) -> None:
    """Planes whose tiles are one block have a step that only transforms."""
    case = conv((1, channels, size, size), channels)
    code = generate(whole_region(case.model()))
    assert "".join(code.sources.values()).count("return farcall_parallel(") == steps
    main = fc.partition(case.model(), backends=["c"]).build().load()["main"]
    alone = main(case.operands[0], threads=1)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(main(case.operands[0], threads=threads), alone)
