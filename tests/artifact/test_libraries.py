"""Libraries that a region calls: linked by name, found when the artifact is loaded, or brought by it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.artifact import Artifact, inspect
from farcall.backends.base import Library, RegionCode
from farcall.errors import ArtifactError, BackendError
from farcall.graph import Region
from farcall.library._elf import NEEDED, Elf
from farcall.rpc import Server
from farcall.toolchain import Source, Target
from farcall.toolchain._build import compile_shared

from .stub_backend import HEAD, Stub, model, plan

X = np.arange(6, dtype=np.float32).reshape(2, 3)
BODY = """
int acme_scale(void);
FARCALL_KERNEL({name}) {{
  for (int64_t i = 0; i < count(&args[0]); ++i) DATA(1)[i] = DATA(0)[i] * acme_scale();
  return 0;
}}
"""
CALL = """
import sys, numpy as np, farcall as fc
print(fc.load_module(sys.argv[1])["main"](np.float32([[1, 2, 3]])).tolist())
"""
CALL_TVM = """
import sys, numpy as np, tvm_ffi
print(np.from_dlpack(tvm_ffi.load_module(sys.argv[1])["main"](np.float32([[1, 2, 3]]))).tolist())
"""


class Acme(Stub):
    """Neg becomes a product with a number that a library tells."""

    def __init__(self, library: Library, **more: Any) -> None:
        super().__init__("acme", ["Neg"])
        self.library = library
        self.more = more

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        text = HEAD + BODY.format(name=region.name)
        return RegionCode({f"{region.name}.c": text}, libraries=[self.library], **self.more)


def build(library: Library, **more: Any) -> Artifact:
    return plan(model([("Neg", "x", "y")], {"x": ["n", 3]}, {"y": ["n", 3]}), Acme(library, **more)).build()


@pytest.fixture
def soname(request: pytest.FixtureRequest) -> str:
    """One of its own for each test: a loaded library stays in the process."""
    return f"libacme_{request.node.name[5:25]}_{os.getpid()}.so.1"


def make(path: Path, scale: int = 10, function: str = "acme_scale") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f'__attribute__((visibility("default"))) int {function}(void) {{ return {scale}; }}\n'
    compile_shared([Source("acme.c", text)], path, flags=[f"-Wl,-soname,{path.name}"])
    return path


@pytest.fixture
def package(tmp_path: Path, soname: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Installs the package `acme-lib`, which holds the library."""

    def install(version: str = "1.10", **more: Any) -> str:
        site = tmp_path / "site"
        make(site / "acme_lib" / soname, **more)
        info = site / f"acme_lib-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-lib\nVersion: {version}\n")
        (info / "RECORD").write_text(f"acme_lib/{soname},,\nacme_lib-{version}.dist-info/METADATA,,\n")
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()
        return str(site)

    return install


def run(code: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def library(soname: str) -> Library:
    return Library(soname, ["acme_scale"], "acme-lib", "1.9", cure="install it: pip install acme-lib")


def test_the_library_of_a_package_is_found_at_load(
    tmp_path: Path, library: Library, package: Callable[..., str]
) -> None:
    artifact = build(library)  # the library need not be there
    path = artifact.save(tmp_path / "model.so")
    site = package()
    np.testing.assert_array_equal(artifact.load()["main"](X), X * 10)
    done = run(CALL, path, PYTHONPATH=site)
    assert done.stdout == "[[10.0, 20.0, 30.0]]\n", done.stderr
    data = path.read_bytes()
    needed = Elf(data, "model.so").dynamic_texts(NEEDED)
    assert library.soname in needed and not any("/" in name for name in needed)
    assert str(tmp_path).encode() not in data
    (info,) = inspect(path).libraries
    assert (info.soname, info.regions, info.symbols) == (library.soname, ("acme_0",), ("acme_scale",))


def test_a_missing_library_is_an_error_before_anything_runs(library: Library) -> None:
    with pytest.raises(ArtifactError) as caught:
        build(library).load()
    text = str(caught.value)
    assert "backend `acme`, region `acme_0`, needs the library" in text
    assert "the package acme-lib is not installed" in text and "cannot open shared object file" in text
    assert text.endswith("install it: pip install acme-lib")


def test_an_old_package_is_not_taken(library: Library, package: Callable[..., str]) -> None:
    artifact = build(library)
    package("1.8.7")
    with pytest.raises(ArtifactError, match=r"acme-lib is version 1\.8\.7, expected 1\.9 or later"):
        artifact.load()


def test_a_library_that_lacks_a_function_is_not_taken(
    library: Library, package: Callable[..., str], tmp_path: Path
) -> None:
    artifact = build(library)
    package(function="acme_shift")
    with pytest.raises(ArtifactError, match=r"lacks `acme_scale`.*cannot open shared object file"):
        artifact.load()
    with pytest.raises(BackendError, match="declares functions that the library does not have"):
        build(library)


def test_a_library_travels_in_the_artifact(tmp_path: Path, soname: str) -> None:
    data = make(tmp_path / soname, 7).read_bytes()
    path = build(Library(soname, ["acme_scale"], data=data)).save(tmp_path / "model.so")
    (tmp_path / soname).unlink()
    np.testing.assert_array_equal(fc.load_module(path)["main"](X), X * 7)
    done = run(CALL, path)
    assert done.stdout == "[[7.0, 14.0, 21.0]]\n", done.stderr


def test_what_a_backend_brings_is_checked(tmp_path: Path, soname: str) -> None:
    data = make(tmp_path / soname).read_bytes()
    with pytest.raises(BackendError, match="its file lacks `acme_shift`"):
        build(Library(soname, ["acme_scale", "acme_shift"], data=data))
    with pytest.raises(BackendError, match=f"its file has the soname {soname}"):
        build(Library("libother.so", ["acme_scale"], data=data))
    with pytest.raises(BackendError, match=r"brings the library .* truncated or corrupted|not an ELF"):
        build(Library(soname, ["acme_scale"], data=data[:200]))


def test_tvm_ffi_finds_it_as_the_dynamic_linker_does(tmp_path: Path, library: Library) -> None:
    pytest.importorskip("tvm_ffi")
    path = build(library).save(tmp_path / "model.so")
    folder = make(tmp_path / "libs" / library.soname).parent
    done = run(CALL_TVM, path, LD_LIBRARY_PATH=str(folder))
    assert done.stdout == "[[10.0, 20.0, 30.0]]\n", done.stderr


def test_a_session_finds_it_on_the_server(
    tmp_path: Path, library: Library, package: Callable[..., str]
) -> None:
    path = build(library).save(tmp_path / "model.so")
    with Server() as server, fc.connect(server.url) as session:
        with pytest.raises(fc.errors.FarcallError, match="the package acme-lib is not installed"):
            session.load_module(path)
        package()
    with Server() as server, fc.connect(server.url) as session:
        np.testing.assert_array_equal(session.load_module(path)["main"](X), X * 10)


@pytest.mark.parametrize("flag", ["-Wl,-rpath,/opt/acme", "/opt/acme/libacme.so", "-L/opt/acme", "-l:/a.so"])
def test_paths_are_refused_in_link_flags(library: Library, flag: str) -> None:
    with pytest.raises(BackendError, match="puts a path of this machine into the artifact; declare"):
        build(library, link_flags=[flag])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"soname": "/opt/libacme.so"}, "expected a soname"),
        ({"symbols": ["a; b"]}, "expected C identifiers, got 'a; b'"),
        ({"data": "x"}, "data: expected bytes, got str"),
        ({"version": 2}, "version: expected a text, got 2"),
    ],
)
def test_a_wrong_declaration_is_refused(library: Library, change: dict[str, Any], text: str) -> None:
    with pytest.raises(BackendError, match=text):
        build(replace(library, **change))


def test_regions_agree_on_a_library(library: Library) -> None:
    class Two(Acme):
        def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
            self.library = replace(library, version=region.name[-1])
            return super().compile(region, target, options)

    nodes = [("Neg", "x", "a"), ("Abs", "a", "b"), ("Neg", "b", "y")]
    chain = model(nodes, {"x": ["n", 3]}, {"y": ["n", 3]})
    with pytest.raises(BackendError, match=r"region `acme_1` .* with other terms than region `acme_0`"):
        plan(chain, Two(library), Stub("cpu", ["Abs"])).build()


def test_static_libraries_and_machines_without_a_loader_refuse_them(library: Library) -> None:
    neg = plan(model([("Neg", "x", "y")], {"x": [2, 3]}, {"y": [2, 3]}), Acme(library))
    with pytest.raises(BackendError, match="which a static library cannot load"):
        neg.build(link="static")
    with pytest.raises(BackendError, match="has no dynamic loader"):
        neg.build(target="hexagon-linux-musl")


@pytest.mark.parametrize(("soname", "function"), [("libm.so.6", "tanhf"), ("libc.so.6", "atoi")])
def test_a_library_of_the_system_is_there_for_the_other_regions_too(soname: str, function: str) -> None:
    """One that declares a function of it does not hide the others, which code of `c` calls."""

    class System(Stub):
        def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
            declared = "#include <math.h>\n#include <stdlib.h>\n"
            value = "tanhf(DATA(0)[i])" if function == "tanhf" else '(float)atoi("7")'
            loop = f"for (int64_t i = 0; i < count(&args[0]); ++i) DATA(1)[i] = {value};"
            text = f"{declared}{HEAD}FARCALL_KERNEL({region.name}) {{ {loop} return 0; }}"
            return RegionCode({f"{region.name}.c": text}, libraries=[Library(soname, [function])])

    nodes = [("Neg", "x", "a"), ("Sin", "a", "b"), ("Pow", "b x", "y")]
    proto = model(nodes, {"x": ["n", 3]}, {"y": ["n", 3]})
    main = fc.partition(proto, [System("system", ["Neg"]), "c"]).build().load()["main"]
    first = np.tanh(X) if function == "tanhf" else np.float32(7)
    np.testing.assert_allclose(main(X), np.sin(first) ** X, rtol=1e-5)
