"""The guide's Python runs, block after block, as a reader would type it."""

from __future__ import annotations

from pathlib import Path

import pytest

from farcall.cpp import build_inline
from farcall.cpp._cuda import find_nvcc

from ..programs import run_guide


@pytest.mark.long
def test_the_guide_runs(tmp_path: Path) -> None:
    run_guide("kernels.md", tmp_path)


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_the_cuda_allocator_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARCALL_CUDA_ARCH_LIST", "9.0")
    source = """
    #include <farcall/allocators.hpp>
    #ifndef FARCALL_HAS_CUDA
    #error "nvcc knows where its headers are"
    #endif
    using namespace farcall;
    Tensor make(int64_t n) {
      return Tensor::FromNDAlloc(CudaAllocator(), {n}, dtype_of<float>, {kDLCUDA, 0});
    }
    """
    assert Path(
        build_inline("cuda_alloc", cuda_sources=source, functions="make", build_directory=tmp_path)
    ).is_file()
