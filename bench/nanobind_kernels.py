"""The same work through nanobind, if installed: an extension that is compiled once and cached."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

from farcall.toolchain import cache_folder, content_key, find_compiler

SOURCE = """
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
namespace nb = nanobind;
using Array = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
struct Released { nb::gil_scoped_release released; };

NB_MODULE(farcall_bench_nanobind, m) {
  m.def("ints", [](int64_t, int64_t, int64_t) {}, nb::call_guard<nb::gil_scoped_release>());
  m.def("ints_kept", [](int64_t, int64_t, int64_t) {});
  m.def("text", [](const char*) {}, nb::call_guard<nb::gil_scoped_release>());
  m.def("arrays", [](Array, Array, Array) {});
  m.def("call_often", [](nb::callable f, int64_t n) { for (int64_t i = 0; i < n; ++i) f(7); });
  m.def("fail", [] { throw nb::value_error("as it was asked to"); });
}
"""


def load() -> ModuleType | None:
    """The extension; None without nanobind."""
    try:
        import nanobind
    except ImportError:
        return None
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    folder = cache_folder() / "bench" / content_key([SOURCE, nanobind.__version__, suffix])[:16]
    path = folder / f"farcall_bench_nanobind{suffix}"
    if not path.exists():
        _build(Path(nanobind.include_dir()).parent, path)
    spec = importlib.util.spec_from_file_location("farcall_bench_nanobind", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(nanobind: Path, path: Path) -> None:
    """Compiles nanobind's sources into the extension, as its guide for other build systems says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "kernels.cpp").write_text(SOURCE)
    folders = [
        nanobind / "include",
        nanobind / "ext" / "robin_map" / "include",
        sysconfig.get_path("include"),
    ]
    flags = [
        "-std=c++17",
        "-O3",
        "-DNDEBUG",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-strict-aliasing",
    ]
    sources = [str(nanobind / "src" / "nb_combined.cpp"), "kernels.cpp"]
    new = path.with_name("new.so")
    arguments = [*flags, *(f"-I{folder}" for folder in folders), *sources, "-o", new.name]
    find_compiler(language="c++").run(arguments, path.parent, "nanobind kernels")
    new.replace(path)
