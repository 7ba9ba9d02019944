"""Library files: their ELF headers, the manifest in them, and loading."""

from __future__ import annotations

from farcall.library._blob import Blob
from farcall.library._kinds import module_kind
from farcall.library._loading import inspect, load_module
from farcall.library._manifest import (
    AnswersInfo,
    ConstantsInfo,
    ExpansionInfo,
    FunctionInfo,
    Manifest,
    MatchInfo,
    MemoryInfo,
    ModelInfo,
    RegionInfo,
    TargetInfo,
)
from farcall.library._memory import Memory, memory
from farcall.library._module_bin import embed_modules

__all__ = [
    "AnswersInfo",
    "Blob",
    "ConstantsInfo",
    "ExpansionInfo",
    "FunctionInfo",
    "Manifest",
    "MatchInfo",
    "Memory",
    "MemoryInfo",
    "ModelInfo",
    "RegionInfo",
    "TargetInfo",
    "embed_modules",
    "inspect",
    "load_module",
    "memory",
    "module_kind",
]
__dir__ = __all__.copy
