"""The header is its own test of layouts: it must compile, everywhere it claims to."""

from __future__ import annotations

from pathlib import Path

import pytest

from farcall import ffi
from farcall.errors import ToolchainError
from farcall.toolchain import find_compiler

STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "-o", "use.o"]


def check(tmp_path: Path, source: str, *flags: str) -> None:
    (tmp_path / "use.c").write_text(source)
    find_compiler().run([*STRICT, f"-I{ffi.include_dir()}", *flags, "use.c"], tmp_path, "layout test")


@pytest.mark.parametrize("flags", [("-std=c11",), ("-x", "c++", "-std=c++17")], ids=["C11", "C++17"])
def test_header_compiles_without_warnings(tmp_path: Path, flags: tuple[str, ...]) -> None:
    check(tmp_path, "#include <farcall/c_api.h>\nFARCALL_KERNEL(f) { return 0; }\n", *flags)


def test_a_wrong_layout_is_refused(tmp_path: Path) -> None:
    source = "#include <farcall/c_api.h>\nFARCALL_PIN(TVMFFIErrorCell, message, 24);\n"
    with pytest.raises(ToolchainError, match=r"TVMFFIErrorCell\.message must be at 24"):
        check(tmp_path, source, "-std=c11")


def test_dlpack_of_another_header_may_come_first(tmp_path: Path) -> None:
    """The real dlpack.h has the same include guard and names, so farcall's copy yields to it."""
    header = (Path(ffi.include_dir()) / "farcall" / "c_api.h").read_text()
    _, _, rest = header.partition("#define DLPACK_DLPACK_H_")
    section, _, _ = rest.partition("#endif /* DLPACK_DLPACK_H_ */")
    (tmp_path / "dlpack.h").write_text(f"#define DLPACK_DLPACK_H_\n#include <stdint.h>\n{section}")
    check(tmp_path, '#include "dlpack.h"\n#include <farcall/c_api.h>\n', "-std=c11")
