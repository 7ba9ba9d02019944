"""Plans become artifacts: deterministic, for several targets, checked, saved atomically."""

from __future__ import annotations

import importlib.util
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import sympy

from farcall import ffi
from farcall.artifact import Artifact, Plan, inspect, load_module, partition
from farcall.artifact._constants import Constants, data_assembly
from farcall.artifact._entry import (
    control_source,
    late_source,
    main_source,
    regions_source,
)
from farcall.artifact._fixed import call_source, support_source
from farcall.backends.base import Kernels, RegionCode
from farcall.errors import (
    ArtifactError,
    BackendError,
    MissingExtraError,
    ModelError,
    ToolchainError,
    UsageError,
)
from farcall.graph import Region
from farcall.graph.dims import symbol
from farcall.library._elf import Elf
from farcall.library._loading import check_machine, examine
from farcall.toolchain import Source, Target, cache_folder, compile_sources, find_compiler

from .stub_backend import Stub, model, plan

needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")


def small(bias: float = 1, name: str = "small") -> Plan:
    shape = ["batch", 4]
    nodes = [("Neg", "x", "a"), ("Add", "a w", "b"), ("Abs", "b", "y")]
    return plan(model(nodes, {"x": shape}, {"y": shape}, {"w": np.array(bias, np.float32)}, name))


def names(folder: Path) -> list[str]:
    """The files of a folder, also those that `ls` does not show."""
    return sorted(path.name for path in folder.iterdir())


X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small().build().save(tmp_path / "a.so").read_bytes()
    monkeypatch.setenv("FARCALL_CACHE_DIR", str(tmp_path / "other cache"))
    assert small().build().save(tmp_path / "b.so").read_bytes() == first
    assert small(2).build().save(tmp_path / "c.so").read_bytes() != first


def test_save_load_call(tmp_path: Path) -> None:
    artifact = small().build()
    path = artifact.save(tmp_path / "m.so")
    assert artifact.size == path.stat().st_size
    assert names(tmp_path) == ["m.so"]
    main = load_module(path)["main"]
    assert str(main.signature) == "(x: float32[batch, 4]) -> float32[batch, 4]"
    np.testing.assert_array_equal(main(X), np.abs(1 - X))
    assert "main(x: float32[batch, 4])" in repr(artifact)


def test_a_large_artifact_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = small().build()
    first, second = (artifact.save(tmp_path / name) for name in ("1.so", "2.so"))
    assert first.stat().st_ino == artifact._path.stat().st_ino != second.stat().st_ino
    assert first.stat().st_mode & 0o777 == second.stat().st_mode & 0o777 == 0o755
    assert first.read_bytes() == second.read_bytes()
    artifact.load()  # from a file that nobody else can write to
    assert artifact._path.stat().st_nlink == first.stat().st_nlink == 1

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    other = small().build().save(tmp_path / "3.so")
    assert (other.stat().st_nlink, other.read_bytes()) == (1, first.read_bytes())


def test_an_artifact_whose_saved_file_was_written_to_says_so(tmp_path: Path) -> None:
    artifact = small().build()
    with artifact.save(tmp_path / "m.so").open("r+b") as file:
        file.truncate(100)
    for use in (artifact.load, artifact.read, lambda: artifact.save(tmp_path / "again.so")):
        with pytest.raises(ArtifactError, match="has been written to since; build it again"):
            use()


def test_a_limit_on_the_size_of_files_is_named() -> None:
    weights = np.ones(1 << 14, np.float32)
    shape = {"x": weights.shape}
    large = plan(model([("Add", "x w", "y")], shape, {"y": weights.shape}, {"w": weights}))
    large.build()  # now the compiler has nothing to write
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, hard))
    try:
        with pytest.raises(
            UsageError, match=r"cannot build .*: File too large; .*TMPDIR.*ulimit -f"
        ) as caught:
            large.build()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(caught.value.__cause__, OSError)


def test_no_place_for_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"cannot build 'small': No such file .*'(.*)none' \(TMPDIR\)"):
        small().build()


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    main = small().build().load()["main"]
    result = main(torch.from_numpy(X))
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, (1 - torch.from_numpy(X)).abs())
    assert torch.equal(main(torch.from_numpy(X.T.copy()).T), (1 - torch.from_numpy(X)).abs())
    with pytest.raises(
        TypeError, match=r"argument 1 `x` of `main`: expected float32\[batch, 4\], got float64"
    ):
        main(torch.zeros(2, 4, dtype=torch.float64))


def test_the_real_tvm_ffi_gives_torch_back(tmp_path: Path) -> None:
    torch, tvm_ffi = pytest.importorskip("torch"), pytest.importorskip("tvm_ffi")
    main = tvm_ffi.load_module(str(small().build().save(tmp_path / "m.so")))["main"]
    result = main(torch.from_numpy(X))
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, (1 - torch.from_numpy(X)).abs())


def test_a_model_that_was_built_again_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    for bias in (1, 5):
        small(bias).build().save(path)
        np.testing.assert_array_equal(load_module(path)["main"](X), np.abs(bias - X))


def test_what_was_checked_is_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = small(1).build().save(tmp_path / "m.so"), small(5).build()
    real = ffi.load_library

    def slow(name: str, shown: str) -> ffi.Module:
        other.save(path)  # somebody replaces the file after the check
        return real(name, shown)

    monkeypatch.setattr(ffi, "load_library", slow)
    np.testing.assert_array_equal(load_module(path)["main"](X), np.abs(1 - X))


def test_without_a_temporary_folder_artifacts_still_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small().build().save(tmp_path / "m.so")

    def full(prefix: str) -> str:
        raise OSError(28, "No space left on device", prefix)

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    np.testing.assert_array_equal(load_module(path)["main"](X), np.abs(1 - X))


def test_an_artifact_outlives_nothing_but_its_file() -> None:
    artifact = small().build()
    folder = artifact._path.parent
    main = artifact.load()["main"]
    del artifact
    assert not folder.exists()
    np.testing.assert_array_equal(main(X), np.abs(1 - X))


@pytest.mark.parametrize("where", ["missing/m.so", "file/m.so", "."])
def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    before = names(tmp_path)
    with pytest.raises(UsageError, match="cannot write"):
        small().build().save(tmp_path / where)
    assert names(tmp_path) == before


def test_saving_replaces_a_file_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    path.write_bytes(b"old")
    with path.open("rb") as old:
        small().build().save(path)
        assert old.read() == b"old"  # the old file still is what it was
    inspect(path)


@needs_zig
def test_cross_built_artifacts_are_refused_here(tmp_path: Path) -> None:
    target, machine = ("aarch64-linux-musl", "aarch64")
    if Target.host().arch == machine:
        target, machine = ("x86_64-linux-musl", "x86_64")
    path = small().build(target).save(tmp_path / "far.so")
    assert inspect(path).target.triple == target
    elf, _ = examine(path.read_bytes(), "far.so")
    assert elf.header.architecture == machine
    with pytest.raises(ArtifactError, match=rf"far\.so: built for {target}, this machine is "):
        load_module(path)


def test_a_compiler_that_ignores_the_target_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A gcc that is named by CC makes code for one machine only, and nothing in its flags says so."""
    script = tmp_path / "cc"
    script.write_text('#!/bin/sh\ntest "$1" = --version && exec echo "gcc 1.0"\nexec cc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    other = "s390x" if Target.host().arch != "s390x" else "x86_64"
    with pytest.raises(
        ToolchainError, match=f"makes code for {Target.host().arch}, not for {other}-linux-gnu"
    ):
        small().build(f"{other}-linux-gnu")


@needs_zig
def test_ziglang_builds_for_this_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc")
    np.testing.assert_array_equal(small().build().load()["main"](X), np.abs(1 - X))


def test_numbers_are_in_the_order_of_the_target() -> None:
    data = {"k": np.array([1, 2], np.int32)}
    for big, expected in ((False, "<i4"), (True, ">i4")):
        constants = Constants(big)
        constants.add_region("r", data)
        path = cache_folder() / "order.bin"
        constants.write(path)
        assert path.read_bytes() == np.array([1, 2], expected).tobytes()


def test_equal_constants_are_kept_once_and_all_are_aligned(tmp_path: Path) -> None:
    constants = Constants(False)
    a, b = np.arange(5, dtype=np.float32), np.arange(3, dtype=np.int8)
    constants.add_region("one", {"one_a": a, "one_b": b, "one_empty": np.zeros((0, 3), np.float32)})
    constants.add_region("two", {"two_a": a.copy().reshape(5, 1), "two_t": np.arange(4.0).reshape(2, 2).T})
    assert constants.totals() == (4, 20 + 3 + 0 + 32)
    constants.write(tmp_path / "c.bin")
    places = {name: (offset, size) for names, offset, size in constants.places() for name in names}
    assert places["one_a"] == places["two_a"]
    offset, size = places["two_t"]
    data = (tmp_path / "c.bin").read_bytes()[offset : offset + size]
    np.testing.assert_array_equal(np.frombuffer(data), [0, 2, 1, 3])  # row-major
    text = data_assembly(constants)
    for line, follows in zip(text.splitlines(), text.splitlines()[1:], strict=False):
        if line.startswith("\t.globl") and ".globl" not in follows:
            assert text[: text.index(line)].rstrip().splitlines()[-1].strip() in (".balign 64", "one_a:")


def test_a_linker_that_leaves_no_room_gets_the_constants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = np.arange(8, dtype=np.float32)
    shape = {"x": weights.shape}
    made = plan(model([("Add", "x w", "y")], shape, {"y": weights.shape}, {"w": weights}), Stub())
    one = made.build().save(tmp_path / "one.so")
    monkeypatch.setattr(Elf, "place_of", lambda elf, name: None)
    other = made.build().save(tmp_path / "other.so")
    for path in (one, other):
        assert path.read_bytes().count(weights.tobytes()) == 1
        np.testing.assert_array_equal(load_module(path)["main"](weights), 2 * weights)


def test_constants_that_are_equal_at_their_ends_are_two() -> None:
    long = np.zeros(5000, np.float32)
    other, same = long.copy(), long.copy()
    other[2500] = 1
    constants = Constants(False)
    constants.add_region("one", {"long": long, "other": other, "same": same})
    assert [names for names, _, _ in constants.places()] == [["long", "same"], ["other"]]


class Broken(Stub):
    """Whatever a backend can do wrong, one at a time."""

    def __init__(self, **changes: object) -> None:
        super().__init__()
        self._changes = changes

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        code = super().compile(region, target, options)
        values = {
            "sources": code.sources,
            "constants": code.constants,
            "workspace": code.workspace,
            "symbols": code.symbols,
            **{k: v(code) if callable(v) else v for k, v in self._changes.items()},
        }
        return RegionCode(**values)


def renamed(code: RegionCode) -> dict[str, str]:
    return {
        name: text.replace("FARCALL_KERNEL(stub_", "FARCALL_KERNEL(wrong_")
        for name, text in code.sources.items()
    }


def hidden(code: RegionCode) -> dict[str, str]:
    line = "#include <farcall/c_api.h>\n#undef FARCALL_VISIBLE\n#define FARCALL_VISIBLE\n"
    return {name: text.replace("#include <farcall/c_api.h>\n", line) for name, text in code.sources.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": renamed}, "region `stub_0` does not define `__tvm_ffi_stub_0`.*FARCALL_KERNEL"),
        ({"sources": lambda code: {"../x.c": ""}}, r"source file name '\.\./x\.c'"),
        ({"sources": lambda code: {"farcall_main.c": ""}}, "both have a source file 'farcall_main.c'"),
        ({"constants": {"no identifier": X}}, "constant 'no identifier' is not a C identifier"),
        ({"constants": {"w": [1]}}, "constant 'w': expected an array of numbers, got list"),
        ({"constants": {"w": np.array([X])[:0].astype(object)}}, "got array of object"),
        ({"constants": [X]}, "constants: expected names with arrays, got list"),
        ({"workspace": -5}, "workspace: expected a number of bytes, 0 or more, or a dim, got -5"),
        ({"workspace": sympy.Integer(-5)}, "workspace: expected .*, got -5"),
        ({"workspace": "64"}, "workspace: expected .*, got '64'"),
        ({"sources": {}}, r"expected sources .* or objects, got none"),
        ({"sources": {"stub_0.c": b"int x;"}}, "source file 'stub_0.c': expected C as text, got bytes"),
        ({"kernels": [3]}, r"kernels: expected a list of Kernels, got \[3\]"),
        ({"kernels": [Kernels("farcall_k", "", ["f"])]}, "kernels: expected C .* `farcall_`, got 'f'"),
        ({"kernels": [Kernels("../k", "", [])]}, r"kernels: expected C .* `farcall_`, got '\.\./k'"),
        ({"symbols": "n"}, "symbols: expected a list of texts, got 'n'"),
        ({"symbols": ["zz"]}, r"symbols: no dim in this region, .* is called `zz`; expected one of .*: none"),
        ({"workspace": 4 * sympy.Symbol("zz")}, "workspace: no dim in this region, .* is called `zz`"),
        ({"compile_flags": "-O2"}, "compile_flags: expected a list of texts, got '-O2'"),
        ({"link_flags": [3]}, r"link_flags: expected a list of texts, got \[3\]"),
    ],
)
def test_what_a_backend_does_wrong_is_named(changes: dict[str, object], message: str) -> None:
    proto = model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]})
    with pytest.raises(BackendError, match=message) as caught:
        plan(proto, Broken(**changes)).build()
    assert "stub" in str(caught.value)


def test_a_region_s_function_may_be_hidden() -> None:
    """The entry calls it inside the library. What is exported under its name is an entry of its own."""
    module = plan(model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]}), Broken(sources=hidden)).build().load()
    np.testing.assert_array_equal(module["main"](X[0]), -X[0])
    np.testing.assert_array_equal(module["stub_0"](X[0]), -X[0])


def test_a_flag_that_hides_a_region_is_named(tmp_path: Path) -> None:
    script = tmp_path / "exports"
    script.write_text("{ global: __tvm_ffi_main; __farcall_runtime; local: *; };")
    hiding = Broken(link_flags=[f"-Wl,--version-script={script}"])
    with pytest.raises(BackendError, match="does not export `__tvm_ffi_stub_0`; look at the link flags"):
        plan(model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]}), hiding).build()


class Raising(Stub):
    """A backend whose ``compile`` returns or raises the test's value."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        return self._act()  # type: ignore[return-value]


def test_an_error_in_a_backend_s_compile_has_its_name_the_region_and_the_nodes() -> None:
    proto = model([("Neg", "x", "a"), *((("Abs", "a", "y"),))], {"x": [4]}, {"y": [4]})
    where = r"backend `stub`, region `stub_0`"
    with pytest.raises(
        BackendError,
        match=rf"{where}, nodes `Neg_0` \(Neg\), `Abs_1` \(Abs\): its compile\(\) raised KeyError: 1",
    ) as caught:
        plan(proto, Raising(lambda: {}[1])).build()
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(BackendError, match=rf"{where}: expected a RegionCode .*, got NoneType"):
        plan(proto, Raising(lambda: None)).build()


def test_working_memory_that_is_negative_at_some_sizes_is_refused_there() -> None:
    n = symbol("n")
    made = plan(model([("Neg", "x", "y")], {"x": ["n"]}, {"y": ["n"]}), Broken(workspace=n * 8 - 16))
    main = made.build().load()["main"]
    np.testing.assert_array_equal(main(X[0]), -X[0])
    with pytest.raises(ValueError, match="`main`: a size would be negative with n=1"):
        main(X[0, :1])


def test_two_regions_cannot_have_constants_of_one_name() -> None:
    constants = Constants(False)
    constants.add_region("one", {"w": X})
    with pytest.raises(BackendError, match="regions `one` and `two` both have a constant `w`"):
        constants.add_region("two", {"w": X})


def test_symbols_that_a_region_asks_for_are_passed() -> None:
    """After inputs, outputs and (none here) working memory."""
    proto = model([("Neg", "x", "y")], {"unused": ["m", 2], "x": ["n"]}, {"y": ["n"]})

    def adds_symbols(code: RegionCode) -> dict[str, str]:
        new = "= args[2].v_int64 * 100 + args[3].v_int64 -"
        return {name: text.replace("= -", new) for name, text in code.sources.items()}

    backend = Broken(sources=adds_symbols, symbols=["n", "m"])
    main = plan(proto, backend).build().load()["main"]
    np.testing.assert_array_equal(main(np.zeros((7, 2), np.float32), X[0]), 407 - X[0])


def test_elements_that_dlpack_lacks_cannot_cross() -> None:
    proto = model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]})
    made = plan(proto)
    made.partition.model.graph.inputs[0].dtype = ir.DataType.UNDEFINED
    with pytest.raises(ModelError, match="`x` has dtype undefined, which cannot cross a border"):
        made.build()


def test_code_that_does_not_compile_names_its_file() -> None:
    proto = model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]})
    with pytest.raises(ToolchainError, match=r"compile stub_0\.c for .*"):
        plan(proto, Broken(sources=lambda code: {"stub_0.c": "nonsense"})).build()


def test_flags_of_a_backend_reach_the_compiler_and_the_linker() -> None:
    proto = model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]})

    def needs_flag(code: RegionCode) -> dict[str, str]:
        return {name: text.replace("= -", "= SIGN ") for name, text in code.sources.items()}

    broken = Broken(sources=needs_flag, compile_flags=["-DSIGN=-"], link_flags=["-Wl,-z,now"])
    main = plan(proto, broken).build().load()["main"]
    np.testing.assert_array_equal(main(X[0]), -X[0])


def compilers() -> list[str]:
    found = ["cc"]
    if importlib.util.find_spec("ziglang"):
        found.append(f"{sys.executable} -m ziglang cc")
    return found


@pytest.mark.parametrize("cc", compilers())
@pytest.mark.parametrize("inputs", [0, 1, 2])
def test_the_entry_compiles_without_warnings(monkeypatch: pytest.MonkeyPatch, cc: str, inputs: int) -> None:
    monkeypatch.setenv("CC", cc)
    w = {"w": np.ones((2, 3), np.float32)}
    shapes = [{}, {"x": [2, 3]}, {"x": ["n", 3], "y": ["n", 3]}][inputs]
    nodes = [[("Neg", "w", "z")], [("Neg", "x", "z")], [("Neg", "x", "a"), ("Add", "a y", "z")]][inputs]
    made = plan(model(nodes, shapes, {"z": ["n" if inputs == 2 else 2, 3]}, w), Stub("a", ["Neg"]), Stub("b"))
    codes = {r.name: made.backends[r.backend].compile(r, Target.host(), {}) for r in made.regions}
    texts = {"main": main_source(made.partition, codes, {}).text, "call": call_source()}
    texts["regions"] = regions_source(made.partition, codes)
    texts |= {"entry": support_source(), "late": late_source(), "control": control_source()}
    flags = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
    compile_sources(
        find_compiler(), Target.host(), [Source(f"{k}{inputs}.c", v, flags) for k, v in texts.items()]
    )


def test_little_is_exported(tmp_path: Path) -> None:
    path = small().build().save(tmp_path / "m.so")
    elf = Elf(path.read_bytes())
    exported = {symbol.name for symbol in elf.dynamic_symbols() if symbol.defined}
    ours = {"__farcall_runtime", "__farcall_start", "__farcall_unloads", "__farcall_constants"}
    assert exported == {"__tvm_ffi_main", "__tvm_ffi_stub_0", *ours}
    check_machine(elf.header, inspect(path), elf.what)


def test_partition_reads_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        partition(tmp_path / "none.onnx", backends=[Stub()])


def test_reading_models_needs_the_compile_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'farcall\[compile\]'"):
        partition("model.onnx")


def test_models_in_memory_have_a_hash_too() -> None:
    proto = model([("Neg", "x", "y")], {"x": [4]}, {"y": [4]}, name="of mine")
    first, second = partition(proto, [Stub()]), partition(ir.from_proto(proto), [Stub()])
    assert first.model == second.model
    assert first.model.name == "of mine"
    assert str(first) == str(first.partition)


def test_a_plan_saves_plain_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    small().save(tmp_path / "p.onnx")
    saved = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(saved, full_check=True)
    assert {function.domain for function in saved.functions} == {"stub"}
    assert "<svg" in small().svg()
    assert "stub_0: 3 nodes" in repr(small())


def test_one_class_holds_the_result() -> None:
    assert isinstance(small().build(), Artifact)
