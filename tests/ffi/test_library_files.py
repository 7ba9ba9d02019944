"""Library files: the quick check before loading, loading twice, and files that were rebuilt."""

from __future__ import annotations

import os
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import farcall
from farcall import _core, ffi
from farcall.errors import ArtifactError

Compile = Callable[..., Path]

SOURCE = """
#include <farcall/c_api.h>
FARCALL_KERNEL(who) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = %d;
  return 0;
}
"""
ARTIFACT_SYMBOL = "FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;\n"
ARTIFACT_SECTION = 'const char about[] __attribute__((section(".farcall.manifest"), used)) = "{}";\n'


@pytest.fixture
def library(compile_kernels: Compile, tmp_path: Path) -> Path:
    return Path(shutil.copy(compile_kernels("first", SOURCE % 1), tmp_path / "k.so"))


class TestTheLook:
    def test_a_plain_library_is_loaded(self, library: Path) -> None:
        module = _core.load_plain(library)
        assert module is not None
        assert (module.who(), module.path, module.kind) == (1, str(library), "library")

    def test_every_cut_is_seen(self, library: Path) -> None:
        data = library.read_bytes()
        (table,) = struct.unpack_from("<Q", data, 40)
        for size in [*range(0, len(data), 97), 63, 64, table, len(data) - 1]:
            library.write_bytes(data[:size])
            assert _core.load_plain(library) is None, size

    @pytest.mark.parametrize(
        ("at", "value"),
        [
            (0, b"\x7eELF"),
            (4, b"\1"),
            (5, b"\2"),
            (16, b"\2\0"),
            (18, b"\x16\0"),
            (58, b"\x28\0"),
            (60, b"\0\0"),
        ],
        ids=["magic", "32 bits", "byte order", "program", "machine", "entry size", "no sections"],
    )
    def test_other_headers(self, library: Path, at: int, value: bytes) -> None:
        data = bytearray(library.read_bytes())
        data[at : at + len(value)] = value
        library.write_bytes(data)
        assert _core.load_plain(library) is None

    @pytest.mark.parametrize("mark", [ARTIFACT_SYMBOL, ARTIFACT_SECTION], ids=["symbol", "section"])
    def test_what_may_be_an_artifact(self, compile_kernels: Compile, mark: str) -> None:
        assert _core.load_plain(compile_kernels("marked", SOURCE % 1 + mark)) is None

    def test_a_kernel_library_may_ask_for_the_runtime(self, compile_kernels: Compile) -> None:
        """farcall/c_api.h allows this symbol: the library is inspected closely, and is not an artifact."""
        raising = """
FARCALL_KERNEL(fails) {
  __farcall_runtime->error_set_raised_from_cstr("KeyError", "of the table");
  return -1;
}
"""
        path = compile_kernels("asks", SOURCE % 7 + ARTIFACT_SYMBOL + raising)
        for module in (farcall.load_module(path), farcall.load_module(path)):
            assert module.who() == 7
            with pytest.raises(KeyError, match="of the table"):
                module.fails()

    def test_names_beyond_the_first_page_are_read(self, compile_kernels: Compile) -> None:
        many = "".join(f"FARCALL_VISIBLE int a_long_name_of_a_variable_{i};\n" for i in range(400))
        module = _core.load_plain(compile_kernels("many", SOURCE % 1 + many))
        assert module is not None
        assert _core.load_plain(compile_kernels("many_marked", SOURCE % 1 + many + ARTIFACT_SYMBOL)) is None

    def test_what_is_no_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        for path in (tmp_path, tmp_path / "none.so", tmp_path / "fifo", "/dev/null", "k.so"):
            assert _core.load_plain(path) is None
        with pytest.raises(ValueError, match="null byte"):
            _core.load_plain("/tmp/a\0b")  # noqa: S108 - never opened
        with pytest.raises(TypeError):
            _core.load_plain(3)  # type: ignore[arg-type]

    def test_a_file_of_another_loader_is_its_own(self, library: Path) -> None:
        ffi.register_loader("look", lambda data: ffi.new_module("look", {"size": lambda: len(data)}), "look")
        path = library.rename(library.with_suffix(".look"))
        assert _core.load_plain(path) is None
        assert farcall.load_module(path).size() == path.stat().st_size

    def test_the_linkers_words(self, compile_kernels: Compile) -> None:
        path = compile_kernels("lost", "int nowhere(void);\nint here(void) { return nowhere(); }\n")
        with pytest.raises(OSError, match="undefined symbol"):
            _core.load_plain(path)
        with pytest.raises(ArtifactError, match=r"dynamic linker refuses it.*undefined symbol"):
            farcall.load_module(path)


class TestAgain:
    def test_the_same_file_by_any_name(self, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (library.parent / "link.so").symlink_to(library)
        monkeypatch.chdir(library.parent)
        first = farcall.load_module(library)
        for path in (library, str(library), "link.so", "./k.so", os.fsencode(library)):
            again = farcall.load_module(path)
            assert again is not first
            assert again.who() == 1

    def test_a_module_has_its_own_imports(self, library: Path) -> None:
        one, other = farcall.load_module(library), farcall.load_module(library)
        one.import_module(ffi.new_module("helper", {"help": lambda: 5}))
        assert one.get_function("help", query_imports=True)() == 5
        assert not other.imports

    @pytest.mark.parametrize("load", [farcall.load_module, ffi.load_library])
    def test_a_file_that_was_built_anew(
        self, library: Path, compile_kernels: Compile, load: Callable[[Path], ffi.Module]
    ) -> None:
        """The dynamic linker alone would return the old library, because the name is the same."""
        modules = [load(library)]
        for number in (2, 3):
            new = Path(
                shutil.copy(compile_kernels(f"new{number}", SOURCE % number), library.with_suffix(".new"))
            )
            new.replace(library)
            modules.append(load(library))
            assert load(library).who() == number
        assert [module.who() for module in modules] == [1, 2, 3], "old code stays what it was"
        assert modules[-1].path == str(library)

    def test_sixteen_threads_load_while_it_is_built_anew(
        self, library: Path, compile_kernels: Compile
    ) -> None:
        news = [compile_kernels(f"turn{number}", SOURCE % number) for number in range(2, 8)]
        seen: list[list[int]] = [[] for _ in range(16)]
        done = threading.Event()

        def load(mine: list[int]) -> None:
            while not done.is_set() or not mine:
                mine.append(farcall.load_module(library).who())
            mine.append(farcall.load_module(library).who())

        threads = [threading.Thread(target=load, args=(mine,)) for mine in seen]
        for thread in threads:
            thread.start()
        for new in news:
            Path(shutil.copy(new, library.with_suffix(".new"))).replace(library)
            assert farcall.load_module(library).who() == int(new.stem.removeprefix("turn"))
        done.set()
        for thread in threads:
            thread.join()
        assert all(mine == sorted(mine) and mine[-1] == 7 for mine in seen), "nobody goes back to old code"

    def test_its_neighbours_are_found_when_it_is_new(self, compile_kernels: Compile, tmp_path: Path) -> None:
        """$ORIGIN is the same folder."""
        near = "int near_value(void) { return 40; }\n"
        shutil.copy(
            compile_kernels("near", '__attribute__((visibility("default"))) ' + near), tmp_path / "libnear.so"
        )
        for number in (1, 2):
            source = "int near_value(void);\n" + (SOURCE % number).replace(
                "_int64 = ", "_int64 = near_value() + "
            )
            flags = (f"-L{tmp_path}", "-Wl,--no-as-needed", "-lnear", "-Wl,-rpath,$ORIGIN")
            built = compile_kernels(f"far{number}", source, *flags)
            new = Path(shutil.copy(built, tmp_path / "far.new"))
            assert farcall.load_module(new.replace(tmp_path / "far.so")).who() == 40 + number
