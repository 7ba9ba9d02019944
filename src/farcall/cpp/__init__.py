"""Kernels from C, C++ and CUDA sources, built and loaded in one call.

    >>> from farcall.cpp import load_inline
    >>> mod = load_inline("demo", cpp_sources="int add(int a, int b = 1) { return a + b; }", functions="add")
    >>> mod["add"](41)
    42

What was built is kept by its content, so the second time costs about a millisecond. Nothing is locked: two
processes that build the same thing both do, and each finds a whole file.
"""

from __future__ import annotations

from farcall.cpp._api import build, build_inline, load, load_inline

__all__ = ["build", "build_inline", "load", "load_inline"]
