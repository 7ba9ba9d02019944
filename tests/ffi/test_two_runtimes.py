"""An error that was left pending in the other runtime is not raised by farcall's calls."""

from __future__ import annotations

import pytest

from ..programs import hiding_torch, output_of

pytest.importorskip("tvm_ffi")

SCRIPT = """
import ctypes, socket, tvm_ffi
import farcall.rpc  # its kinds of errors
from farcall import _core

theirs = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
near, far = socket.socketpair()
channel = _core.Channel(near.detach())
theirs.TVMFFIErrorSetRaisedFromCStr(b"IndexError", b"left behind")
try:
    channel.receive(10, 0.0)
except Exception as error:
    print(type(error).__name__)
"""


def test_an_error_that_was_left_in_the_other_runtime() -> None:
    assert output_of("-c", SCRIPT, env=hiding_torch()).split() == ["DeadlineExceededError"]
