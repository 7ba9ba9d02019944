"""C compilers and targets: they turn generated C into libraries for this machine and others."""

from farcall.toolchain._build import (
    C_FLAGS,
    LINK_FLAGS,
    Source,
    assemble,
    compile_shared,
    compile_sources,
    include_dir,
    link_shared,
    native_dir,
)
from farcall.toolchain._cache import cache_folder, content_key
from farcall.toolchain._compiler import Compiler, compiler_identity, find_compiler, zig_compiler
from farcall.toolchain._machines import MACHINES, Machine, machine_of, static_target
from farcall.toolchain._target import Target

__all__ = [
    "C_FLAGS",
    "LINK_FLAGS",
    "MACHINES",
    "Compiler",
    "Machine",
    "Source",
    "Target",
    "assemble",
    "cache_folder",
    "compile_shared",
    "compile_sources",
    "compiler_identity",
    "content_key",
    "find_compiler",
    "include_dir",
    "link_shared",
    "machine_of",
    "native_dir",
    "static_target",
    "zig_compiler",
]
__dir__ = __all__.copy
