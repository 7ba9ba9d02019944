"""C files that do not depend on the model.

An installation brings the objects of those that most models need. ``scripts/fixed_objects.py`` makes them
when farcall is built, where onnx and numpy are perhaps not installed: the modules that write such files, and
this one, import neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HIDDEN = '__attribute__((visibility("hidden")))'


@dataclass(frozen=True)
class Kernels:
    """A C file with functions that the sources of regions call. It does not depend on the model.

    An artifact has one such file of each ``name``, which is compiled beside the sources of the regions, and
    kept for the next model. The name and those of its functions, which are hidden, begin with ``farcall_``.
    The sources declare the functions.

    With ``vectors``, the loops that take the time are written with vector types, so that a compiler which
    then optimizes less makes equally fast code in a fraction of the time.
    """

    name: str  # of the file, without .c: a C identifier
    text: str
    functions: Sequence[str]
    compile_flags: Sequence[str] = ()
    vectors: bool = False
