"""Which operators a namespace has, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from farcall import ffi
from farcall.ffi._torch_ops import TorchOps

from .library import FAKES, X, spaces, torch


class TestNamespace:
    def test_what_is_returned(self, lib: ffi.Module) -> None:
        space = next(spaces)
        ops = lib.as_torch_op(space)
        assert ops.scale is getattr(torch.ops, space).scale is ops["scale"]
        assert len(ops) == len(list(ops)) == 11
        assert repr(ops).startswith(f"<torch.ops.{space}: add_into, both, ")
        assert set(ops.skipped) == {"apply", "packed", "renamed"}
        with pytest.raises(KeyError):
            ops["nonsense"]

    def test_what_was_left_out_says_why(self, ops: TorchOps) -> None:
        with pytest.raises(
            AttributeError, match=r"not an operator: `f` is of type ffi.Function, which torch's schemas"
        ):
            _ = ops.apply
        with pytest.raises(
            AttributeError, match="packed` is not an operator: its library has no metadata for it"
        ):
            _ = ops.packed
        with pytest.raises(AttributeError, match="the module has no such function; it has `add_into`"):
            _ = ops.nonsense

    def test_twice_is_refused_and_changes_nothing(self, lib: ffi.Module) -> None:
        space = next(spaces)
        ops = lib.as_torch_op(space, functions=["scale"], fake=FAKES)
        with pytest.raises(ValueError, match=f"`{space}::scale` is registered already; keep what"):
            lib.as_torch_op(space)
        assert not hasattr(getattr(torch.ops, space), "add_into")
        assert torch.equal(ops.scale(X), X * 2)
        assert lib.as_torch_op(space, functions=["both"]).both(X)[0].tolist() == X.tolist()

    def test_a_failure_in_the_middle_leaves_nothing(
        self, lib: ffi.Module, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        space = next(spaces)
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
        with pytest.raises(TypeError, match="the namespace must be a str, got `int`"):
            lib.as_torch_op(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"`functions` names `nonsense`, but .* has only `add_into`"):
            lib.as_torch_op(next(spaces), functions=["nonsense"])
        with pytest.raises(ValueError, match="`fake` names `scal`"):
            lib.as_torch_op(next(spaces), fake={"scal": torch.empty_like})
        with pytest.raises(TypeError, match="`fake` for `scale`: expected a callable, got `int`"):
            lib.as_torch_op(next(spaces), fake={"scale": 7})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="cannot be operators of torch: `apply`: `f` is of type"):
            lib.as_torch_op(next(spaces), functions=["scale", "apply"])
        with pytest.raises(
            ValueError, match="`mutates` names 'by', which is not a tensor parameter of `scale`; it has `x`"
        ):
            lib.as_torch_op(next(spaces), mutates={"scale": ["by"]})
        with pytest.raises(TypeError, match="namespace"):
            lib.as_torch_op()  # type: ignore[call-arg]

    def test_a_library_without_metadata(self, kernels: ffi.Module) -> None:
        with pytest.raises(TypeError, match="its library has no metadata for it"):
            kernels.as_torch_op(next(spaces))

    @pytest.mark.parametrize("which", ["x", 0])
    def test_what_is_written_can_be_said(self, lib: ffi.Module, which: str | int) -> None:
        ops = lib.as_torch_op(next(spaces), functions=["same"], mutates={"same": []})
        assert not ops.same.default._schema.is_mutable
        ops = lib.as_torch_op(next(spaces), functions=["same"], mutates={"same": [which]})
        assert ops.same.default._schema.is_mutable
