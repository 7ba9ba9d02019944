"""Parameters by name, defaults, inspect and help: from metadata, and from a Signature."""

from __future__ import annotations

import inspect
import json
import pydoc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farcall import ffi
from farcall.abi import RefSpec, Signature, TensorSpec
from farcall.errors import ResultError

TENSOR, INT, FLOAT, STR = {"type": "DLTensor*"}, {"type": "int"}, {"type": "float"}, {"type": "ffi.String"}
OWNER = {"type": "ffi.Tensor"}


def metadata(params: list[Any], result: Any, parameters: list[Any] | None = None, **more: Any) -> str:
    """What a library of TVM FFI's headers exports; with ``parameters`` what kernel.hpp adds."""
    schema = {"type": "ffi.Function", "named_args": {"return": [result], "params": params}}
    extra = {} if parameters is None else {"named": True, "parameters": parameters}
    return json.dumps({"type_schema": json.dumps(schema)} | extra | more)


SCALE = metadata(
    [TENSOR, FLOAT, INT],
    OWNER,
    [
        {"name": "x", "doc": "what is scaled"},
        {"name": "by", "default": 2.0},
        {"name": "times", "default": 1},
    ],
)
FUNCTIONS = {
    "scale": SCALE,
    "kernel_default": metadata(
        [INT, INT, INT], INT, [{"name": "a"}, {"name": "b", "optional": True}, {"name": "c", "default": 3}]
    ),
    "one": metadata([TENSOR], INT, [{"name": "x", "read_only": True}]),
    "writer": metadata([TENSOR], INT, [{"name": "x"}]),
    "unnamed": metadata([TENSOR, OWNER, {"type": "Optional", "args": [TENSOR]}], INT),
    "older": json.dumps({"type_schema": json.dumps({"type": "ffi.Function", "args": [INT, INT, TENSOR]})}),
    "packed": json.dumps({"type_schema": json.dumps({"type": "ffi.Function"})}),
    "broken": "{not json",
    "undescribed": "",
    "signed": "",
}
SOURCE = """
#include <farcall/c_api.h>
#include <string.h>
static int give(TVMFFIAny* result, const char* text) {
  TVMFFIByteArray bytes = {text, strlen(text)};
  return TVMFFIStringFromByteArray(&bytes, result);
}
/* Each gives what it got: the tags, and the values of numbers. */
static int gather(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  char text[512] = "";
  for (int32_t i = 0; i < n; ++i) {
    char one[32];
    if (args[i].type_index == kTVMFFIInt) snprintf(one, sizeof one, "%d ", (int)args[i].v_int64);
    else if (args[i].type_index == kTVMFFIFloat) snprintf(one, sizeof one, "%g ", args[i].v_float64);
    else snprintf(one, sizeof one, "t%d ", args[i].type_index);
    strcat(text, one);
  }
  return give(result, text);
}
"""


def source() -> str:
    text = "#include <stdio.h>\n" + SOURCE
    for name, described in FUNCTIONS.items():
        text += f"FARCALL_KERNEL({name}) {{ return gather(args, num_args, result); }}\n"
        if described:
            body = f"(void)args; (void)num_args; return give(result, {json.dumps(described)});"
            text += f"FARCALL_KERNEL(_metadata_{name}) {{ {body} }}\n"
    return (
        text + 'FARCALL_KERNEL(_doc_scale) { (void)args; (void)num_args; return give(result, "Scales."); }\n'
    )


@pytest.fixture(scope="module")
def lib(compile_kernels: Callable[[str, str], Path]) -> ffi.Module:
    return ffi.load_library(compile_kernels("params", source()))


X = np.ones(3, "f4")


class TestKeywords:
    @pytest.mark.parametrize(
        ("args", "kwargs", "got"),
        [
            ((X,), {}, "t7 2 1 "),
            ((X, 3.0), {}, "t7 3 1 "),
            ((X, 3.0, 4), {}, "t7 3 4 "),
            ((), {"x": X}, "t7 2 1 "),
            ((X,), {"times": 9}, "t7 2 9 "),
            ((X,), {"times": 9, "by": 0.5}, "t7 0.5 9 "),
            ((), {"times": 9, "by": 0.5, "x": X}, "t7 0.5 9 "),
        ],
    )
    def test_bound(self, lib: ffi.Module, args: Any, kwargs: Any, got: str) -> None:
        assert lib["scale"](*args, **kwargs) == got

    def test_names_made_at_run_time(self, lib: ffi.Module) -> None:
        assert lib["scale"](X, **{"".join(["b", "y"]): 5.0}) == "t7 5 1 "

    @pytest.mark.parametrize(
        ("args", "kwargs", "message"),
        [
            (
                (X,),
                {"bye": 1.0},
                r"`scale\(x: Tensor, by: float = 2.0, times: int = 1\) -> Tensor` got a "
                r"keyword argument `bye` that it does not have",
            ),
            ((X,), {"x": X}, "keyword argument `x` that was given by position too"),
            ((), {"by": 1.0}, r"argument 1 `x` of `scale\(.*\) -> Tensor` is missing: expected Tensor"),
            ((X, 1.0, 2, 3), {"x": X}, "takes 3 arguments, got 4 by position"),
        ],
    )
    def test_not_bound(self, lib: ffi.Module, args: Any, kwargs: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            lib["scale"](*args, **kwargs)

    def test_default_that_only_the_kernel_knows(self, lib: ffi.Module) -> None:
        call = lib["kernel_default"]
        assert call(1, 2) == "1 2 3 "
        assert call(1, c=4, b=5) == "1 5 4 "
        assert call(a=1) == "1 "
        with pytest.raises(TypeError, match=r"argument 2 `b` of .* is missing"):
            call(1, c=4)

    def test_wrong_number_without_keywords_is_the_kernels_business(self, lib: ffi.Module) -> None:
        assert lib["scale"]() == ""
        assert lib["scale"](X, 1.0, 2, 3) == "t7 1 2 3 "

    @pytest.mark.parametrize("name", ["unnamed", "older", "packed", "broken", "undescribed"])
    def test_no_names_no_keywords(self, lib: ffi.Module, name: str) -> None:
        with pytest.raises(TypeError, match=f"`{name}` takes positional arguments only"):
            lib[name](x=1)
        assert lib[name](1) == "1 "

    def test_many_parameters(self) -> None:
        names = [f"a{i}" for i in range(40)]
        function = ffi.Function(lambda *args: list(args))
        function.signature = Signature.of(dict.fromkeys(names, "int64"), ["int64"] * 40)
        assert function(**{name: i for i, name in reversed(list(enumerate(names)))}) == list(range(40))


class TestTexts:
    def test_inspect(self, lib: ffi.Module) -> None:
        signature = inspect.signature(lib["scale"])
        assert str(signature) == "(x: 'Tensor', by: 'float' = 2.0, times: 'int' = 1) -> 'Tensor'"
        assert list(signature.bind(X, times=3).arguments) == ["x", "times"]
        assert str(inspect.signature(lib["unnamed"])) == (
            "(arg1: 'Tensor', arg2: 'Tensor', arg3: 'Tensor | None', /) -> 'int'"
        )
        with pytest.raises(ValueError, match="not supported by signature"):
            inspect.signature(lib["undescribed"])
        assert str(inspect.signature(ffi.Function)) == "(callable, /)"

    def test_help(self, lib: ffi.Module) -> None:
        text = pydoc.plain(pydoc.render_doc(lib["scale"]))
        assert "scale(x: Tensor, by: float = 2.0, times: int = 1) -> Tensor" in text
        assert lib["scale"].__doc__ == "Scales.\n\nArgs:\n    x: what is scaled"
        assert lib["undescribed"].__doc__ is None
        assert lib["one"].__doc__ == "one(x: Tensor) -> int"
        assert "one(x: Tensor) -> int" in pydoc.plain(pydoc.render_doc(lib["one"]))
        assert "native function" in (ffi.Function.__doc__ or "")

    def test_repr(self, lib: ffi.Module) -> None:
        assert repr(lib["scale"]) == (
            "<farcall.Function scale(x: Tensor, by: float = 2.0, times: int = 1) -> Tensor>"
        )
        assert repr(lib["broken"]) == "<farcall.Function broken>"

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ((X, {1}), "argument 2 `by` of `scale`: expected float: a value of type `set` cannot be passed"),
            ((X, 1.0, 2**70), "argument 3 `times` of `scale`: expected int: the int needs more than 64 bits"),
        ],
    )
    def test_errors_name_the_parameter(self, lib: ffi.Module, args: Any, message: str) -> None:
        with pytest.raises((TypeError, OverflowError), match=message):
            lib["scale"](*args)


class TestViewOrOwner:
    """A borrowed DLTensor has type index 7, a Tensor object 70."""

    def test_metadata_says_which(self, lib: ffi.Module) -> None:
        assert lib["unnamed"](X, X, X) == "t7 t70 t7 "
        assert lib["undescribed"](X) == "t70 "
        assert lib["packed"](X) == "t70 "

    def test_by_hand(self, lib: ffi.Module) -> None:
        function = lib["broken"]
        assert not function.views
        function.views = True
        assert function.views
        assert function(X) == "t7 "
        function.views = False
        assert function(X) == "t70 "
        with pytest.raises(TypeError, match="expected a bool"):
            function.views = 1  # type: ignore[assignment]

    def test_more_parameters_than_bits(self, lib: ffi.Module) -> None:
        function = lib["undescribed"]
        function.views = True
        assert function(*[X] * 70) == "t7 " * 70
        function.views = False
        assert function(*[X] * 70) == "t70 " * 70

    def test_read_only_array(self, lib: ffi.Module) -> None:
        x = np.ones(3, "f4")
        x.flags.writeable = False
        assert lib["one"](x) == "t7 "
        assert lib["undescribed"](x) == "t70 "
        with pytest.raises(
            ValueError, match="argument 1 `x` of `writer`: expected Tensor: the array is read-only"
        ):
            lib["writer"](x)


class TestSignature:
    """More of them in tests/abi."""

    SIGNATURE = Signature((TensorSpec("x", "float32", ("n",)),), ())

    def test_names_views_and_texts(self, lib: ffi.Module) -> None:
        function = lib["signed"]
        function.signature = self.SIGNATURE
        try:
            assert function.views
            assert repr(function) == "<farcall.Function signed(x: float32[n]) -> ()>"
            assert str(inspect.signature(function)) == "(x: 'float32[n]') -> '()'"
            with pytest.raises(TypeError, match=r"argument 1 `x` of `signed`: expected float32\[n\], got"):
                function({1})
            with pytest.raises(ResultError, match="`signed`: expected 0 results, got str"):
                function(x=X)
        finally:
            function.signature = None
        assert function(X) == "t70 "

    def test_names_that_are_no_identifiers(self, lib: ffi.Module) -> None:
        function = lib["packed"]
        function.signature = Signature((TensorSpec("input.1", "float32", ("n",)),), (RefSpec("", "str"),))
        try:
            assert function(**{"input.1": X}) == "t7 "
            assert "arg1" in str(inspect.signature(function))
        finally:
            function.signature = None

    @pytest.mark.parametrize("value", [3, "(anything)", inspect.signature(len)], ids=repr)
    def test_what_is_no_signature(self, lib: ffi.Module, value: Any) -> None:
        with pytest.raises(
            TypeError, match=r"signature of `packed`: expected a farcall\.abi\.Signature or None, got"
        ):
            lib["packed"].signature = value
        assert lib["packed"].signature is None
        assert lib["packed"](X) == "t70 "

    @pytest.mark.parametrize(
        ("name", "attach"),
        [
            ("one", ""),
            (
                "signed",
                "f.signature = Signature((TensorSpec('x', 'float32', ('n',)),), (RefSpec('', 'str'),))",
            ),
        ],
    )
    def test_the_first_call_imports_nothing(self, lib: ffi.Module, name: str, attach: str) -> None:
        """A child that is forked while another thread imports would wait for that thread forever."""
        code = f"""
import sys
import numpy as np
from farcall import ffi
from farcall.abi import RefSpec, Signature, TensorSpec
f = ffi.load_library(sys.argv[1])[{name!r}]
{attach}
before = set(sys.modules)
f(np.ones(3, "f4"))
assert set(sys.modules) == before, set(sys.modules) - before
"""
        subprocess.run([sys.executable, "-c", code, lib.path], check=True)
