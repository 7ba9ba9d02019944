"""A thread that ends while a kernel is on its stack: unwinding passes `catch (...)` and `noexcept`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from farcall.cpp import build_inline

from ..waiting import SECONDS

CALLBACK = """
import sys, threading, time
from farcall import ffi

class Last:  # goes when the interpreter shuts down, and lets go of the GIL meanwhile
    def __del__(self, sleep=time.sleep):
        sleep(0.05)

def busy():
    inside.set()
    while True:
        pass

sys.last = Last()
inside = threading.Event()
call = ffi.load_library(sys.argv[1])["call"]
threading.Thread(target=call, args=(busy,), daemon=True).start()
inside.wait()
"""

ENDS_ITS_THREAD = """
#include <pthread.h>

void leave() { pthread_exit(nullptr); }

void* call_leave(void*);

int in_a_thread() {
  pthread_t thread;
  pthread_create(&thread, nullptr, call_leave, nullptr);
  return pthread_join(thread, nullptr);
}

extern "C" int __tvm_ffi_leave(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
void* call_leave(void*) {
  TVMFFIAny result{};
  __tvm_ffi_leave(nullptr, nullptr, 0, &result);
  return nullptr;
}
"""


def run(code: str, library: str) -> None:
    command = [sys.executable, "-c", code, library]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("exception", ["", "noexcept"])
def test_a_daemon_thread_is_inside_a_callback_when_the_program_ends(exception: str) -> None:
    """Until 3.14, CPython ends such a thread by unwinding its stack."""
    source = f"void call(farcall::Function f) {exception} {{ f(); }}"
    run(CALLBACK, build_inline("daemon", cpp_sources=source, functions=["call"], extra_cflags=["-O1"]))


def test_a_kernel_ends_its_thread() -> None:
    library = build_inline("leaves", cpp_sources=ENDS_ITS_THREAD, functions=["leave", "in_a_thread"])
    run("import sys; from farcall import ffi; ffi.load_library(sys.argv[1])['in_a_thread']()", library)
