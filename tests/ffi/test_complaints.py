"""A test for each complaint of TVM FFI's users. The numbers are those of its public issue threads.

Not here is what this machine has not: macOS on ARM (#697), Windows (#727), ROCm's streams (#466), other
builds of Python (#703), a free-threaded one (#528: its cause is tested), a launch that fails on a GPU
(tilelang #1929: what reaches us of it is tested). Speed (#285, flash-attention #2305) is `make bench`, and
memory errors of moved objects (#293) `make sanitize`. How others package kernels (HF kernels #355) is
docs/kernels.md.
"""

from __future__ import annotations

import gc
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import farcall
from farcall import cpp, ffi
from farcall.library._elf import Elf
from farcall.toolchain import find_compiler

from ..programs import output_of

Compile = Callable[..., Path]

KERNELS = r"""
using namespace farcall;
static Function kept;

Array<Any> make(TensorView like) {
  Tensor t = Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, like.sizes(), like.dtype(), like.device());
  Tensor own = Tensor::FromEnvAllocStrided(TVMFFIEnvTensorAlloc, {2, 2}, {1, 2}, like.dtype(), like.device());
  return {t, own, String("a text that is not small")};
}
int64_t scaled(int64_t x, int64_t factor = 10, Optional<Tensor> bias = {}) { return x * factor + !!bias; }
int64_t rank(ConstTensorView x) { return x.dim(); }
int64_t rank_or(Optional<TensorView> x, Array<Any> more) { return x ? x->dim() : int64_t(more.size()); }
size_t largest() { return SIZE_MAX; }
void negate(TensorView x) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] *= -1;
}
Tensor held(Tensor x) { return x; }
uint64_t as_unsigned(uint64_t x) { return x; }
uint8_t as_byte(uint8_t x) { return x; }
DLDataType type_of(DLDataType x) { return x; }
DLDevice device_of(DLDevice x) { return x; }
bool truth(bool x) { return x; }
int64_t address(void* stream) { return reinterpret_cast<int64_t>(stream); }
void keep(Function f) { kept = f; }
void fail(String kind) { throw Error(kind, "as told"); }
"""
NAMES = [
    "make",
    "scaled",
    "rank",
    "rank_or",
    "negate",
    "held",
    "largest",
    "as_unsigned",
    "as_byte",
    "type_of",
    "device_of",
    "truth",
    "address",
    "keep",
    "fail",
]
IN_C = r"""
#include <farcall/c_api.h>
#include <pthread.h>
FARCALL_KERNEL(silent) { return -1; }
FARCALL_KERNEL(take_index) {
  TVMFFIByteArray key = {args[0].v_c_str, __builtin_strlen(args[0].v_c_str)};
  int32_t index = TVMFFITypeGetOrAllocIndex(&key, (int32_t)args[1].v_int64, 1, 0, 1, 64);
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = index};
  return index < 0 ? -1 : 0;
}
FARCALL_KERNEL(name_of) {
  return TVMFFIStringFromByteArray(&TVMFFIGetTypeInfo((int32_t)args[0].v_int64)->type_key, result);
}
FARCALL_KERNEL(add_attribute) {
  TVMFFIByteArray name = {"__complaints_repr__", 19};
  return TVMFFITypeRegisterAttr(kTVMFFIShape, &name, &args[0]);
}
static void* drop(void* object) { TVMFFIObjectDecRef(object); return 0; }
FARCALL_KERNEL(drop_elsewhere) {
  pthread_t thread;
  TVMFFIObjectIncRef(args[0].v_obj);
  if (pthread_create(&thread, 0, drop, args[0].v_obj) != 0) return -1;
  *result = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_ptr = (void*)thread};
  return 0;
}
FARCALL_KERNEL(join) { return pthread_join((pthread_t)args[0].v_ptr, 0); }
"""


@pytest.fixture(scope="module")
def mod() -> ffi.Module:
    return cpp.load_inline("complaints", cpp_sources=KERNELS, functions=NAMES)


@pytest.fixture(scope="module")
def in_c(compile_kernels: Compile) -> ffi.Module:
    return ffi.load_library(compile_kernels("complaints", IN_C, "-pthread"))


def in_a_process(script: str, *args: str, **environment: str) -> str:
    """The output of a new interpreter, which must exit successfully."""
    return output_of("-W", "error", "-c", script, *args, env=os.environ | environment)


class TestLifetimes:
    def test_264_objects_outlive_their_module(self) -> None:
        source = KERNELS + "// a library of its own\n"
        module = cpp.load_inline("complaints_gone", cpp_sources=source, functions=["make"])
        made = [module.make(x) for x in (np.ones(3, "f4"), pytest.importorskip("torch").ones(3))]
        del module
        gc.collect()
        assert [tuple(tensors[0].shape) for tensors in made] == [(3,), (3,)]
        made[0][0][:] = 2
        del made
        gc.collect()

    def test_809_the_process_ends_with_everything_alive(self, mod: ffi.Module) -> None:
        script = (
            "import sys, farcall.ffi as ffi; m = ffi.load_library(sys.argv[1]); import numpy as np\n"
            "kept = m.make(np.ones(3)); m.keep(lambda x: x); f = ffi.Function(print)\n"
            "ffi.register_global_func('complaints.kept', lambda: kept); sys.kept = [m, f, ffi.system_lib()]\n"
            "print('done')"
        )
        assert in_a_process(script, mod.path) == "done\n"

    def test_528_a_callable_dies_in_a_thread_that_python_does_not_know(self, in_c: ffi.Module) -> None:
        class Callee:
            def __call__(self) -> None: ...

            def __del__(self) -> None:
                gone.set()

        gone = threading.Event()
        thread = in_c.drop_elsewhere(Callee())
        assert gone.wait(30)
        in_c.join(thread)


class TestOneAbi:
    @pytest.mark.parametrize("prefix", ["_ZTV", "_ZTI", "_ZN7farcall", "_ZN3tvm"])
    def test_307_592_20094_a_kernel_wants_nothing_of_cpp_from_the_runtime(
        self, mod: ffi.Module, prefix: str
    ) -> None:
        """Neither methods nor method tables: compiled-in code belongs to the kernel alone."""
        wanted = [s.name for s in Elf(Path(mod.path).read_bytes()).dynamic_symbols() if not s.defined]
        assert any(name.startswith("TVMFFI") for name in wanted)
        ours = [
            name for name in wanted if name.startswith(prefix) and "cxxabi" not in name and "St" not in name
        ]
        assert not ours

    def test_20094_another_version_is_refused_with_both_named(self, compile_kernels: Compile) -> None:
        source = "#include <farcall/c_api.h>\nFARCALL_VISIBLE extern const unsigned __farcall_abi_version;\n"
        path = compile_kernels("complaints_abi", source + "const unsigned __farcall_abi_version = 77;\n")
        with pytest.raises(ImportError, match="version 77 of the ABI, and this farcall has version"):
            farcall.load_module(path)

    def test_2045_what_is_registered_twice_ends_no_process(self, in_c: ffi.Module) -> None:
        in_c.add_attribute("one")
        with pytest.raises((ValueError, RuntimeError), match="__complaints_repr__"):
            in_c.add_attribute("another")

    def test_1913_a_type_index_that_is_taken_gives_another(self, in_c: ffi.Module) -> None:
        index = in_c.take_index("complaints.NDArray", 70)
        assert index >= 128
        assert (in_c.name_of(index), in_c.name_of(70)) == ("complaints.NDArray", "ffi.Tensor")

    def test_40107_an_unknown_type_index_has_a_description(self, in_c: ffi.Module) -> None:
        assert in_c.name_of(70) == "ffi.Tensor"
        assert in_c.name_of(123456) == "(unregistered type)"

    def test_344_no_library_is_linked_that_is_not_needed(self) -> None:
        import farcall._core

        listed = subprocess.run(["ldd", farcall._core.__file__], capture_output=True, text=True, check=True)
        needed = {line.split()[0].split("/")[-1].split(".")[0] for line in listed.stdout.splitlines()}
        assert needed <= {
            "linux-vdso",
            "libc",
            "libdl",
            "libpthread",
            "libm",
            "ld-linux-x86-64",
            "ld-linux-aarch64",
            # A thread that ends inside a callback is unwound through the core (native/python/gil.h). A static
            # copy of the unwinder would not fit the one that the C library loads.
            "libgcc_s",
        }


class Pair(NamedTuple):
    first: Any
    second: Any


class TestArguments:
    def test_3527_keywords_and_defaults(self, mod: ffi.Module) -> None:
        assert (mod.scaled(2), mod.scaled(2, factor=3), mod.scaled(bias=None, x=4)) == (20, 6, 40)
        with pytest.raises(TypeError, match="`y` that it does not have"):
            mod.scaled(1, y=2)

    def test_3527_named_tuples_and_none_among_tensors(self, mod: ffi.Module) -> None:
        x = np.ones((2, 3))
        assert mod.rank_or(None, Pair(x, None)) == 2
        assert mod.rank_or(x, [None, x, Pair(None, x)]) == 2

    @pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
    def test_180_float8(self, mod: ffi.Module, name: str) -> None:
        torch = pytest.importorskip("torch")
        tensor = torch.ones(3).to(getattr(torch, name))
        assert mod.rank(tensor) == mod.rank(np.ones(3, getattr(ml_dtypes, name))) == 1
        assert mod.type_of(getattr(torch, name)) == name
        assert mod.make(tensor)[0].dtype == tensor.dtype

    def test_426_a_dtype_without_counterpart_is_an_error(self, mod: ffi.Module) -> None:
        torch = pytest.importorskip("torch")
        with pytest.raises((TypeError, ValueError), match="quint4x2"):
            mod.type_of(torch.quint4x2)

    def test_357_integers_are_checked_both_ways(self, mod: ffi.Module) -> None:
        with pytest.raises(OverflowError):
            mod.largest()
        assert mod.as_byte(255) == 255
        for function, value in (
            (mod.as_byte, 256),
            (mod.as_byte, -1),
            (mod.as_unsigned, -1),
            (mod.scaled, 2**63),
        ):
            with pytest.raises(OverflowError):
                function(value)

    def test_2888_streams_of_torch_and_cuda(self, mod: ffi.Module) -> None:
        torchs = type("Stream", (), {"cuda_stream": 4096})()
        cudas = type("Stream", (), {"__cuda_stream__": lambda self: (0, 8192)})()
        assert (mod.address(torchs), mod.address(cudas), mod.address(None)) == (4096, 8192, 0)

    def test_torchs_device_and_numpys_bool(self, mod: ffi.Module) -> None:
        torch = pytest.importorskip("torch")
        assert mod.device_of(torch.device("cuda:1")) == ffi.Device("cuda:1")
        assert mod.truth(np.bool_(True)) is True

    def test_read_only_arrays_where_the_kernel_only_reads(self, mod: ffi.Module) -> None:
        x = np.broadcast_to(np.ones(3, "f4"), (2, 3))
        assert mod.rank(x) == 2
        with pytest.raises(ValueError, match="read-only"):
            mod.rank_or(x, [])

    def test_complex_dtypes_have_names(self, mod: ffi.Module) -> None:
        assert str(mod.type_of("complex64")) == "complex64"
        assert mod.rank(np.ones(2, "c8")) == 1


class TestFrameworks:
    def test_381_an_old_torch_lacks_names(self) -> None:
        script = (
            "import sys, types; old = sys.modules['torch'] = types.ModuleType('torch')\n"
            "import farcall.ffi as ffi, numpy as np\n"
            "print(ffi.from_dlpack(np.ones(3)).shape, ffi.dtype('uint16'), ffi.Device('cuda'))"
        )
        assert in_a_process(script) == "farcall.Shape([3]) uint16 cuda:0\n"

    def test_importing_brings_no_framework(self) -> None:
        script = "import sys, farcall.ffi; print({'numpy', 'torch', 'jax'} & set(sys.modules))"
        assert in_a_process(script) == "set()\n"

    def test_188_torch_compile_keeps_its_graph(self, mod: ffi.Module) -> None:
        torch = pytest.importorskip("torch")
        mod.as_torch_op("complaints", functions=["negate"])

        def twice(x: Any) -> Any:
            y = x + x
            torch.ops.complaints.negate(y)
            return y

        compiled = torch.compile(twice, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2, 3)), torch.full((2, 3), -2.0))

    def test_328_copies_between_devices(self) -> None:
        x = ffi.from_dlpack(np.arange(3.0))
        copy = x.to("cpu", copy=True)
        assert copy.data_ptr() != x.data_ptr()
        np.testing.assert_array_equal(copy.numpy(), x.numpy())
        with pytest.raises(BufferError):
            x.to("cuda")

    def test_330_the_frameworks_allocator_with_strides(self, mod: ffi.Module) -> None:
        torch = pytest.importorskip("torch")
        _, strided, _ = mod.make(torch.ones(3))
        assert (type(strided), strided.stride()) == (torch.Tensor, (1, 2))

    def test_18855_a_remote_function_gets_tensors_that_it_may_own(self, mod: ffi.Module) -> None:
        from farcall.rpc import Server

        with Server() as server, farcall.connect(server.url) as far:
            remote = far.load_module(mod.path)["held"]
            x = far.tensor(np.arange(6, dtype="f4").reshape(2, 3))
            np.testing.assert_array_equal(remote(x).numpy(), np.arange(6).reshape(2, 3))


class TestErrors:
    def test_1929_a_kernel_that_fails_silently_is_heard(self, in_c: ffi.Module) -> None:
        with pytest.raises(RuntimeError, match="`silent` returned -1 without setting an error"):
            in_c.silent()

    def test_a_kind_of_ones_own_keeps_its_name(self, mod: ffi.Module) -> None:
        with pytest.raises(RuntimeError, match="OutOfTiles: as told"):
            mod.fail("OutOfTiles")
        for kind in (NotImplementedError, OverflowError):
            with pytest.raises(kind, match="as told"):
                mod.fail(kind.__name__)

    @pytest.mark.parametrize("value", ["", "-1", "many", "9" * 40])
    def test_727_nonsense_in_the_environment_ends_no_process(self, mod: ffi.Module, value: str) -> None:
        script = (
            "import sys, farcall.ffi as ffi\n"
            "try: ffi.load_library(sys.argv[1]).fail('ValueError')\nexcept ValueError as e: print(e)"
        )
        assert (
            in_a_process(script, mod.path, FARCALL_BACKTRACE=value, TVM_TRACEBACK_LIMIT=value) == "as told\n"
        )

    def test_signals_keep_their_handlers(self) -> None:
        script = (
            "import faulthandler, signal; faulthandler.enable()\n"
            "line = [l for l in open('/proc/self/status') if l.startswith('SigCgt')]\n"
            "import farcall.ffi\n"
            "print(line == [l for l in open('/proc/self/status') if l.startswith('SigCgt')])"
        )
        assert in_a_process(script) == "True\n"


class TestBuilding:
    SOURCE = "int64_t one() { return 1; }"

    def build(self, folder: Path | str, source: str = SOURCE) -> str:
        return cpp.build_inline("small", cpp_sources=source, functions=["one"], build_directory=folder)

    def test_641_what_a_dead_build_left_behind_holds_up_nobody(self, tmp_path: Path) -> None:
        (tmp_path / ".build-dead").mkdir()
        for name in ("lock", ".lock", "build.lock", "small.lock"):
            (tmp_path / name).touch()
        assert ffi.load_library(self.build(tmp_path)).one() == 1

    def test_667_nothing_is_ever_written_in_place(self, tmp_path: Path) -> None:
        """A process that has the library open keeps it on any file system: a later build has another name."""
        first = Path(self.build(tmp_path))
        before = first.stat()
        second = Path(self.build(tmp_path, "int64_t one() { return 2; }"))
        again = Path(self.build(tmp_path))
        assert second != first
        assert again == first
        assert (first.stat().st_ino, first.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert not list(tmp_path.glob(".build-*"))

    def test_26545_a_relative_folder_is_where_it_was_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        path = self.build("cache")
        monkeypatch.chdir("/")
        assert ffi.load_library(path).one() == 1
        assert Path(path).parent == tmp_path / "cache"

    def test_195_a_path_that_cannot_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "closed").mkdir(mode=0)
        nowhere = [str(tmp_path / name) for name in ("file", "file/below", "closed", "none")]
        monkeypatch.setenv("PATH", os.pathsep.join([*nowhere, os.environ["PATH"]]))
        assert find_compiler().command
