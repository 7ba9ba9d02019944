"""Artifacts compute on several threads: with equal results and errors, and without waiting."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import farcall as fc
from farcall.cli.run import command

from ..parsed import parsed

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


# The other loops that are split: convolutions with and without a matrix, by planes, of bytes; pools, Resize,
# softmax, normalizations, reductions, copies, and elements.
PLANES = """p (float[b, 8, h, 75] x, float[b, 777, 65] rows, int64[b, 300] at)
 => (float[b, 50, p0, p1] c1, float[b, 33, q0, q1] c2, float[b, 130, h, 75] c3, float[b, 8, r0, r1] c4,
     float[b, 6, s0, s1] c5, float[b, 8, t0, t1] m1, float[b, 8, u0, u1] m2, float[b, 8, v0, v1] up,
     float[b, 777, 65] soft, float[b, 777, 65] soft2, float[b, 777, 65] norm, float[b, 777, 1] sum,
     float[1, 1, 65] mean, float[65, b, 777] moved, float[b, 777, 65] gelu, uint8[b, 50, w0, w1] q,
     uint8[b, 777, 40] qm, float[b, 8, h, 75] instance, float[b, 300, 1000] rare)
 <float[50, 8, 3, 3] w1, float[33, 8, 5, 3] w2, float[130, 8, 1, 1] w3, float[8, 1, 3, 3] w4,
  float[6, 4, 3, 3] w5, float[50] b1, float[65] scale, float[65] bias, float[8] eight, float[65, 40] mw,
  float[500, 1000] table, float steps = {0.05}, uint8 zero = {120}, int8 none = {0},
  float[4] sizes = {1, 1, 2, 1.5}, int64[2] most = {0, 1}, int64[1] last = {2}>
 { c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
   c2 = Conv <strides = [2, 1], dilations = [1, 2]> (x, w2)
   c3 = Conv (x, w3)
   c4 = Conv <group = 8> (x, w4)
   c5 = Conv <group = 2> (x, w5)
   m1 = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
   m2 = AveragePool <kernel_shape = [2, 3], pads = [1, 1, 0, 1]> (x)
   up = Resize <mode = "linear"> (x, , sizes)
   soft = Softmax (rows)
   soft2 = LogSoftmax <axis = 1> (rows)
   norm = LayerNormalization (rows, scale, bias)
   instance = InstanceNormalization (x, eight, eight)
   sum = ReduceLogSumExp (rows, last)
   mean = ReduceMean (rows, most)
   moved = Transpose <perm = [2, 0, 1]> (rows)
   e = Mul (rows, scale)
   g = Gelu (e)
   gelu = Add (g, bias)
   one = QuantizeLinear (x, steps, zero)
   dx = DequantizeLinear (one, steps, zero)
   qw = QuantizeLinear (w1, steps, none)
   dw = DequantizeLinear (qw, steps, none)
   qc = Conv (dx, dw)
   q = QuantizeLinear (qc, steps, zero)
   two = QuantizeLinear (rows, steps, zero)
   dr = DequantizeLinear (two, steps, zero)
   qmw = QuantizeLinear (mw, steps, none)
   dmw = DequantizeLinear (qmw, steps, none)
   qmm = MatMul (dr, dmw)
   qm = QuantizeLinear (qmm, steps, zero)
   rare = Gather (table, at) }"""


# Operators that copy, search, sample and go through sequences in two directions.
COPIES = """c (float[n, 501] x, int64[n, 501] at, float[1, 9000, 1, 2] grid,
   float[n, 4] boxes, float[n, 5] fives, int64[n] which, float[n, 9, 9] square,
   float[3, 24, 31, 33] image, float[3, 32, 754] columns, float[50, 3, 40] words)
 => (float[n, 1002] cat, float[m, 501] stack, float[n, 101] left, float[n, 400] right,
     float[7, n, 501] wide, float[m, 1503] tiled, float[n, 501] picked, float[n, 501] turned,
     float[n, 501] low, float[n, 501] sums, int64[n, 1] best, float[n, 501] hard,
     float[3, 24, 31, 33] hard2, float[n, 20] top, int64[n, 20] places, float[n, 501] rows,
     float[n] det, float[3, 24, 35, 37] padded, float[3, 10, 62, 66] up, float[3, 8, 30, 27] summed,
     float[1, 5, 9000, 1] seen, float[n, 6, 4, 5] bins, float[n, 6, 4, 5] most,
     float[3, 20, 29, 31] moved, float[3, 24, 31, 33] spun, float[50, 2, 3, 64] both,
     float[50, 2, 3, 64] twice)
 <float[24, 10, 2, 2] w, float[20, 24, 3, 3] dw, float[3, 18, 29, 31] shift, float[1, 5, 40, 50] photo,
  float[1, 6, 40, 50] maps, float[3, 31, 16] cosine, float[3, 31, 16] sine, float[2, 256, 40] lw,
  float[2, 256, 64] lr, float[2, 192, 40] gw, float[2, 192, 64] gr, int64[2] times = {2, 3},
  int64[8] pads = {0, 0, 2, 2, 0, 0, 2, 2}, int64[1] k = {20}, int64[1] one = {1},
  int64[2] parts = {101, 400}, int64[3] shape = {7, 1, 1}, int64[2] size = {30, 27},
  int64[2] block = {2, 2}>
 { cat = Concat <axis = 1> (x, x)
   stack = Concat <axis = 0> (x, x)
   left, right = Split <axis = 1> (x, parts)
   wide = Expand (x, shape)
   tiled = Tile (x, times)
   picked = GatherElements <axis = 1> (x, at)
   turned = ReverseSequence <batch_axis = 0, time_axis = 1> (x, which)
   low = Trilu <upper = 0> (x)
   sums = CumSum (x, one)
   best = ArgMax <axis = 1> (x)
   hard = Hardmax (x)
   hard2 = Hardmax <axis = 1> (image)
   top, places = TopK (x, k)
   tuples = Unsqueeze (which, one)
   rows = GatherND (x, tuples)
   det = Det (square)
   padded = Pad <mode = "reflect"> (image, pads)
   up = ConvTranspose <strides = [2, 2]> (image, w)
   summed = Col2Im (columns, size, block)
   seen = GridSample (photo, grid)
   zeros = Sub (which, which)
   bins = RoiAlign <output_height = 4, output_width = 5, sampling_ratio = 2> (maps, boxes, zeros)
   most = MaxRoiPool <pooled_shape = [4, 5]> (maps, fives)
   moved = DeformConv (image, dw, shift)
   both = LSTM <direction = "bidirectional", hidden_size = 64> (words, lw, lr)
   twice = GRU <direction = "bidirectional", hidden_size = 64> (words, gw, gr)
   spun = RotaryEmbedding <rotary_embedding_dim = 32> (image, cosine, sine) }"""


def with_weights(text: str, seed: int = 0) -> onnx.ModelProto:
    """The model, whose initializers get random values."""
    return parsed(f'<ir_version: 11, opset_import: ["" : 23]> {text}', seed)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = fc.partition(with_weights(MODEL), backends=["c"])
    return plan.build().save(tmp_path_factory.mktemp("threads") / "model.so")


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = fc.partition(with_weights(PLANES), backends=["c"])
    return plan.build().save(tmp_path_factory.mktemp("threads") / "planes.so")


def test_copies_do_not_depend_on_the_number_of_threads() -> None:
    n, rng = 611, np.random.default_rng(0)
    plan = fc.partition(with_weights(COPIES), backends=["c"])
    split = plan.source(plan.regions[0].name).count("_part(void* context")
    assert split >= len({node.op_type for node in plan.regions[0].nodes} - {"Sub", "Unsqueeze"})
    main = plan.build().load()["main"]
    feeds = [rng.standard_normal((n, 501), np.float32), rng.integers(-501, 501, (n, 501))]
    feeds += [rng.uniform(-1.2, 1.2, (1, 9000, 1, 2)), rng.uniform(0, 20, (n, 4)).cumsum(1)]
    feeds += [np.hstack([np.zeros((n, 1)), feeds[-1]]), rng.integers(0, 501, n)]
    feeds += [rng.standard_normal(shape) for shape in ((n, 9, 9), (3, 24, 31, 33), (3, 32, 754), (50, 3, 40))]
    given = [one if one.dtype == np.int64 else one.astype(np.float32) for one in feeds]
    alone = main(*given, threads=1)
    for count in COUNTS:
        for number, (one, other) in enumerate(zip(alone, main(*given, threads=count), strict=True)):
            np.testing.assert_array_equal(one, other, err_msg=f"output {number}, {count} threads")


# One direction: threads share the products of each step.
SEQUENCES = """s (float[40, batch, 1024] x, float[768, 256] gr)
 => (float[40, 1, batch, 256] one, float[40, 1, batch, 256] two, float[40, 1, batch, 256] three)
 <float[1, 1024, 1024] lw, float[1, 1024, 256] lr, float[1, 768, 1024] gw, float[1, 768, 256] hr,
  int64[1] first = {0}>
 { given = Unsqueeze (gr, first)
   one = LSTM <hidden_size = 256> (x, lw, lr)
   two = GRU <direction = "reverse", hidden_size = 256> (x, gw, given)
   three = GRU <hidden_size = 256, linear_before_reset = 1> (x, gw, hr) }"""


@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 17])
def test_sequences_do_not_depend_on_the_number_of_threads(path: Path, batch: int, is_fixed: bool) -> None:
    """With a batch of known size and 96 rows or more, the threads copy rows that are a page apart."""
    # Threads keep the scratch memory of this call: later loops that need none must not take it for their own.
    fc.load_module(path)["main"](*feeds(97), threads=max(COUNTS))
    text = SEQUENCES.replace("batch", str(batch)) if is_fixed else SEQUENCES
    plan = fc.partition(with_weights(text), backends=["c"])
    sources = "".join(plan.source(region.name) for region in plan.regions)
    calls = re.findall(r"^ *farcall_shared_\w+_float\(.*, (\d+)\);$", sources, re.M)
    assert len(calls) == 2 + 3 + 2
    assert sum(size != "0" for size in calls) == (3 if is_fixed and 40 * batch >= 96 else 0)
    main, rng = plan.build().load()["main"], np.random.default_rng(batch)
    given = [rng.standard_normal(shape, np.float32) / 32 for shape in ((40, batch, 1024), (768, 256))]
    alone = main(*given, threads=1)
    for count in COUNTS:
        for one, other in zip(alone, main(*given, threads=count), strict=True):
            np.testing.assert_array_equal(one, other)


def plane_feeds(batch: int, height: int) -> list[np.ndarray]:
    rng = np.random.default_rng(batch)
    x = rng.standard_normal((batch, 8, height, 75)).astype(np.float32)
    rows = rng.standard_normal((batch, 777, 65)).astype(np.float32)
    return [x, rows, rng.integers(-500, 500, (batch, 300))]


@pytest.mark.parametrize(("batch", "height"), [(1, 61), (3, 40), (0, 9)])
def test_other_loops_do_not_depend_on_the_number_of_threads(planes: Path, batch: int, height: int) -> None:
    main = fc.load_module(planes)["main"]
    alone = main(*plane_feeds(batch, height), threads=1)
    for count in COUNTS:
        for number, (one, other) in enumerate(
            zip(alone, main(*plane_feeds(batch, height), threads=count), strict=True)
        ):
            np.testing.assert_array_equal(one, other, err_msg=f"output {number}")


def test_the_error_is_that_of_one_thread(planes: Path) -> None:
    main = fc.load_module(planes)["main"]
    x, rows, at = plane_feeds(3, 40)
    for place, other in ((0, 899), (450, 451), (1, 600)):
        at.reshape(-1)[[place, other]] = 1000 + place, -9999
        texts = []
        for count in (1, *COUNTS):
            with pytest.raises(IndexError, match=f"index {1000 + place} is outside of axis 0") as error:
                main(x, rows, at, threads=count)
            texts.append(str(error.value))
        assert len(set(texts)) == 1
        at.reshape(-1)[[place, other]] = 0


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


def test_threads_share_a_convolution_of_bytes_by_its_channels(tmp_path: Path) -> None:
    """A small image has one block of columns."""
    model = """c (uint8[1, 64, 14, 14] x) => (int32[1, 250, 14, 14] y) <int8[250, 64, 3, 3] w>
     { y = ConvInteger <pads = [1, 1, 1, 1]> (x, w) }"""
    path = fc.partition(with_weights(model), backends=["c"]).build().save(tmp_path / "bytes.so")
    run = fc.load_module(path)["main"]
    x = np.random.default_rng(0).integers(0, 255, (1, 64, 14, 14), np.uint8)
    one, several = (np.from_dlpack(run(x, threads=threads)) for threads in (1, 3))
    assert np.array_equal(one, several)
    code = (
        "import os, sys, numpy as np, farcall as fc\n"
        "run, x = fc.load_module(sys.argv[1])['main'], np.ones((1, 64, 14, 14), 'u1')\n"
        "tasks = lambda: len(os.listdir('/proc/self/task'))\n"
        "before = tasks(); run(x); print(tasks() - before)"
    )
    assert python(code, path, FARCALL_THREADS="3") == "2\n"


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


def test_the_command_line(path: Path, tmp_path: Path) -> None:
    files = []
    for name, value in zip(("x", "s", "t", "few"), feeds(97), strict=True):
        np.save(tmp_path / f"{name}.npy", value)
        files += ["--input", f"{name}={tmp_path / name}.npy"]
    results = []
    for threads in ("1", "3"):
        folder = tmp_path / threads
        words = [str(path), *files, "--threads", threads, "--output", str(folder)]
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output
        results.append([np.load(folder / f"{name}.npy") for name in "abcdef"])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    done = CliRunner().invoke(command, [str(path), "--threads", "2", "--on", "tcp://127.0.0.1:1"])
    assert done.exit_code == 2 and "FARCALL_THREADS" in done.output


SERVER = """
import sys, numpy as np, farcall as fc
from farcall.rpc import Limits
x = [np.ones(s, "f4") for s in [(97, 200), (5, 3, 61, 203), (5, 1, 203, 67), (3, 1100)]]
server = fc.serve(init="counting:register", limits=Limits(sessions=int(sys.argv[2])))
with server, fc.connect(server.url) as session:
    main = session.load_module(sys.argv[1])["main"]
    tasks = session.get_function("tasks")
    before = tasks()
    main(*map(session.tensor, x))
    print(tasks() - before + 1)
"""


def test_sessions_share_the_cpus(path: Path, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(
        "import os, farcall as fc\n"
        "def register(): fc.register_global_func('tasks', lambda: len(os.listdir('/proc/self/task')))\n"
    )
    assert python(SERVER, path, 256, PYTHONPATH=str(tmp_path)) == "1\n"
    assert python(SERVER, path, 256, PYTHONPATH=str(tmp_path), FARCALL_THREADS="3") == "3\n"
