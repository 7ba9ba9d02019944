"""What a backend may give besides C: objects, state, modules with a loader; options; finish()."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import farcall as fc
from farcall.artifact import inspect
from farcall.backends.base import Backend, Code, Kernels, RegionCode, RegionModule, run_tool
from farcall.errors import ArtifactError, BackendError, UsageError
from farcall.graph import Region
from farcall.library._archive import archive
from farcall.library._blob import Blob
from farcall.testing import NullDevice
from farcall.toolchain import Source, Target, compile_sources, find_compiler

from .stub_backend import Stub, model, plan

MainOf = Callable[[Any], Callable[..., Any]]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
SHAPE = {"x": ["batch", 3]}
LEVEL = f"{Target.host().cpu}." if Target.host().cpu else ""  # before the name of a file of kernels
Options = Mapping[str, Any]


def chain(*ops: str) -> Any:
    """A model in which each operator reads the result of the one before."""
    names = ["x", *(f"v{i}" for i in range(len(ops) - 1)), "y"]
    nodes = [(op, names[i], names[i + 1]) for i, op in enumerate(ops)]
    return model(nodes, SHAPE, {"y": ["batch", 3]})


STATEFUL = """#include <stdlib.h>
#include <farcall/c_api.h>
extern const unsigned char {name}_w[];
FARCALL_KERNEL({name}_init) {{
  float* packed = malloc(2 * sizeof *packed);
  packed[0] = ((const float*)(const void*){name}_w)[0] * 10;
  packed[1] = 0;
  *result = (TVMFFIAny){{.type_index = kTVMFFIOpaquePtr, .v_ptr = packed}};
  return packed ? 0 : -1;
}}
FARCALL_KERNEL({name}_destroy) {{
  free(self);
  return 0;
}}
FARCALL_KERNEL({name}) {{
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  const float *packed = self, *from = x->data;
  float* to = y->data;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; ++i) to[i] = from[i] * packed[0];
  return 0;
}}
"""


class Stateful(Stub):
    """Neg becomes a product with a weight that is packed once, when the artifact is loaded."""

    def __init__(self) -> None:
        super().__init__("packer", ["Neg"])

    def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
        weights = {f"{region.name}_w": np.float32([-0.1])}
        return RegionCode({f"{region.name}.c": STATEFUL.format(name=region.name)}, weights, state=True)


def test_a_region_keeps_what_it_made_at_load(main_of: MainOf) -> None:
    artifact = plan(chain("Neg", "Abs", "Neg"), Stateful(), Stub("cpu", ["Abs"])).build()
    main = main_of(artifact)
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda _: main(X), range(32)):
            np.testing.assert_allclose(y, -X, rtol=1e-6)


def test_a_region_with_state_is_called_alone() -> None:
    module = plan(chain("Neg"), Stateful()).build().load()
    np.testing.assert_allclose(module["packer_0"](X), -X, rtol=1e-6)


class Failing(Stateful):
    def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
        text = STATEFUL.format(name=region.name).replace(
            "float* packed = malloc(2 * sizeof *packed);",
            '__farcall_runtime->error_set_raised_from_cstr("RuntimeError", "it is asleep");\n'
            "  return -1;\n  float* packed = NULL;",
        )
        head = "extern FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;\n"
        text = text.replace("FARCALL_KERNEL", head + "FARCALL_KERNEL", 1)
        weights = {f"{region.name}_w": np.float32([-0.1])}
        return RegionCode({f"{region.name}.c": text}, weights, state=True)


def test_a_state_that_cannot_be_made_fails_the_load_and_names_the_region() -> None:
    artifact = plan(chain("Neg"), Failing()).build()
    with pytest.raises(
        ArtifactError, match=r"RuntimeError: region `packer_0` of backend `packer`: it is asleep; see"
    ):
        artifact.load()


def test_the_functions_of_state_are_checked_when_built() -> None:
    class Forgetful(Stateful):
        def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
            code = super().compile(region, target, options)
            text = code.sources[f"{region.name}.c"].replace(f"{region.name}_destroy", "gone")
            return RegionCode({f"{region.name}.c": text}, code.constants, state=True)

    with pytest.raises(BackendError, match=r"`packer_0` does not define `__tvm_ffi_packer_0_destroy`"):
        plan(chain("Neg"), Forgetful()).build()


HELPER = "float helper(float x);\nfloat helper(float x) { return x < 0 ? -x : x; }\n"
KERNEL = """#include <farcall/c_api.h>
float helper(float x);
FARCALL_KERNEL({name}) {{
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; ++i) ((float*)y->data)[i] = helper(((float*)x->data)[i]);
  return 0;
}}
"""


class Objects(Stub):
    """A vendor's compiler: it gives an object, and a library of helpers."""

    def __init__(self) -> None:
        super().__init__("vendor", ["Abs"])

    def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
        compiler = find_compiler(target)
        texts = [
            Source(f"{region.name}.c", KERNEL.format(name=region.name)),
            Source("helper.c", HELPER),
        ]
        kernel, helper = (path.read_bytes() for path in compile_sources(compiler, target, texts))
        library = {} if region.name != "vendor_0" else {"libhelper.a": archive([helper])[0]}
        return RegionCode(objects={f"{region.name}.o": kernel, **library})


def test_objects_and_static_libraries_are_linked(main_of: MainOf) -> None:
    artifact = plan(chain("Abs", "Neg", "Abs"), Objects(), Stub("cpu", ["Neg"])).build()
    np.testing.assert_array_equal(main_of(artifact)(-X), X)


def test_an_object_for_another_machine_is_refused_by_name() -> None:
    class Wrong(Objects):
        def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
            made = bytearray(super().compile(region, target, options).objects[f"{region.name}.o"])
            made[18:20] = (183).to_bytes(2, "little")  # AArch64
            return RegionCode(objects={f"{region.name}.o": bytes(made)})

    with pytest.raises(BackendError, match=r"region `vendor_0`: vendor_0.o: an object for aarch64"):
        plan(chain("Abs"), Wrong()).build(target="x86_64-linux-gnu")
    with pytest.raises(BackendError, match=r"region `vendor_0`: vendor_0.o: .*expected an object file"):
        broken = Objects()
        broken.compile = lambda region, target, options: RegionCode(objects={"vendor_0.o": b"junk"})  # type: ignore[method-assign]
        plan(chain("Abs"), broken).build()


# ---- modules ----


class Scale(Stub):
    """A module kind of Python: each region multiplies by its constant, or by the number in the data."""

    def __init__(self, factor: float | None = None, name: str = "toy") -> None:
        super().__init__(name, ["Neg"])
        self._factor = factor

    def compile(self, region: Region, target: Target, options: Options) -> Code:
        if self._factor is not None:
            return RegionModule("toy", 1, str(self._factor).encode(), function="scale")
        return RegionModule("toy", 1, region.name.encode(), {"w": np.float32([[-1.0, -1.0, -1.0]])})


def toy_loader(
    new_module: Callable[..., Any], array: Callable[[Any], np.ndarray[Any, Any]]
) -> Callable[..., Any]:
    """The loader of kind ``toy`` for a runtime."""
    loads = itertools.count()

    def load(data: bytes) -> Any:
        text = Blob.parse(bytes(data)).data.decode()
        next(loads)
        if text[:1] in "-0123456789":
            return new_module({"scale": lambda x, y: scale(x, y, float(text))})
        weights: list[np.ndarray[Any, Any]] = []

        def init(constants: Any) -> None:
            weights.extend(array(one) for one in constants)

        return new_module({text: lambda x, y: scale(x, y, weights[0]), f"__init_{text}": init})

    def scale(x: Any, y: Any, by: Any) -> None:
        np.multiply(array(x), by, out=array(y))

    return load


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    """Registers the kind ``toy``."""
    load = toy_loader(lambda functions: fc.ffi.new_module("toy", functions), np.from_dlpack)
    fc.register_loader("toy", load, override=True)
    yield
    fc.remove_global_func("ffi.Module.load_from_bytes.toy")


def test_a_module_computes_its_regions_with_their_constants() -> None:
    artifact = plan(chain("Neg", "Abs", "Neg"), Scale(), Stub("cpu", ["Abs"])).build()
    module = artifact.load()
    for _ in range(2):
        np.testing.assert_array_equal(module["main"](X), -X)
    np.testing.assert_array_equal(module["toy_0"](X), -X)
    assert [one.kind for one in module.imports] == ["toy", "toy"]


def test_equal_blobs_are_one_module() -> None:
    artifact = plan(chain("Neg", "Abs", "Neg"), Scale(-2), Stub("cpu", ["Abs"])).build()
    module = artifact.load()
    assert [one.kind for one in module.imports] == ["toy"]
    np.testing.assert_array_equal(module["main"](X), -4 * X)
    (info,) = artifact.manifest.modules
    assert (info.kind, info.version, info.regions) == ("toy", 1, ("toy_0", "toy_1"))


def test_constants_of_modules_are_views_of_the_file_aligned_and_stored_once() -> None:
    seen: list[Any] = []

    def load(data: bytes) -> Any:
        name = Blob.parse(bytes(data)).data.decode()

        def init(constants: Any) -> None:
            seen.extend(np.from_dlpack(one) for one in constants)

        return fc.ffi.new_module("toy", {name: lambda x, y: None, f"__init_{name}": init})

    fc.register_loader("toy", load, override=True)
    artifact = plan(chain("Neg", "Abs", "Neg"), Scale(), Stub("cpu", ["Abs"])).build()
    artifact.load()
    first, second = seen
    assert first.ctypes.data == second.ctypes.data
    assert first.ctypes.data % 64 == 0
    assert (first.shape, first.dtype) == ((1, 3), np.float32)
    assert artifact.manifest.constants.count == 1


def test_a_module_without_the_function_that_was_promised() -> None:
    fc.register_loader("toy", lambda data: fc.ffi.new_module("toy", {"other": abs}), override=True)
    artifact = plan(chain("Neg"), Scale(-1)).build()
    with pytest.raises(
        ArtifactError,
        match=r"\.so: region `toy_0` of backend `toy`: its module of kind `toy` has no function `scale`",
    ):
        artifact.load()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "int4", "uint4", "float4_e2m1fn", "complex128"])
def test_a_module_gets_constants_of_any_dtype(dtype: str) -> None:
    want = np.array([[1, 2, 3], [0, 1, 2]]).astype(fc.ffi.dtype(dtype).dtype)
    got: list[Any] = []

    class Narrow(Scale):
        def compile(self, region: Region, target: Target, options: Options) -> Code:
            return RegionModule("toy", 1, b"", {"w": want}, function="f")

    def load(data: bytes) -> Any:
        init = lambda constants: got.extend(one.numpy() for one in constants)  # noqa: E731
        return fc.ffi.new_module("toy", {"f": lambda x, y: None, "__init_f": init})

    fc.register_loader("toy", load, override=True)
    plan(chain("Neg"), Narrow()).build().load()
    (array,) = got
    np.testing.assert_array_equal(array.astype(np.complex128), want.astype(np.complex128))


class Weighted(Scale):
    """A module with a constant."""

    def compile(self, region: Region, target: Target, options: Options) -> Code:
        return RegionModule("toy", 1, b"", {"w": np.ones(2, np.float64)}, function="f")


@pytest.mark.parametrize("fault", ["loader", "no module", "constants"])
def test_what_raises_at_load_is_named_and_a_load_after_it_works(fault: str) -> None:
    faults = {fault}

    def init(constants: Any) -> None:
        if "constants" in faults and str(constants[0].dtype) != "float32":
            raise TypeError(f"expected float32, got {constants[0].dtype}")

    def load(data: bytes) -> Any:
        if "loader" in faults:
            raise ValueError("the microcode is too new")
        return (
            fc.ffi.new_module("toy", {"f": lambda x, y: None, "__init_f": init})
            if "no module" not in faults
            else 3
        )

    fc.register_loader("toy", load, override=True)
    artifact = plan(chain("Neg"), Weighted(-1)).build()
    said = {
        "loader": "the loader `ffi.Module.load_from_bytes.toy`: ValueError: the microcode is too new",
        "no module": "TypeError: the loader `ffi.Module.load_from_bytes.toy` returned a `int`, not a module",
        "constants": "region `toy_0` of backend `toy`: TypeError: expected float32, got float64",
    }
    for _ in range(2):
        with pytest.raises(ArtifactError) as caught:
            artifact.load()
        assert f"{said[fault]} (a module of kind `toy` computes the regions toy_0); install" in str(
            caught.value
        )
        assert fault == "no module" or caught.value.__cause__ is not None
    faults.clear()
    artifact.load()["main"](X)


def test_a_kind_that_nobody_loads() -> None:
    fc.remove_global_func("ffi.Module.load_from_bytes.toy")
    artifact = plan(chain("Neg"), Scale(-1)).build()
    try:
        with pytest.raises(Exception, match=r"no loader .*`toy`"):
            artifact.load()
    finally:
        fc.register_loader("toy", abs)


TVM = """
import sys
import numpy as np
import tvm_ffi
from farcall.library._blob import Blob
from farcall.testing import NullDevice

def load(data):
    factor = float(Blob.parse(bytes(data)).data)
    print("loaded", factor)
    raise RuntimeError("stop here")

tvm_ffi.register_global_func("ffi.Module.load_from_bytes.toy", load)
try:
    tvm_ffi.load_module(sys.argv[1])
except RuntimeError as error:
    print(error)
"""


def test_the_loader_of_tvm_ffi_reads_the_modules(tmp_path: Path) -> None:
    pytest.importorskip("tvm_ffi")
    path = plan(chain("Neg"), Scale(-3)).build().save(tmp_path / "m.so")
    done = subprocess.run(
        [sys.executable, "-c", TVM, path], capture_output=True, text=True, check=False, timeout=120
    )
    assert "loaded -3.0" in done.stdout, done.stderr
    assert "stop here" in done.stdout


def test_modules_do_not_fit_into_a_static_library() -> None:
    with pytest.raises(BackendError, match="is a module of kind `toy`, which a static library cannot load"):
        plan(chain("Neg"), Scale(-1)).build(link="static")


# ---- tools ----


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("sleep 600 & sleep 600", "raised TimeoutError: the tool `sh -c .*` has not ended after 0.2 s"),
        (
            "echo no tiles left >&2; exit 3",
            "raised RuntimeError: the tool .* failed with status 3:\nno tiles left",
        ),
        (None, "raised RuntimeError: the tool `no-such-npucc` cannot be started: No such file"),
    ],
)
def test_a_tool_that_hangs_or_fails_is_told_with_the_region(script: str | None, message: str) -> None:
    class Tooled(Scale):
        def compile(self, region: Region, target: Target, options: Options) -> Code:
            command = ["sh", "-c", script] if script else ["no-such-npucc"]
            return RegionModule("toy", 1, run_tool(command, seconds=0.2 if "sleep" in command[-1] else 60))

    with pytest.raises(BackendError, match=rf"backend `toy`, region `toy_0`, .*: its compile\(\) {message}"):
        plan(chain("Neg"), Tooled()).build()
    assert run_tool(["echo", "-1"]) == b"-1\n"


# ---- the last word, the short form, options ----


class Merging(Scale):
    """Compiles nothing by itself: one blob for all regions."""

    def finish(
        self, regions: Sequence[Region], codes: Sequence[Code], target: Target, options: Options
    ) -> Sequence[Code]:
        return [RegionModule("toy", 1, b"-1", function="scale") for _ in regions]


def test_a_missing_loader_is_told_with_the_regions(tmp_path: Path) -> None:
    path = plan(chain("Neg", "Abs", "Neg"), Scale(-1.0), Stub("cpu", ["Abs"])).build().save(tmp_path / "m.so")
    fc.remove_global_func("ffi.Module.load_from_bytes.toy")
    with pytest.raises(
        fc.errors.ArtifactError, match=r"m\.so: no loader for modules of kind `toy`"
    ) as caught:
        fc.load_module(path)
    assert str(caught.value).endswith("(it computes the regions toy_0, toy_1)")
    fc.register_loader(
        "toy", toy_loader(lambda functions: fc.ffi.new_module("toy", functions), np.from_dlpack)
    )


def test_finish_replaces_the_codes_of_all_regions() -> None:
    artifact = plan(chain("Neg", "Abs", "Neg"), Merging(), Stub("cpu", ["Abs"])).build()
    assert len(artifact.manifest.modules) == 1
    np.testing.assert_array_equal(artifact.load()["main"](X), -X)


@pytest.mark.parametrize("found", [None, [], [1, 2]])
def test_what_finish_gives_is_checked(found: object) -> None:
    backend = Scale()
    backend.finish = lambda *_: found  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(BackendError, match=r"backend `toy`: its finish\(\) gave"):
        plan(chain("Neg"), backend).build()


class Short(Backend):
    """The short form of compile takes only the region."""

    name = "short"
    options = {"times": 1, "note": "", "scale": 0.5, "fast": False}  # noqa: RUF012

    def check(self, node: ir.Node) -> str | None:
        return None

    def compile(self, region: Region) -> RegionCode:  # type: ignore[override]
        body = "y[i] = -x[i];" * self.options["times"]
        text = KERNEL.format(name=region.name).replace("float helper(float x);\n", "")
        text = text.replace("((float*)y->data)[i] = helper(((float*)x->data)[i]);", f"{{ {body} }}")
        text = text.replace("  for (", "  float *yd = y->data, *xd = x->data;\n  for (")
        text = text.replace("y[i] = -x[i]", "yd[i] = -xd[i]")
        return RegionCode({f"{region.name}.c": text})


def test_the_short_form_of_compile() -> None:
    np.testing.assert_array_equal(plan(chain("Neg"), Short()).build().load()["main"](X), -X)


def test_options_come_with_their_defaults() -> None:
    given: list[Options] = []

    class Listening(Scale):
        options = {"level": 1, "mode": None}  # noqa: RUF012

        def compile(self, region: Region, target: Target, options: Options) -> Code:
            given.append(options)
            assert target.arch
            return super().compile(region, target, options)

    chosen = fc.backend(Listening(-1), level=2)
    plan(chain("Neg"), chosen).build()
    assert given == [{"level": 2, "mode": None}]
    assert Listening.options["level"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": 2}, "has no option `time`; it has `times`, .*; did you mean `times`?"),
        ({"times": "2"}, "option `times`: expected int, got '2'"),
        ({"note": 3}, "option `note`: expected str, got 3"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fc.backend(Short(), **options)
    with pytest.raises(UsageError, match="it has no options"):
        fc.backend("json", level=2)
    listed = Short()
    listed.options = ["times"]  # type: ignore[assignment]
    with pytest.raises(BackendError, match=r"Short.options is \['times'\]; expected names with defaults"):
        fc.partition(chain("Neg"), [listed])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "a b", "kind: expected letters, digits, _ and ., got 'a b'"),
        ("version", 2**32, "version: expected a number from 0 to"),
        ("data", "text", "data: expected bytes, got str"),
        ("source", 3, "source: expected a text, got int"),
        ("features", ["x y"], "feature 'x y': expected 1 to 64 letters, digits"),
    ],
)
def test_the_fields_of_a_module_are_checked(field: str, value: object, message: str) -> None:
    class Odd(Scale):
        def compile(self, region: Region, target: Target, options: Options) -> Code:
            return replace(RegionModule("toy", 1, b""), **{field: value})

    with pytest.raises(BackendError, match=f"backend `toy`, region `toy_0`: .*{message}"):
        plan(chain("Neg"), Odd()).build()


def test_modules_are_in_the_manifest_of_the_file(tmp_path: Path) -> None:
    path = plan(chain("Neg"), Scale(-1)).build().save(tmp_path / "m.so")
    assert [one.kind for one in inspect(path).modules] == ["toy"]


# ---- outputs whose shapes are known only when the region has run ----

NONZERO = """#include <farcall/c_api.h>
extern FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;
FARCALL_KERNEL({name}) {{
  const DLTensor* x = args[0].v_ptr;
  const float* from = x->data;
  int64_t shape[2] = {{2, 0}}, strides[2], at = 0;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; ++i) shape[1] += from[i] != 0;
  strides[0] = shape[1], strides[1] = 1;
  DLTensor like = {{NULL, {{kDLCPU, 0}}, 2, {{kDLInt, 64, 1}}, shape, strides, 0}};
  TVMFFIObjectHandle made = NULL;
  if (__farcall_runtime->env_tensor_alloc(&like, &made) != 0) return -1;
  int64_t* to = TVMFFITensorGetDLTensorPtr(made)->data;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; ++i) {{
    if (from[i] == 0) continue;
    to[at] = i / x->shape[1];
    to[shape[1] + at++] = i % x->shape[1];
  }}
  *result = (TVMFFIAny){{.type_index = kTVMFFITensor, .v_obj = made}};
  return 0;
}}
"""


class Finder(Stub):
    """Takes NonZero, whose result has as many columns as there are elements that are not 0."""

    allocates = True

    def __init__(self, text: str = NONZERO) -> None:
        super().__init__("finder", ["NonZero"])
        self._text = text

    def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
        return RegionCode({f"{region.name}.c": self._text.format(name=region.name)})


def nonzero_model() -> Any:
    from onnx import parser

    return parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]>'
        "g (float[n, 3] x) => (float[n, 3] a, int64[2, k] i, int64[k, 2] t, float[k, 2] f)"
        "{ a = Abs(x) i = NonZero(a) t = Transpose(i) f = Cast <to = 1> (t) }"
    )


def test_a_region_tells_the_shape_of_its_outputs() -> None:
    artifact = fc.partition(nonzero_model(), backends=[Finder(), "c"]).build()
    module = artifact.load()
    x = np.float32([[0, -1, 2], [0, 0, 3]])
    for data in (x, np.zeros((2, 3), np.float32), np.ones((5, 3), np.float32), x):
        a, i, t, f = module["main"](data)
        expected = np.array(np.nonzero(data))
        np.testing.assert_array_equal(a, np.abs(data))
        np.testing.assert_array_equal(i, expected)
        np.testing.assert_array_equal(t, expected.T)
        np.testing.assert_array_equal(f, expected.T.astype(np.float32))
    np.testing.assert_array_equal(module["finder_0"](x), np.nonzero(x))
    assert "int64[2, i_dim1]" in str(artifact.manifest.functions["main"].signature)


def test_without_such_a_backend_the_error_names_the_cure() -> None:
    with pytest.raises(fc.errors.UnsupportedOperatorError, match="a backend that allocates such outputs"):
        fc.partition(nonzero_model(), backends=[Stub("npu", ["Abs", "NonZero", "Transpose", "Cast"])])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{kDLInt, 64, 1}", "{kDLFloat, 64, 1}", r"returns int64\[2, i_dim1\], got float64\[2, 3\]"),
        ("*result = (TVMFFIAny)", "if (at < 0) *result = (TVMFFIAny)", r"returns .*, got None"),
        ("shape[2] = {{2, 0}}", "shape[2] = {{3, 0}}", r"returns .*, got int64\[3, 3\]"),
    ],
)
def test_what_a_region_allocates_is_checked(old: str, new: str, message: str) -> None:
    text = NONZERO.replace(
        old.replace("{k", "{{k").replace("1}", "1}}") if old[0] == "{" else old,
        new.replace("{k", "{{k").replace("1}", "1}}") if new[0] == "{" else new,
    )
    assert text != NONZERO
    module = fc.partition(nonzero_model(), backends=[Finder(text), "c"]).build().load()
    with pytest.raises(TypeError, match=f"region `finder_0` of backend `finder`: .*{message}"):
        module["main"](np.float32([[0, -1, 2], [0, 0, 3]]))


# ---- many regions ----


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sources that the compiler gets from now on."""
    from farcall.artifact import _sources

    names: list[str] = []

    def compile_and_count(compiler: Any, target: Any, sources: Any, progress: Any = None) -> Any:
        names.extend(source.name for source in sources)
        return compile_sources(compiler, target, sources, progress)

    monkeypatch.setattr(_sources, "compile_sources", compile_and_count)
    return names


def layers(count: int) -> Any:
    """Layers that differ in their weights alone, between which another backend computes."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for k in range(count):
        weights += [
            rng.normal(size=(8, 8), scale=0.3).astype(np.float32),
            rng.normal(size=8).astype(np.float32),
        ]
        nodes += [
            helper.make_node("Gemm", [last, f"w{k}", f"b{k}"], [f"g{k}"]),
            helper.make_node("Neg", [f"g{k}"], [f"n{k}"]),
        ]
        last = f"n{k}"
    names = [f"{kind}{k}" for k in range(count) for kind in "wb"]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, names, strict=True)],
    )
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10), weights


def test_regions_that_differ_in_their_weights_share_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    proto, weights = layers(100)
    names = counted(monkeypatch)
    module = fc.partition(proto, backends=[Stub("npu", ["Neg"]), "c"]).build().load()
    kernels = ["farcall_gemm_float.c", "farcall_panels_float.c"]
    own = ["farcall_call.c", "farcall_entry.c", "farcall_main.c", "farcall_regions.c"]
    assert sorted(name.removeprefix(LEVEL) for name in names) == sorted(["c_0.c", *own, *kernels, "npu_0.c"])
    x = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    expected = x
    for w, b in zip(weights[::2], weights[1::2], strict=True):
        expected = -(expected @ w + b)
    np.testing.assert_allclose(module["main"](x), expected, rtol=1e-3)


def test_small_regions_are_compiled_as_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    names = counted(monkeypatch)
    ops = ["Neg", "Exp", "Neg", "Sin", "Neg", "Tanh", "Neg"]
    module = plan_of(chain(*ops)).build().load()
    assert len([name for name in names if name.startswith("c_")]) == 1
    np.testing.assert_allclose(module["main"](X), -np.tanh(-np.sin(-np.exp(-X))), rtol=1e-5)


def plan_of(proto: Any) -> Any:
    return fc.partition(proto, backends=[Stub("npu", ["Neg"]), "c"])


class Clashing(Stub):
    """Each region defines `twice` in its own way, though it says that others may have the text, too."""

    def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
        factor = region.name.removeprefix("clash_")
        text = KERNEL.replace("float helper(float x);\n", "").replace("helper(", "twice(")
        return RegionCode(
            {f"{region.name}.c": text.format(name=region.name) + f"/* {factor} */"},
            preamble=[f"static float twice(float x) {{ return x + x + {factor}; }}"],
        )


def test_definitions_that_contradict_each_other_are_compiled_apart() -> None:
    artifact = plan(chain("Abs", "Neg", "Abs"), Clashing("clash", ["Abs"]), Stub("cpu", ["Neg"])).build()
    np.testing.assert_array_equal(artifact.load()["main"](X), 2 * -(2 * X) + 1)


class WithKernels(Stub):
    """Regions call a function of a file that does not depend on the model, or of two by one name."""

    def __init__(self, *, clash: bool = False) -> None:
        super().__init__("shared", ["Abs"])
        self._clash = clash

    def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
        more = f"/* {region.name} */" if self._clash else ""
        text = f"float farcall_helper(float x) {{ return x * TWO; }}{more}"
        declared = '__attribute__((visibility("hidden"))) float farcall_helper(float x);\n'
        own = KERNEL.replace("float helper(float x);\n", declared).replace(" helper(", " farcall_helper(")
        return RegionCode(
            {f"{region.name}.c": own.format(name=region.name) + f"/* {region.name[-1]} */"},
            kernels=[Kernels("farcall_shared", text, ["farcall_helper"], ["-DTWO=2"], vectors=True)],
            levels=True,
        )


def test_kernels_are_compiled_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    names = counted(monkeypatch)
    parts = chain("Abs", "Neg", "Abs"), WithKernels(), Stub("cpu", ["Neg"])
    module = plan(*parts).build().load()
    kernels = f"{LEVEL}farcall_shared.c"
    assert [name for name in names if "shared" in name] == ["shared_0.c", "shared_1.c", kernels]
    np.testing.assert_array_equal(module["main"](X), 2 * -(2 * X))
    with pytest.raises(BackendError, match="two regions have different kernels `farcall_shared`"):
        plan(parts[0], WithKernels(clash=True), parts[2]).build()


@pytest.mark.skipif(not Target.host().triple.startswith("x86_64-"), reason="levels of x86-64")
def test_kernels_have_every_level_that_regions_have(monkeypatch: pytest.MonkeyPatch) -> None:
    names = counted(monkeypatch)
    parts = chain("Abs", "Neg"), WithKernels(), Stub("cpu", ["Neg"])
    module = plan(*parts).build(Target.host().triple).load()
    levels = sorted(name.removesuffix(".farcall_shared.c") for name in names if "farcall_shared" in name)
    assert levels == ["x86-64", "x86-64-v3", "x86-64-v4"]
    np.testing.assert_array_equal(module["main"](X), -(2 * X))


# ---- memory of devices ----


class OnDevice(Stub):
    """Negates in the memory of a device, by functions that refuse memory of any other place."""

    def __init__(self, name: str, device: str, op: str = "Neg") -> None:
        super().__init__(name, [op])
        self.device = device

    def compile(self, region: Region, target: Target, options: Options) -> Code:
        return RegionModule("on_device", 1, region.name.encode(), device=self.device)


@pytest.fixture
def null_device() -> Iterator[tuple[NullDevice, list[str]]]:
    """An accelerator with two devices, and a log of its copies."""
    log: list[str] = []

    class Logging(NullDevice):
        def write(self, index: int, address: int, data: memoryview, /) -> None:
            log.append(f"to {index}")
            super().write(index, address, data)

        def read(self, index: int, address: int, out: memoryview, /) -> None:
            log.append(f"from {index}")
            super().read(index, address, out)

    device = Logging(count=2)
    fc.ffi.register_device_memory("ext_dev", device)

    def load(data: bytes) -> Any:
        def negate(x: Any, y: Any) -> None:
            assert x.device.type == y.device.type == "ext_dev"
            assert x.device.index == y.device.index
            device.array(y)[:] = -device.array(x)

        return fc.ffi.new_module("on_device", {Blob.parse(bytes(data)).data.decode(): negate})

    fc.register_loader("on_device", load, override=True)
    yield device, log
    fc.remove_global_func("ffi.Module.load_from_bytes.on_device")
    device.check_empty()
    fc.ffi.register_device_memory("ext_dev", None)


def test_main_copies_where_the_devices_of_regions_differ(null_device: tuple[NullDevice, list[str]]) -> None:
    log = null_device[1]
    far = OnDevice("far", "ext_dev:0")
    module = plan(chain("Abs", "Neg", "Abs"), far, Stub("cpu", ["Abs"])).build().load()
    np.testing.assert_array_equal(module["main"](-X), X)
    assert log == ["to 0", "from 0"]
    log.clear()
    np.testing.assert_array_equal(module["far_0"](X), -X)
    assert log == ["to 0", "from 0"]


def test_tensors_stay_where_devices_agree(null_device: tuple[NullDevice, list[str]]) -> None:
    log = null_device[1]
    one, two = OnDevice("one", "ext_dev:0"), OnDevice("two", "ext_dev:0", "Abs")
    module = plan(chain("Neg", "Abs", "Neg"), one, two).build().load()
    np.testing.assert_array_equal(module["main"](X), -X)
    assert log == ["to 0", "from 0"]
    log.clear()
    two.device = "ext_dev:1"
    module = plan(chain("Neg", "Abs"), one, two).build().load()
    np.testing.assert_array_equal(module["main"](X), X)
    assert log == ["to 0", "from 0", "to 1", "from 1"]


def test_a_device_that_is_not_here_is_named(null_device: tuple[NullDevice, list[str]]) -> None:
    module = plan(chain("Neg"), OnDevice("far", "ext_dev:7")).build().load()
    with pytest.raises(RuntimeError, match="no allocator for device ext_dev:7"):
        module["main"](X)
    with pytest.raises(BackendError, match=r"region `far_0`: device: .*nowhere"):
        plan(chain("Neg"), OnDevice("far", "nowhere:0")).build()


def test_the_code_of_a_region_may_have_more_functions() -> None:
    class Counting(Stub):
        def compile(self, region: Region, target: Target, options: Options) -> RegionCode:
            code = super().compile(region, target, options)
            more = f"FARCALL_KERNEL({region.name}_version) {{\n  result->type_index = kTVMFFIInt;\n"
            more += "  result->v_int64 = 7;\n  return 0;\n}\n"
            return RegionCode({name: text + more for name, text in code.sources.items()})

    module = plan(chain("Neg"), Counting("npu", ["Neg"])).build().load()
    assert module["npu_0_version"]() == 7
    np.testing.assert_array_equal(module["main"](X), -X)
