"""The kit as a third party uses it, and the C text of dims and constants."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import sympy
from onnx.reference import ReferenceEvaluator

from farcall.backends import get, names, resolve
from farcall.backends.base import Backend
from farcall.backends.c import CBackend
from farcall.backends.c_backend_kit import RegionWriter, c_expr, c_literal, c_type
from farcall.errors import BackendError
from farcall.graph import Match
from farcall.graph.dims import ceildiv, evaluate, maximum, minimum, product, symbol
from farcall.library import load_module
from farcall.toolchain import Source, Target, compile_shared

from .harness import CC, compile_regions, whole_region
from .npu import Npu


def conv_net() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 2, h, 9] x, float[3, 2, 3, 3] w, float[3] b, float[4, 3, 2, 2] u) => (float[n, 4, p, 6] y)
        { a = Conv(x, w, b)  r = Relu(a)  c = Conv(r, u)  y = Relu(c) }"""
    )


def test_a_backend_of_its_own() -> None:
    model = conv_net()
    (region,) = compile_regions([whole_region(model, Npu(), name="npu_0")], Npu())
    rng = np.random.default_rng(0)
    for n, h in [(1, 7), (3, 12), (0, 5)]:
        shapes = [(n, 2, h, 9), (3, 2, 3, 3), (3,), (4, 3, 2, 2)]
        feeds = dict(zip("xwbu", (rng.standard_normal(s).astype(np.float32) for s in shapes), strict=True))
        got = region(*(feeds[str(value.name)] for value in region.region.inputs))
        if n:
            np.testing.assert_allclose(
                got[0], ReferenceEvaluator(model).run(None, feeds)[0], rtol=1e-4, atol=1e-5
            )


def test_the_kit_s_code_can_be_a_library_of_its_own(tmp_path: Path) -> None:
    code = Npu().compile(whole_region(conv_net(), Npu(), name="npu_0"), Target.host(), {})
    sources = [Source(name, text) for name, text in code.texts.items()]
    compile_shared(sources, tmp_path / "kernels.so")
    with pytest.raises(TypeError, match="expected 6 arguments, tensors first"):
        load_module(tmp_path / "kernels.so")["npu_0"]()


class Careless(Npu):
    def emit(self, match: Match, out: RegionWriter) -> None:
        out.line(match.pattern[99])


def test_an_error_in_emit_names_the_region_and_the_node() -> None:
    region = whole_region(conv_net(), Careless(), name="npu_0")
    with pytest.raises(
        BackendError,
        match=r"backend `npu`, region `npu_0`, node `Relu_1` \(Relu\): its emit\(\) raised IndexError",
    ) as caught:
        Careless().compile(region, Target.host(), {})
    assert isinstance(caught.value.__cause__, IndexError)


def test_wrong_calls_are_refused() -> None:
    (region,) = compile_regions([whole_region(conv_net(), Npu(), name="npu_1")], Npu())
    none = (ctypes.c_char * 16)()
    assert region.function(None, none, 1, none) == -1  # arity
    wrong = (ctypes.c_char * (16 * 6))()
    assert region.function(None, wrong, 6, none) == -1  # None where a tensor belongs


class _Flat(Backend):
    name = "flat"

    def compile(self, region):  # type: ignore[no-untyped-def]
        raise NotImplementedError


def test_backends_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "c" in names()
    assert isinstance(get("c"), CBackend)
    assert isinstance(get("farcall.backends.c:CBackend"), CBackend)
    flat = _Flat()
    assert [item.name for item in resolve([flat, "c"])] == ["flat", "c"]
    assert resolve("c")[0].name == "c"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["cc"], "no backend is called `cc`"),
        (["nowhere.at.all:X"], "ModuleNotFoundError"),
        (["farcall.backends.c:Nothing"], "AttributeError"),
        (["farcall.errors:UsageError"], "expected a backend"),
        ([3], "got int"),
        (["c", "c"], "two backends are called `c`"),
        ([], "no backends are given"),
    ],
)
def test_backends_that_are_none(given: list[str], text: str) -> None:
    with pytest.raises(BackendError, match=text):
        resolve(given)


def test_a_broken_plugin_harms_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    import farcall.backends as room

    broken = EntryPoint("bad", "no_such_package:Bad", "farcall.backends")
    monkeypatch.setattr(room, "installed", lambda kind: {"bad": broken})
    assert {"bad", "c"} <= set(names())
    assert get("c").name == "c"
    with pytest.raises(BackendError, match="bad"):
        get("bad")


def run_c(tmp_path: Path, expressions: list[str], declarations: str, kind: str) -> list[float]:
    """The value of a C constant, computed by a compiled program."""
    lines = "\n".join(f"out[{i}] = {text};" for i, text in enumerate(expressions))
    from farcall.backends._function import FLOORDIV

    head = f"#include <math.h>\n#include <stdint.h>\n{FLOORDIV}\n"
    source = f"{head}void f({kind}* out{declarations}) {{\n{lines}\n}}\n"
    (tmp_path / "t.c").write_text(source)
    subprocess.run(
        [*CC.command, "-std=c11", "-shared", "-fPIC", "-w", "t.c", "-o", "t.so"], cwd=tmp_path, check=True
    )
    return ctypes.CDLL(str(tmp_path / "t.so"))


def test_literals_read_back_exactly(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cases = [
        (
            np.float32,
            "float",
            ir.DataType.FLOAT,
            rng.integers(0, 2**32, 400, dtype=np.uint32).view(np.float32),
        ),
        (
            np.float64,
            "double",
            ir.DataType.DOUBLE,
            rng.integers(0, 2**63, 400, dtype=np.uint64).view(np.float64),
        ),
        (np.int64, "int64_t", ir.DataType.INT64, np.array([-(2**63), 2**63 - 1, 0, -1])),
        (np.int32, "int32_t", ir.DataType.INT32, np.array([-(2**31), 2**31 - 1], np.int32)),
        (np.int8, "int8_t", ir.DataType.INT8, np.array([-128, 127], np.int8)),
        (np.uint64, "uint64_t", ir.DataType.UINT64, np.array([2**64 - 1, 0], np.uint64)),
        (np.bool_, "uint8_t", ir.DataType.BOOL, np.array([True, False])),
    ]
    for number, (dtype, kind, code, data) in enumerate(cases):
        if data.dtype.kind == "f":
            extra = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 1e-45, 1e5, 123456789.0, np.finfo(dtype).max]
            data = np.concatenate([data, np.array(extra, dtype)])
        folder = tmp_path / str(number)
        folder.mkdir()
        library = run_c(folder, [c_literal(item, code) for item in data], "", kind)
        out = np.zeros(len(data), dtype)
        library.f(ctypes.c_void_p(out.ctypes.data))
        nans = np.isnan(data) if data.dtype.kind == "f" else np.zeros(len(data), bool)
        assert out[~nans].tobytes() == data[~nans].tobytes()
        assert np.isnan(out[nans]).all()
        assert c_type(code) == kind


def test_dims_as_c(tmp_path: Path) -> None:
    h, w = symbol("h"), symbol("w")
    exprs = [
        h, h + 1, 3 * h * w, (h - 1) // 2 + 1, ceildiv(h, 3), ceildiv(h, 3) // 2, h**2 - w, minimum(h, w),
        maximum(h - 5, 0), sympy.Mod(h, 4), sympy.floor((h + w) / 2) * 3, product((h, (w - 3) // 2 + 1, 7)),
        -h // 2, sympy.ceiling(h / w), 2**40 * w,
        h * (h + 1) / 2, (2 * (h // 2) + 2) * w / 2, sympy.floor(h / 2 + sympy.floor(w / 3) / 5),
    ]  # fmt: skip
    library = run_c(tmp_path, [c_expr(item) for item in exprs], ", int64_t s_h, int64_t s_w", "int64_t")
    for height in (0, 1, 2, 5, 8, 100):
        for width in (1, 3, 6, 31):
            out = np.zeros(len(exprs), np.int64)
            library.f(ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(height), ctypes.c_int64(width))
            assert out.tolist() == [evaluate(item, {"h": height, "w": width}) for item in exprs]


def test_symbols_that_no_argument_shows_are_asked_for() -> None:
    from farcall.backends.c._region import generate
    from farcall.graph import Region

    whole = whole_region(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]> g (float[h] x) => (float[k] z)
            { y = Concat<axis=0>(x, x)  z = Relu(y) }"""
        )
    )
    relu = whole.matches[1]
    part = Region("c_0", "c", (relu,), (relu.nodes[0].inputs[0],), whole.outputs, ())
    code = generate(part)
    assert list(code.symbols) == ["h"]
    assert "args[2].v_int64" in code.texts["c_0.c"]
