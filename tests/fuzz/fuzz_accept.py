"""The small server's handshakes (native/server/posix/accept.c); ``accept_target.c`` has the oracle."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

from . import harness
from .fuzz_image import FLAGS
from .fuzz_wire import coverage_flags

TARGET = Path(__file__).parent / "accept_target.c"


@functools.cache
def _library() -> ctypes.CDLL:
    command, coverage = coverage_flags()
    with tempfile.TemporaryDirectory() as name:
        made, library = Path(name) / "accept.o", Path(name) / "libaccept.so"
        flags = [*FLAGS, "-Wno-missing-field-initializers", "-Wno-format-truncation", *coverage]
        subprocess.run([*command, *flags, "-g", "-fPIC", "-c", TARGET, "-o", made], check=True)
        # In two steps, for the reason that fuzz_wire gives. Its stubs must not be those of farcall's core.
        subprocess.run([*command, "-shared", "-Wl,-Bsymbolic", made, "-o", library], check=True)
        return ctypes.CDLL(str(library))


def one_input(data: bytes) -> None:
    """The peer is served, told why not, or waited for; otherwise it aborts."""
    _library().LLVMFuzzerTestOneInput(data, ctypes.c_size_t(len(data)))


if __name__ == "__main__":
    harness.main("accept", one_input)
