"""Kernels from C, C++ and CUDA sources, built and loaded in one call.

    >>> from farcall.cpp import load_inline
    >>> mod = load_inline("demo", cpp_sources="int add(int a, int b = 1) { return a + b; }", functions="add")
    >>> mod["add"](41)
    42

A cache keeps each library under a hash of its sources, so a second call costs about a millisecond. The cache
uses no locks: two processes may build the same library at the same time, and each gets a complete file.
"""

from __future__ import annotations

from farcall.cpp._api import build, build_inline, load, load_inline

__all__ = ["build", "build_inline", "load", "load_inline"]
__dir__ = __all__.copy
