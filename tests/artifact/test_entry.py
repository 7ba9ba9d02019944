"""The generated entry: its results and its errors, in farcall and in the real tvm_ffi."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from farcall.artifact import Artifact
from farcall.artifact._checked import CheckedText
from farcall.backends._ctext import c_string
from farcall.backends.base import RegionCode
from farcall.errors import ModelError
from farcall.graph import Region
from farcall.graph.dims import symbol
from farcall.toolchain import Target

from .stub_backend import Stub, model, plan

MainOf = Callable[[Artifact], Callable[..., Any]]

CHAIN = [("Add", "x y", "a"), ("Neg", "a", "b"), ("Mul", "b w", "z")]
CHAIN_SHAPES = {"x": ["batch", 3], "y": ["batch", 3]}
W = {"w": np.array(2.5, np.float32)}


def chain(batch: int | str = "batch") -> Artifact:
    shape = [batch, 3]
    proto = model(CHAIN, {"x": shape, "y": shape}, {"z": shape}, W)
    return plan(proto, Stub("npu", ["Neg"]), Stub("cpu")).build()


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("batch", [1, 2, 0, 360])
def test_regions_run_in_order_at_any_batch(main_of: MainOf, batch: int) -> None:
    x, y = ramp(batch, 3), np.full((batch, 3), 10, np.float32)
    z = main_of(chain())(x, y)
    assert z.shape == (batch, 3)
    np.testing.assert_array_equal(z, -(x + y) * np.float32(2.5))


def test_empty_tensors_between_regions_are_aligned(main_of: MainOf) -> None:
    class Careful(Stub):
        """Refuses tensors that are not aligned as the memory between regions is."""

        def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
            code = super().compile(region, target, options)
            check = "  if (!DATA(0) || (uintptr_t)DATA(0) % 64) return -1;\n"
            text = code.sources[f"{region.name}.c"].replace(
                "{\n  int64_t n = count", "{\n" + check + "  int64_t n = count"
            )
            return replace(code, sources={f"{region.name}.c": text})

    proto = model([("Neg", "x", "a"), ("Abs", "a", "z")], {"x": ["n", 3]}, {"z": ["n", 3]})
    artifact = plan(proto, Careful("npu", ["Abs"]), Stub("cpu")).build()
    assert main_of(artifact)(ramp(0, 3)).shape == (0, 3)


def test_static_model(main_of: MainOf) -> None:
    x = ramp(4, 3)
    main = main_of(chain(4))
    np.testing.assert_array_equal(main(x, x), -(x + x) * np.float32(2.5))
    with pytest.raises(ValueError, match=r"`x` of `main`: expected float32\[4, 3\], got float32\[2, 3\]"):
        main(x[:2], x[:2])


def test_long_alternation_shares_memory_and_is_right(main_of: MainOf) -> None:
    nodes, last = [], "x"
    for k in range(12):
        nodes.append((["Neg", "Abs"][k % 2], last, f"v{k}"))
        last = f"v{k}"
    nodes.append(("Add", f"{last} v3", "out"))  # v3 lives long
    proto = model(nodes, {"x": ["n"]}, {"out": ["n"]})
    x = np.array([1, -2, 3], np.float32)
    values = [x]
    for k in range(12):
        values.append(np.abs(values[-1]) if k % 2 else -values[-1])
    main = main_of(plan(proto, Stub("a", ["Neg"]), Stub("b")).build())
    np.testing.assert_array_equal(main(x), values[-1] + values[4])


LAYOUTS = {
    "transposed": lambda: ramp(3, 5).T,
    "reversed": lambda: ramp(5, 3)[::-1],
    "strided": lambda: ramp(10, 6)[::2, ::2],
    "broadcast": lambda: np.broadcast_to(np.float32([1, 2, 3]), (5, 3)),
    "one row": lambda: ramp(5, 3)[:1],
    "misaligned": lambda: np.frombuffer(b"?" + ramp(5, 3).tobytes(), np.float32, offset=1).reshape(5, 3),
    "empty": lambda: ramp(0, 3).T.reshape(3, 0).T,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_taken(layout: str) -> None:
    x = LAYOUTS[layout]()
    y = np.ones(x.shape, np.float32)
    z = chain().load()["main"](x, y)
    np.testing.assert_array_equal(z, -(x + y) * np.float32(2.5))


def test_outputs_that_no_region_makes_alone(main_of: MainOf) -> None:
    proto = model(
        [("Neg", "x", "y")],
        {"x": ["n"], "unused": [2]},
        {"y": ["n"], "x": ["n"], "w": [3]},
        {"w": np.array([1, 2, 3], np.float32)},
    )
    proto.graph.output.add().CopyFrom(proto.graph.output[0])
    proto.graph.output.add().CopyFrom(proto.graph.output[2])
    x = ramp(4)
    results = main_of(plan(proto).build())(x, ramp(2))
    assert isinstance(results, tuple)
    for result, expected in zip(results, [-x, x, [1, 2, 3], -x, [1, 2, 3]], strict=True):
        np.testing.assert_array_equal(result, np.asarray(expected, np.float32))
    results[1][...] = 0  # a copy: the argument is the caller's
    results[2][...] = 0
    assert x[3] == 3
    np.testing.assert_array_equal(results[4], [1, 2, 3])


def test_no_inputs_at_all(main_of: MainOf) -> None:
    proto = model([("Neg", "w", "y")], {}, {"y": [3]}, {"w": np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(main_of(plan(proto).build())(), [-1, -2, -3])


def test_scalars(main_of: MainOf) -> None:
    proto = model([("Add", "x x", "y")], {"x": []}, {"y": []})
    result = main_of(plan(proto).build())(np.array(3, np.float32))
    assert result.shape == ()
    assert result == 6


X, Y = ramp(4, 3), ramp(4, 3)
REFUSALS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "few": (
        (X,),
        TypeError,
        # From the library itself; a Signature lists the arguments that are missing.
        "`main`: expected 2 arguments .x: float32[batch, 3], y: float32[batch, 3]., got 1"
        "|argument 2 `y` of `main`: missing; expected float32[batch, 3]",
    ),
    "not a tensor": (
        (X, 3),
        TypeError,
        "argument 2 `y` of `main`: expected float32[batch, 3] with batch=4, got int( 3)?; "
        "pass an array or a tensor",
    ),
    "text": (
        ("a long text of many letters", Y),
        TypeError,
        "argument 1 `x` of `main`: expected float32[batch, 3], got str( 'a long text of many letters')?; "
        "pass an array or a tensor",
    ),
    "dtype": (
        (X.astype(np.float64), Y),
        TypeError,
        "argument 1 `x` of `main`: expected float32[batch, 3], got float64[4, 3]; convert it to float32",
    ),
    "rank": (
        (X, Y.ravel()),
        ValueError,
        "argument 2 `y` of `main`: expected float32[batch, 3] with batch=4, got float32[12]; "
        "reshape it to rank 2",
    ),
    "fixed dim": (
        (ramp(4, 2), Y),
        ValueError,
        "argument 1 `x` of `main`: expected float32[batch, 3], got float32[4, 2]; dimension 1 must be 3",
    ),
    "symbol": (
        (X, ramp(5, 3)),
        ValueError,
        "argument 2 `y` of `main`: expected float32[batch, 3] with batch=4, got float32[5, 3]; "
        "dimension 0 must be 4, the `batch` of argument 1 `x`",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_say_what_where_and_the_cure(main_of: MainOf, case: str) -> None:
    arguments, kind, message = REFUSALS[case]
    main = main_of(chain())
    with pytest.raises(kind) as caught:
        main(*arguments)
    assert re.fullmatch(re.sub(r"[\[\]]", r"\\\g<0>", message), str(caught.value))
    np.testing.assert_array_equal(main(X, Y), -(X + Y) * np.float32(2.5))  # and it still works


def test_absurd_sizes_are_errors(main_of: MainOf) -> None:
    proto = model([("Mul", "x y", "z")], {"x": ["n", 1], "y": [1, "m"]}, {"z": ["n", "m"]})
    main = main_of(plan(proto).build())

    def huge(*shape: int) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(np.ones(1, np.float32), shape, (0, 0))

    with pytest.raises(
        ValueError, match="sizes are too large, or one is divided by 0, with n=1099511627776, m=1099511627776"
    ):
        main(huge(2**40, 1), huge(1, 2**40))
    with pytest.raises(MemoryError):
        main(huge(2**40, 1), huge(1, 1))
    with pytest.raises(MemoryError):
        main(huge(1, 1), huge(1, 2**46))


class Failing(Stub):
    """Raises where the first element is negative."""

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        code = super().compile(region, target, options)
        ((name, text),) = code.sources.items()
        check = (
            '  if (DATA(0)[0] < 0) { TVMFFIErrorSetRaisedFromCStr("IndexError", "negative"); return -1; }\n'
        )
        text = text.replace("  int64_t n = count", f"{check}  int64_t n = count")
        return RegionCode({name: text}, code.constants, code.workspace)


def test_an_error_in_a_region_arrives_and_leaves_nothing_broken(main_of: MainOf) -> None:
    proto = model([("Neg", "x", "a"), ("Abs", "a", "b"), ("Neg", "b", "y")], {"x": ["n"]}, {"y": ["n"]})
    main = main_of(plan(proto, Failing("fail", ["Abs"]), Stub()).build())
    for _ in range(3):
        with pytest.raises(IndexError, match="negative"):
            main(ramp(3) + 1)
        np.testing.assert_array_equal(main(-ramp(3)), -ramp(3))


def test_many_threads_do_not_share_working_memory() -> None:
    proto = model([("Neg", "x", "a"), ("Abs", "a", "b"), ("Neg", "b", "y")], {"x": ["n"]}, {"y": ["n"]})
    main = plan(proto, Stub("a", ["Neg"]), Stub("b")).build().load()["main"]

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).standard_normal(1000 + 37 * seed).astype(np.float32)
        return all(np.array_equal(main(x), -np.abs(x)) for _ in range(50))

    with ThreadPoolExecutor(24) as pool:  # more than the library keeps blocks for
        assert all(pool.map(work, range(24)))


def test_sizes_that_only_the_run_would_show_are_refused() -> None:
    made = plan(model([("Neg", "x", "y")], {"x": ["n"]}, {"y": ["n"]}))
    made.partition.model.graph.outputs[0].shape = ir.Shape(["k"])
    with pytest.raises(ModelError, match="`k` is in no input's shape"):
        made.build()


def test_names_are_quoted_for_c() -> None:
    assert c_string('a"b\\c??=\n%d é') == '"a\\"b\\\\c\\?\\?=\\012%d \\303\\251"'


def test_names_with_any_characters_work(main_of: MainOf) -> None:
    proto = model([("Neg", "in/x:0", "y")], {"in/x:0": ["größe", 2]}, {"y": ["größe", 2]})
    main = main_of(plan(proto).build())
    np.testing.assert_array_equal(main(ramp(2, 2)), -ramp(2, 2))
    with pytest.raises(ValueError, match=r"argument 1 `in/x:0` of `main`: expected float32"):
        main(ramp(2, 3))


def test_sizes_that_are_divided_have_c() -> None:
    """sympy writes (2*n - 1)*(2*m + 1) as a half of another product, too."""
    n, m = symbol("n"), symbol("m")
    text = CheckedText({"n": "n", "m": "m"})
    assert text((4 * n - 2) * (2 * m + 1) / 2) == text((2 * n - 1) * (2 * m + 1))
    assert text(n * (n + 1) / 2).startswith("fc_floordiv(")
