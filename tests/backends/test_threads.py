"""Artifacts compute on several threads: with equal results and errors, and without waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import farcall as fc

COUNTS = (2, 3, 7)

# Each result is large enough to be split, and no size is a multiple of the parts of a loop.
MODEL = """g (float[n, 200] x, float[5, 3, 61, 203] s, float[5, 1, 203, 67] t, float[3, 1100] few)
 => (float[n, 333] a, float[n, 130] b, float[130, n] c, float[5, 3, 61, 67] d, float[3, 515] e, float[n, n] f)
 <float[200, 333] w, float[130, 200] u, float[130] bias, float[1100, 515] v>
 { a = MatMul (x, w)
   b = Gemm <transB = 1> (x, u, bias)
   xt = Transpose <perm = [1, 0]> (x)
   c = MatMul (u, xt)
   d = MatMul (s, t)
   e = MatMul (few, v)
   f = Gemm <alpha = 0.5, transB = 1> (x, x) }"""


def with_weights(text: str, seed: int = 0) -> onnx.ModelProto:
    """The model, whose initializers get random values."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')
    rng = np.random.default_rng(seed)
    for item in model.graph.value_info:
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        data = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, item.name))
    del model.graph.value_info[:]
    return model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = fc.partition(with_weights(MODEL), backends=["c"])
    return plan.build().save(tmp_path_factory.mktemp("threads") / "model.so")


def feeds(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    shapes = [(n, 200), (5, 3, 61, 203), (5, 1, 203, 67), (3, 1100)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 49, 97, 389])
def test_results_do_not_depend_on_the_number_of_threads(path: Path, n: int) -> None:
    main = fc.load_module(path)["main"]
    alone = main(*feeds(n), threads=1)
    for count in COUNTS:
        for one, other in zip(alone, main(*feeds(n), threads=count), strict=True):
            np.testing.assert_array_equal(one, other)


def test_calls_of_two_threads_at_once(path: Path) -> None:
    main = fc.load_module(path)["main"]
    expected = main(*feeds(97), threads=1)
    wrong: list[str] = []

    def work() -> None:
        with fc.use_threads(3):
            for _ in range(20):
                for name, one, other in zip("abcdef", expected, main(*feeds(97)), strict=True):
                    if not np.array_equal(one, other):
                        wrong.append(name)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def python(code: str, *arguments: object, **environment: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COUNT = """
import os, sys, numpy as np, farcall as fc
from multiprocessing import Process
mod = fc.load_module(sys.argv[1])
x = [np.ones(s, "f4") for s in [(97, 200), (5, 3, 61, 203), (5, 1, 203, 67), (3, 1100)]]
tasks = lambda: len(os.listdir("/proc/self/task"))
"""


def test_one_thread_makes_none(path: Path) -> None:
    code = COUNT + "before = tasks(); mod(*x); print(tasks() - before)"
    assert python(code, path, FARCALL_THREADS="1") == "0\n"
    assert python(code, path, FARCALL_THREADS="3") == "2\n"
    asked = (
        COUNT + "before = tasks(); mod.main(*x, threads=1); mod.threads = 1; mod(*x); print(tasks() - before)"
    )
    assert python(asked, path, FARCALL_THREADS="3") == "0\n"


def test_a_child_makes_its_own_threads(path: Path) -> None:
    code = COUNT + (
        "first = mod(*x)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    same = all(np.array_equal(a, b) for a, b in zip(first, mod(*x)))\n"
        "    os._exit(10 * same + tasks())\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), tasks())"
    )
    assert python(code, path, FARCALL_THREADS="3") == "13 3\n"


def test_a_wrong_setting_is_an_error(path: Path) -> None:
    code = COUNT + "try: mod(*x)\nexcept ValueError as error: print(error)"
    assert "FARCALL_THREADS=all: expected a number of threads, from 1 to 256" in python(
        code, path, FARCALL_THREADS="all"
    )


def test_the_number_that_is_set(path: Path) -> None:
    mod = fc.load_module(path)
    main = mod["main"]
    assert mod.threads is None and main.threads is None
    mod.threads = 2
    assert (mod.threads, main.threads) == (2, 2)
    mod.threads = None
    for wrong in (0, 257, 2**70, -1):
        with pytest.raises(ValueError, match="expected a number of threads, from 1 to 256, or None"):
            main(*feeds(1), threads=wrong)
    with pytest.raises(TypeError, match="threads='2'"), fc.use_threads("2"):  # type: ignore[arg-type]
        pass
    main(*feeds(1), threads=None)
    with pytest.raises(TypeError, match="thread"):
        main(*feeds(1), thread=1)
