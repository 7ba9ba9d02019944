"""CPU levels: hot code is compiled once for each level of a portable target, and chosen when it is called.

A target with a level (``x86_64-linux-gnu:x86-64-v3``, and ``host`` of x86-64) has that one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from farcall.artifact._fixed import at_level
from farcall.artifact._states import KERNEL
from farcall.backends._function import RAISE
from farcall.backends._kernels import HIDDEN
from farcall.toolchain import Source

_EXPORTED = "__tvm_ffi_"
_TEXT = resources.files(__package__).joinpath("levels.c")
FILE = "farcall_levels.c"


def level_source(functions: Sequence[str], levels: Sequence[str]) -> Source:
    """The C of ``functions``, each of which calls the one of the level of the CPU."""
    table = ", ".join(f'"{level}"' for level in levels)
    text = _TEXT.read_text(encoding="utf-8").replace("FC_LEVELS}", f"{table}}}")
    head, _, rest = text.partition("#define FC_HIDDEN")
    parts = [head, RAISE, f"#define FC_HIDDEN{rest}"]
    parts += [_chosen(function, levels) for function in functions]
    return Source(FILE, "\n".join(parts), ("-O2",))


def _chosen(function: str, levels: Sequence[str]) -> str:
    names = [at_level(function, level) for level in levels]
    declared = "".join(f"{HIDDEN} int {name}({KERNEL});\n" for name in names)
    seen = "FARCALL_VISIBLE" if function.startswith(_EXPORTED) else HIDDEN
    declared += f"{seen} int {function}({KERNEL});\n"
    call = "(self, args, num_args, result)"
    cases = "".join(f"    case {i}: return {name}{call};\n" for i, name in enumerate(names))
    body = f"  switch (fc_level()) {{\n{cases}    default: return -1;\n  }}\n"
    head = f"int {function}(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)"
    return f"{declared}{head} {{\n{body}}}\n"
