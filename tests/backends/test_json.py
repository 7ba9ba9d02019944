"""The backend ``json``: ONNX's tests through its interpreter, and what the interpreter refuses."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.backend.test.loader import load_model_tests

import farcall as fc
from farcall._core import load_module_from_bytes
from farcall.backends.json import JsonBackend
from farcall.backends.json._region import KIND, VERSION, compile_region
from farcall.backends.json._registry import LOWERINGS
from farcall.errors import ArtifactError, ModelError
from farcall.graph import Region
from farcall.library._blob import Blob

from .harness import whole_region
from .onnx_nodes import Outcome, model_of, run_case


class Interpreted:
    """A region's module, loaded; it is called as compiled regions are in the tests of ``c``."""

    def __init__(self, region: Region) -> None:
        code = compile_region(region)
        self.region = region
        self.module = load_module_from_bytes(KIND, bytes(Blob(KIND, VERSION, code.data)))
        if code.constants:
            given = [np.ascontiguousarray(data) for data in code.constants.values()]
            self.module[f"__init_{region.name}"](given)

    @property
    def folded(self) -> list[Any]:
        graph = getattr(self.region, "graph", None)
        return (
            [value for value in graph.outputs if value.const_value is not None] if graph is not None else []
        )

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        results = self.module[self.region.name](*map(np.asarray, inputs)) if self.region.outputs else []
        several = len(self.region.outputs) != 1
        return [np.asarray(result) for result in (results if several else [results])]


def run_all(kind: str) -> Outcome:
    outcome = Outcome()
    with warnings.catch_warnings(action="ignore"):  # onnx makes its cases with numpy's warnings
        cases = load_model_tests(kind=kind)
    for case in cases:
        model = model_of(case)
        kinds = {(node.domain, node.op_type) for node in model.graph.node}
        if not all(domain in ("", "ai.onnx") and op in {*LOWERINGS, "Constant"} for domain, op in kinds):
            continue
        try:
            region = whole_region(model, JsonBackend(), name="json_0")
        except ModelError as error:
            outcome.refused[case.name] = str(error)
            continue
        try:
            run_case(case, model, Interpreted(region))  # type: ignore[arg-type]
        except (AssertionError, RuntimeError, ValueError, TypeError) as error:
            outcome.failed[case.name] = f"{type(error).__name__}: {error}"
        else:
            outcome.passed.append(case.name)
    return outcome


@pytest.mark.parametrize(
    ("kind", "least"), [("node", 609), ("simple", 2), ("pytorch-converted", 65), ("pytorch-operator", 30)]
)
def test_onnx_cases(kind: str, least: int) -> None:
    """What the backend takes it computes rightly; how much it takes only grows."""
    outcome = run_all(kind)
    assert outcome.failed == {}
    assert len(outcome.passed) >= least
    assert all("json: " in why for why in outcome.refused.values())


def interpreted(text: str) -> Interpreted:
    return Interpreted(whole_region(parser.parse_model(text), JsonBackend(), name="f"))


HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def test_symbolic_dims_and_empty_tensors() -> None:
    run = interpreted(
        f"{HEAD} g (float[n, m] x, float[m] y) => (float[m, k] z, float[n] s) {{"
        " a = Add(x, y) z = Transpose<perm = [1, 0]>(a) axes = Constant<value_ints = [1]>()"
        " s = ReduceSum<keepdims = 0>(a, axes) }"
    )
    for shape in ((2, 3), (1, 1), (0, 3), (4, 0), (130, 7)):
        x, y = np.random.default_rng(0).random(shape, np.float32), np.ones(shape[1], np.float32)
        z, s = run(x, y)
        np.testing.assert_array_equal(z, (x + y).T)
        np.testing.assert_allclose(s, (x + y).sum(1), rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"argument 2 of `f`: expected a row-major float32\[3\].*float32\[2\]"
    ):
        run(np.ones((2, 3), np.float32), np.ones(2, np.float32))


def test_a_split_of_which_only_the_end_is_read_and_pads_that_cut_off_more_than_there_is() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
    g (float[5, 2] x, float[a, b, 0] e) => (float[?, ?] y, float[?, ?, ?] z)
    <int64[2] parts = {3, 2}, int64[6] pads = {-1, 1, -1, 0, -1, 1}> {
      unread, y = Split <axis = 0> (x, parts)
      z = Pad (e, pads)
    }""")
    main = fc.partition(model, backends=["json"]).build().load()["main"]
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    y, z = map(np.from_dlpack, main(x, np.zeros((7, 4, 0), np.float32)))
    assert np.array_equal(y, x[3:]) and z.shape == (6, 4, 0)


def test_dims_that_a_call_may_stretch() -> None:
    """Of what is stretched to other sizes, no element is left out, and none beyond the last is read."""
    run = interpreted(
        f"{HEAD} g (float[n, m] x) => (float[3, 4] y)"
        " { s = Constant<value_ints = [3, 4]>() y = Expand(x, s) }"
    )
    for shape in ((3, 4), (1, 4), (3, 1), (1, 1)):
        x = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(run(x)[0], np.broadcast_to(x, (3, 4)))
    for shape in ((2, 4), (4, 4), (3, 5), (3, 0), (6, 2)):
        with pytest.raises(ValueError, match="expected two sizes to be equal"):
            run(np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("dtype", "lowest", "highest"),
    [
        ("int8", -128, 127),
        ("int64", -(2**63), 2**63 - 1),
        ("uint8", 0, 255),
        ("uint32", 0, 2**32 - 1),
        ("bool", 0, 1),
    ],
)
def test_the_maximum_of_nothing_is_the_lowest_value_of_the_dtype(
    dtype: str, lowest: int, highest: int
) -> None:
    run = interpreted(
        f"{HEAD} g ({dtype}[n, 2] x) => ({dtype}[2] a, {dtype}[2] b) {{ axes = Constant<value_ints = [0]>()"
        " a = ReduceMax<keepdims = 0>(x, axes) b = ReduceMin<keepdims = 0>(x, axes) }"
    )
    most, least = run(np.zeros((0, 2), dtype))
    assert (most.tolist(), least.tolist()) == ([lowest] * 2, [highest] * 2)


def test_arguments_of_any_layout() -> None:
    run = interpreted(f"{HEAD} g (float[2, 3] x) => (float[2, 3] y) {{ y = Neg(x) }}")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(run(x.T)[0], -x.T)
    y = np.zeros((2, 3), np.float32)
    assert run.module["f"](x.T, y) is None
    np.testing.assert_array_equal(y, -x.T)
    with pytest.raises(TypeError, match=r"argument 2 of `f`.*strides"):
        run.module["f"](x.T, np.zeros((3, 2), np.float32).T)
    with pytest.raises(TypeError, match="expected 1 inputs"):
        run.module["f"]()


def test_threads_share_a_function() -> None:
    run = interpreted(
        f"{HEAD} g (float[n, 8] x, float[8, 8] w) => (float[n, 8] y) {{ a = MatMul(x, w) y = Softmax(a) }}"
    )
    rng = np.random.default_rng(0)
    w = rng.random((8, 8), np.float32)
    wrong: list[int] = []

    def work(n: int) -> None:
        x = rng.random((n, 8), np.float32)
        once = run(x, w)[0]
        wrong.extend(n for _ in range(50) if not np.array_equal(run(x, w)[0], once))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 33, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_constants_come_once_and_are_checked() -> None:
    weights = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [32], np.arange(32, dtype=np.float32))
    model = parser.parse_model(f"{HEAD} g (float[32] x) => (float[32] y) {{ y = Mul(x, w) }}")
    model.graph.initializer.append(weights)
    code = compile_region(whole_region(model, JsonBackend(), name="f"))
    module = load_module_from_bytes(KIND, code.data)  # without a frame, too
    x = np.ones(32, np.float32)
    with pytest.raises(RuntimeError, match="__init_f"):
        module["f"](x)
    for bad, why in (
        ([], "Array of 1 tensors"),
        ([x.astype("float64")], "float64"),
        ([x[:5]], r"float32\[5\]"),
    ):
        with pytest.raises((TypeError, ValueError), match=why):
            module["__init_f"](bad)
    module["__init_f"](list(code.constants.values()))
    np.testing.assert_array_equal(np.asarray(module["f"](x)), np.arange(32))


def function(**changes: Any) -> dict[str, Any]:
    """A function that adds, with changed members."""
    whole = {
        "inputs": [0, 1],
        "outputs": [2],
        "values": [["float32", [2]]] * 3,
        "nodes": [["add", [0, 1], [2], []]],
    }
    return {**whole, **changes}


def test_a_function_calls_others() -> None:
    nodes = [["call", [0, 1], [3], [], "add"], ["call", [3, 1], [2], [], "add"]]
    values = [["float32", [2]]] * 3 + [["float32", [2], {"workspace": 0}]]
    main = function(nodes=nodes, values=values, workspace=64)
    text = json.dumps({"functions": {"add": function(), "main": main}}).encode()
    module = load_module_from_bytes(KIND, text)
    x = np.float32([1, 2])
    np.testing.assert_array_equal(np.asarray(module["main"](x, x)), 3 * x)
    assert module.inspect_source() == text.decode()
    again = load_module_from_bytes(KIND, module.save_to_bytes())
    assert sorted(again) == ["add", "main"]


def test_imports_are_called() -> None:
    nodes = [["call", [0, 1], [2], [], "other"]]
    module = load_module_from_bytes(KIND, json.dumps({"functions": {"main": function(nodes=nodes)}}).encode())
    x = np.float32([1, 2])
    with pytest.raises(RuntimeError, match="`other`"):
        module["main"](x, x)
    module.import_module(
        load_module_from_bytes(KIND, json.dumps({"functions": {"other": function()}}).encode())
    )
    main = module["main"]
    np.testing.assert_array_equal(np.asarray(main(x, x)), x + x)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"inputs": [0, 9]}, "`inputs` 1"),
        ({"inputs": [0, 0]}, "two places"),
        ({"outputs": 5}, "`outputs`"),
        ({"values": [["float99", [2]]] * 3}, "dtype of value 0"),
        ({"values": [["float32", [-2]]] * 3}, "negative"),
        ({"values": [["float32", [1 << 50]]] * 3}, "too large"),
        ({"values": [["float32", [2] * 9]] * 3}, "shape of value 0"),
        ({"values": [["float32", ["s0"]]] * 3}, "shape of value 0"),
        ({"values": [["float32", [2]]] * 4}, "no place for value 3"),
        ({"values": [["float32", [2]], ["float32", [2]], ["float64", [2]]]}, "do not fit"),
        ({"values": [["float32", [2]], ["float32", [3]], ["float32", [2]]]}, "do not fit"),
        ({"nodes": [["add", [0, 1], [0], []]]}, "a write to an input"),
        ({"nodes": [["add", [0], [2], []]]}, "number of operands"),
        ({"nodes": [["add", [0, 1], [2, 2], []]]}, "number of operands"),
        ({"nodes": [["frobnicate", [0, 1], [2], []]]}, "unknown operator"),
        ({"nodes": [["move", [0], [2], [2, 1, 1, 0, 1]]]}, "do not fit"),
        ({"nodes": [["move", [0], [2], [2, 0, 1, 0, -1]]]}, "do not fit"),
        ({"nodes": [["move", [0], [2], [2, 0, 1 << 61, 0, 1]]]}, "do not fit"),
        ({"nodes": [["gather", [0, 1], [2], [0]]]}, "do not fit"),
        ({"nodes": [["conv", [0, 1], [2], [1] * 7]]}, "do not fit"),
        ({"nodes": [["maxpool", [0], [2], [1] * 11]]}, "do not fit"),
        ({"nodes": [["matmul", [0, 1], [2], [0, 0]]]}, "do not fit"),
        ({"nodes": [["reduce_sum", [0], [2], [0]]]}, "do not fit"),
        ({"workspace": -1}, "negative"),
        ({"sizes": [["div", 1, 0]]}, "overflows|cannot be computed"),
        ({"sizes": [["add", "s0", 1]]}, "size 0"),
        ({"equal": [[1]]}, "`equal`"),
    ],
)
def test_malformed_payloads(changes: dict[str, Any], problem: str) -> None:
    text = json.dumps({"functions": {"f": function(**changes)}}).encode()
    x = np.ones(2, np.float32)
    with pytest.raises((ValueError, TypeError), match=problem):
        load_module_from_bytes(KIND, text)["f"](x, x)


@pytest.mark.parametrize(
    "place", [{"of": 3}, {"of": 4}, {"workspace": 60}, {"workspace": 62}, {"workspace": -4}]
)
def test_places_that_do_not_fit(place: dict[str, int]) -> None:
    values = [["float32", [2]]] * 3 + [["float32", [2], place]]
    text = json.dumps({"functions": {"f": function(values=values, workspace=64)}}).encode()
    with pytest.raises(ValueError, match=r"place|alias"):
        load_module_from_bytes(KIND, text)


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(ArtifactError, match=r"version 3.*reads versions 1 to 2"):
        load_module_from_bytes(KIND, bytes(Blob(KIND, 3, b"{}")))


def test_an_index_out_of_bounds() -> None:
    run = interpreted(f"{HEAD} g (float[3] x, int64[2] i) => (float[2] y) {{ y = Gather(x, i) }}")
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(run(x, np.array([-1, 0]))[0], [3, 1])
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        run(x, np.array([0, 3]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "g (float[1, 1, 4, 4, 4] x) => (float[1, 1, 2, 2, 2] y)"
            " { y = MaxPool<kernel_shape = [2, 2, 2], strides = [2, 2, 2]>(x) }",
            "3 spatial axes",
        ),
        (
            "g (float[1, 1, 5, 5] x) => (float[1, 1, 1, 2] y)"
            " { y = MaxPool<kernel_shape = [2, 2], strides = [2147483647, 2]>(x) }",
            "windows that reach farther than 268435456 elements",
        ),
    ],
)
def test_what_it_lacks_it_refuses_with_a_reason(text: str, reason: str) -> None:
    model = parser.parse_model(f"{HEAD} {text}")
    with pytest.raises(ModelError, match=f"json: {reason}"):
        fc.partition(model, backends=["json"])
    assert [region.backend for region in fc.partition(model, backends=["json", "c"]).regions] == ["c"]


@pytest.mark.parametrize(
    ("imports", "what"),
    [
        ({}, "`imports`"),
        ([7], "the name of import 0"),
        ([{"function": "f", "constants": 1}], "`constants`"),
        ([{"function": "f", "constants": [["floaty", [], {"offset": 0}]]}], "constant 0"),
        ([{"function": "f", "constants": [["int8", [-1], {"offset": 0}]]}], "the shape of constant 0"),
        ([{"function": "f", "constants": [["int8", [65], {"offset": 0}]]}], "the offset of constant 0"),
        ([{"function": "f", "constants": [["int8", [1], {"offset": -64}]]}], "the offset of constant 0"),
        ([{"function": "f", "constants": [["int8", [1], {"offset": 1}]]}], "the offset of constant 0"),
    ],
)
def test_malformed_imports(imports: object, what: str) -> None:
    text = json.dumps({"byteorder": sys.byteorder, "imports": imports, "functions": {}}).encode()
    data = text + bytes(64 - len(text) % 64) + bytes(64)
    with pytest.raises(ValueError, match=what):
        load_module_from_bytes(KIND, bytes(Blob(KIND, 2, data)))


def test_operators_take_no_carried_values() -> None:
    values = [["float16", [2]], ["float16", [2]]]
    function = {"inputs": [0], "outputs": [1], "values": values, "nodes": [["neg", [0], [1], []]]}
    with pytest.raises(ValueError, match="its operands do not fit together"):
        load_module_from_bytes(KIND, json.dumps({"functions": {"f": function}}).encode())
    function["nodes"] = [["move", [0], [1], [2, 0, 1, 0, 1]]]
    module = load_module_from_bytes(KIND, json.dumps({"functions": {"f": function}}).encode())
    half = np.float16([1, 2])
    assert module["f"](half).tolist() == [1, 2]
