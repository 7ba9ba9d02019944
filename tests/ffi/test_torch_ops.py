"""The functions of a library as operators of torch: schemas, calls, torch.compile, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import farcall as fc
from farcall import ffi
from farcall.cpp import build
from farcall.ffi._dims import evaluate
from farcall.ffi._exported import Exported, Parameter, Type, read, read_module
from farcall.ffi._torch_ops import TorchOps
from farcall.ffi._torch_schema import NoSchemaError, operator_of, schema_names

torch = pytest.importorskip("torch")
opcheck = pytest.importorskip("torch.library").opcheck

FAKES: dict[str, Callable[..., Any]] = {
    "scale": lambda x, by: torch.empty_like(x),
    "multiples": lambda x, n: [torch.empty_like(x) for _ in range(n)],
    "both": lambda x: (torch.empty_like(x), torch.empty_like(x)),
    "same": torch.empty_like,
    "first": lambda xs: torch.empty_like(xs[0]),
    "zeros": lambda shape, dtype, device: torch.empty(shape, dtype=dtype, device=device),
}
_spaces = (f"farcall_test_{i}" for i in count())


@pytest.fixture(scope="module")
def lib() -> ffi.Module:
    source = Path(__file__).with_name("torch_kernels.cpp")
    return ffi.load_library(build("torch_kernels", sources=str(source), extra_cflags=["-O0"]))


@pytest.fixture(scope="module")
def ops(lib: ffi.Module) -> TorchOps:
    return lib.as_torch_op(next(_spaces), fake=FAKES)


@pytest.fixture(scope="module")
def digits_ops(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> TorchOps:
    path = tmp_path_factory.mktemp("built") / "digits.so"
    fc.partition(digits).build().save(path)
    return fc.load_module(path).as_torch_op(next(_spaces))


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, fullgraph=True, backend="aot_eager", **options)
    return made


X = torch.arange(4.0)


class TestSchemas:
    @pytest.mark.parametrize(
        ("name", "schema"),
        [
            ("scale", "scale(Tensor x, float by=2.0) -> Tensor"),
            ("add_into", "add_into(Tensor a, Tensor b, Tensor(a2!) out) -> ()"),
            ("fill", "fill(Tensor(a0!)? x, float value=1.5) -> ()"),
            ("multiples", "multiples(Tensor x, SymInt n=2) -> Tensor[]"),
            ("both", "both(Tensor arg1) -> (Tensor, Tensor)"),
            ("same", "same(Tensor(a0!) x) -> Tensor"),
            ("first", "first(Tensor(a0!)[] xs) -> Tensor"),
            ("total", 'total(Tensor? x, float[] more, bool negative=False, str unit="a\\"b") -> float'),
            ("zeros", "zeros(SymInt[] shape, ScalarType? dtype=None, Device? device=None) -> Tensor"),
            ("limit", "limit(float? by=None, SymInt n=-3, str? in_=None) -> float"),
            ("fallible", "fallible(SymInt n) -> SymInt"),
        ],
    )
    def test_inferred(self, lib: ffi.Module, name: str, schema: str) -> None:
        exported = {one.name: one for one in read_module(lib)}
        assert operator_of(exported[name]).schema == schema

    def test_torch_has_them(self, ops: TorchOps) -> None:
        written = [arg.is_write for arg in ops.add_into.default._schema.arguments]
        assert written == [False, False, True]
        assert torch.Tag.pt2_compliant_tag in ops.scale.default.tags

    @pytest.mark.parametrize("key", ["CPU", "CUDA", "HIP", "MPS", "XPU", "PrivateUse1"])
    def test_every_device_reaches_the_kernel(self, ops: TorchOps, key: str) -> None:
        assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(ops.scale.default.name(), key)

    def test_of_a_signature(self, digits_ops: TorchOps) -> None:
        assert str(digits_ops.main.default._schema).split("::")[1].startswith("main(Tensor ")
        assert list(digits_ops) == ["main"]
        assert digits_ops.skipped

    @pytest.mark.parametrize(
        ("names", "given"),
        [
            (["x", "y"], ["x", "y"]),
            (["input.1", "2x"], ["input_1", "_2x"]),
            (["in", "lambda"], ["in_", "lambda_"]),
            (["a.b", "a_b"], ["arg1", "arg2"]),
            ([None, "x"], ["arg1", "arg2"]),
        ],
    )
    def test_names(self, names: list[str | None], given: list[str]) -> None:
        assert schema_names([Parameter(name, Type("int")) for name in names]) == given

    def test_metadata_of_tvm_ffi_does_not_say_what_is_written(self) -> None:
        schema = '{"type":"ffi.Function","args":[{"type":"None"},{"type":"DLTensor*"},{"type":"int"}]}'
        function = read("f", {"type_schema": schema}, None)
        assert operator_of(function).schema == "f(Tensor(a0!) arg1, SymInt arg2) -> ()"
        assert operator_of(function, []).schema == "f(Tensor arg1, SymInt arg2) -> ()"

    @pytest.mark.parametrize(
        ("type_", "expected"),
        [
            (Type("Optional", (Type("ffi.Array", (Type("float"),)),)), "float[]? x"),
            (Type("ffi.Array", (Type("ffi.String"),)), "str[] x"),
            (Type("ffi.Array", (Type("Optional", (Type("ffi.Tensor"),)),)), "Tensor?[] x"),
            (Type("ffi.Array", (Type("Optional", (Type("int"),)),)), None),
            (Type("ffi.Array", (Type("ffi.Array", (Type("int"),)),)), None),
            (Type("Variant", (Type("int"), Type("float"))), None),
            (Type("ffi.Bytes"), None),
            (Type("Any"), None),
        ],
    )
    def test_parameters(self, type_: Type, expected: str | None) -> None:
        function = Exported("f", (Parameter("x", type_, read_only=True),), Type("None"))
        if expected is None:
            with pytest.raises(NoSchemaError, match=f"`x` is of type {type_.key}, which torch's schemas"):
                operator_of(function)
        else:
            schema = operator_of(function).schema
            assert schema == f"f({expected}) -> ()"
            torch._C.parse_schema(schema)

    @pytest.mark.parametrize(
        ("result", "expected"),
        [
            (Type("Any"), None),
            (Type("ffi.Map"), None),
            (Type("Optional", (Type("ffi.Tensor"),)), None),
            (Type("Tuple", (Type("ffi.Tensor"), Type("int"))), "(Tensor, SymInt)"),
            (Type("Tuple", (Type("ffi.Tensor"), Type("ffi.String"))), None),
            (Type("ffi.Array", (Type("int"),)), None),
        ],
    )
    def test_results(self, result: Type, expected: str | None) -> None:
        function = Exported("f", (), result)
        if expected is None:
            with pytest.raises(NoSchemaError, match=f"its result is of type {result.key}"):
                operator_of(function)
        else:
            assert operator_of(function).schema == f"f() -> {expected}"


class TestCalls:
    def test_results(self, ops: TorchOps) -> None:
        assert torch.equal(ops.scale(X), X * 2)
        assert torch.equal(ops["scale"](X, by=3.0), X * 3)
        assert [y.tolist() for y in ops.multiples(X[:2], 3)] == [[0, 0], [0, 1], [0, 2]]
        assert [y.tolist() for y in ops.both(X[:2])] == [[0, 1], [0, 2]]
        assert ops.total(None, [1.0, 2.0], True, "") == -3.0
        assert ops.total(X, []) == 9.0
        assert ops.fallible(7) == 7

    def test_defaults_that_no_schema_has(self, ops: TorchOps) -> None:
        assert ops.limit() == ops.limit(None, 5) == float("inf")
        assert ops.limit(1.0) == -1.0
        assert ops.limit(by=1.0, n=2, in_="abc") == 6.0
        assert ops.zeros([2, 3]).dtype == torch.float32
        assert ops.zeros([2], device="cpu", dtype=torch.int64).tolist() == [0, 0]

    def test_no_tensor_in_gives_tensors_of_torch(self, ops: TorchOps) -> None:
        assert isinstance(ops.zeros([2]), torch.Tensor)

    def test_written_arguments(self, ops: TorchOps) -> None:
        out = torch.zeros(4)
        before = out._version
        assert ops.add_into(X, X, out) is None
        assert torch.equal(out, 2 * X)
        assert out._version == before + 1
        ops.fill(None)
        ops.fill(out)
        assert out.tolist() == [1.5] * 4
        with torch.inference_mode():
            ops.fill(torch.zeros(2), 3.0)

    def test_autograd_sees_that_a_saved_tensor_was_written(self, ops: TorchOps) -> None:
        w, saved = torch.ones(4, requires_grad=True), torch.ones(4)
        y = (w * saved).sum()
        ops.fill(saved, 7.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    @pytest.mark.parametrize("name", ["same", "first"])
    def test_a_result_is_never_an_argument(self, ops: TorchOps, name: str) -> None:
        x = torch.arange(6.0)[2:]
        y = ops[name](x if name == "same" else [x])
        assert torch.equal(x, y)
        y[0] = 100
        assert x[0] == 2

    def test_errors_of_the_kernel(self, ops: TorchOps) -> None:
        with pytest.raises(ValueError, match="expected 0 or more, got -1"):
            ops.fallible(-1)
        with pytest.raises(ValueError, match="`x` has strides"):
            ops.scale(torch.ones(2, 3).T)

    def test_artifact(self, digits_ops: TorchOps) -> None:
        x = torch.rand(3, 1, 8, 8)
        assert digits_ops.main(x).shape == (3, 10)

    def test_a_gradient_can_be_registered(self, lib: ffi.Module) -> None:
        space = next(_spaces)
        ops = lib.as_torch_op(space, functions=["scale"], fake=FAKES)

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.by = inputs[1]

        def backward(ctx: Any, grad: Any) -> Any:
            return ops.scale(grad.contiguous(), ctx.by), None

        torch.library.register_autograd(f"{space}::scale", backward, setup_context=setup)
        x = torch.ones(3, requires_grad=True)
        ops.scale(x, 5.0).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [5.0] * 3


class TestCompiled:
    @pytest.mark.parametrize("dynamic", [False, True])
    def test_no_break_in_the_graph(self, ops: TorchOps, dynamic: bool) -> None:
        def work(x: Any, y: Any) -> Any:
            out = torch.empty_like(x)
            ops.add_into(x, ops.scale(y, 3.0), out)
            a, b = ops["both"](out)
            return a + b + sum(ops.multiples(x, 3)) + ops.zeros([x.shape[0]])

        run = compiled(work, dynamic=dynamic)
        for n in (4, 5):
            x, y = torch.rand(n), torch.rand(n)
            assert torch.equal(run(x, y), work(x, y))

    def test_an_argument_that_is_written(self, ops: TorchOps) -> None:
        def work(x: Any) -> Any:
            before = x + 1
            ops.fill(x, 3.0)
            return before + x

        x, y = torch.zeros(3), torch.zeros(3)
        assert torch.equal(compiled(work)(x), work(y))
        assert torch.equal(x, y)

    def test_no_fake_is_needed_where_nothing_is_returned(self, lib: ffi.Module) -> None:
        ops = lib.as_torch_op(next(_spaces), functions=["add_into"])

        def work(x: Any) -> Any:
            out = torch.empty_like(x)
            ops.add_into(x, x, out)
            return out

        assert torch.equal(compiled(work)(X), X * 2)

    def test_one_dynamic_graph_of_an_artifact(self, digits_ops: TorchOps) -> None:
        graphs = []

        def backend(module: Any, inputs: Any) -> Any:
            graphs.append(module)
            return module

        run = torch.compile(
            lambda x: digits_ops.main(x * 1).argmax(1), fullgraph=True, dynamic=True, backend=backend
        )
        for batch in (2, 3, 7):
            x = torch.rand(batch, 1, 8, 8)
            assert torch.equal(run(x), digits_ops.main(x).argmax(1))
        assert len(graphs) == 1

    def test_export(self, digits_ops: TorchOps) -> None:
        class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return digits_ops.main(x)

        x = torch.rand(2, 1, 8, 8)
        program = torch.export.export(Net(), (x,))
        assert torch.equal(program.module()(x), digits_ops.main(x))

    def test_a_wrong_argument_is_named_before_the_call(self, digits_ops: TorchOps) -> None:
        with pytest.raises(
            Exception, match=r"of `main`: expected float32.*, got float32\[2, 8, 8\]; reshape"
        ):
            compiled(digits_ops.main)(torch.rand(2, 8, 8))
        with pytest.raises(Exception, match=r"got float64.*convert it by .to\(torch.float32\)"):
            compiled(digits_ops.main)(torch.rand(2, 1, 8, 8, dtype=torch.float64))
        with pytest.raises(Exception, match=r"axis 3 must be 8"):
            compiled(digits_ops.main)(torch.rand(2, 1, 8, 9))

    @pytest.mark.parametrize("name", ["scale", "fallible"])
    def test_a_result_without_a_rule_says_what_to_do(self, lib: ffi.Module, name: str) -> None:
        ops = lib.as_torch_op(next(_spaces), functions=[name])
        argument = X if name == "scale" else 3
        with pytest.raises(
            Exception, match=rf"{name}` returns .* pass as_torch_op\(..., fake=\{{'{name}': f\}}\)"
        ):
            compiled(lambda x: ops[name](x) + 1)(argument)
        with pytest.raises(RuntimeError, match="pass as_torch_op"):
            ops.scale(X.to("meta")) if name == "scale" else torch.export.export(_Calls(ops[name]), (3,))


class _Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class TestOpcheck:
    @pytest.mark.parametrize(
        ("name", "args"),
        [
            ("scale", (X,)),
            ("scale", (X, 3.0)),
            ("add_into", (X, X, torch.zeros(4))),
            ("fill", (torch.zeros(4),)),
            ("multiples", (X, 3)),
            ("both", (X,)),
            ("same", (X,)),
            ("first", ([X, X + 1],)),
            ("zeros", ([2, 3],)),
            ("zeros", ([2, 3], torch.int32)),
        ],
    )
    def test_passes(self, ops: TorchOps, name: str, args: tuple[Any, ...]) -> None:
        opcheck(ops[name], args)

    def test_artifact(self, digits_ops: TorchOps) -> None:
        opcheck(digits_ops.main, (torch.rand(3, 1, 8, 8),))


class TestNamespace:
    def test_what_is_returned(self, lib: ffi.Module) -> None:
        space = next(_spaces)
        ops = lib.as_torch_op(space)
        assert ops.scale is getattr(torch.ops, space).scale is ops["scale"]
        assert len(ops) == len(list(ops)) == 11
        assert repr(ops).startswith(f"<torch.ops.{space}: add_into, both, ")
        assert set(ops.skipped) == {"apply", "packed", "renamed"}
        with pytest.raises(KeyError):
            ops["nonsense"]

    def test_what_was_left_out_says_why(self, ops: TorchOps) -> None:
        with pytest.raises(
            AttributeError, match=r"no operator: `f` is of type ffi.Function, which torch's schemas"
        ):
            _ = ops.apply
        with pytest.raises(
            AttributeError, match="packed` is no operator: its library has no metadata for it"
        ):
            _ = ops.packed
        with pytest.raises(AttributeError, match="the module has no such function; it has `add_into`"):
            _ = ops.nonsense

    def test_twice_is_refused_and_changes_nothing(self, lib: ffi.Module) -> None:
        space = next(_spaces)
        ops = lib.as_torch_op(space, functions=["scale"], fake=FAKES)
        with pytest.raises(ValueError, match=f"`{space}::scale` is registered already; keep what"):
            lib.as_torch_op(space)
        assert not hasattr(getattr(torch.ops, space), "add_into")
        assert torch.equal(ops.scale(X), X * 2)
        assert lib.as_torch_op(space, functions=["both"]).both(X)[0].tolist() == X.tolist()

    def test_a_failure_in_the_middle_leaves_nothing(
        self, lib: ffi.Module, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        space = next(_spaces)
        register = torch.library.register_fake

        def fails(name: str, *args: Any, **kwargs: Any) -> None:
            if name.endswith("scale"):
                raise RuntimeError("no more")
            register(name, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(torch.library, "register_fake", fails)
            with pytest.raises(RuntimeError, match="no more"):
                lib.as_torch_op(space, functions=["add_into", "scale"])
        assert len(lib.as_torch_op(space, functions=["add_into", "scale"])) == 2

    @pytest.mark.parametrize("space", ["", "no-name", "1a", "for", "aten", "prim", "b\0c"])
    def test_bad_namespaces(self, lib: ffi.Module, space: str) -> None:
        with pytest.raises(ValueError, match="as_torch_op: the namespace"):
            lib.as_torch_op(space)

    def test_misuse(self, lib: ffi.Module) -> None:
        with pytest.raises(TypeError, match="the namespace is a str, got `int`"):
            lib.as_torch_op(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"`functions` names `nonsense`, and .* has `add_into`"):
            lib.as_torch_op(next(_spaces), functions=["nonsense"])
        with pytest.raises(ValueError, match="`fake` names `scal`"):
            lib.as_torch_op(next(_spaces), fake={"scal": torch.empty_like})
        with pytest.raises(TypeError, match="`fake` for `scale`: expected a callable, got `int`"):
            lib.as_torch_op(next(_spaces), fake={"scale": 7})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="no operators of torch can be made: `apply`: `f` is of type"):
            lib.as_torch_op(next(_spaces), functions=["scale", "apply"])
        with pytest.raises(
            ValueError, match="`mutates` names 'by', which is no tensor parameter of `scale`; it has `x`"
        ):
            lib.as_torch_op(next(_spaces), mutates={"scale": ["by"]})
        with pytest.raises(TypeError, match="namespace"):
            lib.as_torch_op()  # type: ignore[call-arg]

    def test_a_library_without_metadata(self, kernels: ffi.Module) -> None:
        with pytest.raises(TypeError, match="its library has no metadata for it"):
            kernels.as_torch_op(next(_spaces))

    @pytest.mark.parametrize("which", ["x", 0])
    def test_what_is_written_can_be_said(self, lib: ffi.Module, which: str | int) -> None:
        ops = lib.as_torch_op(next(_spaces), functions=["same"], mutates={"same": []})
        assert not ops.same.default._schema.is_mutable
        ops = lib.as_torch_op(next(_spaces), functions=["same"], mutates={"same": [which]})
        assert ops.same.default._schema.is_mutable


class TestDims:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("n", 7),
            ("-n + 10", 3),
            ("(n - 1)//2 + 1", 4),
            ("floor(n/2 + 1/2)", 4),
            ("floor(n/2 - 1/2) + 1", 4),
            ("ceiling(n/2)", 4),
            ("n**2", 49),
            ("n % 4", 3),
            ("Mod(n, 4)", 3),
            ("Min(n, m, 5)", 3),
            ("Max(n/2, m)", 3),
            ("floor(Max(n/2, m))", 3),
            ("n*m/7", 3),
            ("floor(n/(2*m))", 1),
            ("-floor(-n/2)", 4),
        ],
    )
    def test_values(self, text: str, value: int) -> None:
        assert evaluate(text, {"n": 7, "m": 3}) == value

    @pytest.mark.parametrize("text", ["k", "n(3)", "n + ", "__import__('os')", "n.m", "n if n else m"])
    def test_what_is_no_dim(self, text: str) -> None:
        with pytest.raises(ValueError, match="dim"):
            evaluate(text, {"n": 7, "m": 3})

    def test_symbols_stay_symbols(self) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        sources = torch.empty(7, 3)
        with torch._subclasses.FakeTensorMode(shape_env=ShapeEnv()) as mode:
            x = mode.from_tensor(sources, static_shapes=False)
        out = evaluate("floor(n/2 + 1/2)*m + Max(n, m)", {"n": x.shape[0], "m": x.shape[1]})
        assert isinstance(out, torch.SymInt)
        assert int(out) == 19


def test_the_guide() -> None:
    text = Path(__file__).parents[2].joinpath("docs", "torch.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    scope: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), scope)  # noqa: S102 - our own text


LIKE = r"""
#include <farcall/c_api.h>
#include <string.h>
#define TENSOR "{\\\"type\\\": \\\"ffi.Tensor\\\"}"
FARCALL_KERNEL(negative) {
  TVMFFIObjectHandle out;
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(args[0].v_obj);
  if (TVMFFIEnvTensorAlloc((DLTensor*)x, &out) != 0) return -1;
  float* y = TVMFFITensorGetDLTensorPtr(out)->data;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; ++i) y[i] = -((const float*)x->data)[i];
  *result = (TVMFFIAny){.type_index = kTVMFFITensor, .v_obj = out};
  return 0;
}
FARCALL_KERNEL(_metadata_negative) {
  static const char text[] =
      "{\"type_schema\": \"{\\\"type\\\": \\\"ffi.Function\\\", \\\"args\\\": [" TENSOR ", " TENSOR "]}\", "
      "\"parameters\": [{\"name\": \"x\", \"read_only\": true}], \"shape_like\": \"x\"}";
  TVMFFIByteArray bytes = {text, sizeof text - 1};
  return TVMFFIStringFromByteArray(&bytes, result);
}
"""


def test_metadata_says_what_a_result_is_like(compile_kernels: Callable[[str, str], Path]) -> None:
    """So that torch.compile needs no fake: `"shape_like": "x"` in the metadata of a function."""
    ops = ffi.load_library(compile_kernels("like", LIKE)).as_torch_op(next(_spaces))
    x = torch.rand(2, 3)
    assert torch.equal(compiled(lambda x: ops.negative(x) * 2, dynamic=True)(x), -2 * x)
    with torch.device("meta"):
        assert ops.negative(torch.empty(4, 5, dtype=torch.float32)).shape == (4, 5)
    opcheck(ops.negative, (x,))
