"""Where an error came from, across Python -> C -> Python, as Python's traceback and as the ABI's text."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall import ffi

from ..programs import hiding_torch, output_of

SOURCE = r"""
#include <farcall/c_api.h>
#include <string.h>
static int call(const TVMFFIAny* args, TVMFFIAny* result) {
  TVMFFIAny none = {.type_index = kTVMFFINone};
  *result = none;
  return TVMFFIFunctionCall(args[0].v_obj, NULL, 0, result);
}
FARCALL_KERNEL(backtrace_of) {
  TVMFFIObjectHandle error;
  if (call(args, result) == 0) return 0;
  TVMFFIErrorMoveFromRaised(&error);
  int rc = TVMFFIStringFromByteArray(&TVMFFIErrorGetCellPtr(error)->backtrace, result);
  TVMFFIObjectDecRef(error);
  return rc;
}
FARCALL_KERNEL(through) {
  TVMFFIObjectHandle error;
  TVMFFIByteArray line = {"  File \"kernel.c\", line 7, in through\n", 37};
  if (call(args, result) == 0) return 0;
  TVMFFIErrorMoveFromRaised(&error);
  TVMFFIErrorGetCellPtr(error)->update_backtrace(error, &line, 1);
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}
FARCALL_KERNEL(fail_with) {
  TVMFFIByteArray kind = {"ValueError", 10}, message = {"as told", 7};
  TVMFFIByteArray lines = {args[0].v_c_str, strlen(args[0].v_c_str)};
  TVMFFIObjectHandle error;
  if (TVMFFIErrorCreate(&kind, &message, &lines, &error) != 0) return -1;
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}
"""


@pytest.fixture(scope="module")
def throwing(compile_kernels: Callable[[str, str], Path]) -> ffi.Module:
    return ffi.load_library(compile_kernels("throwing", SOURCE))


def inner() -> None:
    raise LookupError("not there")


def outer() -> None:
    inner()


def names(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_pythons_frames_are_in_the_text(throwing: ffi.Module) -> None:
    """The innermost first, as the ABI has it."""
    first, second, *rest = throwing.backtrace_of(outer).splitlines()
    line = inner.__code__.co_firstlineno + 1
    assert first == f'  File "{__file__}", line {line}, in inner'
    assert second == f'  File "{__file__}", line {line + 4}, in outer'
    assert not rest


def test_native_frames_stand_between_pythons(throwing: ffi.Module) -> None:
    with pytest.raises(LookupError) as caught:
        throwing.through(lambda: throwing.through(outer))
    here, through, *more = names(caught.value)
    assert here == "test_native_frames_stand_between_pythons"
    assert [through, *more] == ["through", "<lambda>", "through", "outer", "inner"]
    assert 'File "kernel.c", line 7, in through' in "".join(traceback.format_tb(caught.value.__traceback__))


def test_the_text_has_native_frames_of_before(throwing: ffi.Module) -> None:
    text = throwing.backtrace_of(lambda: throwing.through(outer))
    assert [line.rpartition(" in ")[2] for line in text.splitlines()] == [
        "inner",
        "outer",
        "through",
        "<lambda>",
    ]


def test_deep_recursion_gives_the_innermost(throwing: ffi.Module) -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            inner()
        dive(depth - 1)

    lines = throwing.backtrace_of(lambda: dive(300)).splitlines()
    assert len(lines) == 64
    assert lines[0].endswith("in inner")
    assert lines[-1].endswith("in dive")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80))
def test_any_text_is_a_traceback(throwing: ffi.Module, text: str) -> None:
    lines = [
        f'  File "{text}", line {text}, in {text}',
        text,
        f'File "a.c", line 3, in {text}',
        'File "',
        'File "a", line ',
    ]
    with pytest.raises(ValueError, match="as told") as caught:
        throwing.fail_with("\n".join([*lines, '  File "a.c", line 5, in f']))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert ("a.c", 5, "f") in [(frame.filename, frame.lineno, frame.name) for frame in frames]


IN_TVM_FFI = """
import traceback, tvm_ffi
from farcall import ffi
def inner(x): raise ValueError(f"bad {x}")
def outer(x): return inner(x)
ffi.register_global_func("tracebacks.outer", outer)
try:
    tvm_ffi.get_global_func("tracebacks.outer")(3)
except ValueError as error:
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
assert names[-2:] == ["outer", "inner"], names
"""


def test_another_runtime_sees_pythons_frames() -> None:
    pytest.importorskip("tvm_ffi")
    output_of("-c", IN_TVM_FFI, env=hiding_torch())
