"""An installed package that offers loaders of modules by entry points."""

from __future__ import annotations

from pathlib import Path

PACKAGE = """
import farcall as fc

@fc.module_kind("npu")
def load(blob):
    return fc.ffi.new_module("npu", {"value": lambda: int(blob.data)})
"""


def install(site: Path) -> Path:
    """Put a package that offers the kinds `npu` and, broken, `dsp` into a folder of the path."""
    about = site / "npu_package-1.0.dist-info"
    about.mkdir()
    (site / "npu_package.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: npu-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[farcall.modules]\nnpu = npu_package:load\ndsp = no_module:load\n"
    )
    return site
