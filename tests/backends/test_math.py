"""The kit's own exp, exp - 1, tanh, erf and sigmoid against double precision."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from farcall.backends.c._helpers import HELPERS
from farcall.backends.c._math import OURS

from .harness import CC, NATIVE

# Of all floats, those that are the nearest to a multiple of pi/2.
NEXT_TO_TURNS = np.array([float.fromhex("0x1.47d0fep+34"), float.fromhex("0x1.f37c8ap+95")], np.float32)
LOOP = """void {0}_all(const float* x, float* y, long n) {{
  for (long i = 0; i < n; ++i) y[i] = farcall_{0}f(x[i]);
}}
"""


@pytest.fixture(
    scope="module", params=[["-O1"], ["-O3", *NATIVE, "-ffp-contract=fast", "-fno-trapping-math"]]
)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("math")
    text = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n" + HELPERS + "\n"
    (folder / "m.c").write_text(text + "".join(LOOP.format(name) for name in OURS))
    command = [
        *CC.command,
        "-std=c11",
        "-Wall",
        "-Werror",
        *request.param,
        "-shared",
        "-fPIC",
        "m.c",
        "-o",
        "m.so",
    ]
    subprocess.run([*command, "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "m.so"))


def run(library: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    getattr(library, f"{name}_all")(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size)
    )
    return y


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("exp", -103.5, 88.7),
        ("expm1", -103.5, 88.7),
        ("tanh", -12, 12),
        ("erf", -5, 5),
        ("sigmoid", -87.2, 110),
        ("decay", -103.9, 0),
        ("log", 0, 4),
        ("log", 0, 3e38),
        ("softplus", -103, 110),
        ("mish", -87, 110),
        ("atan", -3, 3),
        ("atan", -1e9, 1e9),
        ("sin", -10, 10),
        ("sin", -1e6, 1e6),
        ("cos", -10, 10),
        ("cos", -1e6, 1e6),
        ("asin", -1, 1),
        ("acos", -1, 1),
        ("acos", 0.999, 1),
    ],
)
def test_close_to_the_truth(library: ctypes.CDLL, name: str, low: float, high: float) -> None:
    tiny = np.float32(2) ** np.arange(-149, 0, dtype=np.float32)
    x = np.concatenate(
        [
            np.linspace(low, high, 200_001, dtype=np.float32)[int(name == "log") :],
            *([-tiny] if low < 0 else []),
            *([tiny] if high > 0 else []),
        ]
    )
    exact = {
        "exp": np.exp,
        "expm1": np.expm1,
        "tanh": np.tanh,
        "erf": np.vectorize(math.erf),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "decay": lambda x: np.exp(x) * 2.0**64,
        "log": np.log,
        "softplus": lambda x: np.log1p(np.exp(x)),
        "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
        "atan": np.arctan,
        "sin": np.sin,
        "cos": np.cos,
        "asin": np.arcsin,
        "acos": np.arccos,
    }[name]
    true = exact(x.astype(np.float64))
    ulp = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(run(library, name, x).astype(np.float64) - true) / ulp
    assert error.max() < (4 if name == "mish" else 2.5), (x[error.argmax()], error.max())


@pytest.mark.parametrize(("name", "exact"), [("sin", np.sin), ("cos", np.cos)])
def test_angles_of_every_size(library: ctypes.CDLL, name: str, exact: np.ufunc) -> None:
    """Also next to whole turns, where a reduction by too few bits leaves nothing of the angle."""
    bits = np.random.default_rng(5).integers(0, 1 << 32, 1_000_000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), NEXT_TO_TURNS, -NEXT_TO_TURNS])
    with np.errstate(invalid="ignore"):
        true = exact(x.astype(np.float64))
    found = run(library, name, x)
    np.testing.assert_array_equal(np.isnan(found), ~np.isfinite(x))
    finite = np.isfinite(x)
    ulp = np.spacing(np.abs(true[finite]).astype(np.float32)).astype(np.float64)
    error = np.abs(found[finite].astype(np.float64) - true[finite]) / ulp
    assert error.max() < 2.5, (x[finite][error.argmax()], error.max())


def test_edges(library: ctypes.CDLL) -> None:
    inf = np.inf
    x = np.array([0.0, -0.0, inf, -inf, np.nan, 1e30, -1e30, 88.8, -200], np.float32)
    assert run(library, "exp", x).tolist()[:4] == [1, 1, inf, 0]
    assert run(library, "exp", x).tolist()[5:] == [inf, 0, inf, 0]
    y = run(library, "expm1", x)
    assert y[:4].tolist() == [0, 0, inf, -1]
    assert y[5:].tolist() == [inf, -1, inf, -1]
    for name in ("tanh", "erf"):
        y = run(library, name, x)
        assert y[:4].tolist() == [0, 0, 1, -1]
        assert np.signbit(y[1])
        assert y[5:7].tolist() == [1, -1]
    assert all(np.isnan(run(library, name, x)[4]) for name in OURS)
    assert run(library, "sigmoid", x)[:4].tolist() == [0.5, 0.5, 1, 0]
    assert run(library, "sigmoid", x)[5:].tolist() == [1, 0, 1, 0]
    log = np.array([0.0, -0.0, inf, -inf, -1e-45, -3, np.nan, 1], np.float32)
    np.testing.assert_array_equal(run(library, "log", log), [-inf, -inf, inf, *[np.nan] * 4, 0])
    assert run(library, "softplus", x)[2:4].tolist() == [inf, 0]
    np.testing.assert_array_equal(run(library, "mish", x)[2:4], [inf, np.nan])
    y = run(library, "atan", x)
    assert y[:4].tolist() == [0, 0, np.float32(np.pi / 2), -np.float32(np.pi / 2)]
    assert np.signbit(y[1])
    for name in ("asin", "acos"):
        assert np.isnan(run(library, name, np.array([1.0000001, -1.0000001, inf, -inf, 3], np.float32))).all()
    y = run(library, "asin", np.array([0.0, -0.0, 1, -1], np.float32))
    assert y.tolist() == [0, 0, np.float32(np.pi / 2), -np.float32(np.pi / 2)]
    assert np.signbit(y[1])
    assert run(library, "sin", x)[:2].tolist() == [0, 0]
    assert np.signbit(run(library, "sin", x)[:2]).tolist() == [False, True]
    assert np.isnan(run(library, "cos", x)[2:5]).all()
    y = run(library, "acos", np.array([1, -1, 0.0, -0.0], np.float32))
    assert y.tolist() == [0, np.float32(np.pi), *[np.float32(np.pi / 2)] * 2]
    assert run(library, "decay", -np.abs(x[:4])).tolist() == [2.0**64, 2.0**64, 0, 0]


def test_every_nan_stays_one(library: ctypes.CDLL) -> None:
    """Its lower bits, which may be anything, are no exponent."""
    fractions = np.random.default_rng(6).integers(1, 1 << 23, 10_000, dtype=np.uint32)
    x = np.concatenate([fractions | 0x7F800000, fractions | 0xFF800000]).astype(np.uint32).view(np.float32)
    assert {name: int((~np.isnan(run(library, name, x))).sum()) for name in OURS} == dict.fromkeys(OURS, 0)


def test_a_sigmoid_below_the_normal_numbers(library: ctypes.CDLL) -> None:
    x = np.linspace(-110, -87, 10_001, dtype=np.float32)
    assert np.abs(run(library, "sigmoid", x) - np.exp(x.astype(np.float64))).max() < 2.0**-125
