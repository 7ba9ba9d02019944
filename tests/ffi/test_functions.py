"""Functions, callbacks, modules and the registry."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farcall import ffi
from farcall.errors import MissingFunctionError

from ..waiting import SECONDS


class TestFunction:
    def test_attributes(self, kernels: ffi.Module) -> None:
        add = kernels["add"]
        assert (add.name, add.__name__, add.release_gil, add.signature) == ("add", "add", True, None)
        assert repr(add) == "<farcall.Function add>"
        with pytest.raises(TypeError):
            add.release_gil = "no"  # type: ignore[assignment]

    @pytest.mark.parametrize("release", [True, False])
    def test_gil_policy_changes_nothing_else(self, kernels: ffi.Module, release: bool) -> None:
        kernels["add"].release_gil = release
        assert kernels["add"](2, 3) == 5
        kernels["add"].release_gil = True

    def test_python_callable_as_function(self) -> None:
        function = ffi.Function(lambda *args: list(args))
        assert function(1, "two", [3.0, None]) == (1, "two", (3.0, None))
        assert "lambda" in function.name
        assert ffi.Function(function) is function
        with pytest.raises(TypeError, match="expected a callable, got `int`"):
            ffi.Function(3)  # type: ignore[arg-type]

    def test_made_by_native_code(self, kernels: ffi.Module) -> None:
        add_five = kernels["make_adder"](5)
        assert add_five(2) == 7
        assert kernels["call"](add_five, 3) == 8

    def test_function_in_function_out(self, kernels: ffi.Module) -> None:
        assert kernels["call"](kernels["call"], kernels["add"], 1, 2) == 3
        assert kernels["echo"](kernels["add"])(4, 5) == 9

    def test_method_held_by_its_own_object_is_collected(self) -> None:
        class Holder:
            def __init__(self) -> None:
                self.function = ffi.Function(self.method)

            def method(self) -> None:
                pass

        holder = weakref.ref(Holder())
        gc.collect()
        assert holder() is None


class TestCallback:
    def test_values_both_ways(self, kernels: ffi.Module) -> None:
        seen: list[Any] = []

        def note(*args: Any) -> tuple[Any, ...]:
            seen.extend(args)
            return args

        args = (
            None,
            True,
            7,
            2.5,
            "text",
            "longer than seven",
            b"\0raw",
            b"raw and longer",
            ffi.dtype("int8"),
        )
        assert kernels["call"](note, *args) == args
        assert tuple(seen) == args

    def test_result_that_native_code_cannot_hold(self, kernels: ffi.Module) -> None:
        with pytest.raises(TypeError, match=r"the result of `.*<lambda>`: a value of type `set`"):
            kernels["call"](lambda: {1})

    def test_tensor_is_lent(self, kernels: ffi.Module) -> None:
        x = np.zeros(3, "f4")

        def fill(tensor: ffi.Tensor) -> None:
            assert type(tensor) is ffi.Tensor
            tensor.numpy()[:] = 5

        kernels["call"](fill, x)
        assert x.tolist() == [5, 5, 5]

    def test_lent_tensor_expires(self, borrowing_call: ffi.Function, kernels: ffi.Module) -> None:
        kept: list[ffi.Tensor] = []
        borrowing_call(kept.append, np.zeros(3, "f4"))
        for use in (lambda: kept[0].shape, kept[0].numpy, lambda: kernels["ndim"](kept[0])):
            with pytest.raises(RuntimeError, match="was lent to a callback that has returned"):
                use()
        assert repr(kept[0]) == "<farcall.Tensor, expired>"

    def test_view_of_a_lent_tensor_must_not_stay(self, borrowing_call: ffi.Function) -> None:
        kept: list[Any] = []
        with pytest.raises(BufferError, match="kept a view of a tensor that was lent"):
            borrowing_call(lambda tensor: kept.append(tensor.numpy()), np.zeros(3, "f4"))
        kept.clear()

    def test_function_called_from_python_gets_its_own_tensors(self) -> None:
        kept: list[ffi.Tensor] = []
        x = np.arange(3.0)
        ffi.Function(kept.append)(x)
        del x
        gc.collect()
        assert kept[0].numpy().tolist() == [0, 1, 2]

    def test_tensor_result(self, kernels: ffi.Module) -> None:
        x = np.arange(3.0)
        y = kernels["call"](lambda _: x, np.zeros(1))
        assert y.ctypes.data == x.ctypes.data


class TestModule:
    def test_lookup(self, kernels: ffi.Module, kernels_path: Path) -> None:
        assert kernels["add"] is kernels.add is kernels.get_function("add")
        assert kernels.implements_function("add")
        assert not kernels.implements_function("ad")
        assert (kernels.kind, kernels.path) == ("library", str(kernels_path))
        assert {"add", "echo"} <= set(kernels.function_names())
        assert repr(kernels) == f"<farcall.Module {str(kernels_path)!r}>"

    def test_a_mapping_of_names_to_functions(self) -> None:
        module = ffi.new_module("calculator", {"mul": lambda a, b: a * b, "add": lambda a, b: a + b})
        assert "add" in module
        assert {"ad", 3, None}.isdisjoint(module)
        assert 3 not in module
        assert [*module] == [*module.keys()] == ["add", "mul"]
        assert len(module) == len(module.items()) == 2
        assert dict(module) == {"add": module.add, "mul": module["mul"]}
        assert [function(2, 3) for function in module.values()] == [5, 6]
        assert {"add", "mul", "kind"} <= {*dir(module)}

    def test_functions_of_imports_are_not_in_the_mapping(self) -> None:
        inner, outer = ffi.new_module("inner", {"f": abs}), ffi.new_module("outer", {})
        outer.import_module(inner)
        assert "f" not in outer
        assert (len(outer), bool(outer)) == (0, True)

    def test_unknown_function_names_those_near(self, kernels: ffi.Module) -> None:
        for look in (lambda: kernels["ad"], lambda: kernels.ad, lambda: kernels.get_function("ad")):
            with pytest.raises(
                MissingFunctionError, match=r"^/.* has no function `ad`; it has `add"
            ) as error:
                look()
            assert isinstance(error.value, AttributeError)
            assert isinstance(error.value, KeyError)
        assert not hasattr(kernels, "__array__")
        with pytest.raises(AttributeError, match="no function"):
            kernels["x" * 1000]
        with pytest.raises(TypeError, match="a function's name is a str"):
            kernels[3]  # type: ignore[index]

    def test_library_without_functions(self, compile_kernels: Callable[[str, str], Path]) -> None:
        module = ffi.load_library(compile_kernels("empty", "int farcall_nothing;\n"))
        assert module.function_names() == []
        with pytest.raises(AttributeError, match="it exports none"):
            module["f"]

    def test_library_that_imports_nothing(self, compile_kernels: Callable[[str, str], Path]) -> None:
        source = "#include <farcall/c_api.h>\nFARCALL_KERNEL(f) { return 0; }\n"
        assert ffi.load_library(compile_kernels("plain", source))["f"]() is None

    def test_what_is_no_library(self, tmp_path: Path) -> None:
        (tmp_path / "text.so").write_text("no")
        for name in ("text.so", "missing.so"):
            with pytest.raises(OSError, match="cannot load library"):
                ffi.load_library(tmp_path / name)
        with pytest.raises(TypeError):
            ffi.load_library(3)  # type: ignore[arg-type]

    def test_unknown_import(self, compile_kernels: Callable[[str, str], Path]) -> None:
        source = "#include <farcall/c_api.h>\nint TVMFFINoSuchThing(void);\n"
        source += "FARCALL_KERNEL(f) { return TVMFFINoSuchThing(); }\n"
        with pytest.raises(OSError, match="TVMFFINoSuchThing"):
            ffi.load_library(compile_kernels("unknown", source))


class TestRegistry:
    def test_register_call_remove(self, kernels: ffi.Module) -> None:
        @ffi.register_global_func("test.double")
        def double(x: int) -> int:
            return 2 * x

        assert double(4) == 8
        assert ffi.get_global_func("test.double")(21) == 42
        assert kernels["call_global"]("test.double", 5) == 10
        assert "test.double" in ffi.list_global_func_names()
        ffi.remove_global_func("test.double")
        assert ffi.get_global_func("test.double", allow_missing=True) is None
        with pytest.raises(KeyError):
            kernels["call_global"]("test.double", 5)

    def test_taken_name(self) -> None:
        ffi.register_global_func("test.taken", lambda: 1)
        with pytest.raises(ValueError, match=r"`test\.taken` is registered already; pass override=True"):
            ffi.register_global_func("test.taken", lambda: 2)
        ffi.register_global_func("test.taken", lambda: 3, override=True)
        assert ffi.get_global_func("test.taken")() == 3
        ffi.remove_global_func("test.taken")

    def test_native_function(self, kernels: ffi.Module) -> None:
        ffi.register_global_func("test.add", kernels["add"])
        assert ffi.get_global_func("test.add")(1, 2) == 3
        assert ffi.get_global_func("test.add").name == "test.add"
        ffi.remove_global_func("test.add")

    def test_unknown_name_names_those_near(self) -> None:
        ffi.register_global_func("test.nearby", print)
        for look in (ffi.get_global_func, ffi.remove_global_func):
            with pytest.raises(ValueError, match=r"no global function `test.nearbi`; near: \['test.nearby'"):
                look("test.nearbi")
        ffi.remove_global_func("test.nearby")

    def test_what_is_not_callable(self) -> None:
        with pytest.raises(TypeError, match="expected a callable, got `int`"):
            ffi.register_global_func("test.bad", 3)  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            ffi.get_global_func(3)  # type: ignore[call-overload]

    def test_thousands(self) -> None:
        names = [f"test.many.{i}" for i in range(5000)]
        for i, name in enumerate(names):
            ffi.register_global_func(name, lambda i=i: i)
        assert set(names) <= set(ffi.list_global_func_names())
        assert [ffi.get_global_func(name)() for name in names] == list(range(5000))
        for name in names:
            ffi.remove_global_func(name)
        assert not set(names) & set(ffi.list_global_func_names())


def test_import_brings_in_no_numpy() -> None:
    code = "import sys, farcall.ffi; assert not {'numpy', 'torch', 'onnx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_exit_with_everything_alive(kernels_path: Path) -> None:
    code = f"""
import threading, numpy as np
from farcall import ffi
m = ffi.load_library({str(kernels_path)!r})
ffi.register_global_func("exit.f", lambda: 1)
keep = [m.copy(np.ones(3)), ffi.from_dlpack(np.ones(4)), m.make_adder(3), ffi.Function(print)]
m.keep(ffi.from_dlpack(np.ones(5)))
threading.Thread(target=m.wait_flag, daemon=True).start()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("flag", ["-Wl,-z,lazy", "-Wl,-z,now", "-fno-plt"])
def test_every_way_of_linking(compile_kernels: Callable[..., Path], flag: str) -> None:
    """Imports that are bound late, at once, or called through an address; loaded twice it is one library."""
    source = (Path(__file__).parent / "kernels.c").read_text()
    path = compile_kernels(f"linked{flag.replace(',', '')}", source, flag)
    first, second = ffi.load_library(path), ffi.load_library(path)
    for module in (first, second):
        with pytest.raises(KeyError, match="one two"):
            module["raise_parts"]()
        assert module["copy"](np.ones(3)).tolist() == [1, 1, 1]
    first["keep"]("what the other sees too")
    assert second["give_back"]() == "what the other sees too"
