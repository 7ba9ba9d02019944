"""torch schemas inferred from a function's metadata, and dims that are known only at a call."""

from __future__ import annotations

import pytest

from farcall import ffi
from farcall.ffi._dims import evaluate
from farcall.ffi._exported import Exported, Parameter, Type, read, read_module
from farcall.ffi._torch_ops import TorchOps
from farcall.ffi._torch_schema import NoSchemaError, operator_of, schema_names

from .library import torch


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
        assert list(digits_ops) == ["c_0", "main"]  # a region has a Signature, too
        assert not digits_ops.skipped

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
