"""Finding compilers, compiling, linking, and the cache of objects."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import farcall
from farcall.errors import ToolchainError
from farcall.toolchain import (
    Compiler,
    Source,
    Target,
    assemble,
    cache_folder,
    compile_shared,
    compile_sources,
    find_compiler,
    include_dir,
    link_shared,
)
from farcall.toolchain import _cache as cache_module
from farcall.toolchain._build import C_FLAGS, install_fixed
from farcall.toolchain._cache import cached
from farcall.toolchain._compiler import compiler_identity, compiler_of, shorten

HOST = Target.host()
needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
ANSWER = Source(
    "answer.c",
    "#include <farcall/c_api.h>\nFARCALL_VISIBLE int answer(void);\nint answer(void) { return 42; }\n",
)


@pytest.fixture(autouse=True)
def no_cc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)


def executable(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_cc_is_split_as_a_shell_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "my tools"
    folder.mkdir()
    script = executable(folder / "cc", 'test "$1" = --flag && echo "mycc 1.0"')
    monkeypatch.setenv("CC", f"'{script}' --flag")
    compiler = find_compiler()
    assert compiler.command == (str(script), "--flag")
    assert compiler.version == "mycc 1.0"


@pytest.mark.parametrize("value", ["/nowhere/cc", "'unbalanced", "false"])
def test_a_wrong_cc_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CC", value)
    with pytest.raises(ToolchainError, match="environment variable CC is"):
        find_compiler()


@needs_zig
def test_without_a_system_compiler_ziglang_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler().family == "zig"


def test_no_compiler_at_all_names_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("farcall.toolchain._compiler._zig_command", lambda word: None)
    with pytest.raises(ToolchainError, match=r"pip install 'farcall\[zig\]'"):
        find_compiler()
    with pytest.raises(ToolchainError, match="no compiler for s390x-linux-musl"):
        find_compiler(Target.parse("s390x-linux-musl"))


def test_compile_and_call(tmp_path: Path) -> None:
    compile_shared([ANSWER], tmp_path / "answer.so")
    assert ctypes.CDLL(str(tmp_path / "answer.so")).answer() == 42
    assert [path.name for path in tmp_path.iterdir()] == ["answer.so"]


@needs_zig
def test_ziglang_compiles_for_this_machine_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc")
    assert find_compiler().family == "zig"
    compile_shared([ANSWER], tmp_path / "answer.so")
    assert ctypes.CDLL(str(tmp_path / "answer.so")).answer() == 42


def test_the_compilers_words_are_in_the_error(tmp_path: Path) -> None:
    broken = Source("broken.c", "int f(void) { return nothing_of_that_name; }\n")
    with pytest.raises(ToolchainError, match=r"(?s)compile broken\.c for .*nothing_of_that_name"):
        compile_shared([broken], tmp_path / "x.so")
    assert not list(tmp_path.iterdir())


def test_an_undefined_symbol_is_found_by_the_link(tmp_path: Path) -> None:
    source = Source("lost.c", "int lost(void);\nint f(void);\nint f(void) { return lost(); }\n")
    with pytest.raises(ToolchainError, match=r"(?s)link for .*lost"):
        compile_shared([source], tmp_path / "x.so")


@pytest.mark.skipif(HOST.arch != "x86_64", reason="it counts instructions of x86-64")
def test_two_bounds_in_a_row_are_two_comparisons_of_vectors(tmp_path: Path) -> None:
    """gcc joined them to one condition with three ends, which a loop computed with twice the instructions."""
    compiler = find_compiler(HOST)
    if compiler.family != "gcc":
        pytest.skip("it is about gcc")
    loop = "void f(float* x, long n) { for (long i = 0; i < n; ++i) { float v = x[i]; BOUNDS x[i] = v; } }"
    found = []
    for bounds in ("v = v < 0 ? 0 : v;", "v = v < 0 ? 0 : v; v = v > 6 ? 6 : v;"):
        (tmp_path / "f.c").write_text(loop.replace("BOUNDS", bounds))
        flags = [*C_FLAGS, *compiler.cautions, "-march=x86-64-v3", "-S", "-o", "f.s", "f.c"]
        compiler.run(flags, tmp_path, "two bounds")
        found.append(len(re.findall(r"\b(?:vcmp\w*|vmax|vmin)ps\b", (tmp_path / "f.s").read_text())))
    assert 0 < found[1] <= 2 * found[0]


def test_a_missing_declaration_is_an_error(tmp_path: Path) -> None:
    source = Source("guess.c", "int f(void);\nint f(void) { return guessed(1); }\n")
    with pytest.raises(ToolchainError, match="guessed"):
        compile_shared([source], tmp_path / "x.so")


def test_long_output_is_cut_in_the_middle() -> None:
    text = shorten("a" * 5000 + "b" * 5000, limit=100)
    assert text.startswith("a" * 50 + "\n")
    assert text.endswith("\n" + "b" * 50)
    assert "9900 characters left out" in text
    assert shorten("short") == "short"


def test_objects_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    source = Source("once.c", "int once(void);\nint once(void) { return 1; }\n")
    (first,) = compile_sources(compiler, HOST, [source])
    stamp = first.stat().st_mtime_ns
    (second,) = compile_sources(compiler, HOST, [source])
    assert (second, second.stat().st_mtime_ns) == (first, stamp)
    others = [
        Source("once.c", source.text + "\n"),
        Source("once.c", source.text, ("-DX",)),
        Source("other.c", source.text),
    ]
    assert len({first, *compile_sources(compiler, HOST, others)}) == 4
    monkeypatch.setattr("farcall.toolchain._build._header_key", lambda: "other headers")
    assert compile_sources(compiler, HOST, [source]) != [first]


def test_a_failed_compile_leaves_nothing_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path))  # other tests write to the common one meanwhile
    assert cache_folder().is_relative_to(tmp_path)
    with pytest.raises(ToolchainError):
        compile_sources(find_compiler(), HOST, [Source("no.c", "no\n")])
    assert not list(cache_folder().rglob(".new-*"))


def test_many_at_once_agree() -> None:
    key = cache_module.content_key(["many at once"])

    def build(number: int) -> bytes:
        return cache_module.cached(key, ".txt", lambda path: (path.write_text("same"), None)[1]).read_bytes()

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(build, range(64))) == {b"same"}


def test_keys_keep_parts_apart() -> None:
    key = cache_module.content_key
    assert key(["ab", "c"]) != key(["a", "bc"])
    assert key(["a"]) == key([b"a"])


def test_an_unwritable_cache_folder_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("FARCALL_CACHE_DIR", str(blocked / "cache"))
    folder = cache_folder()
    assert folder.is_dir()
    assert blocked not in folder.parents
    assert cache_folder() == folder  # one for the process


def test_xdg_folder_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FARCALL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "farcall"


def test_assembled_data_arrives(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(range(256)))
    text = '\t.section .rodata.t,"a",%progbits\n\t.globl data\ndata:\n\t.incbin "data.bin",16,4\n'
    compiler = find_compiler()
    data = assemble(compiler, HOST, text, tmp_path, "data")
    reader = Source(
        "reader.c",
        "extern const unsigned char data[];\n"
        '__attribute__((visibility("default"))) int at(int i);\nint at(int i) { return data[i]; }\n',
    )
    (object_,) = compile_sources(compiler, HOST, [reader])
    link_shared(compiler, HOST, [object_, data], tmp_path / "data.so")
    assert [ctypes.CDLL(str(tmp_path / "data.so")).at(i) for i in range(4)] == [16, 17, 18, 19]


def test_the_headers_are_found() -> None:
    assert (include_dir() / "farcall" / "c_api.h").is_file()


def test_the_room_imports_little() -> None:
    code = "import sys, farcall.toolchain; print({'numpy', 'onnx', 'farcall.abi'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no system compiler here")
def test_system_compiler_comes_before_ziglang() -> None:
    assert find_compiler().family in ("gcc", "clang")


def test_a_cpp_compiler_is_found_and_identified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    compiler = find_compiler(language="c++")
    assert compiler.command[-1].rsplit("/", 1)[-1] in ("c++", "g++", "clang++")
    before = compiler_identity("c++")
    assert before == compiler_identity("c++")
    own = tmp_path / "my-c++"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CXX", str(own))
    chosen = compiler_identity("c++")
    assert chosen != before
    own.write_text("#!/bin/sh\nexit 1\n")
    assert compiler_identity("c++") != chosen  # another file under the same name
    with pytest.raises(ToolchainError, match="environment variable CXX"):
        find_compiler(language="c++")


class TestObjectsOfAnInstallation:
    """What does not depend on a model is not compiled where the installation brings its object."""

    @pytest.fixture
    def counted(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
        """The jobs that the compiler gets; the cache is empty."""
        jobs: list[str] = []
        run = Compiler.run
        monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setattr(Compiler, "run", lambda *given: (jobs.append(given[3]), run(*given))[1])
        return jobs

    @pytest.fixture
    def installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Source:
        """A source whose object a second folder of the package has."""
        source = Source("fixed.c", "int fixed(void) { return 7; }", fixed=True)
        install_fixed(find_compiler(), Target(Target.host().triple), [source], tmp_path / "_objects")
        monkeypatch.setattr(farcall, "__path__", [*farcall.__path__, str(tmp_path)])
        return source

    @pytest.mark.parametrize("target", [Target.host(), Target(Target.host().triple)])
    def test_it_is_taken_for_every_level(self, installed: Source, counted: list[str], target: Target) -> None:
        (path,) = compile_sources(find_compiler(), target, [installed])
        assert path.parent.name == "_objects"
        assert counted == []

    @pytest.mark.parametrize("change", [{"text": "int fixed(void) { return 8; }"}, {"fixed": False}])
    def test_another_source_is_compiled(
        self, installed: Source, counted: list[str], change: dict[str, Any]
    ) -> None:
        compile_sources(find_compiler(), Target.host(), [replace(installed, **change)])
        assert counted == [f"compile fixed.c for {Target.host()}"]

    def test_it_is_not_taken_for_another_machine(self, installed: Source, counted: list[str]) -> None:
        pytest.importorskip("ziglang")
        target = Target("riscv64-linux-musl")
        compile_sources(find_compiler(target), target, [installed])
        assert counted == ["compile fixed.c for riscv64-linux-musl"]

    def test_a_compiler_with_flags_compiles_all(self, installed: Source, counted: list[str]) -> None:
        gcc = shutil.which("gcc") or pytest.skip("gcc is not installed")
        compile_sources(compiler_of((gcc, "-fsanitize=undefined")), Target.host(), [installed])
        assert counted == [f"compile fixed.c for {Target.host()}"]


@pytest.mark.parametrize("left", [b"", b"\x7fELF", None])
def test_a_damaged_file_of_the_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes | None
) -> None:
    monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path))
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_bytes(b"an object")

    place = cached("key", ".o", make)
    assert (cached("key", ".o", make), len(made)) == (place, 1)
    if left is None:
        place.unlink()
    else:
        place.write_bytes(left)  # as after a power cut
    assert cached("key", ".o", make).read_bytes() == b"an object"
    assert len(made) == 2
