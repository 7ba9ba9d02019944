"""Kinds of modules: who registers a loader, what it checks, where it is found, what is said without one."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import farcall as fc
from farcall import ffi
from farcall.errors import ArtifactError, UsageError
from farcall.library._module_bin import SYMBOL, module_bin

from .module_package import install

Compile = Callable[..., Path]
Embed = Callable[..., Path]

ADDER = Path(__file__).with_name("adder.c").read_text()


@pytest.fixture
def embed(compile_kernels: Compile, request: pytest.FixtureRequest) -> Embed:
    """(C source, modules, imports) -> a library that embeds them."""
    made = 0

    def build(source: str, modules: list[Any], imports: list[list[int]], *flags: str) -> Path:
        nonlocal made
        made += 1
        data = ",".join(map(str, module_bin(modules, imports)))
        symbol = (
            f"__attribute__((aligned(64))) FARCALL_VISIBLE const unsigned char {SYMBOL}[] = {{{data}}};\n"
        )
        name = f"{request.node.name.partition('[')[0]}{made}"
        return compile_kernels(name, source + symbol, *flags)

    return build


# Functions that C++ code looks up, which Python does not list.
BUILTIN = """
#include <farcall/c_api.h>
#include <string.h>
FARCALL_KERNEL(builtin) {
  TVMFFIByteArray name = {args[0].v_c_str, strlen(args[0].v_c_str)};
  TVMFFIObjectHandle f;
  TVMFFIFunctionGetGlobal(&name, &f);
  int rc = TVMFFIFunctionCall(f, (TVMFFIAny*)args + 1, num_args - 1, result);
  TVMFFIObjectDecRef(f);
  return rc;
}
"""
PLAIN = "#include <farcall/c_api.h>\nFARCALL_KERNEL(own) { *result = args[0]; return 0; }\n"


@pytest.fixture
def scaler() -> Iterator[str]:
    """A kind in Python: the data is JSON with a factor."""

    @fc.module_kind("scaler", versions=(2, 3), features=("half",))
    def load(blob: fc.Blob) -> fc.Module:
        by = json.loads(blob.data)["by"]
        return ffi.new_module(
            blob.kind,
            {"scale": lambda x: by * x},
            save=lambda: bytes(blob),
            source=lambda format: f"{by} * x",
        )

    yield "scaler"
    ffi.remove_global_func("ffi.Module.load_from_bytes.scaler")


def scaler_blob(**changes: Any) -> fc.Blob:
    fields = {
        "kind": "scaler",
        "version": 2,
        "data": b'{"by": 3}',
        "producer": "farcall-scaler 2.1",
        **changes,
    }
    return fc.Blob(**fields)


class TestInPython:
    def test_embedded_in_a_library(self, scaler: str, embed: Embed) -> None:
        root = fc.load_module(embed(PLAIN, [None, scaler_blob()], [[1], []]))
        assert root.imports[0].scale(14) == 42
        assert root.get_function("scale", query_imports=True)(2) == 6

    def test_saved_and_loaded_by_its_frame(self, scaler: str, tmp_path: Path) -> None:
        module = ffi.load_module_from_bytes("scaler", bytes(scaler_blob()))
        module.save(tmp_path / "net.anything")
        again = fc.load_module(tmp_path / "net.anything")
        assert (again.kind, again.scale(5), again.inspect_source()) == ("scaler", 15, "3 * x")
        assert again.save_to_bytes() == module.save_to_bytes() == (tmp_path / "net.anything").read_bytes()
        assert [path.name for path in tmp_path.iterdir()] == ["net.anything"]
        with pytest.raises(UsageError, match=r"cannot write .*no such folder.*: No such file"):
            module.save(tmp_path / "no such folder" / "net")

    def test_the_format_is_that_of_its_kind(
        self, scaler: str, compile_kernels: Compile, tmp_path: Path
    ) -> None:
        builtin = fc.load_module(compile_kernels("builtin", BUILTIN))["builtin"]
        module = ffi.load_module_from_bytes("scaler", bytes(scaler_blob()))
        assert list(builtin("ffi.ModuleGetWriteFormats", module)) == ["scaler"]
        builtin("ffi.ModuleWriteToFile", module, str(tmp_path / "a"), "scaler")
        assert fc.load_module(tmp_path / "a").scale(1) == 3
        with pytest.raises(RuntimeError, match="cannot be written as `json`: its format is `scaler`"):
            builtin("ffi.ModuleWriteToFile", module, str(tmp_path / "a"), "json")
        with pytest.raises(RuntimeError, match="cannot be saved: it was made without `save`"):
            ffi.new_module("other", {}).save(tmp_path / "b")

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"version": 4}, r"version 4, made by farcall-scaler 2\.1\): its loader reads versions 2, 3; "
                             "`pip install --upgrade farcall-scaler`"),
            ({"version": 1}, "its loader reads versions 2, 3; build the module again"),
            ({"features": ("int4",)}, "needs the feature `int4`, and its loader has: `half`"),
            ({"features": ("farcall.magic",)}, "needs `farcall.magic`, which this runtime does not have"),
            ({"data": b'{"by"'}, "its loader failed: JSONDecodeError: Expecting ':' delimiter"),
        ],
    )  # fmt: skip
    def test_what_it_does_not_read(self, scaler: str, tmp_path: Path, changes: Any, text: str) -> None:
        (tmp_path / "net").write_bytes(bytes(scaler_blob(**changes)))
        with pytest.raises(ArtifactError, match=text) as caught:
            fc.load_module(tmp_path / "net")
        assert str(caught.value).startswith(str(tmp_path / "net: "))

    def test_a_loader_that_makes_no_module(self) -> None:
        fc.module_kind("nothing")(lambda blob: blob.data)  # type: ignore[arg-type, return-value]
        with pytest.raises(ArtifactError, match=r"kind `nothing` .*returned a bytes, expected a Module"):
            ffi.load_module_from_bytes("nothing", bytes(fc.Blob("nothing", 1, b"")))
        ffi.remove_global_func("ffi.Module.load_from_bytes.nothing")

    def test_what_it_does_read(self, scaler: str) -> None:
        blob = scaler_blob(version=3, features=("half", "farcall.threads"))
        assert ffi.load_module_from_bytes("scaler", bytes(blob)).scale(2) == 6

    def test_bytes_without_a_frame_are_not_its_own(self, scaler: str) -> None:
        with pytest.raises(ArtifactError, match=r"a module of kind `scaler`: .*expected a frame"):
            ffi.load_module_from_bytes("scaler", b'{"by": 3}')


class TestInC:
    def test_a_loader_travels_in_the_library(self, embed: Embed) -> None:
        blobs = [fc.Blob("adder", 2, b"%d" % amount, ("sums",)) for amount in (5, 700)]
        library = fc.load_module(embed(ADDER, [None, *blobs], [[1, 2], [], []]))
        five, more = library.imports
        assert (five.kind, five.add(1), more.add(1), five.add(-5)) == ("adder", 6, 701, 0)
        assert (five.save_to_bytes(), five.inspect_source("any")) == (b"saved", "x + amount")
        assert five.property_mask == 3

    def test_its_state_lives_as_long_as_module_or_functions(self, embed: Embed) -> None:
        path = embed(ADDER, [None, fc.Blob("adder", 1, b"8")], [[1], []])
        library = fc.load_module(path)
        assert library.living() == 1
        add = library.imports[0].get_function("add")
        library.clear_imports()
        gc.collect()
        assert (add(1), library.living()) == (9, 1)
        del add
        gc.collect()
        assert library.living() == 0

    def test_a_library_registers_it_when_it_is_loaded(self, compile_kernels: Compile, embed: Embed) -> None:
        """In a process of its own: where TVM FFI is loaded, too, its registry may get the function."""
        path = embed(PLAIN, [None, fc.Blob("adder", 1, b"30")], [[1], []])
        library = compile_kernels("registers", ADDER, "-DREGISTERS")
        code = "import sys, farcall as fc; fc.ffi.load_library(sys.argv[1]); "
        code += "print(fc.load_module(sys.argv[2]).imports[0].add(12))"
        words = [sys.executable, "-c", code, str(library), str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        assert (done.stdout, done.stderr) == ("42\n", "")

    def test_its_own_loader_comes_first(self, embed: Embed) -> None:
        def never(data: bytes) -> Any:
            raise AssertionError

        ffi.register_loader("adder", never)
        try:
            assert fc.load_module(embed(ADDER, [fc.Blob("adder", 1, b"1")], [[]])).add(1) == 2
        finally:
            ffi.remove_global_func("ffi.Module.load_from_bytes.adder")

    @pytest.mark.parametrize(
        ("blob", "text"),
        [
            (fc.Blob("adder", 3, b"", (), "me 1"), "reads versions 1 to 2; `pip install --upgrade me`"),
            (fc.Blob("adder", 3, b""), "version 3, and its loader reads versions 1 to 2; install a newer"),
            (fc.Blob("adder", 0, b""), "version 0, and its loader reads versions 1 to 2; build the module"),
            (fc.Blob("adder", 1, b"", ("sums", "more")), "needs `more`, which its loader does not have"),
            (("adder", b"5"), "does not begin as a frame"),
        ],
    )
    def test_what_it_does_not_read(self, embed: Embed, blob: Any, text: str) -> None:
        with pytest.raises(ArtifactError, match=text):
            fc.load_module(embed(ADDER, [None, blob], [[1], []]))

    def test_a_spec_of_another_size(self, embed: Embed) -> None:
        with pytest.raises(ValueError, match="module_create: struct_size is 8, expected at least"):
            fc.load_module(embed(ADDER, [fc.Blob("adder", 1, b"1")], [[]], "-DSIZE=8"))


class TestMissing:
    def test_the_error_names_kind_loaders_and_cure(self, scaler: str, embed: Embed) -> None:
        path = embed(PLAIN, [None, scaler_blob(kind="npu", producer="farcall-npu 1.2")], [[1], []])
        with pytest.raises(ArtifactError) as caught:
            fc.load_module(path)
        text = str(caught.value)
        assert text.startswith(f"{path}: no loader for modules of kind `npu`; loaders are there for: ")
        assert "`scaler`" in text
        assert "`pip install farcall-npu`" in text

    def test_damage_is_found_before_a_loader_is_asked(self, embed: Embed) -> None:
        damaged = bytes(scaler_blob(kind="npu"))[:-1] + b"]"
        with pytest.raises(ArtifactError, match="kind `npu`: truncated or corrupted: its checksum"):
            fc.load_module(embed(PLAIN, [None, ("npu", damaged)], [[1], []]))

    def test_nothing_is_half_loaded(self, embed: Embed) -> None:
        """The first module is made, the second one has no loader: the first is gone with the error."""
        blobs = [fc.Blob("adder", 1, b"5"), scaler_blob(kind="npu")]
        path = embed(ADDER, [None, *blobs], [[1, 2], [], []])
        with pytest.raises(ArtifactError, match="kind `npu`"):
            ffi.load_library(path)
        living = ctypes.CDLL(str(path))["__tvm_ffi_living"]
        result = (ctypes.c_int64 * 2)()
        assert (living(None, None, 0, result), result[1]) == (0, 0)


ASKS_PACKAGES = """
import sys
import farcall as fc
assert "npu_package" not in sys.modules
for kind in sys.argv[1:]:
    try:
        print(fc.ffi.load_module_from_bytes(kind, bytes(fc.Blob(kind, 1, b"7", (), "the-maker 1"))).value())
    except fc.errors.ArtifactError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("site"))


def asked(site: Path, *kinds: str, **environment: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path]), **environment}
    command = [sys.executable, "-c", ASKS_PACKAGES, *kinds]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class TestFromPackages:
    def test_a_package_is_imported_when_its_kind_is_loaded(self, site: Path) -> None:
        unknown, first, second = asked(site, "fpga", "npu", "npu")
        assert (first, second) == ("7", "7")
        assert "packages offer: `dsp`, `npu`; `pip install the-maker`" in unknown

    def test_a_broken_package_is_named(self, site: Path) -> None:
        (text,) = asked(site, "dsp")
        assert text.startswith(
            "modules of kind `dsp` are loaded by the package npu-package, which cannot be imported"
        )
        assert "No module named 'no_module'" in text

    def test_no_package_is_asked_where_plugins_are_off(self, site: Path) -> None:
        (text,) = asked(site, "npu", FARCALL_PLUGINS="0")
        assert "no loader for modules of kind `npu`" in text
        assert "packages offer" not in text
