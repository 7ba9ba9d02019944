"""The paths of the working tree, and of the libraries that were built."""

from __future__ import annotations

from pathlib import Path

import farcall._core

ROOT = Path(__file__).resolve().parents[1]
CORE = Path(farcall._core.__file__)
CXX = CORE.with_name("libfarcall_cxx.so")  # a shared library without functions of farcall
