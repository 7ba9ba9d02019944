"""Functions with a Signature, from Python and from kernel libraries, and their help and repr."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import json
import pydoc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import farcall.ffi as ffi
from farcall.abi import Arg, Fields, FunctionAbi, Signature, Slot, TensorSpec, register_class
from farcall.errors import ArgumentError, ResultError, SignatureError


@register_class
@dataclasses.dataclass
class Stats:
    mean: Any
    count: Any


def signed(function: Any, *types: Any) -> ffi.Function:
    made = ffi.Function(function)
    made.signature = Signature.of(*types)
    return made


SUMS = signed(
    lambda a, b, by: [(a.numpy() + b.numpy()) * by, a.numpy().size],
    {
        "pair": {"left": "float32[n]", "right": "float32[n]"},
        "by": Arg("float32", default=2.0, doc="a factor"),
    },
    Stats("float32[n]", "int64"),
)
X = np.arange(3, dtype="f4")


class TestCalls:
    def test_nested_arguments_defaults_and_results(self) -> None:
        result = SUMS({"left": X, "right": X})
        assert isinstance(result, Stats)
        assert isinstance(result.mean, np.ndarray)  # of the framework of the arguments
        np.testing.assert_array_equal(result.mean, 4 * X)
        assert result.count == 3
        assert SUMS(by=1, pair={"right": X, "left": X}).mean.tolist() == (2 * X).tolist()

    def test_results_are_of_the_framework_of_nested_arguments(self) -> None:
        torch = pytest.importorskip("torch")
        x = torch.ones(3)
        assert isinstance(SUMS({"left": x, "right": x}).mean, torch.Tensor)

    def test_errors_name_the_function(self) -> None:
        with pytest.raises(ArgumentError) as caught:
            SUMS({"left": X, "right": X[:2]}, "two")
        place = f"`{SUMS.name}`"
        assert caught.value.problems == (
            f'{place}: argument pair["right"]: expected float32[n] with n=3, got float32[2]; '
            'dimension 0 must be 3, the `n` of pair["left"]',
            f"argument 2 `by` of {place}: expected float32, got str 'two'",
        )

    def test_nothing_runs_when_anything_is_wrong(self) -> None:
        calls: list[Any] = []
        function = signed(lambda *args: calls.append(args), {"x": "int8[n]", "k": "int8"})
        for args in [(X, 1), (np.zeros(1, "i1"), 300), (), (np.zeros(1, "i1"), 1, 1)]:
            with pytest.raises(ArgumentError):
                function(*args)
        assert not calls
        function(np.zeros(1, "i1"), 1)
        assert len(calls) == 1

    @pytest.mark.parametrize(
        ("returned", "problem"),
        [
            (None, "expected 2 results, got None"),
            ([X], "expected 2 results, got 1 values"),
            ([X, 1.5], r"result \.count: expected int64, got float 1.5"),
            ([X.astype("f8"), 1], r"result \.mean: expected float32\[n\] with n=3, got float64\[3\]"),
            ([X[:2], 1], r"result \.mean: expected float32\[n\] with n=3, got float32\[2\]"),
        ],
    )
    def test_wrong_results(self, returned: Any, problem: str) -> None:
        function = signed(lambda x: returned, {"x": "float32[n]"}, Stats("float32[n]", "int64"))
        with pytest.raises(ResultError, match=problem):
            function(X)

    def test_errors_of_the_function_pass(self) -> None:
        def fail(x: Any) -> None:
            raise KeyError("as it was asked to")

        with pytest.raises(KeyError, match="as it was asked to"):
            signed(fail, {"x": "float32[n]"})(X)

    def test_in_place(self) -> None:
        def fill(x: ffi.Tensor) -> None:
            x.numpy()[:] = 7

        function = ffi.Function(fill)
        function.signature = Signature((TensorSpec("x", "float32", ("n",), access="out"),), ())
        x = np.zeros(3, "f4")
        assert function(x) is None
        assert x.tolist() == [7, 7, 7]
        x.flags.writeable = False
        with pytest.raises(ArgumentError, match="a read-only float32"):
            function(x)

    def test_many_nested_leaves(self) -> None:
        function = signed(lambda *args: sum(one.numel() for one in args), {"xs": ["int8[?]"] * 40}, "int64")
        assert function([np.zeros(i, "i1") for i in range(40)]) == sum(range(40))

    def test_a_copy_is_counted_on_the_abi(self) -> None:
        function = signed(lambda x: None, {"x": "float32[n, m]"})
        function(np.zeros((2, 3), "f4").T)
        function(np.zeros((2, 3), "f2"))
        assert function.abi.copies == 2

    def test_other_rules_by_abi(self) -> None:
        function = ffi.Function(lambda x: x.numpy().sum())
        function.abi = FunctionAbi(Signature.of({"x": "float32[n]"}, "float32"), casting="same_kind")
        assert function(X.astype("f8")) == 3.0
        assert function.abi.casting == "same_kind"
        assert function.signature == function.abi.signature
        with pytest.raises(TypeError, match=r"expected a farcall\.abi\.FunctionAbi or None"):
            function.abi = "other"
        function.abi = None
        assert function.signature is None

    def test_the_callee_takes_its_signature_away(self) -> None:
        function = signed(lambda x: setattr(function, "signature", None), {"x": "float32[n]"})
        assert function(X) is None
        assert function.signature is None
        assert function(3) is None

    def test_values_that_change_while_they_are_read(self) -> None:
        values: dict[Any, Any] = {}

        class Key(str):
            __slots__ = ()

            def __hash__(self) -> int:
                return hash("left")

            def __eq__(self, other: object) -> bool:
                values.clear()
                return False

        values |= {Key("other"): X.copy(), "left": X.copy()}
        with pytest.raises(ArgumentError):
            SUMS(values)

    def test_threads(self) -> None:
        function = signed(lambda x, y: x.numpy().sum(), {"p": ["float32[n]", "float32[n]"]}, "float32")
        wrong: list[Any] = []

        def work() -> None:
            for i in range(200):
                x = np.full(3, i % 50, "f4")
                if function([x, x]) != 3 * (i % 50):
                    wrong.append(i)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_arguments_are_released(self) -> None:
        class Array(np.ndarray):
            pass

        x = X.copy().view(Array)
        alive = weakref.ref(x)
        SUMS({"left": x, "right": X})
        with pytest.raises(ArgumentError):
            SUMS({"left": x, "right": None})
        del x
        gc.collect()
        assert alive() is None

    def test_a_cycle_through_the_signature_is_collected(self) -> None:
        function = ffi.Function(lambda x: None)
        abi = FunctionAbi(Signature.of({"x": "float32[n]"}))
        abi.function = function  # type: ignore[attr-defined]
        function.abi = abi
        alive = weakref.ref(abi)
        del function, abi
        gc.collect()
        assert alive() is None


class TestWhatIsShown:
    def test_inspect_help_and_repr(self) -> None:
        shown = inspect.signature(SUMS)
        assert list(shown.parameters) == ["pair", "by"]
        assert shown.parameters["by"].default == 2.0
        assert shown.parameters["pair"].annotation == '{"left": float32[n], "right": float32[n]}'
        assert shown.return_annotation == "Stats(mean: float32[n], count: int64)"
        assert "by: a factor" in pydoc.render_doc(SUMS)
        assert 'pair: {"left": float32[n], "right": float32[n]}, by: float32 = 2.0' in repr(SUMS)
        shown.bind({"left": X, "right": X}, by=3)

    def test_kinds(self) -> None:
        function = signed(
            lambda *args: None,
            {
                "a": Arg("int8", kind="positional_only"),
                "rest": Arg(["int8", ...], kind="var_positional"),
                "b": Arg("int8", kind="keyword_only"),
            },
        )
        assert str(inspect.signature(function)) == "(a: 'int8', /, *rest: '[int8, ...]', b: 'int8') -> '()'"
        assert str(function.signature) == "(a: int8, /, *rest: [int8, ...], b: int8) -> ()"
        assert function(1, 2, 3, b=4) is None

    def test_completion_offers_the_names(self) -> None:
        completer = pytest.importorskip("IPython.core.completer")
        offered = completer.IPCompleter(namespace={"sums": SUMS}, use_jedi=False)
        with completer.provisionalcompleter():
            names = [one.text for one in offered.completions("sums(", 5)]
        assert {"pair=", "by="} <= set(names)


def test_classes_from_files_are_made_not_imported() -> None:
    node = Fields("dataclass", (("a", Slot(0)), ("b", Slot(1))), "os.Environment")
    outputs = (TensorSpec("a", "int8", ()), TensorSpec("b", "int8", ()))
    result = FunctionAbi(Signature((), outputs, result=node)).unpack_results([ffi.empty((), "int8")] * 2)
    assert type(result).__name__ == "Environment"
    assert type(result).__module__ != "os"
    assert [field.name for field in dataclasses.fields(result)] == ["a", "b"]


SOURCE = """
using namespace farcall;
double dot(ConstTensorView a, ConstTensorView b, double by = 2.0) {
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i) sum += a.data_ptr<float>()[i] * b.data_ptr<float>()[i];
  return sum * by;
}
void fill(TensorView x, float value) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] = value;
}
Tensor both(Tensor x, Optional<int64_t> k) { return x; }
"""


@pytest.fixture(scope="module")
def kernels() -> ffi.Module:
    from farcall import cpp

    return cpp.load_inline("signed_kernels", cpp_sources=SOURCE, functions=["dot", "fill", "both"])


class TestKernels:
    def test_a_signature_over_a_kernel(self, kernels: ffi.Module) -> None:
        dot = kernels["dot"]
        dot.signature = Signature.of(
            {"p": ["float32[n]", "float32[n]"], "by": Arg("float64", default=1)}, "float64"
        )
        assert dot([X, X]) == 5.0
        assert dot([X, X], by=3) == 15.0
        with pytest.raises(ArgumentError, match="dimension 0 must be 3"):
            dot([X, X[:2]])

    def test_the_signature_of_metadata(self, kernels: ffi.Module) -> None:
        module = kernels
        made = Signature.from_metadata(module.get_function_metadata("dot"))
        assert str(made) == "(a: ?[...], b: ?[...], by: float64 = 2.0) -> float64"
        assert all(leaf.strided and leaf.access == "in" for leaf in made.inputs[:2])
        dot = module["dot"]
        dot.signature = made
        assert dot(X, b=X) == 10.0
        fill = Signature.from_metadata(module.get_function_metadata("fill"))
        assert fill.inputs[0].access == "inout"
        both = Signature.from_metadata(module.get_function_metadata("both"))
        assert str(both) == "(x: ?[...], k: int64 | None) -> ?[...]"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "ffi.Array", "args": [{"type": "int"}]}, "[int64, ...]"),
        ({"type": "Tuple", "args": [{"type": "int"}, {"type": "ffi.String"}]}, "(int64, str)"),
        ({"type": "ffi.Function"}, "function"),
        ({"type": "Optional", "args": [{"type": "ffi.Module"}]}, "module | None"),
        ({"type": "ffi.Map", "args": [{"type": "ffi.String"}, {"type": "int"}]}, "any"),
        ({"type": "Variant", "args": [{"type": "int"}, {"type": "float"}]}, "any"),
        ({"type": "mine.Object"}, "object"),
        ({"type": "Device"}, "device"),
    ],
)
def test_types_of_metadata(schema: dict[str, Any], text: str) -> None:
    types = {"type": "ffi.Function", "args": [{"type": "None"}, schema]}
    metadata = {"type_schema": json.dumps(types), "parameters": [{"name": "x"}]}
    assert str(Signature.from_metadata(metadata)) == f"(x: {text}) -> ()"
    assert str(Signature.from_metadata(json.dumps(metadata))) == f"(x: {text}) -> ()"


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        "no json",
        {"type_schema": json.dumps({"type": "ffi.Function"})},
        {
            "type_schema": json.dumps({"type": "ffi.Function", "args": [{"type": "int"}, {"type": "int"}]}),
            "parameters": [{"name": "x", "optional": True}],
        },
    ],
)
def test_metadata_that_does_not_say_enough(metadata: Any) -> None:
    with pytest.raises(SignatureError):
        Signature.from_metadata(metadata)


def test_functions_of_one_signature_count_for_themselves() -> None:
    signature = Signature.of({"x": "float32[n]"})
    first, second = ffi.Function(lambda x: None), ffi.Function(lambda x: None)
    first.signature = second.signature = signature
    first(np.zeros(3, "f2"))
    assert (first.abi.copies, second.abi.copies) == (1, 0)


def test_values_whose_own_methods_fail() -> None:
    class Broken:
        shape = ()

        def item(self) -> Any:
            raise RuntimeError("no value")

        def __index__(self) -> int:
            raise RuntimeError("no value")

    abi = FunctionAbi(Signature.of({"a": "int8", "b": "any", "c": "shape"}))
    with pytest.raises(ArgumentError) as caught:
        abi.pack_inputs(Broken(), Broken(), [Broken()])
    assert len(caught.value.problems) == 3


def test_first_calls_of_many_threads() -> None:
    for _ in range(20):
        function = signed(lambda x, y: x.numpy().sum(), {"p": ["float32[n]", "float32[n]"]}, "float32")
        start, results = threading.Barrier(4), []

        def work(function: Any = function, start: Any = start, results: Any = results) -> None:
            start.wait()
            results.append(function([X, X]))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [3.0] * 4
