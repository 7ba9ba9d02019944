"""wire.h, compiled into a small library and driven through ctypes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "include"
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]


def compiler() -> list[str]:
    """The system's C compiler, else the one in the ziglang package."""
    if cc := os.environ.get("CC") or shutil.which("cc"):
        return cc.split()
    return [sys.executable, "-m", "ziglang", "cc"]


def compile_c(command: list[str], source: str, output: Path, *flags: str) -> Path:
    subprocess.run([*command, *FLAGS, *flags, str(HERE / source), "-o", str(output)], check=True)
    return output


def packed(cases: list[bytes]) -> bytes:
    """The cases in the format that the driver program reads."""
    return b"".join(len(case).to_bytes(4, "little") + case for case in cases)


@dataclass(frozen=True)
class Wire:
    library: ctypes.CDLL

    def run(self, data: bytes, chunk: int = 0, in_place: bool = False) -> tuple[str, bytes]:
        """The events as text, and the packets after encoding them again."""
        log, again = ctypes.c_void_p(), ctypes.c_void_p()
        sizes = ctypes.c_uint64(), ctypes.c_uint64()
        self.library.wire_run(
            data,
            ctypes.c_uint64(len(data)),
            ctypes.c_uint64(chunk),
            int(in_place),
            ctypes.byref(log),
            ctypes.byref(sizes[0]),
            ctypes.byref(again),
            ctypes.byref(sizes[1]),
        )
        texts = ctypes.string_at(log, sizes[0].value), ctypes.string_at(again, sizes[1].value)
        self.library.wire_free(log)
        self.library.wire_free(again)
        return texts[0].decode(), texts[1]

    def nbytes(self, shape: list[int], bits: int = 32, lanes: int = 1) -> int | None:
        """The result of fc_wire_tensor_nbytes; None if it overflows."""
        out = ctypes.c_uint64()
        dims = (ctypes.c_int64 * len(shape))(*shape)
        status = self.library.wire_tensor_nbytes(
            dims, len(shape), ctypes.c_uint8(bits), ctypes.c_uint16(lanes), ctypes.byref(out)
        )
        return None if status else out.value
